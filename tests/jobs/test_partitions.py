"""Output in folders COLUMN=VALUE, and runs that replace some of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs import workers
from jobs.outputs import Target
from jobs.partitions import replace_partitions
from tests.jobs.test_featurize import featurize, manifest, one_clear_line, snapshot, write_lines, write_parts

pytestmark = pytest.mark.usefixtures("spark")

DAYS: list[Any] = [date(2026, 11, 28), date(2026, 11, 29), None, date(2026, 11, 30)]
VALUES: dict[str, list[Any]] = {
    "date": DAYS,
    "int": [1, -20, None, 3000000000],
    "string": ["a b", "x=1/2 %41", None, "é:{[#\n'\"^]}"],
}


def documents(values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    """Twelve documents, whose column dt takes these values in turn."""
    rows = range(12)
    texts = [f"word{i} every{i % 3} " * (i % 4) for i in rows]
    dt = pa.array([values[i % len(values)] for i in rows], kind)
    return pa.table(
        {"id": [f"d{i}" for i in rows], "text": texts, "label": [str(i % 2) for i in rows], "dt": dt, "n": rows}
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*=*"))


@pytest.fixture(scope="module")
def model(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the documents."""
    folder = tmp_path_factory.mktemp("model")
    source = write_parts(documents(DAYS), folder / "in", 2)
    assert featurize("--input", source, "--output", folder / "whole", "--model", folder / "model") == 0
    return folder / "model"


@pytest.fixture
def apply(model: Path, tmp_path: Path) -> Callable[..., int]:
    """Runs the job on rows, with the model, into out/ by dt; returns its exit code."""

    def run(rows: pa.Table, *options: object) -> int:
        runs = len(list(tmp_path.glob("in-*")))
        source = write_parts(rows, tmp_path / f"in-{runs}", 2)
        given = ("--input", source, "--output", tmp_path / "out", "--partition-by", "dt")
        return featurize(*given, *([] if "--model" in options else ["--apply", model]), *options)

    return run


@pytest.mark.parametrize("kind", VALUES)
def test_folders_are_those_of_spark_and_values_come_back(
    kind: str, spark: Any, model: Path, tmp_path: Path, apply: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "HELD_BYTES", 0)  # a file for each block, as of much text
    assert apply(documents(VALUES[kind])) == 0
    theirs = spark.read.parquet(str(tmp_path / "in-0"))
    theirs.write.partitionBy("dt").parquet(str(tmp_path / "spark"))
    assert names(tmp_path / "out") == names(tmp_path / "spark")
    ours = spark.read.parquet(str(tmp_path / "out"))
    assert ours.columns == ["id", "label", "indices", "values", "content", "n", "dt"]
    assert ours.schema["dt"].dataType == theirs.schema["dt"].dataType
    for columns in (["id", "label", "n", "dt"],):
        assert sorted(ours.select(columns).collect(), key=str) == sorted(theirs.select(columns).collect(), key=str)
    whole, here = manifest(model.parent / "whole"), manifest(tmp_path / "out")
    assert here.pop("partition_by") == "dt"
    assert here == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in-0", "out", "spark"]


def test_only_the_partitions_of_the_input_are_replaced(
    spark: Any, model: Path, tmp_path: Path, apply: Callable[..., int]
) -> None:
    rows = documents(DAYS)
    last = [day == DAYS[3] for day in rows["dt"].to_pylist()]
    old = rows.set_column(
        1,
        "text",
        pa.chunked_array(
            [["old " * 5 if of_last else text for of_last, text in zip(last, rows["text"].to_pylist(), strict=True)]]
        ),
    )
    too_large = pa.table({"id": ["big"], "text": ["x" * 200], "label": ["0"], "dt": [DAYS[3]], "n": [0]})
    limits = ("--max-document-bytes", "150", "--max-rejects", "50%")
    assert apply(old) == 0
    before = {name: snapshot(tmp_path / "out" / name) for name in names(tmp_path / "out")}
    replaced, added = "dt=2026-11-30", "dt=2026-12-01"
    new_day = pa.table({"id": ["new"], "text": ["word1"], "label": ["1"], "dt": [date(2026, 12, 1)], "n": [99]})
    assert apply(pa.concat_tables([rows.filter(pa.array(last)), too_large, new_day]), *limits) == 0
    after = {name: snapshot(tmp_path / "out" / name) for name in names(tmp_path / "out")}
    assert sorted(after) == sorted([*before, added])
    assert {name for name in before if before[name] != after[name]} == {replaced}
    found = manifest(tmp_path / "out")
    assert (found["records"], found["documents"], found["rejects"]) == (14, 13, 1)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 13
    assert spark.read.parquet(str(tmp_path / "out/_rejects")).count() == 1
    # The same as of all rows at once.
    assert apply(pa.concat_tables([rows, new_day, too_large]), *limits) == 0
    assert manifest(tmp_path / "out") == found
    # A run whose partitions have all gone takes its rejects with it.
    for _ in range(2):
        assert apply(pa.concat_tables([new_day, too_large.set_column(3, "dt", new_day["dt"])]), *limits) == 0
        assert manifest(tmp_path / "out")["rejects"] == 2
    assert spark.read.parquet(str(tmp_path / "out/_rejects")).count() == 2
    assert not list((tmp_path / "out").glob(".replaced-*"))


