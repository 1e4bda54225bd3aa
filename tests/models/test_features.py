"""Features and their model: scikit-learn as the judge of the preset, the definitions by example, laws for any text."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, vstack
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from models.counts import TermCounts, take_counts
from models.features import FeatureConfig, FeatureModel, inverse_df, select, sklearn_preset
from udfs.text import TextConfig, tokenize

few = settings(deadline=None, max_examples=100)
ROOT = Path(__file__).parents[2]
PRESET = sklearn_preset(FeatureConfig(max_features=None))
TINY = ["The cat sat. The cat sat on the mat!", "", "A dog sat on the mat", "The dog; the CAT."]


def fit(texts: list[str | None], **settings: Any) -> FeatureModel:
    return FeatureModel.fit(pa.array(texts, pa.string()), FeatureConfig(**settings))


def same_bits(a: csr_matrix, b: csr_matrix) -> bool:
    """Whether two matrices are equal in shape, place and bit."""
    parts = [(a.indptr, b.indptr), (a.indices, b.indices), (a.data.view(np.int32), b.data.view(np.int32))]
    return a.shape == b.shape and all(np.array_equal(x, y) for x, y in parts)


# The preset against scikit-learn.


@pytest.fixture(params=["emails", "chinese"])
def texts(request: pytest.FixtureRequest) -> pa.Array:
    return request.getfixturevalue(request.param)["text"]


def assert_equals_sklearn(texts: pa.Array, settings: dict[str, Any], theirs: CountVectorizer) -> None:
    """The same vocabulary and indices, the same entries, values within 1e-6 relative."""
    model = FeatureModel.fit(texts, replace(PRESET, **settings))
    ours = model.transform(texts)
    expected = theirs.fit_transform(texts.to_pylist()).tocsr()
    expected.sort_indices()
    assert model.terms.to_pylist() == theirs.get_feature_names_out().tolist()
    assert ours.shape == expected.shape
    assert ours.dtype == np.float32
    assert np.array_equal(ours.indptr, expected.indptr)
    assert np.array_equal(ours.indices, expected.indices)
    np.testing.assert_allclose(ours.data, expected.data, rtol=1e-6, atol=0)
    if isinstance(theirs, TfidfVectorizer):
        np.testing.assert_allclose(model.idf, theirs.idf_, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"ngrams": (1, 2)}, {}),
        ({"ngrams": (2, 3), "min_df": 2}, {}),
        ({"min_df": 3, "max_df": 0.5}, {}),
        ({"min_df": 0.01, "max_df": 100}, {}),
        ({"min_df": 0.003, "max_df": 0.05, "ngrams": (1, 3)}, {}),
        ({"text": replace(PRESET.text, lowercase=False)}, {"lowercase": False}),
        ({"stop_words": ("and", "the", "to", "使用", "单击"), "ngrams": (1, 2)}, {"stop_words": "same"}),
    ],
)
def test_preset_counts_are_those_of_CountVectorizer(
    texts: pa.Array, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    shared = {"ngram_range" if name == "ngrams" else name: ours[name] for name in ours if name in ("ngrams", *LIMITS)}
    if theirs.get("stop_words"):
        theirs = {"stop_words": list(ours["stop_words"])}
    assert_equals_sklearn(texts, {"features": "count", "norm": "none", **ours}, CountVectorizer(**shared, **theirs))


LIMITS = ("min_df", "max_df")


@pytest.mark.parametrize("analyzer", ["char", "char_wb"])
@pytest.mark.parametrize("ngrams", [(1, 1), (1, 3), (3, 5), (7, 8)])
def test_preset_with_characters_is_the_analyzer_of_that_name(
    texts: pa.Array, analyzer: str, ngrams: tuple[int, int]
) -> None:
    naughty = ["", " ", "a", " a\n\nb\u00a0\u00a0c\td ", "中 文\x1c\x1dx"]
    texts = pa.array(texts.slice(0, 300).to_pylist() + naughty)
    config = sklearn_preset(FeatureConfig(text=TextConfig(tokenizer=analyzer), ngrams=ngrams, min_df=2, max_df=0.9))
    theirs = TfidfVectorizer(analyzer=analyzer, ngram_range=ngrams, min_df=2, max_df=0.9)
    assert_equals_sklearn(texts, {name: getattr(config, name) for name in ("text", "ngrams", *LIMITS)}, theirs)


def test_character_ngrams_stay_within_a_sentence_unless_they_span_the_document() -> None:
    texts: list[str | None] = ["ab. c\n\nd"]
    within = {"a", "b", ".", " ", "c", "d", "ab", "b.", " c", "c "}
    config = {"text": TextConfig(tokenizer="char"), "ngrams": (1, 2)}
    assert set(fit(texts, **config).terms.to_pylist()) == within
    assert set(fit(texts, ngram_span="document", **config).terms.to_pylist()) == {*within, ". ", " d"}


def test_stop_words_have_no_meaning_where_tokens_are_characters() -> None:
    with pytest.raises(ValueError, match=r"stop-words.*char_wb"):
        FeatureConfig(text=TextConfig(tokenizer="char_wb"), stop_words=("a",))


def test_preset_onehot_is_the_binary_CountVectorizer(texts: pa.Array) -> None:
    settings = {"features": "onehot", "norm": "none", "ngrams": (1, 2), "min_df": 2}
    assert_equals_sklearn(texts, settings, CountVectorizer(binary=True, ngram_range=(1, 2), min_df=2))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"sublinear_tf": True}, {"sublinear_tf": True}),
        ({"idf": "plain"}, {"smooth_idf": False}),
        ({"norm": "l1"}, {"norm": "l1"}),
        ({"norm": "none"}, {"norm": None}),
        (
            {"ngrams": (1, 2), "min_df": 2, "max_df": 0.4, "sublinear_tf": True, "idf": "plain", "norm": "l1"},
            {
                "ngram_range": (1, 2),
                "min_df": 2,
                "max_df": 0.4,
                "sublinear_tf": True,
                "smooth_idf": False,
                "norm": "l1",
            },
        ),
    ],
)
def test_preset_tfidf_is_that_of_TfidfVectorizer(texts: pa.Array, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert_equals_sklearn(texts, ours, TfidfVectorizer(**theirs))


@pytest.mark.parametrize("limits", [{}, {"min_df": 2, "max_df": 0.3, "ngrams": (1, 2)}])
@pytest.mark.parametrize("size", [100, 3000])
def test_preset_with_max_features_keeps_the_same_counts_and_breaks_ties_by_term(
    texts: pa.Array, limits: dict[str, Any], size: int
) -> None:
    """scikit-learn breaks ties by an unstable sort: of it we ask for the same cf, of us for the tie rule."""
    ours = FeatureModel.fit(texts, replace(PRESET, features="count", norm="none", max_features=size, **limits))
    options = {"ngram_range" if name == "ngrams" else name: value for name, value in limits.items()}
    theirs = CountVectorizer(max_features=size, **options)
    cf = np.asarray(theirs.fit_transform(texts.to_pylist()).sum(axis=0)).ravel()
    assert sorted(ours.cf) == sorted(cf)
    every = FeatureModel.fit(texts, replace(PRESET, features="count", norm="none", **limits))
    ranked = sorted(zip(-every.cf, every.terms.to_pylist(), strict=True))[:size]
    assert ours.terms.to_pylist() == sorted(term for _, term in ranked)


def test_preset_of_unseen_text_is_that_of_TfidfVectorizer(emails: pa.Table) -> None:
    known, new = emails["text"][:1000], emails["text"][1000:1500]
    theirs = TfidfVectorizer().fit(known.to_pylist())
    ours = FeatureModel.fit(known, PRESET).transform(new)
    expected = theirs.transform(new.to_pylist())
    expected.sort_indices()
    assert np.array_equal(ours.indices, expected.indices)
    np.testing.assert_allclose(ours.data, expected.data, rtol=1e-6, atol=0)


def test_preset_keeps_every_other_setting() -> None:
    config = FeatureConfig(features="count", ngrams=(2, 3), min_df=2, stop_words=("a",), norm="l1")
    preset = sklearn_preset(config)
    assert (preset.text.tokenizer, preset.text.unicode, preset.ngram_span) == ("sklearn", "none", "document")
    assert replace(preset, text=config.text, ngram_span="sentence") == config


# The definitions.


@pytest.mark.parametrize(
    ("form", "of"),
    [
        ("smooth", lambda n, df: math.log((1 + n) / (1 + df)) + 1),
        ("plain", lambda n, df: math.log(n / df) + 1),
        ("ml", lambda n, df: math.log((n + 1) / (df + 1))),
        ("bm25", lambda n, df: math.log(1 + (n - df + 0.5) / (df + 0.5))),
    ],
)
def test_idf_is_its_formula_to_the_bit(form: str, of: Callable[[int, int], float]) -> None:
    df = np.array([1, 2, 3, 999_999, 1_000_000, 3, 1])
    found = inverse_df(df, 1_000_000, form)
    assert found.dtype == np.float64
    assert found.tolist() == [of(1_000_000, int(d)) for d in df]


def test_weights_by_hand() -> None:
    """tfidf of "a b b" in 3 documents, df a = 3, b = 1."""
    texts: list[str | None] = ["a b b", "a c", "a"]
    a, b = math.log(4 / 4) + 1, math.log(4 / 2) + 1
    expected = {
        "none": [a, 2 * b],
        "l1": [a / (a + 2 * b), 2 * b / (a + 2 * b)],
        "l2": [a / math.hypot(a, 2 * b), 2 * b / math.hypot(a, 2 * b)],
    }
    for norm, values in expected.items():
        found = fit(texts, norm=norm).transform(pa.array(["a b b"]))
        assert found.data.tolist() == np.array(values, np.float32).tolist()
    sublinear = fit(texts, norm="none", sublinear_tf=True).transform(pa.array(["a b b"]))
    assert sublinear.data.tolist() == np.array([a, (1 + math.log(2)) * b], np.float32).tolist()
    assert fit(texts, features="count").transform(pa.array(["a b b"])).data.tolist() == [1, 2]
    assert fit(texts, features="onehot").transform(pa.array(["a b b"])).data.tolist() == [1, 1]
    halves = fit(texts, features="count", norm="l1").transform(pa.array(["a b b b"])).data
    assert halves.tolist() == [0.25, 0.75]


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4), (0.0, 0.75), (2.0, 0.0), (1.5, 1.0)])
def test_bm25_is_its_formula_over_the_counts_of_CountVectorizer(texts: pa.Array, k1: float, b: float) -> None:
    counts = CountVectorizer().fit_transform(texts.to_pylist()).astype(np.float64)
    counts.sort_indices()
    n, length, df = counts.shape[0], np.asarray(counts.sum(axis=1)).ravel(), np.diff(counts.tocsc().indptr)
    idf = np.log(1 + (n - df + 0.5) / (df + 0.5))[counts.indices]
    relative = np.repeat(length / length.mean(), np.diff(counts.indptr))
    expected = idf * counts.data * (k1 + 1) / (counts.data + k1 * (1 - b + b * relative))
    config = replace(PRESET, features="bm25", norm="none", bm25_k1=k1, bm25_b=b)
    found = FeatureModel.fit(texts, config).transform(texts)
    assert np.array_equal(found.indices, counts.indices)
    np.testing.assert_allclose(found.data, expected, rtol=1e-6, atol=0)


def test_bm25_counts_length_after_stop_words_and_before_pruning() -> None:
    """Of "a b b c" in "a b b c", "a d", "": lengths 3, 1 and 0 without the stop word a, mean 4/3; b alone stays."""
    model = fit(["a b b c", "a d", None], features="bm25", stop_words=("a",), max_features=1)
    assert (model.terms.to_pylist(), model.mean_length) == (["b"], 4 / 3)
    expected = math.log(1 + 2.5 / 1.5) * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / (4 / 3)))
    assert model.transform(pa.array(["a b b c"])).data.tolist() == [np.float32(expected)]


def test_hashed_terms_that_share_an_index_are_added_up_and_unseen_ones_weigh_as_in_no_document() -> None:
    """With 3 indices "a b c d" must share some; df is that of the index, not the sum of its terms'."""
    texts = pa.array(["a b c d", "a", "d d b", ""])
    size = 3
    counts = CountVectorizer(token_pattern=r"\w").fit(texts.to_pylist())
    by_index = np.zeros((4, size))
    for row, text in enumerate(texts.to_pylist()):
        for term in text.split():
            by_index[row, mmh3.hash(term, 42) % size] += 1
    assert len(counts.vocabulary_) > size
    model = FeatureModel.fit(texts, FeatureConfig(hash_size=size, features="count"))
    assert model.transform(texts).toarray().tolist() == by_index.tolist()
    df = (by_index > 0).sum(axis=0)
    model = FeatureModel.fit(texts, FeatureConfig(hash_size=size, norm="none", idf="ml"))
    np.testing.assert_allclose(model.transform(texts).toarray(), by_index * np.log(5 / (df + 1)), rtol=1e-6)
    wide = FeatureModel.fit(texts, FeatureConfig(hash_size=1 << 30, norm="none"))
    unseen = wide.transform(pa.array(["zebra"]))
    assert unseen.indices.tolist() == [mmh3.hash("zebra", 42) % (1 << 30)]
    assert unseen.data.tolist() == [np.float32(math.log(5) + 1)]
    assert wide.inverse_transform(unseen) == [[f"#{unseen.indices[0]:010}"]]


