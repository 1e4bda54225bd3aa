"""What users of other libraries ran into (tests/data/cases.jsonl, area feature), each as a test of its whole kind."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from models.counts import merge_counts
from models.features import FeatureConfig, FeatureModel, inverse_df, select
from udfs.hashing import hash_indices
from udfs.text import TextConfig

FILE = Path(__file__).parents[1] / "data/cases.jsonl"
CASES: dict[str, Any] = {
    case["id"]: case for case in map(json.loads, FILE.open(encoding="utf-8")) if case["area"] == "feature"
}


def joined(documents: list[list[str]]) -> pa.Array:
    return pa.array([" ".join(tokens) for tokens in documents], pa.string())


HASHED = CASES["feat-01"]


def test_a_hashed_terms_index_is_that_of_spark_ml_3_and_the_model_says_so(tmp_path: Path) -> None:
    """Terms of every length modulo 4: Spark 2's hash differs at the last bytes, and a signed modulo below 0."""
    given, expected = HASHED["input"], HASHED["expected"]
    terms = pa.array(given["terms"])
    assert hash_indices(terms, given["num_features"]).tolist() == expected["standard"]
    assert hash_indices(pa.array(["test"]), 16).tolist() == [expected["test_mod16"]["nonneg"]]
    config = FeatureConfig("count", hash_size=given["num_features"], text=TextConfig(tokenizer="whitespace"))
    model = FeatureModel.fit(terms, config)
    found = [row.indices.tolist() for row in model.transform(terms)]
    assert found == [[index] for index in expected["standard"][:-1]] + [[]]  # an empty text has no term
    model.save(tmp_path / "model")
    assert json.loads((tmp_path / "model/config.json").read_text())["hash"].startswith("MurmurHash3 x86_32, seed 42")
    again = FeatureModel.load(tmp_path / "model")
    assert again.indices.tolist() == sorted({*expected["standard"][:-1]})


IDF = CASES["feat-03"]
FORMS = {"mllib": "ml", "sklearn_smooth": "smooth", "sklearn_plain": "plain"}


@pytest.mark.parametrize("variant", IDF["input"]["variants"])
def test_idf_follows_the_formula_of_its_name(variant: str) -> None:
    model = FeatureModel.fit(joined(IDF["input"]["docs"]), FeatureConfig(idf=FORMS[variant]))
    found = dict(zip(model.terms.to_pylist(), model.idf.tolist(), strict=True))
    assert found == pytest.approx(IDF["expected"][variant], rel=1e-12, abs=0)


def test_an_empty_document_counts_in_idf() -> None:
    documents = joined(IDF["input"]["extra"]["with_empty_doc"])
    model = FeatureModel.fit(documents, FeatureConfig(idf="ml"))
    found = dict(zip(model.terms.to_pylist(), model.idf.tolist(), strict=True))
    assert found == pytest.approx(IDF["expected"]["mllib_with_empty_doc"], rel=1e-12, abs=0)


@pytest.mark.parametrize("form", FORMS.values())
def test_no_documents_are_a_clear_error_whatever_the_idf(form: str) -> None:
    with pytest.raises(ValueError, match="no documents"):
        FeatureModel.fit(joined(IDF["input"]["extra"]["none"]), FeatureConfig(idf=form))
    with pytest.raises(ValueError, match="no documents"):
        inverse_df(np.array([], np.int64), 0, form)


def test_a_term_of_every_document_weighs_zero_with_spark_ml_idf_and_is_kept() -> None:
    """A zero is a zero, not a missing value."""
    model = FeatureModel.fit(pa.array(["a b", "a", "a"]), FeatureConfig(idf="ml", norm="none"))
    row = model.transform(pa.array(["a b"]))
    assert row.indices.tolist() == [0, 1]
    assert row.data.tolist() == [0.0, np.float32(math.log(2))]
    unit = FeatureModel.fit(pa.array(["a", "a"]), FeatureConfig(idf="ml")).transform(pa.array(["a"]))
    assert unit.data.tolist() == [0.0]  # a row of zeros has no norm, and must not become NaN


TIES = CASES["feat-05"]
FREQUENCIES = [[["b"], ["a", "a"], ["c", "b"], ["d", "c"]], [["z", "y", "x", "w"]] * 3]


@pytest.mark.parametrize("documents", [TIES["input"]["docs"], *FREQUENCIES])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_terms_with_equal_counts_are_chosen_by_code_point_for_any_partitioning(
    documents: list[list[str]], size: int
) -> None:
    config = FeatureConfig(max_features=size)
    whole = FeatureModel.fit(joined(documents), config)
    for partitions in TIES["input"]["partitions"]:
        parts = [joined(documents[k::partitions]) for k in range(partitions)]
        for order in (parts, parts[::-1]):
            merged = merge_counts([config.count(part).dictionary for part in order])
            chosen = select([merged], config, len(documents))
            tokens = sum(len(document) for document in documents)
            assert FeatureModel.of_counts(config, chosen, len(documents), tokens).id == whole.id
    if documents == TIES["input"]["docs"] and size == TIES["input"]["vocab_size"]:
        assert whole.terms.to_pylist() == TIES["expected"]["vocab"]


@pytest.mark.parametrize(
    "config",
    [
        FeatureConfig(),
        FeatureConfig(ngrams=(1, 3), norm="l1"),
        FeatureConfig(features="count", text=TextConfig(tokenizer="whitespace")),
        FeatureConfig(features="onehot"),
        FeatureConfig(max_features=3),
        FeatureConfig(hash_size=3),
        FeatureConfig(hash_size=1 << 18, features="bm25", ngrams=(1, 2)),
        FeatureConfig(text=TextConfig(tokenizer="char"), ngrams=(1, 3)),
        FeatureConfig(text=TextConfig(tokenizer="char_wb"), ngrams=(2, 4), features="bm25"),
    ],
)
def test_indices_are_sorted_and_unique_in_every_output(config: FeatureConfig) -> None:
    """Case feat-08: a repeated or unsorted index is read differently by every library that takes it."""
    texts = pa.array(["z y x w v", "v w x y z v v", "a z", "", "z z z", "x z y z x z y"])
    model = FeatureModel.fit(texts, config)
    matrix = model.transform(texts)
    indices, values = model.weigh(config.count(texts)).arrow()
    assert indices.type == pa.list_(pa.int32())
    assert values.type == pa.list_(pa.float32())
    ends = list(zip(matrix.indptr, matrix.indptr[1:], strict=False))
    assert indices.to_pylist() == [matrix.indices[a:b].tolist() for a, b in ends]
    assert values.to_pylist() == [matrix.data[a:b].tolist() for a, b in ends]
    for row in indices.to_pylist():
        assert row == sorted(set(row))
        assert all(0 <= index < model.width for index in row)
    assert matrix.has_canonical_format
