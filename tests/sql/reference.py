"""What the queries of sql/ must give for a few documents of many kinds, by the Python functions in float64."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.features import FeatureConfig, FeatureModel
from tests.conftest import corpus
from udfs.text import stop_words, tokens

Row = tuple[Any, ...]

TEXTS: dict[str, str | None] = {
    "en": "The cat sat on the mat. The cat ran!\n\nIt's 10.5 km to the café, isn't it?",
    "zh": "这只猫坐在垫子上。猫跑了!它很快。我爱北京天安门,我爱猫。",
    "hi": "बिल्ली चटाई पर बैठी है। बिल्ली भागी।",
    "emoji": "I ❤️ cats 🐈‍⬛👍🏽 and the cat 😀 sat",
    "mixed": "GPU加速 the cat，देखो! ﬁne ① x²",
    "tabs": "the\tcat\nsat\r\non 'the' \\mat\\ \x01 ; -- /* ${x}",
    "again": "The cat sat on the mat. The cat ran!\n\nIt's 10.5 km to the café, isn't it?",
    "near": "The cat sat on the mat. The cat ran! It's 10.5 km to the café, isn't it?",
    "empty": "",
    "blank": " \t\u3000\n",
    "null": None,
    "one": "cat",
}
LABELS = {"en": "a", "zh": "b", "hi": "b", "emoji": "a", "again": "a", "near": "a", "one": "c", "null": "a"}
SCORES = [
    ("en", "a", 0.75, [0.75, 0.125, 0.125]),
    ("en", "a", 0.5, [0.5, 0.3, 0.2]),
    ("en", "b", 0.9, [0.05, 0.9, 0.05]),
    ("zh", "c", 0.6, [0.1, 0.3, 0.6]),
    ("zh", "b", 0.6, [0.1, 0.6, 0.3]),
    ("null", "a", 0.4, [0.4, 0.3, 0.3]),
]
PARAMS = {
    "ngrams.tokens": "kept_tokens",
    "bm25.tokens": "kept_tokens",
    "cooccurrence.reach": "2",
    "hashing.size": "50",
    "merge_counts.vocabulary": "vocabulary",
    "minhash.places": "16",
    "most": "2",
    "pmi.min_pairs": "2",
    "search.best": "4",
    "search.words": "cat 猫 बिल्ली zebra cat",
    "top_terms.min_df": "1",
    "top_terms.terms": "3",
    "vocabulary.max_df": "0.75",
    "vocabulary.max_features": "60",
}


@cache
def documents() -> list[Row]:
    """id, text, label: the texts above, and some real pages in Chinese."""
    real = corpus("libreoffice_help_zh.jsonl.gz").slice(0, 8).to_pylist()
    rows: list[Row] = [(name, text, LABELS.get(name)) for name, text in TEXTS.items()]
    return rows + [(row["id"], row["text"], row["label"]) for row in real]


@cache
def stop_list() -> list[str]:
    """The words that are left out."""
    return stop_words("en") + ["的", "了"]


@cache
def config(**settings: Any) -> FeatureConfig:
    """The main job's settings that the parameters above stand for."""
    kept = {} if "hash_size" in settings else {"max_df": 0.75, "max_features": 60}
    return FeatureConfig(ngrams=(1, 2), stop_words=tuple(sorted(set(stop_list()))), **kept, **settings)


def texts() -> pa.Array:
    return pa.array([text for _, text, _ in documents()], pa.string())


@cache
def token_rows() -> list[Row]:
    """TOKENS."""
    found = tokens(texts())
    return [
        (id, *(values[name] for name in ("sentence", "position", "token", "begin_at", "end_at")))
        for (id, _, _), lists in zip(documents(), found.to_pylist(), strict=True)
        for values in (dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True))
    ]


def split_words() -> list[Row]:
    rows: list[Row] = []
    for id, text, _ in documents():
        words = [word for word in (text or "").translate(str.maketrans("\t\n\r", "   ")).split(" ") if word]
        rows += [(id, k, word) for k, word in enumerate(words)] or [(id, None, None)]
    return rows