@pytest.mark.parametrize(
    "text",
    [
        TextConfig(tokenizer="regex", pattern=r"New York|\w+", lowercase=False),
        TextConfig(tokenizer="jieba", user_dict=(("New York", None),), lowercase=False),
    ],
)
def test_a_token_with_a_space_and_an_n_gram_that_equals_it_are_one_term(text: TextConfig) -> None:
    """In the second document "New York" is cut: the user word, and the pattern, want one space."""
    texts = pa.array(["New York", "New  York New York", "York"])
    model = FeatureModel.fit(texts, FeatureConfig(features="count", text=text, ngrams=(1, 2)))
    at = model.terms.index("New York").as_py()
    assert (int(model.df[at]), int(model.cf[at])) == (2, 3)
    assert model.transform(texts)[:, at].toarray().ravel().tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"hash_size": 0}, "0.*from 1"),
        ({"hash_size": 1 << 31}, "from 1"),
        ({"hash_size": 10, "min_df": 2}, "min-df.*hash"),
        ({"hash_size": 10, "max_df": 0.5}, "max-df.*hash"),
        ({"hash_size": 10, "max_features": 5}, "max-features.*hash"),
        ({"hash_size": 10, "idf": "plain"}, "plain.*smooth"),
    ],
)
def test_settings_that_hashing_has_no_use_for_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        FeatureConfig(**settings)


