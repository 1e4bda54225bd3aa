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


def fitted(texts: list[str]) -> tuple[dict[str, tuple[int, int]], list[int], int]:
    """df and cf of each term as count and merge_shards leave them, the highest cf of each cell, and how many cells."""
    lines = {"bytes": [text.encode() for text in texts], "source": ["-"] * len(texts), "start": [0] * len(texts)}
    counted = files(
        workers.count(iter([pa.record_batch(lines)]), 0, FeatureConfig().to_json(), Layout("text").to_json())
    )
    merged = files(workers.merge_shards(iter(counted["dealt"].to_batches()), 0, 1, len(texts)))["terms"]
    cells = [workers.unpack_counts(cell) for cell in merged["terms"].combine_chunks()]
    for most, counts in zip(merged["most_cf"].to_pylist(), cells, strict=True):
        assert counts.cf.max() == most < 2 * counts.cf.min()
    whole = join_counts(cells)
    rows = list(zip(whole.terms.to_pylist(), whole.df.tolist(), whole.cf.tolist(), strict=True))
    assert len({row[0] for row in rows}) == len(rows)
    return {term: (df, cf) for term, df, cf in rows}, merged["most_cf"].to_pylist(), len(counted["dealt"])


def test_terms_are_summed_alike_whether_a_partition_deals_them_once_or_often(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"often often word{number % 50} word{number}" for number in range(200)]
    cf, df = Counter(" ".join(texts).split()), Counter(term for text in texts for term in set(text.split()))
    expected = {term: (df[term], cf[term]) for term in cf}
    once, most, cells = fitted(texts)
    assert once == expected
    assert sorted(most) == [1, 5, 400]
    monkeypatch.setattr(workers, "BLOCK_BYTES", 100)
    monkeypatch.setattr(workers, "HELD_TERMS", 20)
    often, most_often, more_cells = fitted(texts)
    assert often == expected
    assert most_often == most
    assert more_cells > cells


@pytest.mark.parametrize("most", [0, 255, 256, 70_000, 1 << 40])
def test_packed_counts_come_back_whatever_their_size(most: int) -> None:
    terms = pa.array(["", "中文", "x" * 300, "\0"], pa.large_string())
    for rows in (0, 1, 4):
        counts = TermCounts(terms[:rows], np.array([0, most, 1, 2])[:rows], np.array([most, 0, 0, 3])[:rows])
        again = workers.unpack_counts(pa.scalar(workers.pack_counts(counts)))
        assert again.terms.equals(counts.terms)
        assert (again.df.tolist(), again.cf.tolist()) == (counts.df.tolist(), counts.cf.tolist())
        assert again.df.dtype == again.cf.dtype == np.int64
