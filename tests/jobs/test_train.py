"""train.py: honest numbers, the same model for any number of workers, mistakes told before they cost anything."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix, hstack
from sklearn.metrics import accuracy_score, f1_score, log_loss
from sklearn.svm import LinearSVC

from jobs import session
from jobs.outputs import FileSystem
from jobs.train import main
from models.classifier import Classifier
from models.features import FeatureModel
from models.splits import PARTS
from tests.jobs import driver
from tests.jobs.test_featurize import featurize, manifest, matrix, one_clear_line, write_parts, written

pytestmark = pytest.mark.usefixtures("spark")
SPLIT = ("--split", "hash:0.6,0.2,0.2")
BOOSTED = ("--kind", "boosted", "--rounds", 12, "--checkpoint-every", 4)


def train(*arguments: object) -> int:
    """The job's exit code, run in this process with the session that there is."""
    return session.exit_code(main, [str(argument) for argument in arguments])


def trained(place: Path, *arguments: object) -> tuple[Classifier, dict[str, Any]]:
    """The classifier that a run writes to `place`, and its metrics."""
    assert train("--output", place, *arguments) == 0
    return Classifier.load(place), json.loads((place / "metrics.json").read_text("utf-8"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of a run that ends with the user's mistake."""
    capsys.readouterr()
    assert train(*arguments) == 2
    return one_clear_line(capsys.readouterr().err)


def files(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir()) if not each.name.startswith(".")}


def features(table: pa.Table, folder: Path, *options: object, parts: int = 2) -> Path:
    """What featurize makes of documents, split by hash unless the options say otherwise."""
    source = write_parts(table, folder.with_name(f"{folder.name}-in"), parts)
    split = () if "--split" in options else SPLIT
    model = () if "--apply" in options else ("--model", folder.with_name(f"{folder.name}-model"))
    assert featurize("--input", source, "--output", folder, *model, *split, *options) == 0
    return folder


def rewrite(folder: Path, to: Path, change: Any) -> Path:
    """A copy of features whose rows, as one file, went through `change`."""
    shutil.copytree(folder, to)
    rows = change(written(to))
    for file in [*to.glob("*.parquet"), *to.glob(".*.crc")]:
        file.unlink()
    pq.write_table(rows, to / "part-0.parquet")
    (to / "_manifest.json").write_text(json.dumps({**manifest(to), "documents": len(rows)}), "utf-8")
    return to


def part_of(rows: pa.Table, part: str) -> pa.Table:
    return rows.filter(pc.equal(rows["split"], part))


@pytest.fixture(scope="module")
def mails(emails: pa.Table) -> pa.Table:
    """Some e-mails: ham and spam, with a weight, a number for each and a few labels at once; ten have none."""
    table = emails.take(np.arange(0, 2700, 6))
    number = np.arange(len(table))
    label = pc.if_else(pa.array(number < 10), None, table["label"])
    many = [[name, *["long"] * (len(text) > 1500), *["url"] * ("http" in text)] for name, text in
            zip(table["label"].to_pylist(), table["text"].to_pylist(), strict=True)]  # fmt: skip
    columns = {"weight": number % 3 + 0.5, "number": number % 4, "many": pa.array(many, pa.list_(pa.string()))}
    table = table.set_column(table.column_names.index("label"), "label", label)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


@pytest.fixture(scope="module")
def place(spark: Any, mails: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of the mails: words and chars; boosted, a model of the words by one worker."""
    folder = tmp_path_factory.mktemp("train")
    features(mails, folder / "words")
    features(mails, folder / "chars", "--tokenizer", "char", "--ngrams", "1,2", "--min-df", 5)
    trained(folder / "boosted", "--features", folder / "words", *BOOSTED)
    return folder


def test_a_linear_classifier_scores_what_scikit_learn_scores(place: Path, tmp_path: Path) -> None:
    found, metrics = trained(tmp_path / "out", "--features", f"tfidf={place / 'words'}")
    rows = written(place / "words")
    rows = rows.filter(pc.is_valid(rows["label"]))
    width = manifest(place / "words")["width"]
    parts = {part: part_of(rows, part) for part in PARTS}
    judge = LinearSVC().fit(matrix(parts["train"], width), parts["train"]["label"].to_pylist())
    test, true = matrix(parts["test"], width), parts["test"]["label"].to_pylist()
    predicted = judge.predict(test)
    assert np.abs(judge.decision_function(test)).min() > 1e-3  # no document on the border
    assert metrics["accuracy"] == accuracy_score(true, predicted)
    assert metrics["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro"), abs=1e-12)
    assert {part: metrics[f"n_{part}"] for part in PARTS} == {part: len(each) for part, each in parts.items()}
    probabilities = found.probabilities(test)
    assert metrics["log_loss"] == pytest.approx(log_loss(true, probabilities), abs=1e-6)
    assert found.classes == [name for name, _ in Counter(parts["train"]["label"].to_pylist()).most_common()]
    assert metrics["classes"] == found.classes
    assert found.training["without_label"] == 10
    (one,) = found.sets
    assert (one.name, one.model_id, one.width) == ("tfidf", manifest(place / "words")["model_id"], width)
    assert f"accuracy {metrics['accuracy']:.4f}" in (tmp_path / "out/README.md").read_text("utf-8")


@pytest.mark.parametrize("options", [("--workers", 2), ("--workers", 2, "--memory", 1), ("--memory", 1)])
def test_trees_are_the_same_bytes_for_any_number_of_workers(
    options: tuple[object, ...], place: Path, mails: pa.Table, tmp_path: Path
) -> None:
    """And for any partitions: here a class comes from one file only, and there are empty ones."""
    by_label = mails.sort_by("label")
    source = tmp_path / "in"
    source.mkdir()
    for number, rows in enumerate([by_label.slice(0, 150), by_label.slice(150), mails.slice(0, 0)]):
        pq.write_table(rows, source / f"part-{number}.parquet")
    other = ("--output", tmp_path / "words", "--apply", place / "words-model")
    assert featurize("--input", source, *other, *SPLIT) == 0
    trained(tmp_path / "out", "--features", tmp_path / "words", *BOOSTED, *options)
    assert files(tmp_path / "out") == files(place / "boosted")


def test_trees_beat_the_shares_of_the_classes_and_tell_their_rounds(place: Path) -> None:
    metrics = json.loads((place / "boosted/metrics.json").read_text("utf-8"))
    rows = written(place / "words")
    test = part_of(rows.filter(pc.is_valid(rows["label"])), "test")
    probabilities = Classifier.load(place / "boosted").probabilities(matrix(test, manifest(place / "words")["width"]))
    assert metrics["log_loss"] == pytest.approx(log_loss(test["label"].to_pylist(), probabilities), abs=1e-6)
    assert metrics["accuracy"] > 0.85 > max(Counter(test["label"].to_pylist()).values()) / len(test)
    rounds = pq.read_table(place / "boosted/rounds.parquet")
    assert rounds["round"].to_pylist() == list(range(1, 13))
    assert rounds["train"][-1].as_py() < rounds["train"][0].as_py()
    assert rounds["validation"].null_count == 0


def test_many_classes(chinese: pa.Table, tmp_path: Path) -> None:
    folder = features(chinese, tmp_path / "words", "--tokenizer", "char", "--ngrams", "1,2", "--min-df", 3)
    rows, width = written(folder), manifest(folder)["width"]
    test = part_of(rows, "test")
    for kind, options in (("linear", ()), ("boosted", ("--kind", "boosted", "--rounds", 5))):
        found, metrics = trained(tmp_path / kind, "--features", folder, *options)
        true, probabilities = test["label"].to_pylist(), found.probabilities(matrix(test, width))
        predicted = [found.classes[number] for number in probabilities.argmax(axis=1)]
        assert metrics["accuracy"] == accuracy_score(true, predicted) > 0.7
        names = sorted({*true, *predicted})
        assert metrics["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro", labels=names), abs=1e-12)
        assert np.sum(metrics["confusion"]) == metrics["n_test"] == len(test)


@pytest.mark.parametrize("kind", ["linear", "boosted"])
def test_documents_of_many_labels(kind: str, place: Path, tmp_path: Path) -> None:
    options = ("--kind", kind, "--label", "MANY", *(("--rounds", 10) if kind == "boosted" else ()))
    found, metrics = trained(tmp_path / "out", "--features", place / "words", *options)
    assert sorted(found.classes) == ["ham", "long", "spam", "url"]
    test = part_of(written(place / "words"), "test")
    predicted = found.probabilities(matrix(test, manifest(place / "words")["width"])) >= 0.5
    true = np.array([[name in names for name in found.classes] for names in test["many"].to_pylist()])
    assert metrics["n_test"] == len(test)
    assert metrics["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro"), abs=1e-12)
    assert metrics["macro_f1"] > 0.7


def test_labels_of_numbers_are_mapped_and_mapped_back(place: Path, tmp_path: Path) -> None:
    found, metrics = trained(tmp_path / "out", "--features", place / "words", "--label", "number")
    train_rows = part_of(written(place / "words"), "train")
    counts = Counter(str(number) for number in train_rows["number"].to_pylist())
    assert found.classes == sorted(counts, key=lambda name: (-counts[name], name))  # feat-06
    assert metrics["accuracy"] < 0.5  # the numbers have nothing to do with the texts


def test_weights_count(place: Path, tmp_path: Path) -> None:
    """A weight of two is a document that is there twice."""

    def twice(rows: pa.Table) -> pa.Table:
        return rows.set_column(
            rows.column_names.index("weight"), "weight", pa.array(1.0 + (np.arange(len(rows)) < 200))
        )

    def repeated(rows: pa.Table) -> pa.Table:
        again = part_of(rows.slice(0, 200), "train")
        return pa.concat_tables([rows, again, part_of(rows.slice(0, 200), "validation")])

    options = (*BOOSTED, "--min-child-weight", 0, "--max-bin", 512)  # else bins depend on the number of documents
    weighed = rewrite(place / "words", tmp_path / "weighed", twice)
    doubled = rewrite(place / "words", tmp_path / "doubled", repeated)
    one, _ = trained(tmp_path / "one", "--features", weighed, *options, "--weights", "Weight")
    other, _ = trained(tmp_path / "other", "--features", doubled, *options)
    rows = matrix(written(place / "words"), manifest(place / "words")["width"])
    np.testing.assert_allclose(one.probabilities(rows), other.probabilities(rows), atol=0.001)
    plain = trained(tmp_path / "plain", "--features", place / "words", *options)[0].probabilities(rows)
    assert np.abs(one.probabilities(rows) - plain).max() > 0.1


def test_balanced_classes_weigh_the_same(place: Path, tmp_path: Path) -> None:
    found, _ = trained(tmp_path / "out", "--features", place / "words", "--class-weight", "balanced")
    rows = written(place / "words")
    train_rows = part_of(rows.filter(pc.is_valid(rows["label"])), "train")
    counts = Counter(train_rows["label"].to_pylist())
    assert found.training["class_weights"] == [len(train_rows) / (2 * counts[name]) for name in found.classes]
    judge = LinearSVC(class_weight="balanced").fit(
        matrix(train_rows, found.model.features), train_rows["label"].to_pylist()
    )
    sign = 1 if judge.classes_[1] == found.classes[1] else -1
    np.testing.assert_allclose(found.model.coef[:, 0], sign * judge.coef_[0], atol=0.01)


def test_feature_sets_stand_side_by_side(place: Path, tmp_path: Path) -> None:
    both = (f"words={place / 'words'}", f"chars={place / 'chars'}")
    found, _ = trained(tmp_path / "out", "--features", *both)
    widths = [manifest(place / name)["width"] for name in ("words", "chars")]
    assert [(each.name, each.width) for each in found.sets] == [("words", widths[0]), ("chars", widths[1])]
    tables = [written(place / name) for name in ("words", "chars")]
    assert tables[0]["id"] == tables[1]["id"]
    whole = csr_matrix(hstack([matrix(table, width) for table, width in zip(tables, widths, strict=True)]))
    fine = (pc.is_valid(tables[0]["label"])).to_numpy() & (tables[0]["split"].to_numpy() == "train")
    judge = LinearSVC().fit(whole[fine], tables[0]["label"].to_numpy()[fine])
    sign = 1 if judge.classes_[1] == found.classes[1] else -1
    np.testing.assert_allclose(found.model.coef[:, 0], sign * judge.coef_[0], atol=0.01)
    trained(tmp_path / "one", "--features", *both, *BOOSTED)
    trained(tmp_path / "two", "--features", *both, *BOOSTED, "--workers", 2)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_sets_of_other_documents_are_refused(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fewer = rewrite(place / "chars", tmp_path / "fewer", lambda rows: rows.slice(1))
    repeated = rewrite(place / "chars", tmp_path / "repeated", lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    other = rewrite(
        place / "chars",
        tmp_path / "other",
        lambda rows: rows.set_column(
            rows.column_names.index("content"), "content", pa.array([b"0" * 16] * len(rows), pa.binary())
        ),
    )
    for folder, told in ((fewer, "is not in all of them"), (repeated, "not unique"), (other, "not the same text")):
        line = refused(capsys, "--features", f"a={place / 'words'}", f"b={folder}", "--output", tmp_path / "out")
        assert told in line


def test_permuted_labels_score_at_chance(place: Path, tmp_path: Path) -> None:
    def permuted(rows: pa.Table) -> pa.Table:
        labels = ["heads" if (i * 2654435761 >> 7) & 1 else "tails" for i in range(len(rows))]
        return rows.set_column(rows.column_names.index("label"), "label", pa.array(labels))

    folder = rewrite(place / "words", tmp_path / "words", permuted)
    for kind in ("linear", "boosted"):
        _, metrics = trained(tmp_path / kind, "--features", folder, "--kind", kind)
        low, high = metrics["ci95"]
        assert low < 0.5 < high


def test_repeated_texts_of_a_time_split_are_left_out_of_later_parts(emails: pa.Table, tmp_path: Path) -> None:
    rows = emails.slice(0, 200).select(["id", "text", "label"])
    again = rows.slice(0, 40).set_column(0, "id", pa.array([f"again-{i}" for i in range(40)]))
    table = pa.concat_tables([rows, again])
    table = table.append_column("day", pa.array(np.arange(240)))
    labels = pa.array([str(i % 2) for i in range(240)])
    folder = features(table.set_column(2, "label", labels), tmp_path / "words", "--split", "time:day,0.5,0.25,0.25")
    found, metrics = trained(tmp_path / "out", "--features", folder)
    content = written(folder).group_by("content").aggregate([("id", "count")])
    assert metrics["n_train"] + metrics["n_validation"] + metrics["n_test"] == 240 - found.training["repeated"]
    assert found.training["repeated"] >= 40
    assert len(content) <= 200


# -- workers that fail ------------------------------------------------------------------------------------------------


def kill_ranks() -> None:
    """Kill the Python workers that have a rank's rows mapped."""
    killed = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if re.search(r"rank-\w+/rows\.arrow", (process / "maps").read_text()):
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
        except (OSError, UnicodeDecodeError):
            continue
    assert killed


@pytest.fixture
def at_checkpoints(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Have all ranks killed while the driver writes these checkpoints, the first and the last of them."""
    monkeypatch.setattr(FileSystem, "rename", FileSystem.rename)  # which `at` replaces
    monkeypatch.setattr(FileSystem, "write", FileSystem.write)
    monkeypatch.setattr(driver.SparkSession, "sql", driver.SparkSession.sql)

    def kill_at(first: int, last: int, number: int = 1) -> None:
        def act() -> None:
            if number < last:
                kill_at(first, last, number + 1)
            if number >= first:
                kill_ranks()

        driver.at(r"/run-\w+/checkpoint/model\.ubj", act)

    return kill_at


def test_a_killed_worker_has_training_go_on_from_a_checkpoint(
    place: Path, tmp_path: Path, at_checkpoints: Callable[[int, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    at_checkpoints(2, 2)
    trained(tmp_path / "out", "--features", place / "words", *BOOSTED, "--workers", 2)
    assert [line for line in caplog.messages if re.fullmatch("goes on after [48] rounds, from a checkpoint", line)]
    assert files(tmp_path / "out") == files(place / "boosted")


def test_a_failed_job_is_continued_by_the_next_with_another_number_of_workers(
    place: Path,
    tmp_path: Path,
    at_checkpoints: Callable[[int, int], None],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("INFO")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").write_text("old")
    job = (
        "--features",
        place / "words",
        *BOOSTED,
        "--checkpoint-every",
        1,
        "--overwrite",
        "--output",
        tmp_path / "out",
    )
    at_checkpoints(2, 5)  # as often as Spark tries a stage
    capsys.readouterr()
    assert train(*job, "--workers", 2) == 1
    assert "a Python worker died" in one_clear_line(capsys.readouterr().err)
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["old"]
    caplog.clear()
    assert train(*job) == 0
    assert [line for line in caplog.messages if re.fullmatch(r"goes on after \d+ rounds, from a checkpoint", line)], (
        caplog.messages
    )
    name = "trees.ubj"
    assert (tmp_path / "out" / name).read_bytes() == (place / "boosted" / name).read_bytes()
    assert not [*tmp_path.glob(".out*")]


def test_a_taken_port_is_named(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("--features", place / "words", "--output", tmp_path / "out", *BOOSTED, "--workers", 2)
        assert f"--port {port}" in refused(capsys, *options, "--port", port)


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_features_that_no_honest_classifier_comes_of_are_refused(
    place: Path, mails: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_parts(mails, tmp_path / "in", 1)
    for name, options in {"whole": (), "applied": ("--apply", tmp_path / "whole-model", *SPLIT)}.items():
        own = () if "--apply" in options else ("--model", tmp_path / f"{name}-model")
        assert featurize("--input", source, "--output", tmp_path / name, *own, *options) == 0
    out = ("--output", tmp_path / "out")
    assert "has no split" in refused(capsys, "--features", tmp_path / "whole", *out)
    assert "may have seen the test part" in refused(capsys, "--features", tmp_path / "applied", *out)
    assert "has no _manifest.json" in refused(capsys, "--features", place, *out)
    other = features(mails, tmp_path / "other", "--split", "hash:0.5,0.2,0.3")
    both = ("--features", f"a={place / 'words'}", f"b={other}")
    assert "is split otherwise than" in refused(capsys, *both, *out)
    assert "one called features already" in refused(capsys, "--features", place / "words", place / "chars", *out)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--depth", 3), "--depth is not for --kind linear"),
        (("--kind", "boosted", "--c", 2), "--c is not for --kind boosted"),
        (("--kind", "boosted", "--depth", 0), "--depth 0: give a whole number from 1 to 16"),
        (("--c", -1), "--c -1.0: give a number above 0"),
        (("--kind", "boosted", "--eta", "nan"), "--eta nan: give a number above 0 to 1"),
        (("--workers", 2), "--workers is for --kind boosted"),
        (("--kind", "boosted", "--workers", 3), "--workers 3 is more than the 2 tasks"),
        (("--kind", "boosted", "--workers", 0), "'0' is not a number of at least 1"),
        (("--memory", "1 GB"), "'1 GB' is not a size such as 512MB or 4GB"),
        (("--label", "nothing"), "has no column nothing (--label): it has id, label, split"),
        (("--label", "weight"), "column weight (--label) of"),
        (("--weights", "many"), "column many (--weights) is array<string>: it must be a number"),
        (("--label", "many", "--class-weight", "balanced"), "--class-weight balanced is for documents of one class"),
        (("--kind", "forest"), "invalid choice: 'forest'"),
    ],
)
def test_a_mistake_is_one_line(
    options: tuple[object, ...], told: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in refused(capsys, "--features", place / "words", "--output", tmp_path / "out", *options)
    assert not [*tmp_path.iterdir()]


def test_bad_rows_are_named(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def put(column: str, value: Any) -> Any:
        def change(rows: pa.Table) -> pa.Table:
            at = rows.column_names.index(column)
            values = rows[column].to_pylist()
            values[20] = value(values[20]) if callable(value) else value
            return rows.set_column(at, column, pa.array(values, rows.schema.field(column).type))

        return change

    def first(value: float) -> Any:
        return lambda values: [value, *values[1:]]

    ident, width = written(place / "words")["id"][20].as_py(), manifest(place / "words")["width"]
    rows = written(place / "words").slice(20, 1)
    index = rows["indices"][0][0].as_py()
    for number, (change, told) in enumerate(
        {
            put("values", first(float("nan"))): f"document '{ident}', nan as feature {index}",
            put("values", first(float("-inf"))): f"document '{ident}', -inf as feature {index}",
            put("indices", first(width)): f"as feature {width}: features are finite numbers at 0 to {width - 1}",
            put("indices", lambda values: values[1:]): "indices and values are null or differ in length",
        }.items()
    ):
        folder = rewrite(place / "words", tmp_path / str(number), change)
        for kind in ("linear", "boosted") if number == 0 else ("boosted",):
            assert told in refused(capsys, "--features", folder, "--output", tmp_path / "out", "--kind", kind)
    weight = rewrite(place / "words", tmp_path / "weight", put("weight", -1.0))
    told = refused(capsys, "--features", weight, "--output", tmp_path / "out", "--weights", "weight")
    assert f"--weights: document '{ident}' has none, or one that is no finite number from 0 on" in told


def relabelled(place: Path, to: Path, label: Any) -> Path:
    def change(rows: pa.Table) -> pa.Table:
        labels = [
            label(split, old) for split, old in zip(rows["split"].to_pylist(), rows["label"].to_pylist(), strict=True)
        ]
        return rows.set_column(rows.column_names.index("label"), "label", pa.array(labels, pa.string()))

    return rewrite(place / "words", to, change)


def test_one_class_only(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = relabelled(place, tmp_path / "one", lambda split, old: "ham")
    line = refused(capsys, "--features", folder, "--output", tmp_path / "out")
    assert "all of one class, 'ham': there is nothing to tell apart" in line
    found, metrics = trained(tmp_path / "out", "--features", folder, *BOOSTED)
    assert any("all rows are of one class" in line for line in caplog.messages)
    assert (found.classes, metrics["accuracy"]) == (["ham"], 1.0)
    assert metrics["log_loss"] < 1e-4


def test_parts_without_rows(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part, told in (("train", "no training rows"), ("test", "no test rows")):  # xgb-06
        folder = relabelled(place, tmp_path / part, lambda split, old, part=part: None if split == part else old)
        assert told in refused(capsys, "--features", folder, "--output", tmp_path / "out", *BOOSTED)
    folder = relabelled(place, tmp_path / "v", lambda split, old: None if split == "validation" else old)
    found, metrics = trained(tmp_path / "out", "--features", folder, *BOOSTED, "--workers", 2)
    assert (metrics["n_validation"], found.rounds["validation"].null_count) == (0, 12)  # type: ignore[index]


def test_classes_that_training_does_not_show_count_as_errors(place: Path, tmp_path: Path) -> None:
    folder = relabelled(place, tmp_path / "new", lambda split, old: old if split == "train" or old != "spam" else "new")
    found, metrics = trained(tmp_path / "out", "--features", folder, *BOOSTED)
    rows = written(folder)
    new = part_of(rows.filter(pc.equal(rows["label"], "new")), "test")
    validation = part_of(rows.filter(pc.equal(rows["label"], "ham")), "validation")
    assert sorted(found.classes) == ["ham", "spam"]
    assert metrics["unknown"] == {"new": len(new)}
    assert metrics["n_validation"] == len(validation)


def test_a_tampered_classifier_is_refused(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "boosted", tmp_path / "out")
    trees = tmp_path / "out/trees.ubj"
    trees.write_bytes(trees.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"trees\.ubj was changed"):
        Classifier.load(tmp_path / "out")


def test_any_token_is_a_features_name_in_what_trees_tell(tmp_path: Path) -> None:  # xgb-04
    tokens = ["a[0]", "<s>", "x]", "a", "你好"]
    texts = [f"{tokens[number % 5]} {tokens[number * 3 % 5]} {number}" for number in range(300)]
    labels = ["yes" if number % 5 in (0, 1, 4) else "no" for number in range(300)]
    table = pa.table({"id": pa.array([str(i) for i in range(300)]), "text": texts, "label": labels})
    folder = features(table, tmp_path / "words", "--tokenizer", "whitespace", "--min-df", 5)
    found, _ = trained(tmp_path / "out", "--features", folder, *BOOSTED)
    model = FeatureModel.load(tmp_path / "words-model")
    gains = found.model.importance()
    assert {*model.names(np.array([*gains]))} <= {*tokens}
    assert len(gains) >= 2
