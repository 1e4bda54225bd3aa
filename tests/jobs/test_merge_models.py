"""Models that the job fitted with kept counts, merged and subtracted by the job; and its mistakes."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import featurize, merge_models, session
from models.features import FeatureConfig, FeatureModel

pytestmark = pytest.mark.usefixtures("spark")


def run(job: Callable[[list[str]], None], *arguments: object) -> int:
    """The exit code of a job, run in this process with the session that there is."""
    return session.exit_code(job, [str(argument) for argument in arguments])


def merge(*arguments: object) -> int:
    return run(merge_models.main, *arguments)


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("corpus", "options", "config"),
    [
        (
            "emails",
            "--ngrams 1,2 --min-df 2 --max-df 0.5 --max-features 5000",
            FeatureConfig(ngrams=(1, 2), min_df=2, max_df=0.5, max_features=5000),
        ),
        ("chinese", "--features bm25 --hash 5000", FeatureConfig(features="bm25", hash_size=5000)),
    ],
)
def test_two_days_add_up_to_the_fit_on_both_and_one_comes_off_again(
    corpus: str,
    options: str,
    config: FeatureConfig,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = request.getfixturevalue(corpus)
    days = pa.array([zlib.crc32(name.encode()) % 2 for name in table["id"].to_pylist()])
    for day in (0, 1):
        pq.write_table(table.filter(pa.compute.equal(days, day)), tmp_path / f"{day}.parquet")
        places = ("--output", tmp_path / f"features{day}", "--model", tmp_path / f"day{day}")
        arguments = ("--input", tmp_path / f"{day}.parquet", *places, *options.split(), "--keep-counts")
        assert run(featurize.main, *arguments) == 0
    texts = [table.filter(pa.compute.equal(days, day))["text"] for day in (0, 1)]
    first, second = (FeatureModel.fit(text, config, keep_counts=True) for text in texts)
    for day, expected in enumerate((first, second)):
        ours = manifest(tmp_path / f"day{day}")
        assert expected.counts
        assert (ours["model_id"], ours["counts"]) == (expected.id, expected.counts.summary)
        assert ours["counts"]["terms"] > ours["terms"] or config.hash_size
    capsys.readouterr()

    assert merge("--add", tmp_path / "day0", tmp_path / "day1", "--output", tmp_path / "week") == 0
    said = capsys.readouterr().out
    whole = FeatureModel.fit(table["text"], config, keep_counts=True)
    week = FeatureModel.load(tmp_path / "week")
    assert whole.counts
    assert manifest(tmp_path / "week")["counts"] == whole.counts.summary
    assert (week.id, week.n, week.n_tokens) == (whole.id, whole.n, whole.n_tokens)
    for word in (f"{whole.n:,}", f"{whole.n_tokens:,}", f"{whole.counts.terms:,} terms", whole.id, "next"):
        assert word in said, word

    # The rest takes the place of the week, which was added.
    again = ("--add", tmp_path / "week", "--subtract", tmp_path / "day0", "--output", tmp_path / "week", "--overwrite")
    assert merge(*again) == 0
    assert manifest(tmp_path / "week") == manifest(tmp_path / "day1")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of models: day1 and day2, one without counts, one of other settings, and what is no model."""
    days = {"day1": ["the cat sat", "the cat"], "day2": ["a dog", "the dog sat"]}
    for name, texts in days.items():
        FeatureModel.fit(pa.array(texts), keep_counts=True).save(tmp_path / name)
    FeatureModel.fit(pa.array(days["day1"])).save(tmp_path / "plain")
    FeatureModel.fit(pa.array(days["day1"]), FeatureConfig(min_df=2), keep_counts=True).save(tmp_path / "other")
    shutil.copytree(tmp_path / "day1", tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone/counts")
    shutil.copytree(tmp_path / "day1", tmp_path / "damaged")
    (tmp_path / "damaged/counts/counts.parquet").write_bytes(b"PAR1")
    shutil.copytree(tmp_path / "day1", tmp_path / "changed")  # beside a check sum, as Hadoop writes it, of what it was
    counts = tmp_path / "changed/counts/counts.parquet"
    counts.write_bytes(counts.read_bytes()[:-9])
    counts.with_name(".counts.parquet.crc").write_bytes(b"crc\0\0\0\2\0\1\2\3\4")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--output @out", "--add"),
        ("--add @day1", "--output"),
        ("--add --output @out", "--add: expected at least one argument"),
        ("--add @day1 --substract @day2 --output @out", "did you mean --subtract?"),
        ("--add @day1 @absent --output @out", "--add @absent does not exist"),
        ("--add @day1 @empty --output @out", "--add @empty is not a model folder: it has no config.json"),
        ("--add @day1 --subtract @file --output @out", "--subtract @file is not a model folder"),
        ("--add @day1 nosuch://host/day2 --output @out", "--add nosuch://host/day2"),
        ("--add @day1 @plain --output @out", "--add @plain has no counts of all its terms: fit it again with --keep-"),
        ("--add @day1 --subtract @gone --output @out", "--subtract @gone has no counts of all its terms"),
        ("--add @day1 @other --output @out", "min-df is 1 in @day1 and 2 in @other: only models of the same settings"),
        ("--add @day1 @day2 @damaged --output @out", "@damaged: counts/ is damaged"),
        ("--add @day1 @day2 @changed --output @out", "--add @changed: counts/ is damaged"),
        ("--add @day1 --subtract @day2 --output @out", "no documents are left"),
        ("--add @day1 --subtract @day1 @day2 --output @out", "2 more documents are subtracted than added"),
        ("--add @day1 @day1 --subtract @day2 --output @out", ": subtract only models that were added"),
        ("--add @day1 @day2 --output @day1", "--output @day1 exists: give --overwrite"),
        ("--add @day1 @day2 --output @file --overwrite", "--output @file is a file"),
        ("--add @day1 @day2 --output @ --overwrite", "--add @day1 lies in --output"),
        ("--add @day1 @day2 --output @day2/week", "--output @day2/week lies in --add @day2"),
        ("--add @day1 @day2 --output @file/week", "--output: cannot write beside"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_2(
    arguments: str, told: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert merge(*arguments.replace("@", f"{place}/").split()) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert told.replace("@", f"{place}/") in line
    assert not re.search(r"Traceback|Exception|java\.|py4j", line), line
    assert said.out == ""
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    assert not (place / "out").exists()


def test_one_model_alone_and_a_model_added_twice(place: Path) -> None:
    assert merge("--add", place / "day1", "--output", place / "one") == 0
    assert manifest(place / "one") == manifest(place / "day1")
    assert merge("--add", place / "day1", "--add", place / "day1", "--output", place / "two") == 0
    twice = FeatureModel.fit(pa.array(["the cat sat", "the cat"] * 2), keep_counts=True)
    assert manifest(place / "two")["model_id"] == twice.id
