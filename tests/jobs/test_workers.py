"""The stages of workers.py in this process, at sizes that a small corpus does not reach."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from jobs import workers
from jobs.warm import files
from models.features import FeatureConfig
from udfs.records import Layout


def fitted(texts: list[str]) -> tuple[dict[str, tuple[int, int]], list[int], int]:
    """df and cf of each term as count and merge_shards leave them, the highest cf of each cell, and how many cells."""
    lines = {"bytes": [text.encode() for text in texts], "source": ["-"] * len(texts), "start": [0] * len(texts)}
    counted = files(
        workers.count(iter([pa.record_batch(lines)]), 0, FeatureConfig().to_json(), Layout("text").to_json())
    )
    merged = files(workers.merge_shards(iter(counted["dealt"].to_batches()), 0, 1, len(texts)))["terms"]
    tables = [workers.from_bytes(cell) for cell in merged["terms"].combine_chunks()]
    for most, table in zip(merged["most_cf"].to_pylist(), tables, strict=True):
        cf = table["cf"].to_pylist()
        assert max(cf) == most < 2 * min(cf)
    rows = [row for table in tables for row in table.to_pylist()]
    assert len({row["term"] for row in rows}) == len(rows)
    return {row["term"]: (row["df"], row["cf"]) for row in rows}, merged["most_cf"].to_pylist(), len(counted["dealt"])


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
