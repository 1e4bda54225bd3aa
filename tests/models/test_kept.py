"""Models merged and subtracted: the laws, and what is told where counts can't be added up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.counts import SHARDS
from models.features import FeatureConfig, FeatureModel
from udfs.text import TextConfig

few = settings(deadline=None, max_examples=40)
DAYS = (["the cat sat", "the cat sat on the mat", ""], ["a dog", "the dog sat on a cat"])


def fit(texts: list[str] | pa.ChunkedArray, config: FeatureConfig | None = None, **settings: Any) -> FeatureModel:
    column = pa.array(texts, pa.string()) if isinstance(texts, list) else texts
    return FeatureModel.fit(column, config or FeatureConfig(**settings), keep_counts=True)


def told(of: Callable[[], FeatureModel]) -> tuple[object, ...] | str:
    """All that a model is, or the error it ends in."""
    try:
        model = of()
    except ValueError as error:
        return str(error)
    assert model.counts
    return model.id, model.n, model.n_tokens, model.mean_length, model.counts.summary


words = st.lists(st.sampled_from("a b c d e f 中 文 a. b!".split()), max_size=8).map(" ".join)
documents = st.lists(words, min_size=1, max_size=6)
limits = {
    "min_df": st.sampled_from([1, 2, 0.0, 0.2, 0.5]),
    "max_df": st.sampled_from([1.0, 0.8, 0.5, 4]),
    "max_features": st.sampled_from([None, 1, 2, 3, 1 << 20]),
}
shape = {"ngrams": st.sampled_from([(1, 1), (1, 2), (2, 3)]), "stop_words": st.sampled_from([(), ("a",)])}
configurations = st.one_of(
    st.builds(FeatureConfig, idf=st.sampled_from(["smooth", "plain", "ml"]), **limits, **shape),
    st.builds(FeatureConfig, features=st.sampled_from(["onehot", "count", "bm25"]), **limits, **shape),
    st.builds(FeatureConfig, features=st.sampled_from(["tfidf", "bm25"]), hash_size=st.integers(1, 20), **shape),
    st.builds(FeatureConfig, text=st.just(TextConfig(tokenizer="char")), **limits),
)


@few
@given(first=documents, second=documents, config=configurations)
def test_law_models_add_up_and_subtract_as_their_documents_do(
    first: list[str], second: list[str], config: FeatureConfig
) -> None:
    try:
        a, b = fit(first, config), fit(second, config)
    except ValueError:  # no term within the limits
        assume(False)
    whole = told(lambda: fit(first + second, config))
    assert told(lambda: a.merge(b)) == told(lambda: b.merge(a)) == whole
    if not isinstance(whole, str):
        assert told(lambda: a.merge(b).subtract(b)) == told(lambda: a)
        assert a.counts
        assert b.counts
        added, subtracted = [a.counts, b.counts, a.counts], [a.counts, b.counts]
        assert told(lambda: FeatureModel.of_kept(added, subtracted)) == told(lambda: a)


def test_days_of_the_emails_add_up_on_disk_as_in_memory(emails: pa.Table, tmp_path: Path) -> None:
    config = FeatureConfig(ngrams=(1, 2), min_df=0.002, max_df=0.5, max_features=5000)
    texts = emails["text"].slice(0, 900)
    days = [fit(texts.take(pa.array(range(day, len(texts), 3))), config) for day in range(3)]
    for day, model in enumerate(days):
        model.save(tmp_path / f"{day}")
    loaded = [FeatureModel.load(tmp_path / f"{day}") for day in range(3)]
    week = loaded[0].merge(*loaded[1:])
    assert told(lambda: week) == told(lambda: days[0].merge(*days[1:])) == told(lambda: fit(texts, config))
    week.save(tmp_path / "week")
    rest = FeatureModel.load(tmp_path / "week").subtract(loaded[1])
    assert told(lambda: rest) == told(lambda: days[2].merge(days[0]))


def test_counts_are_kept_beside_a_model_that_is_the_same_without_them(tmp_path: Path) -> None:
    config = FeatureConfig(min_df=2)
    plain, kept = FeatureModel.fit(pa.array(DAYS[0]), config), fit(DAYS[0], config)
    plain.save(tmp_path / "plain")
    kept.save(tmp_path / "kept")
    assert plain.id == kept.id
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == [
        "config.json",
        "manifest.json",
        "vocabulary.parquet",
    ]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [
        "config.json",
        "counts",
        "manifest.json",
        "vocabulary.parquet",
    ]
    for name in ("config.json", "vocabulary.parquet"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "kept" / name).read_bytes()
    assert "counts" not in json.loads((tmp_path / "plain/manifest.json").read_text())
    counts = json.loads((tmp_path / "kept/manifest.json").read_text())["counts"]
    assert counts == {"shards": SHARDS, "terms": 5, "content_hash": kept.counts and kept.counts.content_hash}
    rows = pq.read_table(tmp_path / "kept/counts")
    assert rows.column_names == ["shard", "term", "df", "cf"]
    found = sorted(zip(*(rows[name].to_pylist() for name in ("term", "df", "cf")), strict=True))
    assert found == [("cat", 2, 2), ("mat", 1, 1), ("on", 1, 1), ("sat", 2, 2), ("the", 2, 3)]


def test_rows_lie_by_shard_in_order_of_term(chinese: pa.Table, tmp_path: Path) -> None:
    model = fit(chinese["text"], ngrams=(1, 2))
    model.save(tmp_path / "model")
    with pq.ParquetFile(tmp_path / "model/counts/counts.parquet") as file:
        groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    assert [set(group["shard"].to_pylist()) for group in groups] == [{shard} for shard in range(SHARDS)]
    for group in groups:
        terms = group["term"].to_pylist()
        assert terms == sorted(terms)


def test_a_model_without_its_counts_folder_still_works_but_does_not_merge(tmp_path: Path) -> None:
    fit(DAYS[0]).save(tmp_path / "model")
    shutil.rmtree(tmp_path / "model/counts")
    model = FeatureModel.load(tmp_path / "model")
    assert model.transform(pa.array(["the cat"])).nnz == 2
    model.save(tmp_path / "again")
    again = FeatureModel.load(tmp_path / "again")
    assert again.id == model.id
    with pytest.raises(ValueError, match=r"again has no counts/.*copy the whole model folder"):
        again.merge(fit(DAYS[1]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ngrams": (1, 2)}, r"ngrams is \(1, 1\) in model 1 and \(1, 2\) in model 2"),
        ({"max_df": 1}, r"max-df is 1.0 in model 1 and 1 in model 2"),
        ({"text": TextConfig(lowercase=False), "norm": "l1"}, r"lowercase is True in model 1 and False in model 2"),
        ({"features": "bm25"}, r"features is 'tfidf' in model 1 and 'bm25' in model 2"),
        ({"hash_size": 10}, r"max-features is 1048576 in model 1 and None in model 2"),
        (
            {"stop_words": tuple(f"w{i}" for i in range(99))},
            r"stop-words is \(\) in model 1 and \('w0', 'w1', .{,60} in model 2",
        ),
    ],
)
def test_models_of_other_settings_are_refused_by_the_first_that_differs(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message + ": only models of the same settings can be merged") as raised:
        fit(DAYS[0]).merge(fit(DAYS[1], **settings))
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("subtracted", "message"),
    [
        (["the zebra"], r"'zebra' would be left -1 times in -1 of 2 documents: subtract only models that were added"),
        (["mat mat"], r"'mat' would be left -1 times in 0 of 2 documents"),
        (["on", ""], r"'(the|cat|sat)' would be left \d times in 2 of 1 documents"),
        (["a"] * 4, "1 more documents are subtracted than added"),
        (["the the the the the the the the the the"], "1 more tokens are subtracted than added"),
        (DAYS[0], "no documents are left: subtract fewer models than were added"),
    ],
)
def test_what_was_not_added_is_not_subtracted(subtracted: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(DAYS[0]).subtract(fit(subtracted))


def test_limits_that_leave_no_term_of_what_is_left_are_an_error() -> None:
    config = FeatureConfig(min_df=2)
    whole, part = fit(["a b", "a b", "c d e", "f g e"], config), fit(["a b", "a b"], replace(config))
    assert whole.subtract(part).terms.to_pylist() == ["e"]
    with pytest.raises(ValueError, match=r"no term is left in 2 documents: lower min-df \(2\)"):
        fit(["a b", "a b", "c d", "f g"], config).subtract(part)
    with pytest.raises(ValueError, match="min-df 2 is more than the number of documents, 1"):
        fit(["a b", "a b", "c d"], config).subtract(part)


def test_a_model_without_kept_counts_is_refused_with_the_remedy() -> None:
    plain = FeatureModel.fit(pa.array(DAYS[0]))
    for merge in (lambda: plain.merge(fit(DAYS[1])), lambda: fit(DAYS[0]).subtract(plain)):
        with pytest.raises(ValueError, match=r"has no counts of all its terms: .*keep_counts=True \(--keep-counts\)"):
            merge()


def test_counts_of_another_number_of_shards_are_refused() -> None:
    ours, theirs = fit(DAYS[0]), fit(DAYS[1])
    assert theirs.counts
    theirs.counts = replace(theirs.counts, shards=512)
    with pytest.raises(ValueError, match="model 1 has its counts in 256 shards, model 2 in 512"):
        ours.merge(theirs)


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], object]:
    """A change of the rows of the first row group that holds any."""

    def rewrite(path: Path) -> None:
        with pq.ParquetFile(path) as file:
            groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
        groups[0] = change(groups[0])
        with pq.ParquetWriter(path, groups[0].schema) as file:
            for group in filter(len, groups):
                file.write_table(group)

    return rewrite


def with_column(name: str, value: object) -> Callable[[Path], object]:
    def change(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index(name)
        return rows.set_column(at, name, pa.array([value, *rows[name].to_pylist()[1:]], rows.schema.field(name).type))

    return rewritten(change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_column("df", 0), "was changed since it was written"),
        (with_column("df", None), "was changed since it was written"),
        (with_column("cf", 1 << 40), "was changed since it was written"),
        (with_column("term", "zebra"), "was changed since it was written"),
        (with_column("shard", 255), "was changed since it was written"),
        (with_column("shard", 256), "was changed since it was written"),
        (rewritten(lambda rows: rows.slice(1)), "was changed since it was written"),
        (rewritten(lambda rows: pa.concat_tables([rows, rows])), "was changed since it was written"),
        (lambda path: shutil.copy(path, path.with_name("copy.parquet")), "was changed since it was written"),
        (lambda path: path.unlink(), "was changed since it was written"),
        (lambda path: path.write_bytes(b""), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"PAR1", b"\0\0\0\0")), "is damaged"),
        (lambda path: pq.write_table(pa.table({"shard": [0]}), path), "is damaged"),
        (lambda path: pq.write_table(pa.table({"term": ["a"]}), path), "was changed since it was written"),
    ],
)
@pytest.mark.parametrize("subtract", [False, True])
def test_counts_that_were_changed_are_told_when_they_are_used(
    damage: Callable[[Path], object], message: str, subtract: bool, tmp_path: Path
) -> None:
    """Also where they would make a wrong subtraction."""
    fit([*DAYS[0], *DAYS[1]]).save(tmp_path / "model")
    damage(tmp_path / "model/counts/counts.parquet")
    model = FeatureModel.load(tmp_path / "model")
    other = fit(DAYS[1])
    with pytest.raises(ValueError, match=f"model: counts/ {message}.*: fit the model again with --keep-counts"):
        _ = model.subtract(other) if subtract else other.merge(model)


@pytest.mark.parametrize("change", [{"terms": 6}, {"content_hash": "0" * 32}, {"shards": 128}])
def test_what_the_manifest_says_of_counts_cannot_be_changed(change: dict[str, Any], tmp_path: Path) -> None:
    fit(DAYS[0]).save(tmp_path / "model")
    path = tmp_path / "model/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["counts"].update(change)
    path.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="model was changed since it was written"):
        FeatureModel.load(tmp_path / "model")
