"""The stages of workers.py in this process, at sizes that a small corpus does not reach."""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs import workers
from jobs.warm import files
from models.counts import TermCounts, join_counts
from models.features import FeatureConfig
from udfs.records import Layout
from udfs.text import TextConfig


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


def test_a_partition_without_a_row_gives_nothing_but_its_zeros() -> None:
    empty = pa.record_batch({"bytes": pa.array([], pa.binary()), "source": pa.array([], pa.string())})
    for form in ("text", "jsonl", "csv", "files", "table"):
        for batches in ([], [empty]):
            found = files(workers.count(iter(batches), 0, FeatureConfig().to_json(), Layout(form).to_json()))
            assert list(found) == ["stats"]
            assert {*found["stats"].to_pylist()[0].values()} == {0}
    assert list(workers.first_terms(iter([]), 0, 1, 1, None)) == []
    assert list(workers.block_records(iter([]), 0)) == []


REPEATED = FeatureConfig(text=TextConfig(tokenizer="regex", pattern=r"(?:a+)+b|\w+"))
SLOW = "a" * 40  # an exponential number of ways to find no b


def counted(texts: list[str], config: FeatureConfig) -> dict[str, pa.Table]:
    lines: dict[str, Any] = {"bytes": [text.encode() for text in texts], "source": ["/in"] * len(texts)}
    batch = pa.record_batch({**lines, "start": [0] * len(texts)})
    return files(workers.count(iter([batch]), 0, config.to_json(), Layout("text").to_json()))


def test_a_document_on_which_the_pattern_takes_too_long_is_a_reject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATTERN_SECONDS", 0.2)
    before = signal.getsignal(signal.SIGVTALRM)
    found = counted(["x y", SLOW, "aab z", SLOW], REPEATED)
    assert signal.getsignal(signal.SIGVTALRM) == before
    rows = found["rejects"].to_pylist()
    assert [(row["source"], row["position"], row["kind"], row["bytes"]) for row in rows] == [
        ("/in", 1, "reject", SLOW.encode()),
        ("/in", 3, "reject", SLOW.encode()),
    ]
    assert {row["reason"] for row in rows} == {"the pattern takes more than 0.2 s"}
    stats = found["stats"].to_pylist()[0]
    assert (stats["records"], stats["documents"], stats["rejects"], stats["tokens"]) == (4, 2, 2, 4)
    same = counted(["x y", "aab z"], REPEATED)
    for name in ("terms", "documents", "hashes"):
        assert found["blocks"][name] == same["blocks"][name]


def test_a_pattern_that_is_too_slow_for_many_documents_is_refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATTERN_SECONDS", 0.05)
    started = time.monotonic()
    with pytest.raises(workers.SlowPattern, match=r"more than 0.05 s for each of 6 documents, such as record 6 of /in"):
        counted(["x", *[SLOW] * 999], REPEATED)
    assert time.monotonic() - started < 20


def test_a_slow_block_of_quick_documents_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for a document, not for the eight megabytes that are counted at once."""
    text = "word " * 20_000
    monkeypatch.setattr(workers, "PATTERN_SECONDS", 0.3)
    assert counted([text] * 60, REPEATED)["stats"].to_pylist()[0]["documents"] == 60


def test_other_tokenizers_have_no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATTERN_SECONDS", 1e-6)
    assert "rejects" not in counted(["x y"] * 1000, FeatureConfig())
