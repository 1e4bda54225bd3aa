"""Features of text and the model that gives them: the same bits in a Spark job, in serving, for one string or many.

Legend: n documents, t terms of the vocabulary, nnz entries of a CSR matrix (indptr[n+1], indices[nnz], values[nnz]).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix

from models.counts import (
    BlockCounts,
    TermCounts,
    TermTable,
    count_terms,
    first_in_order,
    hash_counts,
    index_terms,
    join_counts,
    join_equal_terms,
    renumber,
    row_hashes,
    sort_counts,
    take_counts,
    term_indices,
)
from models.kept import KeptCounts, combine
from models.splits import Split
from udfs.compiled import kernel
from udfs.hashing import content_hash, hash_sum, murmur128
from udfs.text import CHARACTERS, TextConfig, spans

MODEL_FILES = ("config.json", "manifest.json", "vocabulary.parquet")
FORMAT = 1  # of the model folder
HASH = "MurmurHash3 x86_32, seed 42, UTF-8, non-negative modulo"  # as in Spark ML 3; that of Spark 2 is another
VOCABULARY_TYPES = [pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.float64()]
UNICODE = "15.0.0"  # the version of all tables
_CHOICES = {
    "features": ("onehot", "count", "tfidf", "bm25"),
    "idf": ("smooth", "plain", "ml"),
    "norm": ("l2", "l1", "none"),
    "ngram_span": ("sentence", "document"),
}
_ADDED_LATER = (
    "bm25_k1",
    "bm25_b",
    "hash_size",
    "strip_accents",
    "keep_urls",
    "emoji",
    "user_dict",
)  # left out of a model's settings at their default, so that ids stay
_MEANT_FOR = {"sublinear_tf": "tfidf", "idf": "tfidf", "bm25_k1": "bm25", "bm25_b": "bm25"}


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_df(name: str, value: object) -> None:
    share = isinstance(value, float)
    if not (
        0.0 <= value <= 1.0 if isinstance(value, float) else isinstance(value, int) and _whole(value) and value >= 1
    ):
        limits = "a share from 0.0 to 1.0" if share else "a number of documents of at least 1"
        raise ValueError(f"{name} is {value}: give {limits} (a number with a point is a share of the documents)")


@dataclass(frozen=True)
class FeatureConfig:
    """What the features are: settings checked here, stored with the model, and part of its id.

    min_df and max_df are a number of documents (int) or a share of them (float); max_features None keeps every term;
    norm None is l2 for tfidf and none otherwise. stop_words are already normalised. hash_size: terms are told apart
    only by a hash, their index, from 0 to hash_size - 1, and all stay.
    Raises ValueError with the bad value, the limit and the remedy.
    """

    features: str = "tfidf"
    ngrams: tuple[int, int] = (1, 1)
    ngram_span: str = "sentence"
    text: TextConfig = field(default_factory=TextConfig)
    stop_words: tuple[str, ...] = ()
    min_df: int | float = 1
    max_df: int | float = 1.0
    max_features: int | None = 1 << 20
    sublinear_tf: bool = False
    idf: str = "smooth"
    norm: str | None = None
    bm25_k1: float = 1.2
    bm25_b: float = 0.75
    hash_size: int | None = None

    def __post_init__(self) -> None:
        if self.norm is None:
            object.__setattr__(self, "norm", "l2" if self.features == "tfidf" else "none")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name.replace('_', '-')} is {value!r}: choose one of {', '.join(choices)}")
        ngrams = self.ngrams
        if not (isinstance(ngrams, tuple) and len(ngrams) == 2 and all(map(_whole, ngrams))) or not (
            1 <= ngrams[0] <= ngrams[1] <= 10
        ):
            raise ValueError(f"ngrams is {ngrams}: give MIN,MAX with 1 <= MIN <= MAX <= 10")
        _check_df("min-df", self.min_df)
        _check_df("max-df", self.max_df)
        most = self.max_features
        if most is not None and not (_whole(most) and 1 <= most < 1 << 31):
            raise ValueError(f"max-features is {most}: give 1 to {(1 << 31) - 1}, or none to keep every term")
        if not isinstance(self.sublinear_tf, bool):
            raise ValueError(f"sublinear-tf is {self.sublinear_tf!r}: give True or False")
        if not isinstance(self.stop_words, tuple) or not all(isinstance(word, str) for word in self.stop_words):
            raise ValueError(f"stop-words is {self.stop_words!r}: give a tuple of words")
        for name, largest in (("bm25_k1", 1000.0), ("bm25_b", 1.0)):
            value = getattr(self, name)
            if not isinstance(value, float) or not 0.0 <= value <= largest:
                raise ValueError(f"{name.replace('_', '-')} is {value!r}: give a number from 0.0 to {largest}")
        if self.hash_size is not None:
            if not (_whole(self.hash_size) and 1 <= self.hash_size < 1 << 31):
                raise ValueError(f"hash is {self.hash_size}: give a number of indices from 1 to {(1 << 31) - 1}")
            for name in ("min_df", "max_df", "max_features"):
                if getattr(self, name) not in (getattr(FeatureConfig, name), None):
                    raise ValueError(f"{name.replace('_', '-')} has no meaning with hash: leave one of the two out")
            if self.idf == "plain":
                raise ValueError(
                    "idf plain has no value for an index that was never seen, as hash may give: choose smooth"
                )
            object.__setattr__(self, "max_features", None)
        if self.stop_words and self.text.tokenizer in CHARACTERS:
            raise ValueError(f"stop-words have no meaning with tokenizer {self.text.tokenizer!r}: leave one out")
        for name, kind in _MEANT_FOR.items():
            if self.features != kind and getattr(self, name) != getattr(FeatureConfig, name):
                raise ValueError(
                    f"{name.replace('_', '-')} has no meaning with features {self.features!r}: leave it out, "
                    f"or choose {kind}"
                )

    def to_json(self) -> str:
        """The canonical JSON text: sorted keys, no white space; without what a later version added and nobody set."""
        values = asdict(self)
        for name in _ADDED_LATER:
            for settings, kind in ((values, FeatureConfig), (values["text"], TextConfig)):
                if name in settings and settings[name] == getattr(kind, name):
                    del settings[name]
        return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> FeatureConfig:
        """The configuration `to_json` wrote; raises ValueError on unknown settings and bad values."""
        values = json.loads(text)
        try:
            words = tuple((word, count) for word, count in values["text"].pop("user_dict", ()))
            values["text"] = TextConfig(**values["text"], user_dict=words)
            values["ngrams"], values["stop_words"] = tuple(values["ngrams"]), tuple(values["stop_words"])
            return cls(**values)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a feature configuration of this version: {error}") from error

    @cached_property
    def stop_table(self) -> TermTable | None:
        """The stop words as a hash table, or None if there are none."""
        return TermTable.build(pa.array(self.stop_words, pa.large_string())) if self.stop_words else None

    def count(self, text: pa.Array) -> BlockCounts:
        """Normalise, tokenise and count documents (string[n], UTF-8, null = empty); TypeError if they are no array."""
        counted = self.count_terms(text)
        return hash_counts(counted, self.hash_size) if self.hash_size else counted

    def count_terms(self, text: pa.Array) -> BlockCounts:
        """What `count` gives, before terms are hashed."""
        if not isinstance(text, pa.Array | pa.ChunkedArray):
            raise TypeError(f"text is {type(text).__name__}: give an Arrow array, pa.array([...])")
        within_sentence = self.ngram_span == "sentence" and self.ngrams[1] > 1
        tokens = spans(text, self.text, sentences=within_sentence, shortest=self.ngrams[0])
        words = self.text.tokenizer not in CHARACTERS
        counted = count_terms(tokens, self.ngrams, self.stop_table, not within_sentence, joined_by_space=words)
        holds_spaces = self.text.tokenizer == "regex" or self.text.user_dict
        return join_equal_terms(counted) if holds_spaces and self.ngrams[1] > 1 else counted

    def df_limits(self, n: int) -> tuple[float, float]:
        """Smallest and largest df that stay, for n documents (scikit-learn's rule: shares are multiplied by n).

        Raises ValueError if no df can be within both.
        """
        low = self.min_df * n if isinstance(self.min_df, float) else self.min_df
        high = self.max_df * n if isinstance(self.max_df, float) else self.max_df
        if low > n:
            raise ValueError(
                f"min-df {self.min_df} is more than the number of documents, {n}: give at most {n}, or a share of them "
                "such as 0.01"
            )
        if high < low:
            raise ValueError(
                f"max-df {self.max_df} is {high:g} of {n} documents, below min-df {self.min_df} = {low:g}: "
                "no term can stay; raise max-df or lower min-df"
            )
        return low, high


@dataclass(frozen=True)
class Features:
    """Sparse rows: indptr int64[n+1], indices int32[nnz] (sorted and unique in a row), values float32[nnz]."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    def arrow(self) -> tuple[pa.Array, pa.Array]:
        """The rows as list<int32> and list<float32> arrays, without a copy of the entries."""
        offsets = pa.array(self.indptr.astype(np.int32))
        lists = pa.ListArray.from_arrays
        return lists(offsets, pa.array(self.indices)), lists(offsets, pa.array(self.values))

    def hashes(self, ids: pa.Array, labels: pa.Array | None) -> np.ndarray:
        """A 128-bit hash of each row's id, label and entries, uint64[n, 2]: what the content hash adds up."""
        keys = np.zeros((len(ids), 4), np.uint64)
        keys[:, :2] = value_hashes(ids)
        if labels is not None:
            keys[:, 2:] = value_hashes(labels)
        return _hash_rows(keys, self.indptr, self.indices, self.values.view(np.uint32))


def value_hashes(values: pa.Array) -> np.ndarray:
    """A 128-bit hash of each id or label (string, integer or list of strings), uint64[n, 2]; null is all ones."""
    kind = values.type
    if pa.types.is_integer(kind):
        number = pc.fill_null(values, 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        hashes = np.stack([number.view(np.uint64), np.full(len(values), 1, np.uint64)], axis=1)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        whole = pc.fill_null(values, pa.scalar([], kind))
        parts = value_hashes(whole.flatten()).reshape(-1).view(np.uint8)
        ends = np.concatenate([[0], np.cumsum(pc.list_value_length(whole).to_numpy(zero_copy_only=False))])
        hashes = content_hash(
            pa.LargeBinaryArray.from_buffers(
                pa.large_binary(), len(values), [None, pa.py_buffer(16 * ends.astype(np.int64)), pa.py_buffer(parts)]
            )
        )
    else:
        hashes = content_hash(values)
    if values.null_count:
        hashes[values.is_null().to_numpy(zero_copy_only=False)] = np.iinfo(np.uint64).max
    return hashes


@kernel
def _hash_rows(keys: np.ndarray, indptr: np.ndarray, indices: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """MurmurHash3 x64_128 of each row: 32 bytes of key, then the indices and the values' bits, little-endian."""
    n = keys.shape[0]
    longest = 0
    for row in range(n):
        longest = max(longest, indptr[row + 1] - indptr[row])
    words = np.empty(8 + 2 * longest, np.uint32)
    data = words.view(np.uint8)
    out = np.empty((n, 2), np.uint64)
    for row in range(n):
        for k in range(4):
            words[2 * k] = np.uint32(keys[row, k] & np.uint64(0xFFFFFFFF))
            words[2 * k + 1] = np.uint32(keys[row, k] >> np.uint64(32))
        begin, nnz = indptr[row], indptr[row + 1] - indptr[row]
        for i in range(nnz):
            words[8 + i] = indices[begin + i]
            words[8 + nnz + i] = bits[begin + i]
        out[row, 0], out[row, 1] = murmur128(data, 0, 32 + 8 * nnz, 0)
    return out


@kernel
def _weigh(
    indptr: np.ndarray,
    indices: np.ndarray,
    tf: np.ndarray,
    of_tf: np.ndarray,
    saturation: np.ndarray,
    idf: np.ndarray,
    norm: int,
) -> np.ndarray:
    """of_tf[tf] * idf[index] in float64, over the row's L1 (norm 1) or L2 (norm 2) norm; float32 at the end.

    saturation float64[n], or [0] for none: of_tf[tf] is first divided by tf + the row's.
    """
    values = np.empty(indices.size, np.float32)
    longest = 0
    for row in range(indptr.size - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    weights = np.empty(longest, np.float64)
    for row in range(indptr.size - 1):
        begin, nnz = indptr[row], indptr[row + 1] - indptr[row]
        total = 0.0
        for i in range(nnz):
            weight = of_tf[tf[begin + i]]
            if saturation.size:
                weight /= tf[begin + i] + saturation[row]
            weight *= idf[indices[begin + i]]
            weights[i] = weight
            total += weight * weight if norm == 2 else abs(weight)
        if norm == 2:
            total = math.sqrt(total)
        scale = total if norm > 0 and total > 0 else 1.0
        for i in range(nnz):
            values[begin + i] = weights[i] / scale
    return values


def inverse_df(df: np.ndarray, n: int, form: str) -> np.ndarray:
    """idf of each df in n documents as float64.

    form: smooth ln((1+n)/(1+df)) + 1 and plain ln(n/df) + 1 are scikit-learn's (Pedregosa et al. 2011), ml
    ln((n+1)/(df+1)) is Spark ML's, bm25 ln(1 + (n-df+½)/(df+½)) is Lucene's. Each distinct df is computed once by
    math.log, so that the bits do not depend on a vector library. Raises ValueError for n < 1.
    """
    if n < 1:
        raise ValueError("no documents: an inverse document frequency needs at least one")
    of = {
        "smooth": lambda d: math.log((1 + n) / (1 + d)) + 1.0,
        "plain": lambda d: math.log(n / d) + 1.0,
        "ml": lambda d: math.log((n + 1) / (d + 1)),
        "bm25": lambda d: math.log(1 + (n - d + 0.5) / (d + 0.5)),
    }[form]
    distinct, place = np.unique(df, return_inverse=True)
    return np.array([of(int(d)) for d in distinct], np.float64)[place]


def weigh(
    counts: BlockCounts, table: TermTable, config: FeatureConfig, mean_length: float, unseen_idf: float
) -> Features:
    """A block's counts as features over the vocabulary `table`, whose weights are the terms' idf.

    mean_length: tokens a document (after stop words) where the model was fitted, for bm25. unseen_idf: the weight of an
    index that the fit did not see; other unseen terms are left out.
    """
    found = table.find(counts.dictionary.terms)
    if config.hash_size:
        indptr, indices, tf = counts.indptr, counts.ids, counts.tf  # in order of index already
        idf = (
            np.where(found >= 0, table.weights[found], unseen_idf)
            if len(table.weights)
            else np.full(len(found), unseen_idf)
        )
    else:
        indptr, indices, tf = renumber(counts.indptr, counts.ids, counts.tf, found)
        idf = table.weights
    values = entry_values(indptr, indices, tf, idf, counts.lengths, config, mean_length)
    if config.hash_size:
        indices = term_indices(counts.dictionary.terms).astype(np.int32)[indices]
    return Features(indptr, indices, values)


def entry_values(
    indptr: np.ndarray,
    indices: np.ndarray,
    tf: np.ndarray,
    idf: np.ndarray,
    lengths: np.ndarray,
    config: FeatureConfig,
    mean_length: float,
) -> np.ndarray:
    """The values of rows of entries (CSR, sorted by index), float32[nnz]; an entry's idf is idf[its index].

    lengths: tokens of each document, mean_length: where the model was fitted, both for bm25.
    """
    most = int(tf.max(initial=0))
    saturation = np.empty(0)
    if config.features == "onehot":
        of_tf = np.ones(most + 1)
    elif config.sublinear_tf:
        of_tf = np.zeros(most + 1)
        for count in np.unique(tf):
            of_tf[count] = 1.0 + math.log(count)
    else:
        of_tf = np.arange(most + 1, dtype=np.float64)
    if config.features == "bm25":
        length = lengths / mean_length if mean_length else np.zeros(len(lengths))
        of_tf *= config.bm25_k1 + 1.0
        saturation = config.bm25_k1 * (1.0 - config.bm25_b + config.bm25_b * length)
    norm = {"none": 0, "l1": 1, "l2": 2}[config.norm or "none"]
    return _weigh(indptr, indices, tf, of_tf, saturation, idf, norm)


def _idf_form(config: FeatureConfig) -> str | None:
    return {"tfidf": config.idf, "bm25": "bm25"}.get(config.features)


class FeatureModel:
    """A vocabulary with its weights: fitted once, the same features for any text ever after.

    terms: large_string[t] in order of code points (a term's rank is its index), df and cf int64[t], idf float64[t];
    n documents and n_tokens tokens (after stop words) were counted. counts: those of all terms, also of the ones that
    the vocabulary leaves out, if they were kept. fitted_on: the split whose training part the documents were, if they
    were one; it is not part of the id.
    """

    def __init__(
        self,
        config: FeatureConfig,
        terms: pa.Array,
        df: np.ndarray,
        cf: np.ndarray,
        idf: np.ndarray,
        n: int,
        n_tokens: int,
        counts: KeptCounts | None = None,
        fitted_on: Split | None = None,
    ) -> None:
        self.config, self.terms, self.df, self.cf, self.idf = config, terms, df, cf, idf
        self.n, self.n_tokens, self.counts, self.fitted_on = n, n_tokens, counts, fitted_on

    def __repr__(self) -> str:
        return f"FeatureModel({self.config.features}, {len(self.terms)} terms of {self.n} documents, id {self.id})"

    @classmethod
    def of_counts(cls, config: FeatureConfig, counts: TermCounts, n: int, n_tokens: int) -> FeatureModel:
        """The model whose vocabulary is all of `counts`, of n documents with n_tokens tokens."""
        ordered = sort_counts(counts)
        form = _idf_form(config)
        idf = inverse_df(ordered.df, n, form) if form else np.ones(len(ordered.df), np.float64)
        return cls(config, ordered.terms, ordered.df, ordered.cf, idf, n, n_tokens)

    @classmethod
    def fit(cls, text: pa.Array, config: FeatureConfig | None = None, keep_counts: bool = False) -> FeatureModel:
        """Fit on documents in memory (string[n]); raises ValueError if there are none or no term is left.

        keep_counts: keep the counts of all terms, for merge and subtract; the model's id is the same.
        """
        config = config or FeatureConfig()
        if len(text) == 0:
            raise ValueError("no documents: give at least one to fit on")
        counted = config.count(text)
        n, n_tokens = len(text), int(counted.lengths.sum())
        model = cls.of_counts(config, select([counted.dictionary], config, n), n, n_tokens)
        model.counts = KeptCounts.of(config, n, n_tokens, counted.dictionary) if keep_counts else None
        return model

    @classmethod
    def of_kept(
        cls, added: Sequence[KeptCounts], subtracted: Sequence[KeptCounts] = (), folder: Path | None = None
    ) -> FeatureModel:
        """The model of the documents of `added` without those of `subtracted`, the same as a fit on what is left.

        Its own counts are kept in memory, or in a new local folder; then no more than a shard of each is held at once.
        Raises ValueError if settings differ, what is subtracted was not added, or nothing is left.
        """
        counts = combine(added, subtracted, folder)
        chosen = select(counts, counts.config, counts.n)
        model = cls.of_counts(counts.config, chosen, counts.n, counts.n_tokens)
        model.counts = counts
        return model

    def merge(self, *others: FeatureModel) -> FeatureModel:
        """The model of the documents of this one and the others: that of a fit on all of them. See `of_kept`."""
        return self.of_kept([model._kept() for model in (self, *others)])

    def subtract(self, *others: FeatureModel) -> FeatureModel:
        """The model of this one's documents without the others', which must be among them. See `of_kept`."""
        return self.of_kept([self._kept()], [model._kept() for model in others])

    def _kept(self) -> KeptCounts:
        if self.counts is None:
            raise ValueError(f"{self!r} has no counts of all its terms: fit it with keep_counts=True (--keep-counts)")
        return self.counts

    @property
    def mean_length(self) -> float:
        """Tokens a document, after stop words: BM25's avgdl."""
        return self.n_tokens / self.n if self.n else 0.0

    @cached_property
    def unseen_idf(self) -> float:
        """The idf of a term in no document, for hashed terms; 1 where there is no idf."""
        form = _idf_form(self.config)
        return float(inverse_df(np.zeros(1, np.int64), self.n, form)[0]) if self.config.hash_size and form else 1.0

    @property
    def width(self) -> int:
        """The number of columns of a matrix of features."""
        return self.config.hash_size or len(self.terms)

    @cached_property
    def indices(self) -> np.ndarray:
        """The column of each term, int64[t]."""
        return term_indices(self.terms) if self.config.hash_size else np.arange(len(self.terms))

    def names(self, indices: np.ndarray) -> list[str]:
        """The terms of some columns; of a hashed one only "#" and its index is known."""
        return (index_terms(indices) if self.config.hash_size else self.terms.take(pa.array(indices))).to_pylist()

    @cached_property
    def table(self) -> TermTable:
        """The vocabulary as a hash table, weighing idf."""
        return TermTable.build(self.terms, self.idf)

    @cached_property
    def content_hash(self) -> str:
        """Sum of the hashes of all (term, index, df, cf, idf), and of n, as 32 hex digits.

        For bm25, whose values depend on it, the number of tokens is added, too, in the upper half.
        """
        rows = row_hashes(self.terms, self.indices, self.df, self.cf, self.idf.view(np.int64))
        tokens = self.n_tokens << 64 if self.config.features == "bm25" else 0
        return f"{(hash_sum(rows) + self.n + tokens) % (1 << 128):032x}"

    @cached_property
    def id(self) -> str:
        """Content hash of configuration and vocabulary (term, index, df, cf, idf, n; bm25: tokens): 32 hex digits."""
        return hashlib.blake2b(f"{self.config.to_json()}\n{self.content_hash}".encode(), digest_size=16).hexdigest()

    def weigh(self, counts: BlockCounts) -> Features:
        """A block's counts as features of this model."""
        return weigh(counts, self.table, self.config, self.mean_length, self.unseen_idf)

    def transform(self, text: pa.Array) -> csr_matrix:
        """Features of documents (string[n], null = empty) as CSR float32[n, t], indices sorted."""
        found = self.weigh(self.config.count(text))
        shape = (len(found.indptr) - 1, self.width)
        matrix = csr_matrix((found.values, found.indices, found.indptr), shape=shape, copy=False)
        matrix.has_sorted_indices = True
        return matrix

    def inverse_transform(self, matrix: csr_matrix) -> list[list[str]]:
        """The terms of each row, in order of index."""
        rows = matrix.tocsr().sorted_indices()
        taken = self.names(rows.indices)
        return [taken[a:b] for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]

    def top_terms(
        self, matrix: csr_matrix, labels: Iterable[str | list[str] | None], k: int = 10
    ) -> dict[str, list[str]]:
        """For each label the k terms that tell its documents best from the others; a row has a label, a list, or None.

        A term's score is p ln(p / q), its share in the Kullback-Leibler divergence of its mean weights p inside and q
        outside the label, with p / q at most 50. Ties go to the smaller index. Documents without a label are outside.
        """
        columns = np.unique(matrix.indices)  # the others have no weight in any row
        matrix = matrix[:, columns]
        rows: dict[str, set[int]] = {}
        for row, given in enumerate(labels):
            for label in given if isinstance(given, list) else [given]:
                if label is not None:
                    rows.setdefault(str(label), set()).add(row)
        total = np.asarray(matrix.sum(axis=0, dtype=np.float64)).ravel()
        top = {}
        for label in sorted(rows):
            inside = sorted(rows[label])
            part = np.asarray(matrix[inside].sum(axis=0, dtype=np.float64)).ravel()
            p, q = part / len(inside), (total - part) / max(1, matrix.shape[0] - len(inside))
            score = p * np.log(np.maximum(p, 1e-300) / np.maximum(q + p / 50, 1e-300))
            best = np.argsort(-score, kind="stable")[:k]
            top[label] = self.names(columns[best[score[best] > 0]])
        return top

    def save(self, path: str | Path) -> None:
        """Write the model folder to a new or empty local folder: config.json, vocabulary.parquet, manifest.json, and
        counts/ if counts were kept here."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: a model is saved to a folder of its own")
        vocabulary = pa.table(
            {
                "index": pa.array(self.indices.astype(np.int32)),
                "term": self.terms.cast(pa.string()),
                "df": self.df,
                "cf": self.cf,
                "idf": self.idf,
            }
        )
        pq.write_table(vocabulary, folder / "vocabulary.parquet", compression="zstd")
        if self.counts:
            self.counts.save(folder / "counts")
        settings, manifest = self._files()
        (folder / "config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8")
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")

    def _files(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What config.json and manifest.json hold."""
        settings = {
            "format": FORMAT,
            "unicode": UNICODE,
            "model_id": self.id,
            "features": json.loads(self.config.to_json()),
        }
        if self.config.hash_size:
            settings["hash"] = HASH
        manifest: dict[str, Any] = {
            "model_id": self.id,
            "content_hash": self.content_hash,
            "documents": self.n,
            "tokens": self.n_tokens,
            "terms": len(self.df),
        }
        if self.fitted_on:
            manifest["fitted_on"] = self.fitted_on.to_dict()
        if self.counts:
            manifest["counts"] = self.counts.summary
        hash = hashlib.blake2b(json.dumps(manifest).encode(), digest_size=16).hexdigest()
        return settings, {**manifest, "hash": hash}

    @classmethod
    def load(cls, path: str | Path) -> FeatureModel:
        """Read a model folder; raises ValueError if it is not one, is of another format, or was changed since.

        Its counts/ may be missing: they are read, and checked, only to merge or subtract.
        """
        folder = Path(path)
        for name in MODEL_FILES:
            if not (folder / name).is_file():
                raise ValueError(f"{folder} is not a model folder: it has no {name}; give what --model wrote")
        try:
            settings, manifest = (json.loads((folder / name).read_text("utf-8")) for name in MODEL_FILES[:2])
            form = settings.get("format")
            model = cls._read(folder, settings, manifest) if form == FORMAT else None
        except (
            ValueError,  # also of json and numpy
            pa.ArrowException,
            OSError,  # Arrow's word for a damaged file
            OverflowError,
            RecursionError,
            AttributeError,
            LookupError,
            TypeError,
        ) as error:
            raise ValueError(f"{folder} is a damaged model ({type(error).__name__}: {error}): fit it again") from None
        if form != FORMAT:
            raise ValueError(f"{folder} is a model of format {form}, this version reads {FORMAT}: fit it again")
        if model is None:
            raise ValueError(f"{folder}: the model was changed since it was written: fit it again")
        return model

    @classmethod
    def _read(cls, folder: Path, settings: dict[str, Any], manifest: dict[str, Any]) -> FeatureModel | None:
        """The model in a folder with these files; None if it is not the one that was written there."""
        with pq.ParquetFile(folder / "vocabulary.parquet") as file:
            # One thread: a process that ends while those of Arrow's pool still do may abort (arrow issue 34314).
            table = file.read(use_threads=False).combine_chunks()
        if table.schema.types != VOCABULARY_TYPES or any(column.null_count for column in table.columns):
            return None
        index, df, cf, idf = (table[name].to_numpy() for name in ("index", "df", "cf", "idf"))
        terms = pa.concat_arrays(table["term"].cast(pa.large_string()).chunks or [pa.array([], pa.large_string())])
        config = FeatureConfig.from_json(json.dumps(settings["features"]))
        n, n_tokens = manifest["documents"], manifest["tokens"]
        counts = None
        if "counts" in manifest:
            what: dict[str, Any] = {**manifest["counts"], "source": folder / "counts", "name": str(folder)}
            counts = KeptCounts(config, n, n_tokens, **what)
        fitted_on = Split.from_dict(manifest["fitted_on"]) if "fitted_on" in manifest else None
        model = cls(config, terms, df, cf, idf, n, n_tokens, counts, fitted_on)
        same = (settings, manifest) == model._files() and np.array_equal(index, model.indices)
        return model if same else None


def select(parts: Iterable[TermCounts], config: FeatureConfig, n: int) -> TermCounts:
    """The vocabulary for n documents: df within the limits, then the max_features largest by (cf desc, term asc).

    parts: counts of different terms, taken one after the other; at most three times max_features terms, and those of a
    part, are held. Raises ValueError if no term is left.
    """
    low, high = config.df_limits(n)
    most = config.max_features
    held: list[TermCounts] = []
    terms = 0
    for part in parts:
        rows = first_in_order(part, np.flatnonzero((part.df >= low) & (part.df <= high)), most)
        if len(rows):
            held.append(take_counts(part, rows))
            terms += len(rows)
        if most and terms > 2 * most:
            held, terms = [_first(join_counts(held), most)], most
    chosen = _first(join_counts(held), most)
    if not len(chosen.df):
        raise ValueError(
            f"no term is left in {n} documents: lower min-df ({config.min_df}), raise max-df "
            f"({config.max_df}), or check the tokenizer and the stop words"
        )
    return chosen


def _first(counts: TermCounts, most: int | None) -> TermCounts:
    return take_counts(counts, first_in_order(counts, np.arange(len(counts.df)), most))


def sklearn_preset(config: FeatureConfig) -> FeatureConfig:
    """`config` as scikit-learn's vectorizers would have it: their tokens, no NFC, n-grams across the document.

    The tokenizers char and char_wb stay: they are its analyzers of these names.
    """
    tokenizer = config.text.tokenizer if config.text.tokenizer in CHARACTERS else "sklearn"
    return replace(config, text=replace(config.text, unicode="none", tokenizer=tokenizer), ngram_span="document")