@cache
def kept_tokens() -> list[Row]:
    stopped = set(stop_list())
    return [row for row in token_rows() if row[3] not in stopped]


@cache
def ngrams() -> list[Row]:
    rows: list[Row] = []
    tokens = kept_tokens()
    for k, (id, sentence, position, token, *_) in enumerate(tokens):
        rows.append((id, position, 1, token))
        after = tokens[k + 1] if k + 1 < len(tokens) else ("", 0, 0)
        if after[:3] == (id, sentence, position + 1):
            rows.append((id, position, 2, f"{token} {after[3]}"))
    return rows


@cache
def term_counts() -> list[Row]:
    return [(*key, tf) for key, tf in Counter((id, term) for id, _, _, term in ngrams()).items()]


@cache
def document_frequencies() -> Counter[str]:
    return Counter(term for _, term, _ in term_counts())


@cache
def vocabulary() -> list[Row]:
    df, cf = document_frequencies(), Counter(term for *_, term in ngrams())
    within = [term for term in df if 1 <= df[term] <= 0.75 * len(documents())]
    chosen = sorted(sorted(within, key=lambda term: (-cf[term], term))[:60])
    return [(k, term, df[term], cf[term]) for k, term in enumerate(chosen)]


def weights(of: Callable[[str, str, int], float]) -> list[Row]:
    index = {term: k for k, term, _, _ in vocabulary()}
    return [(id, index[term], of(id, term, tf)) for id, term, tf in term_counts() if term in index]


def tfidf(idf: str = "smooth", sublinear_tf: int = 0, norm: str = "l2") -> list[Row]:
    n, df = len(documents()), document_frequencies()
    forms = {
        "smooth": lambda d: math.log((1 + n) / (1 + d)) + 1,
        "plain": lambda d: math.log(n / d) + 1,
        "ml": lambda d: math.log((n + 1) / (d + 1)),
    }
    rows = weights(lambda id, term, tf: (1 + math.log(tf) if sublinear_tf else tf) * forms[idf](df[term]))
    totals: dict[str, list[float]] = defaultdict(list)
    for id, _, value in rows:
        totals[id].append(value)
    scale = {
        id: {"l2": math.sqrt(math.fsum(v * v for v in values)), "l1": math.fsum(map(abs, values)), "none": 1.0}[norm]
        for id, values in totals.items()
    }
    return [(id, index, value / (scale[id] or 1.0)) for id, index, value in rows]


def bm25(k1: float = 1.2, b: float = 0.75) -> list[Row]:
    n, df = len(documents()), document_frequencies()
    length = Counter(row[0] for row in kept_tokens())
    mean = length.total() / n

    def value(id: str, term: str, tf: int) -> float:
        idf = math.log(1 + (n - df[term] + 0.5) / (df[term] + 0.5))
        return idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length[id] / mean))

    return weights(value)


def search() -> list[Row]:
    index = {term: k for k, term, _, _ in vocabulary()}
    asked = Counter(index[word] for word in PARAMS["search.words"].split() if word in index)
    scores: dict[str, float] = defaultdict(float)
    for id, k, value in bm25():
        if k in asked:
            scores[id] += asked[k] * value
    best = sorted(scores.items(), key=lambda item: (-round(item[1], 9), item[0]))[:4]
    return [(rank, id, score) for rank, (id, score) in enumerate(best, 1)]


def term_hashes() -> list[Row]:
    return [(term, mmh3.hash(term, 42)) for term in document_frequencies()]


def hashing() -> list[Row]:
    index = {term: murmur3 % 50 for term, murmur3 in term_hashes()}
    counts = Counter[tuple[str, int]]()
    for id, term, tf in term_counts():
        counts[id, index[term]] += tf
    return [(*key, float(tf)) for key, tf in counts.items()]