def test_norm_is_l2_for_tfidf_and_none_otherwise() -> None:
    assert [FeatureConfig(features=name).norm for name in ("tfidf", "count", "bm25")] == ["l2", "none", "none"]
    assert FeatureConfig() == FeatureConfig(norm="l2")


def test_terms_are_in_order_of_code_points_not_of_utf16() -> None:
    model = fit(["\U00010428 ﬀ z é ab a \U00020000"])
    assert model.terms.to_pylist() == ["a", "ab", "z", "é", "ﬀ", "\U00010428", "\U00020000"]


@pytest.mark.parametrize(
    ("limits", "terms"),
    [
        ({}, "abcd"),
        ({"min_df": 2}, "bcd"),
        ({"max_df": 3}, "abc"),
        ({"min_df": 0.5}, "bcd"),
        ({"min_df": 0.51}, "cd"),
        ({"max_df": 0.75}, "abc"),
        ({"min_df": 0.0, "max_df": 1.0}, "abcd"),
        ({"min_df": 1.0}, "d"),
        ({"min_df": 2, "max_df": 2}, "b"),
        ({"max_df": 1}, "a"),
    ],
)
def test_df_limits_are_inclusive_numbers_or_shares(limits: dict[str, Any], terms: str) -> None:
    assert "".join(fit(["a b c d", "b c d", "c d", "d"], **limits).terms.to_pylist()) == terms


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"min_df": 2, "max_df": 3}, "no term is left in 4 documents"),
        ({"min_df": 5}, "min-df 5 is more than the number of documents, 4: give at most 4, or a share"),
        ({"min_df": 9, "max_df": 10}, "min-df 9 is more than the number of documents, 4: give at most 4, or a share"),
        ({"max_df": 0.1}, "max-df 0.1 is 0.4 of 4 documents, below min-df 1"),
        ({"min_df": 3, "max_df": 0.5}, "max-df 0.5 is 2 of 4 documents, below min-df 3"),
    ],
)
def test_limits_that_leave_no_term_are_an_error(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(["a b", "b", "b", "b"], **limits)


@pytest.mark.parametrize("texts", [[""], [None, None], ["... !?"]])
def test_no_term_is_an_error(texts: list[str | None]) -> None:
    with pytest.raises(ValueError, match="no term is left"):
        fit(texts)


def test_no_documents_are_an_error() -> None:
    with pytest.raises(ValueError, match="no documents"):
        fit([])
    with pytest.raises(ValueError, match="no documents"):
        inverse_df(np.array([1]), 0, "smooth")


def test_empty_and_null_documents_count() -> None:
    model = fit(["a", "", None, "a b"])
    assert (model.n, model.n_tokens) == (4, 3)
    assert model.idf.tolist() == inverse_df(np.array([2, 1]), 4, "smooth").tolist()
    assert model.transform(pa.array([None, "", "zzz"], pa.string())).nnz == 0


def test_max_features_are_the_most_frequent_with_ties_by_term() -> None:
    texts: list[str | None] = ["d d d c c b b e e a", "\U00010428 \U00010428 ﬀ ﬀ"]
    assert fit(texts, max_features=1).terms.to_pylist() == ["d"]
    assert fit(texts, max_features=3).terms.to_pylist() == ["b", "c", "d"]
    assert fit(texts, max_features=5).terms.to_pylist() == ["b", "c", "d", "e", "ﬀ"]
    assert fit(texts, max_features=7).terms.to_pylist() == ["a", "b", "c", "d", "e", "ﬀ", "\U00010428"]
    assert len(fit(texts, max_features=1000).terms) == 7


def test_max_features_count_after_the_df_limits() -> None:
    assert fit(["a a a a b b c", "b c", "c"], min_df=2, max_features=1).terms.to_pylist() == ["b"]


@few
@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), st.integers(1, 4), min_size=1, max_size=30),
    st.integers(1, 30),
    st.randoms(use_true_random=False),
)
def test_law_selection_is_by_cf_then_term_whatever_the_order(cf: dict[str, int], size: int, random: Any) -> None:
    """Nor does it matter into how many parts the counts are cut."""
    shuffled = list(cf)
    random.shuffle(shuffled)
    numbers = np.array([cf[term] for term in shuffled], np.int64)
    counts = TermCounts(pa.array(shuffled, pa.large_string()), np.ones(len(cf), np.int64), numbers)
    rows = np.array_split(np.arange(len(cf)), random.randint(1, 30))
    chosen = select((take_counts(counts, part) for part in rows), FeatureConfig(max_features=size), 1)
    expected = sorted(cf, key=lambda term: (-cf[term], term.encode()))[:size]
    assert sorted(chosen.terms.to_pylist()) == sorted(expected)
    assert {t: int(c) for t, c in zip(chosen.terms.to_pylist(), chosen.cf, strict=True)} == {t: cf[t] for t in expected}


