"""The engine of joins gives what the engine of kernels gives, and the token table is what the tokenizer gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import explode
from models.features import FeatureModel
from tests.conftest import MODEL_ID
from tests.jobs.test_featurize import EMAILS, featurize, manifest, one_clear_line, write_lines
from udfs.text import normalize, tokens

CHINESE = EMAILS.with_name("libreoffice_help_zh.jsonl.gz")
pytestmark = pytest.mark.usefixtures("spark")


def run(folder: Path, *options: object) -> tuple[str, str, int]:
    """The model id, the content hash and the number of documents without a term of a run."""
    assert featurize("--output", folder / "out", "--overwrite", *options) == 0
    found = manifest(folder / "out")
    return found["model_id"], found["content_hash"], found["empty"]


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (EMAILS, ("--ngrams", "1,2", "--min-df", 2, "--stop-words", "en", "--max-features", 30_000)),
        (CHINESE, ("--features", "bm25", "--max-df", 0.5, "--ngrams", "1,2")),
        (EMAILS, ("--hash", 5000, "--sublinear-tf")),
    ],
)
def test_both_engines_give_the_same_bits(source: Path, options: tuple[object, ...], tmp_path: Path) -> None:
    given = ("--input", source, "--model", tmp_path / "model", *options)
    expected = run(tmp_path, *given)
    assert run(tmp_path, *given, "--engine", "explode") == expected


@pytest.mark.parametrize(
    ("lines", "options", "code"),
    [
        ([{"text": "a", "id": None}] * 5, (), 3),
        ([{"text": "a", "id": None}] * 5, ("--max-rejects", 1), 2),
        ([{"text": ""}] * 2, (), 2),
        ([{"text": ""}] * 2, ("--features", "bm25"), 2),
        ([{"text": ""}] * 2, ("--hash", 4), 2),
    ],
)
def test_both_engines_end_alike_where_there_is_nothing_to_count(
    lines: list[dict[str, str | None]], options: tuple[object, ...], code: int, tmp_path: Path, capfd: Any
) -> None:
    source = write_lines(tmp_path / "in.jsonl", lines)
    given = ("--input", source, "--output", tmp_path / "out", "--model", tmp_path / "model", *options)
    said = []
    for engine in ("kernel", "explode"):
        capfd.readouterr()
        assert featurize(*given, "--engine", engine) == code
        said.append(one_clear_line(capfd.readouterr().err))
    assert said[0] == said[1]
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_only_frequent_terms_go_to_all_workers_and_no_size_of_that_set_changes_a_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--input", EMAILS, "--model", tmp_path / "model", "--engine", "explode")
    expected = run(tmp_path, *given)
    assert expected[0] == MODEL_ID
    for frequent in (0, 1 << 20):
        monkeypatch.setattr(explode, "FREQUENT", frequent)
        assert run(tmp_path, *given) == expected


@pytest.mark.parametrize("hashed", [(), ("--hash", 1000)])
def test_a_model_applied_by_joins_leaves_out_and_weighs_unseen_terms_as_it_does_elsewhere(
    hashed: tuple[object, ...], tmp_path: Path
) -> None:
    lines = [{"text": f"word{i % 5} seen{i % 3} again word{i % 5}"} for i in range(20)]
    seen = write_lines(tmp_path / "seen.jsonl", lines)
    new = write_lines(tmp_path / "new.jsonl", [{"text": "word1 unseen"}, {"text": "never heard of"}, {"text": ""}] * 2)
    assert featurize("--input", seen, "--output", tmp_path / "first", "--model", tmp_path / "model", *hashed) == 0
    given = ("--input", new, "--apply", tmp_path / "model")
    expected = run(tmp_path, *given)
    assert run(tmp_path, *given, "--engine", "explode") == expected
    assert expected[2] == (2 if hashed else 4)


def test_the_terms_that_go_to_all_workers_are_those_in_most_documents(tmp_path: Path) -> None:
    model = FeatureModel.fit(pa.array([" ".join(f"w{i}" for i in range(k)) for k in range(300)]))
    assert len(model.terms) < explode.FREQUENT
    explode.write_vocabulary(model, f"{tmp_path}/all.parquet", explode.FREQUENT)
    assert all(pq.read_table(tmp_path / "all.parquet")["frequent"].to_pylist())
    explode.write_vocabulary(model, f"{tmp_path}/few.parquet", 10)
    table = pq.read_table(tmp_path / "few.parquet")
    chosen = table.filter(table["frequent"])["term"].to_pylist()
    assert sorted(chosen) == [f"w{i}" for i in range(10)]


@pytest.mark.parametrize("engine", ["kernel", "explode"])
def test_the_token_table_is_what_the_tokenizer_gives(engine: str, tmp_path: Path) -> None:
    lines = [
        {"id": 7, "text": "One e-mail. Don’t!  数据 \U0001f600"},
        {"id": 3, "text": ""},
        {"id": 5, "text": "a\n\nB c"},
    ]
    source = write_lines(tmp_path / "in.jsonl", lines)
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model", "--tokens", tmp_path / "tokens")
    assert featurize("--input", source, *outputs, "--engine", engine, "--stop-words", "en") == 0
    found = pq.read_table(tmp_path / "tokens").sort_by([("id", "ascending"), ("position", "ascending")])
    text = pa.array([line["text"] for line in lines])
    lists = tokens(text).to_pylist()
    whole = normalize(text).to_pylist()
    expected = [
        {"id": line["id"], **dict(zip(each, values, strict=True))}
        for line, each in zip(lines, lists, strict=True)
        for values in zip(*each.values(), strict=True)
    ]
    assert found.column_names == ["id", "sentence", "position", "token", "begin_at", "end_at"]
    assert found.to_pylist() == sorted(expected, key=lambda row: (row["id"], row["position"]))
    normal = {line["id"]: each for line, each in zip(lines, whole, strict=True)}
    assert all(normal[row["id"]][row["begin_at"] : row["end_at"]] == row["token"] for row in found.to_pylist())


def test_tokens_of_lines_without_an_id_name_the_rows_of_the_features(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [{"text": text} for text in ("same words", "same words", "others")])
    outputs = ("--output", tmp_path / "out", "--model", tmp_path / "model", "--tokens", tmp_path / "tokens")
    assert featurize("--input", source, *outputs) == 0
    found = pq.read_table(tmp_path / "tokens")["id"].to_pylist()
    rows = pq.read_table(sorted((tmp_path / "out").glob("*.parquet")))["id"].to_pylist()
    assert set(found) == set(rows)
    assert len(found) == 5


def test_a_token_table_is_replaced_only_when_asked_and_lies_apart(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokens").mkdir()
    given = ("--input", EMAILS, "--output", tmp_path / "out", "--model", tmp_path / "model")
    for folder, said in ((tmp_path / "tokens", "exists"), (tmp_path / "out/tokens", "lies in --output")):
        assert featurize(*given, "--tokens", folder) == 2
        assert said in capfd.readouterr().err