def features() -> list[Row]:
    rows: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for id, index, value in tfidf():
        rows[id].append((index, float(np.float32(value))))
    lists = {id: tuple(map(list, zip(*sorted(entries), strict=True))) for id, entries in rows.items()}
    return [(id, label, *lists.get(id, ([], []))) for id, _, label in documents()]


@cache
def cooccurrence() -> list[Row]:
    sentences: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for id, sentence, position, token, *_ in token_rows():
        sentences[id, sentence].append((position, token))
    pairs = Counter[tuple[str, str]]()
    for members in sentences.values():
        for (p, a), (q, b) in combinations(members, 2):
            if a != b and abs(p - q) <= 2:
                pairs[min(a, b), max(a, b)] += 1
    return [(*key, number) for key, number in pairs.items()]


def pmi() -> list[Row]:
    single = Counter[str]()
    for a, b, number in cooccurrence():
        single[a] += number
        single[b] += number
    total = single.total()
    return [(a, b, n, math.log(n * total / (single[a] * single[b]))) for a, b, n in cooccurrence() if n >= 2]


def top_terms() -> list[Row]:
    label = {id: label for id, _, label in documents() if label is not None}
    n, df = Counter(label.values()), Counter((label[id], term) for id, term, _ in term_counts() if id in label)
    whole = Counter[str]()
    for (_, term), number in df.items():
        whole[term] += number
    rows = []
    for one in sorted(n):
        scored = []
        for term in sorted(term for of, term in df if of == one):
            inside, outside = df[one, term], whole[term] - df[one, term]
            odds = (inside + 0.5) / (n[one] - inside + 0.5), (outside + 0.5) / (n.total() - n[one] - outside + 0.5)
            scored.append((math.log(odds[0]) - math.log(odds[1]), term, inside, outside))
        scored.sort(key=lambda row: (-round(row[0], 9), row[1]))
        rows += [(one, k, term, i, o, score) for k, (score, term, i, o) in enumerate(scored[:3], 1)]
    return rows


def _hash(text: str) -> int:
    return int(hashlib.md5(text.encode()).hexdigest()[:8], 16)


@cache
def minhash() -> list[Row]:
    terms: dict[str, set[int]] = defaultdict(set)
    for id, _, _, term in ngrams():
        terms[id].add(_hash(term))
    lines = [(1 + _hash(f"a{k}") % 2147483647, _hash(f"b{k}") % 2147483647) for k in range(16)]
    return [
        (id, k, min((a * x + b) % 4294967311 for x in found))
        for id, found in terms.items()
        for k, (a, b) in enumerate(lines)
    ]


def near_duplicates() -> list[Row]:
    bands: dict[tuple[int, tuple[int, ...]], list[str]] = defaultdict(list)
    signatures: dict[str, list[int]] = defaultdict(list)
    for id, _, value in minhash():
        signatures[id].append(value)
    for id, values in signatures.items():
        for band in range(4):
            bands[band, tuple(values[4 * band : 4 * band + 4])].append(id)
    met = Counter((id, min(ids)) for ids in bands.values() for id in ids if id != min(ids))
    return [(*pair, number) for pair, number in met.items()]


def merge_counts() -> list[Row]:
    totals: dict[str, tuple[int, int]] = {term: (df, cf) for _, term, df, cf in vocabulary()}
    for term, df, cf in DAY:
        before = totals.get(term, (0, 0))
        totals[term] = (before[0] + df, before[1] + cf)
    return [(term, *numbers) for term, numbers in totals.items()]


DAY = [("cat", 3, 7), ("zebra", 1, 1), ("猫", 2, 2)]


def vote() -> list[Row]:
    return [("en", "a", 2, 2 / 3), ("null", "a", 1, 1.0), ("zh", "b", 1, 0.5)]


def average() -> list[Row]:
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for id, _, _, probabilities in SCORES:
        for k, probability in enumerate(probabilities):
            found[id, k].append(probability)
    return [(*key, math.fsum(values) / len(values), len(values)) for key, values in found.items()]