def test_ngrams_cross_sentences_and_stop_words_only_with_span_document() -> None:
    texts: list[str | None] = ["The cat sat. The dog of war"]
    sentence = fit(texts, ngrams=(2, 2), stop_words=("of", "the"))
    document = fit(texts, ngrams=(2, 2), stop_words=("of", "the"), ngram_span="document")
    assert sentence.terms.to_pylist() == ["cat sat"]
    assert document.terms.to_pylist() == ["cat sat", "dog war", "sat dog"]


def test_stop_words_count_neither_as_tokens_nor_as_terms() -> None:
    model = fit(["the cat the dog"], stop_words=("the",))
    assert model.terms.to_pylist() == ["cat", "dog"]
    assert model.n_tokens == 2


# The configuration.

BAD: list[tuple[str, Any]] = [
    ("features", "bm26"),
    ("features", None),
    ("ngrams", (0, 1)),
    ("ngrams", (2, 1)),
    ("ngrams", (1, 11)),
    ("ngrams", (1.5, 2)),
    ("ngrams", (1, 2, 3)),
    ("ngrams", ("1", "2")),
    ("ngrams", 2),
    ("ngram_span", "paragraph"),
    ("min_df", 0),
    ("min_df", -1),
    ("min_df", 1.5),
    ("min_df", -0.1),
    ("min_df", math.nan),
    ("min_df", "2"),
    ("min_df", None),
    ("max_df", 0),
    ("max_df", 1.01),
    ("max_df", math.inf),
    ("max_df", "0.5"),
    ("max_features", 0),
    ("max_features", -5),
    ("max_features", 1 << 31),
    ("max_features", 10.5),
    ("max_features", "many"),
    ("sublinear_tf", "yes"),
    ("bm25_k1", -0.1),
    ("bm25_k1", 1),
    ("bm25_b", 1.5),
    ("idf", "smoothest"),
    ("norm", "max"),
    ("stop_words", "the"),
    ("stop_words", (1, 2)),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_setting_is_one_clear_error(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name.replace("_", "[-_ ]")) as raised:
        FeatureConfig(**{name: value})
    message = str(raised.value)
    assert "\n" not in message
    shown = [repr(value), str(value)]
    if isinstance(value, tuple):
        shown += [",".join(map(str, value)), str(value[0])]
    assert any(text in message for text in shown), message


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("sublinear_tf", True, "tfidf"),
        ("idf", "plain", "tfidf"),
        ("idf", "ml", "tfidf"),
        ("bm25_k1", 1.0, "bm25"),
        ("bm25_b", 0.5, "bm25"),
    ],
)
def test_settings_of_one_kind_have_no_meaning_elsewhere(name: str, value: Any, kind: str) -> None:
    assert getattr(FeatureConfig(features=kind, **{name: value}), name) == value
    for other in {"onehot", "count", "tfidf", "bm25"} - {kind}:
        with pytest.raises(ValueError, match=name.replace("_", "-") + ".*" + kind):
            FeatureConfig(features=other, **{name: value})


