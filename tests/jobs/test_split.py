"""featurize --split: each document's part as a column, and a model that has seen the training part alone."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from jobs import workers
from models.features import FeatureConfig, FeatureModel
from models.splits import PARTS, Split, contents
from tests.jobs.test_featurize import featurize, manifest, one_clear_line, write_lines, write_parts, written

pytestmark = pytest.mark.usefixtures("spark")
SPEC = "hash:0.6,0.2,0.2"


@pytest.fixture(scope="module")
def mails(emails: pa.Table) -> pa.Table:
    """Some e-mails, with a Chinese line, a day and a fold each, and a fifth of them twice, in other letters."""
    rows = emails.slice(0, 300)
    twice = rows.slice(0, 60)
    again = twice.set_column(1, "text", pc.utf8_upper(twice["text"])).set_column(
        0, "id", pc.binary_join_element_wise(twice["id"], "b", "-")
    )
    table = pa.concat_tables([rows.select(["id", "text", "label"]), again.select(["id", "text", "label"])])
    text = pc.binary_join_element_wise(table["text"], pa.array([f"第{i % 300 % 7}号" for i in range(360)]), " ")
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(days=i % 20) for i in range(360)]
    fold = [PARTS[i % 3] for i in range(360)]
    return table.set_column(1, "text", text).append_column("day", pa.array(days)).append_column("fold", pa.array(fold))


def run(source: Path, place: Path, *options: object, name: str = "out") -> dict[str, Any]:
    """The manifest of a run that writes place/NAME, and fits place/NAME-model unless it applies one."""
    model = [] if "--apply" in options else ["--model", place / f"{name}-model"]
    assert featurize("--input", source, "--output", place / name, *model, *options) == 0
    return manifest(place / name)


def fitted_on(texts: pa.Table, split: Split, **config: Any) -> FeatureModel:
    """The model of the training part, as plain Python fits it."""
    table = texts.append_column("content", contents(texts["text"]))
    return FeatureModel.fit(table.filter(split.of(table) == 0)["text"].combine_chunks(), FeatureConfig(**config))


@pytest.mark.parametrize("engine", ["kernel", "explode"])
def test_the_model_knows_the_training_part_alone_whatever_the_partitions(
    engine: str, mails: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = Split.parse(SPEC)
    one = run(write_parts(mails, tmp_path / "in1", 1), tmp_path, "--split", SPEC, "--engine", engine, "--keep-counts")
    monkeypatch.setattr(workers, "HELD_TERMS", 0)
    monkeypatch.setattr(workers, "BLOCK_BYTES", 1 << 16)
    four = run(write_parts(mails, tmp_path / "in4", 4), tmp_path, "--split", SPEC, "--engine", engine, name="four")
    assert four == one
    expected = fitted_on(mails, split)
    model = FeatureModel.load(tmp_path / "out-model")
    assert (one["model_id"], one["width"], one["model_saw"]) == (expected.id, len(expected.terms), "train")
    assert model.fitted_on == split == Split.from_dict(one["split"])
    assert model.counts is not None
    assert model.counts.terms == len(expected.terms)
    rows = written(tmp_path / "out")
    assert rows.column_names == ["id", "label", "indices", "values", "content", "split", "day", "fold"]
    content = contents(mails.sort_by("id")["text"])
    assert rows["content"].combine_chunks() == content
    assert rows["split"].to_pylist() == [PARTS[code] for code in split.of(pa.table({"content": content}))]
    assert one["parts"] == {part: rows["split"].to_pylist().count(part) for part in PARTS}
    of_content = rows.group_by("content").aggregate([("split", "count_distinct"), ("id", "count")])
    assert pc.max(of_content["id_count"]).as_py() == 2  # else no content would be there twice
    assert pc.max(of_content["split_count_distinct"]).as_py() == 1


@pytest.mark.parametrize("kind", ["date", "timestamp", "bigint", "double", "decimal", "string"])
def test_times_are_cut_by_shares_of_documents_and_never_apart(
    kind: str, mails: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = np.arange(360) % 20
    at = {
        "date": mails["day"],
        "timestamp": pa.array(number * 86_400_000_000 + 1, pa.timestamp("us", "UTC")),
        "bigint": pa.array(number - 5),
        "double": pa.array(number / 4),
        "decimal": pa.array([Decimal(int(n)) / 4 for n in number], pa.decimal128(9, 2)),
        "string": pa.array([f"2026-01-{n + 1:02}" for n in number]),
    }[kind]
    source = write_parts(mails.append_column("at", at), tmp_path / "in", 3)
    found = run(source, tmp_path, "--split", "time:AT,0.8,0.1,0.1")
    rows = written(tmp_path / "out")
    assert found["parts"] == {"train": 288, "validation": 36, "test": 36}
    of = rows.group_by("split").aggregate([("at", "min"), ("at", "max")]).to_pylist()
    first, last = ({row["split"]: row[f"at_{what}"] for row in of} for what in ("min", "max"))
    assert last["train"] < first["validation"] <= last["validation"] < first["test"]
    assert found["model_saw"] == "train"
    assert "288 train, 36 validation, 36 test" in capsys.readouterr().out
    # Documents of later days, with the model: in the parts of its own cutoffs, not of new ones.
    later = mails.append_column("at", at).filter(pa.array(number >= 17))
    options = ("--split", "time:at,0.8,0.1,0.1", "--apply", tmp_path / "out-model")
    again = run(write_parts(later, tmp_path / "later", 1), tmp_path, *options, name="again")
    assert again["split"] == found["split"]
    assert again["parts"] == {"train": 0, "validation": 18, "test": 36}
    assert again["model_saw"] == "train"


def test_ties_stay_together_and_may_leave_no_later_part(mails: pa.Table, tmp_path: Path) -> None:
    source = write_parts(mails.append_column("at", pa.array([min(i, 100) for i in range(360)])), tmp_path / "in", 2)
    found = run(source, tmp_path, "--split", "time:at,0.2,0.1,0.7")
    assert found["split"]["cutoffs"] == [72]
    assert found["parts"] == {"train": 72, "validation": 288, "test": 0}


def test_a_column_of_parts_is_taken_as_it_is(mails: pa.Table, tmp_path: Path) -> None:
    renamed = mails.rename_columns(["id", "text", "label", "day", "split"])
    found = run(write_parts(renamed, tmp_path / "in", 2), tmp_path, "--split", "column:split")
    rows = written(tmp_path / "out")
    assert rows.column_names == ["id", "label", "indices", "values", "content", "split", "day"]
    assert rows.select(["id", "split"]) == renamed.sort_by("id").select(["id", "split"])
    assert found["model_id"] == fitted_on(renamed, Split.parse("column:split")).id
    other = run(write_parts(mails, tmp_path / "in2", 2), tmp_path, "--split", "column:FOLD", name="other")
    assert (other["model_id"], other["parts"]) == (found["model_id"], {"train": 120, "validation": 120, "test": 120})
    assert written(tmp_path / "other").column_names[-3:] == ["split", "day", "fold"]


def test_what_a_model_has_seen_is_told(mails: pa.Table, tmp_path: Path) -> None:
    source = write_parts(mails, tmp_path / "in", 1)
    assert "model_saw" not in run(source, tmp_path, name="whole")
    whole = ("--apply", tmp_path / "whole-model")
    assert run(source, tmp_path, "--split", SPEC, *whole, name="a")["model_saw"] == "unknown"
    hashed = ("--split", SPEC, "--hash", 4096)
    assert run(source, tmp_path, *hashed, "--features", "count", name="b")["model_saw"] == "nothing"
    assert run(source, tmp_path, *hashed, name="c")["model_saw"] == "train"
    fitted = ("--apply", tmp_path / "c-model")
    assert (
        run(source, tmp_path, "--split", SPEC, *fitted, name="d")["content_hash"]
        == manifest(tmp_path / "c")["content_hash"]
    )
    assert run(source, tmp_path, "--split", "hash:0.5,0.5", *fitted, name="e")["model_saw"] == "unknown"


def test_partitions_are_added_to_the_same_split_only(
    mails: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = mails.set_column(3, "dt", pa.array([f"d{i % 2}" for i in range(360)]))
    first, second = (write_parts(rows.filter(pc.equal(rows["dt"], day)), tmp_path / day, 1) for day in ("d0", "d1"))
    split = ("--split", SPEC, "--partition-by", "dt")
    run(first, tmp_path, *split)
    apply = ("--apply", tmp_path / "out-model")
    whole = run(second, tmp_path, *split, *apply)
    assert "parts" not in whole
    assert whole["documents"] == 360
    capsys.readouterr()
    for options in (("--partition-by", "dt"), ("--partition-by", "dt", "--split", "hash:0.5,0.5")):
        assert featurize("--input", second, "--output", tmp_path / "out", *apply, *options) == 2
        assert "give the same --split" in one_clear_line(capsys.readouterr().err)
    timed = ("--partition-by", "dt", "--split", "time:fold,0.5,0.5")
    assert featurize("--input", second, "--output", tmp_path / "out", *apply, *timed) == 2
    assert "give the same --split" in one_clear_line(capsys.readouterr().err)
    assert manifest(tmp_path / "out") == whole


def test_a_rerun_goes_on_after_the_split(mails: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_parts(mails, tmp_path / "in", 2)
    expected = run(source, tmp_path, "--split", "time:day,0.5,0.5", name="whole")
    given = ("--input", source, "--output", tmp_path / "out", "--model", tmp_path / "m", "--split", "time:day,0.5,0.5")
    with monkeypatch.context() as patch:
        patch.setattr("jobs.featurize.fit", lambda *_: 1 / 0)
        assert featurize(*given) == 1
    monkeypatch.setattr("jobs.stages._with_cutoffs", lambda *_: 1 / 0)  # it need not be asked again
    assert featurize(*given) == 0
    assert manifest(tmp_path / "out") == expected


@pytest.mark.parametrize(("split", "told"), [
    ("random:0.5", "--split 'random:0.5': give hash:0.8,0.1,0.1"),
    ("hash:0.8,0.1", "--split shares 0.8,0.1: give shares above 0 that add up to 1"),
    ("column:nosuch", "--split column:nosuch is no column of --input"),
    ("column:text", "--split column:text is no column of --input"),
    ("column:number", "column number (--split column:number) is bigint: it must be string"),
    ("time:tags,0.5,0.5", "column tags (--split time:tags) is array<string>: it must be a date,"),
    ("time:late,0.5,0.5", "in column late (--split), what can't be used: a time is null"),
    ("column:odd", "in column odd (--split), what can't be used: 'dev' is no part: its values must be train,"),
    ("column:tested", "--split column:tested leaves no document to the training part"),
])  # fmt: skip
def test_a_split_that_cannot_be_is_refused(
    split: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[Any] = [{"id": "a", "text": "a b", "number": 1, "tags": ["x"], "late": "2026", "odd": "train"}]
    lines += [{"id": "b", "text": "c", "number": 2, "tags": [], "late": None, "odd": "dev"}]
    source = write_lines(tmp_path / "in.jsonl", [line | {"tested": "test"} for line in lines])
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs, "--split", split) == 2
    assert told in one_clear_line(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["content", "group", "split", "Split"])
def test_columns_that_would_clash_with_its_own_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "in.jsonl", [{"id": "a", "text": "a", name: "train"}])
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model")
    assert featurize("--input", source, *outputs, "--split", SPEC) == 2
    assert f"column {name} of --input" in one_clear_line(capsys.readouterr().err)


def test_spark_reads_the_columns_as_they_are_declared(spark: Any, mails: pa.Table, tmp_path: Path) -> None:
    run(write_parts(mails, tmp_path / "in", 1), tmp_path, "--split", SPEC)
    types = dict(spark.read.parquet(str(tmp_path / "out")).dtypes)
    assert (types["content"], types["split"]) == ("binary", "string")
    (file, *_) = sorted((tmp_path / "out").glob("*.parquet"))
    kept = json.loads(pq.read_schema(file).metadata[b"org.apache.spark.sql.parquet.row.metadata"])
    assert [field["name"] for field in kept["fields"]][4:6] == ["content", "split"]