def label_distribution() -> list[Row]:
    counts = Counter(label for _, _, label in documents())
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0] is None, item[0] or ""))
    return [(label, number, number / len(documents())) for label, number in ranked]


def quality() -> list[Row]:
    numbers = [len(documents()), 0, 0, sum(label is None for *_, label in documents()), 1, 1, 1, 1]
    names = "documents|without id|with a repeated id|without label|without text|with an empty text|with a blank text"
    return [*zip(range(1, 9), [*names.split("|"), "with a repeated text"], numbers, strict=True)]


def lengths() -> list[Row]:
    found = sorted(len(text or "") for _, text, _ in documents())
    places = {
        percent: max(0, math.ceil(percent / 100 * len(found)) - 1) for percent in (0, 1, 5, 25, 50, 75, 95, 99, 100)
    }
    return [(percent, found[place]) for percent, place in places.items()]


def duplicates() -> list[Row]:
    return [("again", 2, len(TEXTS["en"] or ""))]


REFERENCE: dict[str, Callable[[], list[Row]]] = {
    "tokens": token_rows,
    "onehot": lambda: weights(lambda id, term, tf: 1.0),
    "count": lambda: weights(lambda id, term, tf: float(tf)),
} | {
    function.__name__: function
    for function in (
        average, bm25, cooccurrence, duplicates, features, hashing, kept_tokens, label_distribution,
        lengths, merge_counts, minhash, near_duplicates, ngrams, pmi, quality, search, split_words, term_counts,
        term_hashes, tfidf, top_terms, vocabulary, vote,
    )
}  # fmt: skip


def of_main_job(name: str) -> dict[tuple[str, int], float]:
    """The values that the main job gives, by id and index."""
    settings = {"hash_size": 50, "features": "count"} if name == "hashing" else {"features": name}
    rows = FeatureModel.fit(texts(), config(**settings)).transform(texts()).tocoo()
    ids = [id for id, *_ in documents()]
    return {(ids[i], int(j)): float(value) for i, j, value in zip(rows.row, rows.col, rows.data, strict=True)}


TABLES: dict[str, tuple[str, Callable[[], list[Row]]]] = {
    "documents": ("id string, text string, label string", documents),
    "stop_words": ("word string", lambda: [(word,) for word in stop_list()]),
    "scores": ("id string, label string, score double, probabilities array<double>", lambda: SCORES),
    "day": ("term string, df bigint, cf bigint", lambda: DAY),
}
ARROW = {"string": pa.string(), "double": pa.float64(), "bigint": pa.int64(), "array<double>": pa.list_(pa.float64())}


def write_tables(folder: Path) -> dict[str, Path]:
    """Each table that the queries start from as a folder of one Parquet file."""
    for name, (columns, rows) in TABLES.items():
        kinds = dict(column.split(" ") for column in columns.split(", "))
        values = zip(*rows(), strict=True)
        table = pa.table({c: pa.array(v, ARROW[kind]) for (c, kind), v in zip(kinds.items(), values, strict=True)})
        (folder / name).mkdir(parents=True)
        pq.write_table(table, folder / name / "part-0.parquet")
    return {name: folder / name for name in TABLES}


def assert_same(found: list[Row], wanted: list[Row], tolerance: float = 1e-12) -> None:
    """The same rows in any order: floats within a relative tolerance, all else exactly."""
    ours, theirs = (sorted(map(_plain, rows), key=_key) for rows in (found, wanted))
    assert [_key(row) for row in ours] == [_key(row) for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(_floats(one), _floats(other), rtol=tolerance, err_msg=str(other))


def _plain(row: Row) -> Row:
    return tuple(json.loads(value) if isinstance(value, str) and value[:1] == "[" else value for value in row)


def _key(row: Row) -> str:
    return json.dumps([[] if isinstance(value, float) or _is_floats(value) else value for value in row])


def _is_floats(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, float) for each in value)


def _floats(row: Row) -> list[float]:
    return [each for value in row for each in (value if _is_floats(value) else [value]) if isinstance(each, float)]