def test_a_setting_that_was_added_later_is_part_of_the_id_only_where_it_is_set() -> None:
    whole = json.loads(FeatureConfig(features="bm25", bm25_b=0.5).to_json())
    assert whole["bm25_b"] == 0.5
    assert "bm25_k1" not in whole
    assert FeatureConfig.from_json(json.dumps({**whole, "bm25_k1": 1.2})) == FeatureConfig.from_json(json.dumps(whole))


configurations = st.builds(
    FeatureConfig,
    features=st.just("tfidf"),
    ngrams=st.sampled_from([(1, 1), (1, 2), (2, 3), (1, 10)]),
    ngram_span=st.sampled_from(["sentence", "document"]),
    text=st.builds(
        TextConfig,
        unicode=st.sampled_from(["NFC", "NFKC", "none"]),
        lowercase=st.booleans(),
        tokenizer=st.sampled_from(["word", "whitespace", "sklearn"]),
    )
    | st.just(TextConfig(tokenizer="regex", pattern=r"[^\W\d]+|“\d+”")),
    stop_words=st.sampled_from([(), ("a", "é", "中")]),
    min_df=st.integers(1, 5) | st.floats(0, 1),
    max_df=st.integers(6, 1 << 40) | st.floats(0, 1),
    max_features=st.none() | st.integers(1, (1 << 31) - 1),
    sublinear_tf=st.booleans(),
    idf=st.sampled_from(["smooth", "plain", "ml"]),
    norm=st.sampled_from([None, "l1", "l2", "none"]),
)


@few
@given(configurations)
def test_law_a_configuration_comes_back_from_its_json(config: FeatureConfig) -> None:
    again = FeatureConfig.from_json(config.to_json())
    assert again == config
    assert again.to_json() == config.to_json()
    assert type(again.min_df) is type(config.min_df)


@pytest.mark.parametrize("change", [{"colour": "red"}, {"text": {"accents": True}}, {"ngrams": None}, {"min_df": 0}])
def test_json_of_another_version_is_one_clear_error(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"configuration|min-df"):
        FeatureConfig.from_json(json.dumps({**json.loads(FeatureConfig().to_json()), **change}))


def test_json_without_a_setting_is_one_clear_error() -> None:
    with pytest.raises(ValueError, match="configuration"):
        FeatureConfig.from_json("{}")


# Laws of the features.

TRICKY = "aAbß İσΣ'’.,!?-_09 \t\n\u0301\u200b中文字かカ한각ก\U0001f600\U00010428\ufb00\0"
naughty = st.text(st.sampled_from(TRICKY) | st.characters(codec="utf-8"), max_size=60) | st.none()
SEEN = ["a b A'b 09 a.b", "İσΣ ß 中文字 かカ 한각 ก", "a\u0301 b! a b? a", "\U00010428 ﬀ _ - a b c"]
SETTINGS = {
    "tfidf": FeatureConfig(),
    "bigrams": FeatureConfig(ngrams=(1, 3), stop_words=("b",), sublinear_tf=True, idf="plain", norm="l1"),
    "count": FeatureConfig(features="count", text=TextConfig(tokenizer="whitespace")),
    "onehot": FeatureConfig(features="onehot", text=TextConfig(unicode="NFKC", lowercase=False)),
    "bm25": FeatureConfig(features="bm25", bm25_b=0.5, stop_words=("b",)),
    "char": FeatureConfig(text=TextConfig(tokenizer="char"), ngrams=(1, 3)),
    "hash": FeatureConfig(hash_size=7, ngrams=(1, 2)),
    "char_wb": FeatureConfig(text=TextConfig(tokenizer="char_wb"), ngrams=(3, 5)),
    "ml": FeatureConfig(idf="ml", norm="none", text=TextConfig(tokenizer="regex", pattern=r"\w")),
    "sklearn": sklearn_preset(FeatureConfig(ngrams=(1, 2))),
    "wholes": FeatureConfig(text=TextConfig(keep_urls=True, emoji=True), ngrams=(1, 2)),
    "jieba": FeatureConfig(
        text=TextConfig(tokenizer="jieba", user_dict=(("中文", None), ("a b", 3))), ngrams=(1, 2), min_df=2
    ),
}


@lru_cache
def fitted(name: str) -> FeatureModel:
    return FeatureModel.fit(pa.array(SEEN * 3 + ["once"]), SETTINGS[name])


@pytest.mark.parametrize("name", SETTINGS)
@few
@given(texts=st.lists(naughty, max_size=8))
def test_law_one_row_is_many_rows_to_the_bit(name: str, texts: list[str | None]) -> None:
    model = fitted(name)
    many = model.transform(pa.array(texts, pa.string()))
    assert many.shape == (len(texts), len(model.terms))
    assert many.dtype == np.float32
    if texts:
        assert same_bits(many, vstack([model.transform(pa.array([text], pa.string())) for text in texts], "csr"))


