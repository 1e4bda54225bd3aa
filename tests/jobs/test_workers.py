"""The stages of workers.py in this process, at sizes that a small corpus does not reach."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from jobs import workers
from jobs.warm import files
from models.counts import TermCounts, join_counts
from models.features import FeatureConfig
from udfs.records import Layout


def fitted(texts: list[str], most: int | None = None) -> tuple[list[tuple[str, int, int]], list[str], int]:
    """Term, df and cf as count and first_terms leave them; the last terms of cut shards; how many rows were dealt."""
    lines = {"bytes": [text.encode() for text in texts], "source": ["-"] * len(texts), "start": [0] * len(texts)}
    counted = files(
        workers.count(iter([pa.record_batch(lines)]), 0, FeatureConfig().to_json(), Layout("text").to_json())
    )
    shards = list(workers.first_terms(iter(counted["dealt"].to_batches()), 0, 1, len(texts), most))
    whole = join_counts([workers.unpack_counts(shard["terms"][0]) for shard in shards])
    rows = sorted(zip(whole.terms.to_pylist(), whole.df.tolist(), whole.cf.tolist(), strict=True))
    lasts = [last for shard in shards for last in shard["last"].to_pylist() if last is not None]
    return rows, lasts, len(counted["dealt"])


def test_terms_are_summed_alike_whether_a_partition_deals_them_once_or_often(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"often often word{number % 50} word{number}" for number in range(200)]
    cf, df = Counter(" ".join(texts).split()), Counter(term for text in texts for term in set(text.split()))
    once, _, dealt = fitted(texts)
    assert once == sorted((term, df[term], cf[term]) for term in cf)
    monkeypatch.setattr(workers, "BLOCK_BYTES", 100)
    monkeypatch.setattr(workers, "HELD_TERMS", 20)
    often, _, dealt_often = fitted(texts)
    assert often == once
    assert dealt_often > dealt


def test_a_shard_gives_its_first_terms_and_names_the_last_where_it_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"often often word{number % 50} word{number}" for number in range(200)]
    monkeypatch.setattr(workers, "SHARDS", 1)
    whole, lasts, _ = fitted(texts)
    assert not lasts
    in_order = sorted(whole, key=lambda row: (-row[2], row[0]))
    for most in (1, 7, 51, 52):
        assert fitted(texts, most)[:2] == (sorted(in_order[:most]), [in_order[most - 1][0]])
    assert fitted(texts, len(whole))[:2] == (whole, [])


@pytest.mark.parametrize("most", [0, 255, 256, 70_000, 1 << 40])
def test_packed_counts_come_back_whatever_their_size(most: int) -> None:
    terms = pa.array(["", "中文", "x" * 300, "\0"], pa.large_string())
    for rows in (0, 1, 4):
        counts = TermCounts(terms[:rows], np.array([0, most, 1, 2])[:rows], np.array([most, 0, 0, 3])[:rows])
        again = workers.unpack_counts(pa.scalar(workers.pack_counts(counts)))
        assert again.terms.equals(counts.terms)
        assert (again.df.tolist(), again.cf.tolist()) == (counts.df.tolist(), counts.cf.tolist())
        assert again.df.dtype == again.cf.dtype == np.int64