def test_a_failure_puts_all_back_and_the_next_run_mends_what_a_kill_left(
    spark: Any, tmp_path: Path, apply: Callable[..., int]
) -> None:
    rows = documents(DAYS)
    assert apply(rows) == 0
    good, found = snapshot(tmp_path / "out"), manifest(tmp_path / "out")
    torn = tmp_path / "new"
    for name in ("dt=2026-11-29", "dt=2026-11-30", "dt=2026-12-01"):
        (torn / name).mkdir(parents=True)
    target = Target(str(tmp_path / "out"), "--output", True)
    with target.staged(), pytest.raises(Exception, match=r"_manifest\.json"):  # the new ones have none
        replace_partitions(target, str(torn), found)
    assert snapshot(tmp_path / "out") == good
    assert sorted(path.name for path in torn.iterdir()) == ["dt=2026-11-29", "dt=2026-11-30", "dt=2026-12-01"]
    # Killed after one partition and the manifest had gone aside, and another was in already.
    aside = tmp_path / "out/.replaced-0123456789ab"
    aside.mkdir()
    for name in ("dt=2026-11-29", "_manifest.json"):
        (tmp_path / "out" / name).rename(aside / name)
    (aside / "dt=2026-11-30").mkdir()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 9
    assert apply(rows.slice(0, 1)) == 0
    assert not aside.exists()
    assert len(names(tmp_path / "out")) == 4
    assert manifest(tmp_path / "out")["documents"] == 10


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["01", "1", "2"], "values such as '01', which Spark reads back"),
        (["2026-1-1"], "--partition-by"),
        (["x" * 81, "y"], "at most 80 bytes"),
        ([True, False], "is boolean: it must be string, integer or date"),
    ],
)
def test_values_that_no_folder_can_show_are_refused(
    values: list[Any], told: str, tmp_path: Path, apply: Callable[..., int], capsys: Any
) -> None:
    code = apply(documents(values))
    said = capsys.readouterr().err
    if values == ["2026-1-1"] and not code:  # a Spark that takes it for a string
        return
    assert code == 2
    assert told in one_clear_line(said)
    assert [path.name for path in tmp_path.iterdir()] == ["in-0"]


def test_text_that_looks_like_numbers_or_dates_is_kept_as_it_was(
    spark: Any, tmp_path: Path, apply: Callable[..., int]
) -> None:
    assert apply(documents(["2026-11-29", "2026-11-30"])) == 0
    assert {str(row.dt) for row in spark.read.parquet(str(tmp_path / "out")).collect()} == {"2026-11-29", "2026-11-30"}


@pytest.mark.parametrize(
    ("old", "new"), [(["1"], ["1.5"]), ([7], ["x"]), (["x"], [7]), ([date(2026, 11, 30)], [20261130])]
)
def test_values_that_spark_would_read_otherwise_beside_the_old_ones_are_refused(
    old: list[Any], new: list[Any], tmp_path: Path, apply: Callable[..., int], capsys: Any
) -> None:
    assert apply(documents(old)) == 0
    before = snapshot(tmp_path / "out")
    capsys.readouterr()
    assert apply(documents(new)) == 2
    assert "(--partition-by): Spark reads its values in --output as" in one_clear_line(capsys.readouterr().err)
    assert snapshot(tmp_path / "out") == before
    assert apply(documents([None], pa.array(old).type)) == 0  # null is of any type
    assert apply(documents(old)) == 0


def test_a_value_and_a_column_fit_into_a_name_together(model: Path, tmp_path: Path, capsys: Any) -> None:
    for length, code in ((71, 0), (72, 2)):
        rows = documents(["/" * length]).rename_columns(["id", "text", "label", "x" * 40, "n"])
        source = write_parts(rows, tmp_path / f"in-{length}", 1)
        given = ("--input", source, "--output", tmp_path / f"out-{length}", "--apply", model)
        assert featurize(*given, "--partition-by", "x" * 40) == code
    assert "named after at most 71 bytes" in one_clear_line(capsys.readouterr().err)


def test_other_outputs_are_refused_as_they_are(
    model: Path, tmp_path: Path, apply: Callable[..., int], capsys: Any
) -> None:
    rows = documents(DAYS)
    other = tmp_path / "other"
    source = write_lines(tmp_path / "lines.jsonl", [{"id": "a", "text": "a b", "dt": "x"}])
    assert featurize("--input", source, "--output", tmp_path / "plain", "--model", other) == 0
    assert apply(rows) == 0
    before = snapshot(tmp_path / "out")
    capsys.readouterr()
    for options, told in (
        (("--apply", other), "--apply is model"),
        (("--model", tmp_path / "m"), "exists: give --overwrite"),
        (("--partition-by", "n"), "is not partitioned by n"),
        (
            ("--partition-by", "nosuch", "--output", tmp_path / "x"),
            "no column that is carried along from --input: there is dt, n",
        ),
        (("--partition-by", "label", "--output", tmp_path / "x"), "--partition-by label is no column"),
        (("--output", tmp_path / "plain"), "is not partitioned by dt"),
        (("--overwrite",), "would delete the partitions of --output"),
    ):
        assert apply(rows, *options) == 2
        assert told in one_clear_line(capsys.readouterr().err)
    assert apply(rows.drop_columns(["n"])) == 2
    assert "has other columns than --input would give" in one_clear_line(capsys.readouterr().err)
    assert snapshot(tmp_path / "out") == before
    assert not (tmp_path / "x").exists()
    assert json.loads((tmp_path / "out/_manifest.json").read_text())["partition_by"] == "dt"