@pytest.mark.parametrize("name", SETTINGS)
@few
@given(texts=st.lists(naughty, max_size=8))
def test_law_indices_are_sorted_and_unique_and_values_as_their_norm_says(name: str, texts: list[str | None]) -> None:
    model = fitted(name)
    matrix = model.transform(pa.array(texts, pa.string()))
    for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False):
        assert (np.diff(matrix.indices[a:b]) > 0).all()
        values = matrix.data[a:b].astype(float)
        assert (values >= 0).all()
        if b > a and model.config.norm != "none":
            assert (values.sum() if model.config.norm == "l1" else (values**2).sum()) == pytest.approx(1, rel=1e-5)
    if len(matrix.indices):
        assert matrix.indices.min() >= 0
        assert matrix.indices.max() < len(model.terms)
    if name == "onehot":
        assert set(matrix.data) <= {1.0}
    if name == "count":
        found = tokenize(pa.array(texts, pa.string()), model.config.text).to_pylist()
        known = set(model.terms.to_pylist())
        expected = [dict(sorted(Counter(token for token in row if token in known).items())) for row in found]
        rows = model.inverse_transform(matrix)
        cut = [matrix.data[a:b] for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)]
        assert [dict(zip(terms, tf, strict=True)) for terms, tf in zip(rows, cut, strict=True)] == expected


@pytest.mark.parametrize("name", SETTINGS)
@few
@given(texts=st.lists(naughty, max_size=8), at=st.integers(0, 8))
def test_law_the_layout_of_a_column_changes_nothing(name: str, texts: list[str | None], at: int) -> None:
    model = fitted(name)
    column = pa.array(texts, pa.string())
    expected = model.transform(column)
    layouts = [
        column.cast(pa.large_string()),
        pa.array(["before a b", *texts, None], pa.string())[1 : 1 + len(texts)],
        pa.chunked_array([column[:at], column[at:]], pa.string()),
        pa.chunked_array([column]),
        column.dictionary_encode(),
    ]
    for layout in layouts:
        assert same_bits(model.transform(layout), expected), layout.type


@few
@given(texts=st.lists(naughty, min_size=1, max_size=8), data=st.data())
def test_law_the_order_of_documents_does_not_change_the_model(texts: list[str | None], data: st.DataObject) -> None:
    first = fit([*texts, "a b a"], ngrams=(1, 2), max_features=5)
    again = fit(data.draw(st.permutations([*texts, "a b a"])), ngrams=(1, 2), max_features=5)
    assert first.id == again.id


def test_the_corpus_row_by_row_is_the_corpus_at_once(emails: pa.Table, chinese: pa.Table) -> None:
    for corpus in (emails, chinese):
        text = corpus["text"]
        model = FeatureModel.fit(text, FeatureConfig(ngrams=(1, 2), min_df=2))
        many = model.transform(text)
        rows = range(0, len(text), 29)
        assert same_bits(vstack([model.transform(text[i : i + 1]) for i in rows], "csr"), many[rows])


def test_text_of_another_type_is_an_error() -> None:
    for column in (pa.array([1, 2]), pa.array([["a"]]), pa.array([b"a"])):
        with pytest.raises(ValueError, match="cast it to string"):
            fitted("tfidf").transform(column)


# The way back, and the terms that matter.


def test_inverse_transform_gives_the_terms_of_each_row() -> None:
    model = fit(TINY, ngrams=(1, 2))
    found = model.inverse_transform(model.transform(pa.array(["The cat, unheard of, sat", "", "mat!"])))
    assert found == [["cat", "sat", "the", "the cat"], [], ["mat"]]


def test_inverse_transform_takes_unsorted_rows_and_other_formats() -> None:
    model = fit(["a b c"])
    matrix = csr_matrix((np.ones(3, np.float32), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3))
    assert model.inverse_transform(matrix) == [["a", "c"], ["b"]]
    assert model.inverse_transform(matrix.tocsc()) == [["a", "c"], ["b"]]
    assert matrix.indices.tolist() == [2, 0, 1]  # the caller's matrix stays as it was


def test_top_terms_tell_a_label_from_the_others() -> None:
    texts = ["the goal of the match", "the match was a goal", "the vote of the house", "a vote in the house", "the the"]
    model = fit(list(texts), features="count")
    matrix = model.transform(pa.array(texts))
    top = model.top_terms(matrix, ["sport", "sport", "politics", "politics", None], 2)
    assert top == {"politics": ["house", "vote"], "sport": ["goal", "match"]}
    assert list(top) == ["politics", "sport"]
    assert top == model.top_terms(matrix, [["sport"], ["sport", "sport"], ["politics"], ["politics", None], []], 2)
    both = model.top_terms(matrix, [["sport", "old"], ["sport"], ["politics", "old"], ["politics"], None], 2)
    assert both == {"old": ["of", "the"], **top}


def test_top_terms_with_one_label_or_none() -> None:
    model = fit(TINY, features="count")
    matrix = model.transform(pa.array(TINY))
    assert model.top_terms(matrix, [None] * 4) == {}
    only = model.top_terms(matrix, ["x"] * 4, 3)
    assert list(only) == ["x"]
    assert len(only["x"]) <= 3
    with_empty = model.top_terms(matrix, ["x", "empty", "x", "x"])
    assert with_empty["empty"] == []


def test_top_terms_of_the_emails_are_not_those_of_every_mail(emails: pa.Table) -> None:
    model = FeatureModel.fit(emails["text"])
    top = model.top_terms(model.transform(emails["text"]), emails["label"].to_pylist())
    assert sorted(top) == ["ham", "spam"]
    assert [len(terms) for terms in top.values()] == [10, 10]
    assert not set(top["ham"]) & set(top["spam"])
    assert "wrote" in top["ham"]
    assert not {"the", "and"} & set(top["spam"])


# The model folder.


