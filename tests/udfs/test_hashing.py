"""The hashes: MurmurHash3 against the mmh3 package and its author's numbers, the sum against Python's integers."""

from __future__ import annotations

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.hashing import (
    content_hash,
    hash64,
    hash_each,
    hash_indices,
    hash_sum,
    murmur32,
    murmur128,
    same_bytes,
    word_at,
)

few = settings(deadline=None, max_examples=300)


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@few
@given(st.binary(max_size=70), st.integers(0, 2**32 - 1))
def test_law_murmur128_is_mmh3(data: bytes, seed: int) -> None:
    assert murmur128(array(data), 0, len(data), seed) == mmh3.hash64(data, seed, signed=False)


@few
@given(st.binary(max_size=40), st.integers(0, 2**32 - 1))
def test_law_murmur32_is_mmh3(data: bytes, seed: int) -> None:
    assert murmur32(array(data), 0, len(data), seed) == mmh3.hash(data, seed, signed=False)


@few
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=20), st.integers(1, 2**31 - 1))
def test_law_an_index_is_the_signed_hash_brought_into_range(terms: list[str], size: int) -> None:
    expected = [mmh3.hash(term.encode(), 42) % size for term in terms]
    assert hash_indices(pa.array(terms, pa.string()), size).tolist() == expected


@few
@given(st.binary(max_size=20), st.binary(max_size=40), st.binary(max_size=20))
def test_law_a_hash_does_not_look_beyond_its_range(before: bytes, data: bytes, after: bytes) -> None:
    alone, within = array(data), array(before + data + after)
    begin, end = len(before), len(before) + len(data)
    assert murmur128(within, begin, end, 0) == murmur128(alone, 0, len(data), 0)
    assert hash64(within, begin, end) == hash64(alone, 0, len(data))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "00000000000000000000000000000000"),
        ("The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
    ],
)
def test_known_values(text: str, expected: str) -> None:
    assert content_hash(pa.array([text])).tobytes().hex() == expected


@few
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40) | st.none(), max_size=20), st.data())
def test_law_content_hash_is_that_of_the_bytes_in_any_layout(values: list[str | None], data: st.DataObject) -> None:
    expected = [mmh3.hash64((value or "").encode(), 0, signed=False) for value in values]
    column = pa.array(values, pa.string())
    at = data.draw(st.integers(0, len(values)))
    layouts = [
        column,
        column.cast(pa.large_string()),
        column.cast(pa.binary()),
        column.cast(pa.large_binary()),
        column.dictionary_encode(),
        pa.chunked_array([column[:at], column[at:]]),
        pa.array(["before", *values, "after"])[1 : 1 + len(values)],
    ]
    for layout in layouts:
        hashes = content_hash(layout)
        assert hashes.dtype == np.uint64
        assert hashes.shape == (len(values), 2)
        assert [tuple(map(int, row)) for row in hashes] == expected


def test_hash_each_hashes_ranges() -> None:
    data = array(b"abcdef")
    found = hash_each(data, np.array([0, 2, 2, 6], np.int64))
    assert [tuple(map(int, row)) for row in found] == [mmh3.hash64(p, 0, signed=False) for p in (b"ab", b"", b"cdef")]


@few
@given(st.lists(st.integers(0, 2**128 - 1), max_size=30), st.randoms(use_true_random=False))
def test_law_the_sum_is_that_of_integers_in_any_order(values: list[int], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for order in (values, shuffled):
        halves = np.array([(v & (2**64 - 1), v >> 64) for v in order], np.uint64).reshape(-1, 2)
        assert hash_sum(halves) == sum(values) % 2**128


@few
@given(st.binary(max_size=30), st.integers(0, 8), st.data())
def test_law_word_at_is_zero_padded_and_little_endian(data: bytes, length: int, draws: st.DataObject) -> None:
    length = min(length, len(data))
    begin = draws.draw(st.integers(0, len(data) - length))
    assert int(word_at(array(data), begin, length)) == int.from_bytes(data[begin : begin + length], "little")


@few
@given(st.binary(max_size=40), st.binary(max_size=3), st.binary(max_size=3), st.data())
def test_law_same_bytes(data: bytes, before: bytes, after: bytes, draws: st.DataObject) -> None:
    other = bytearray(data)
    if data and draws.draw(st.booleans()):
        other[draws.draw(st.integers(0, len(data) - 1))] ^= 1 << draws.draw(st.integers(0, 7))
    within = array(before + bytes(other) + after)
    assert same_bytes(array(data), 0, within, len(before), len(data)) == (data == bytes(other))


def test_hash64_spreads_short_words() -> None:
    """All words of one and two letters differ in their upper halves, and fill their table's slots like chance does."""
    words = [a + b for a in "abcdefghijklmnopqrstuvwxyz" for b in ["", *"abcdefghijklmnopqrstuvwxyz"]]
    hashes = [int(hash64(array(word.encode()), 0, len(word))) for word in words]
    assert len({h >> 32 for h in hashes}) == len(words)
    assert len({h & 2047 for h in hashes}) > 500  # of 702 words in 2048 slots chance fills about 594