def test_a_saved_model_is_the_same_when_loaded(tmp_path: Path, emails: pa.Table) -> None:
    text = emails["text"][:300]
    for number, config in enumerate(SETTINGS.values()):
        model = FeatureModel.fit(text, config)
        model.save(tmp_path / str(number))
        again = FeatureModel.load(tmp_path / str(number))
        assert (again.id, again.content_hash, again.config) == (model.id, model.content_hash, model.config)
        assert (again.n, again.n_tokens) == (model.n, model.n_tokens)
        assert again.terms.equals(model.terms)
        assert np.array_equal(again.df, model.df)
        assert np.array_equal(again.cf, model.cf)
        assert np.array_equal(again.idf.view(np.int64), model.idf.view(np.int64))
        assert same_bits(again.transform(text), model.transform(text))


def test_the_model_folder_is_as_documented(tmp_path: Path) -> None:
    model = fit(TINY, ngrams=(1, 2), stop_words=("a",))
    model.save(str(tmp_path / "deep" / "model"))
    folder = tmp_path / "deep" / "model"
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "manifest.json", "vocabulary.parquet"]
    vocabulary = pq.read_table(folder / "vocabulary.parquet")
    assert vocabulary.column_names == ["index", "term", "df", "cf", "idf"]
    assert vocabulary["index"].to_pylist() == list(range(len(model.terms)))
    assert vocabulary["term"].to_pylist() == sorted(vocabulary["term"].to_pylist())
    assert vocabulary["idf"].to_pylist() == model.idf.tolist()
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["model_id"] == model.id
    assert config["features"] == json.loads(model.config.to_json())
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["documents"] == 4
    assert manifest["terms"] == len(model.terms)
    assert manifest["content_hash"] == model.content_hash


def test_text_that_is_no_array_is_refused_with_the_remedy() -> None:
    model = fit(TINY)
    for text in ("the cat", ["the cat"]):
        with pytest.raises(TypeError, match=r"text is (str|list): give an Arrow array, pa.array"):
            model.transform(text)
    assert repr(model) == f"FeatureModel(tfidf, {len(model.terms)} terms of 4 documents, id {model.id})"


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON or Parquet file in place."""
    if path.suffix == ".json":
        value = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps(change(value) or value), "utf-8")
    else:
        pq.write_table(change(pq.read_table(path)), path)


def column(name: str, change: Callable[[Any], Any]) -> Callable[[pa.Table], pa.Table]:
    """A change of the first value of a column."""

    def changed(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        new = pa.array([change(values[0]), *values[1:]], table[name].type)
        return table.set_column(table.column_names.index(name), name, new)

    return changed


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("vocabulary.parquet", column("term", lambda term: "!" + term)),
        ("vocabulary.parquet", column("df", lambda df: df + 1)),
        ("vocabulary.parquet", column("cf", lambda cf: cf + 1)),
        ("vocabulary.parquet", column("idf", lambda idf: idf * 2)),
        ("vocabulary.parquet", column("index", lambda index: index + 1)),
        ("vocabulary.parquet", lambda table: table.slice(1)),
        ("vocabulary.parquet", lambda table: table.slice(0, 0)),
        ("config.json", lambda config: config["features"].update(norm="l1")),
        ("config.json", lambda config: config["features"]["text"].update(lowercase=False)),
        ("config.json", lambda config: config.update(model_id="0" * 32)),
        ("config.json", lambda config: config.update(unicode="16.0.0")),
        ("config.json", lambda config: config.update(stray=1)),
        ("manifest.json", lambda manifest: manifest.update(tokens=5)),
        ("manifest.json", lambda manifest: manifest.update(terms=5)),
        ("manifest.json", lambda manifest: manifest.update(content_hash="0" * 32)),
        ("manifest.json", lambda manifest: manifest.update(documents=5)),
        ("manifest.json", lambda manifest: manifest.update(model_id="0" * 32)),
    ],
)
def test_a_model_changed_by_hand_is_refused(file: str, change: Callable[[Any], Any], tmp_path: Path) -> None:
    fit(TINY).save(tmp_path / "model")
    rewrite(tmp_path / "model" / file, change)
    with pytest.raises(ValueError, match="model was changed since it was written"):
        FeatureModel.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b""),
        ("config.json", b"{}"),
        ("config.json", b"[1, 2]"),
        ("config.json", b'{"format": 1}'),
        ("config.json", b"\xff\xfe"),
        ("manifest.json", b"{"),
        ("manifest.json", b"{}"),
        ("vocabulary.parquet", b""),
        ("vocabulary.parquet", b"PAR1 but no more PAR1"),
    ],
)
def test_a_damaged_model_is_one_clear_error(file: str, content: bytes, tmp_path: Path) -> None:
    fit(TINY).save(tmp_path / "model")
    (tmp_path / "model" / file).write_bytes(content)
    with pytest.raises(ValueError, match="model") as raised:
        FeatureModel.load(tmp_path / "model")
    assert str(tmp_path / "model") in str(raised.value)


def test_a_vocabulary_without_a_column_is_one_clear_error(tmp_path: Path) -> None:
    fit(TINY).save(tmp_path / "model")
    rewrite(tmp_path / "model" / "vocabulary.parquet", lambda table: table.drop_columns(["df"]))
    with pytest.raises(ValueError, match="model"):
        FeatureModel.load(tmp_path / "model")


def replaced(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
    """A column with other values, as many as it had."""
    return lambda table: table.set_column(table.column_names.index(name), name, values.slice(0, len(table)))


@pytest.mark.parametrize(
    "change",
    [
        replaced("term", pa.array(["#1", "#000000000x", "", "é"] * 4)),
        replaced("term", pa.array(["#0000000001"] * 16)),
        replaced("term", pa.array([None] * 16, pa.string())),
        replaced("idf", pa.array([1.0] * 16, pa.float32())),
        replaced("idf", pa.array(["1"] * 16)),
        replaced("df", pa.array([None] * 16, pa.int64())),
        replaced("cf", pa.array([1 << 63] * 16, pa.uint64())),
        replaced("index", pa.array([-1] * 16, pa.int64())),
        lambda table: pa.concat_tables([table, table]),
        lambda table: table.slice(1),
    ],
)
@pytest.mark.parametrize("hash_size", [None, 7])
def test_a_damaged_vocabulary_is_one_clear_error(
    hash_size: int | None, change: Callable[[pa.Table], pa.Table], tmp_path: Path
) -> None:
    fit(TINY, hash_size=hash_size).save(tmp_path / "model")
    rewrite(tmp_path / "model" / "vocabulary.parquet", change)
    with pytest.raises(ValueError, match=r"model (\(|was changed).*: fit it again$"):
        FeatureModel.load(tmp_path / "model")


@pytest.mark.parametrize("missing", ["config.json", "manifest.json", "vocabulary.parquet"])
def test_a_folder_without_one_of_its_files_is_no_model(missing: str, tmp_path: Path) -> None:
    fit(TINY).save(tmp_path / "model")
    (tmp_path / "model" / missing).unlink()
    with pytest.raises(ValueError, match=f"is not a model folder: it has no {missing}"):
        FeatureModel.load(tmp_path / "model")


def test_a_model_of_another_format_says_so(tmp_path: Path) -> None:
    fit(TINY).save(tmp_path / "model")
    rewrite(tmp_path / "model" / "config.json", lambda config: config.update(format=99))
    with pytest.raises(ValueError, match="format 99"):
        FeatureModel.load(tmp_path / "model")


def test_a_model_is_saved_to_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty"):
        fit(TINY).save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


GOLDEN = {  # of TINY: these change only with the format of the model
    "tfidf": ("2f078fc66f338d9ed7ad5e01482f6ed3", "a78a16fa6ff4da4fb5749d41e27a4aec"),
    "bigrams": ("bfc0b19f4c0625b302908c4b78d3e3b2", "d2217a86c8727f856ad1fabe6cff12e1"),
    "sklearn": ("088efcfda3d118c4f9ac01680861f7d3", "8f00fbbac825f6d7d22038fd35d5b7c5"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_ids_of_a_known_model_stay(name: str) -> None:
    model = FeatureModel.fit(pa.array(TINY), SETTINGS[name])
    assert (model.content_hash, model.id) == GOLDEN[name]


def test_any_difference_in_settings_or_counts_is_another_id() -> None:
    models = [
        fit(TINY),
        fit([*TINY, ""]),
        fit([*TINY, "cat"]),
        fit(TINY, norm="l1"),
        fit(TINY, sublinear_tf=True),
        fit(TINY, features="count"),
        fit(TINY, ngrams=(1, 2)),
        fit(TINY, max_features=3),
        fit(TINY, text=TextConfig(lowercase=False)),
        fit(TINY, text=TextConfig(emoji=True)),
        fit(TINY, text=TextConfig(keep_urls=True)),
        fit(TINY, text=TextConfig(tokenizer="jieba")),
        fit(TINY, text=TextConfig(tokenizer="jieba", user_dict=(("水果", None),))),
        fit(TINY, text=TextConfig(tokenizer="jieba", user_dict=(("水果", 1),))),
    ]
    assert len({model.id for model in models}) == len(models)
    assert fit(TINY).id == fit(TINY).id
    assert re.fullmatch("[0-9a-f]{32}", fit(TINY).id)


WITHOUT_SPARK = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j", "jobs"):
            raise ImportError(f"{name} is refused here")

sys.meta_path.insert(0, Refuse())
import pyarrow as pa
from models.features import FeatureModel

model = FeatureModel.load(sys.argv[1])
matrix = model.transform(pa.array(sys.argv[2:]))
print(model.inverse_transform(matrix)[0])
print((matrix.indptr.tobytes() + matrix.indices.tobytes() + matrix.data.tobytes()).hex())
assert not {"pyspark", "py4j", "jobs", "torch"} & set(sys.modules)
"""


def test_a_model_gives_the_same_bits_in_a_process_without_spark(tmp_path: Path) -> None:
    model = fit(TINY, ngrams=(1, 2), sublinear_tf=True)
    model.save(tmp_path / "model")
    texts = ["The cat sat on a mat.", "", "dog dog dog"]
    command = [sys.executable, "-c", WITHOUT_SPARK, tmp_path / "model", *texts]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    expected = model.transform(pa.array(texts))
    parts = (expected.indptr, expected.indices, expected.data)
    terms = model.inverse_transform(expected)[0]
    assert said.stdout.splitlines() == [str(terms), b"".join(part.tobytes() for part in parts).hex()]


def test_models_whose_bm25_values_differ_have_different_ids() -> None:
    config = FeatureConfig(features="bm25", min_df=2)
    short, long = (["a b", "a b", rest] for rest in ("c", "c d e f g h"))
    models = [FeatureModel.fit(pa.array(texts), config) for texts in (short, long)]
    assert models[0].terms == models[1].terms
    assert models[0].transform(pa.array(["a"])).data != models[1].transform(pa.array(["a"])).data
    assert models[0].id != models[1].id
    counts = [FeatureModel.fit(pa.array(texts), FeatureConfig(features="count", min_df=2)) for texts in (short, long)]
    assert counts[0].id == counts[1].id
