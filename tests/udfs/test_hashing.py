"""The hashes: MurmurHash3 against the mmh3 package and its author's numbers, the sum against Python's integers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

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
    hash_term,
    minhash,
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
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20) | st.none(), max_size=20), st.integers(1, 2**31 - 1))
def test_law_hash_term_is_that_index_and_null_stays_null(terms: list[str | None], size: int) -> None:
    expected = [None if term is None else mmh3.hash(term.encode(), 42) % size for term in terms]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        found = hash_term(pa.array(["before", *terms], pa.string()).cast(kind)[1:], size)
        assert found.type == pa.int32()
        assert found.to_pylist() == expected


def digest(text: str) -> int:
    return int(hashlib.md5(text.encode()).hexdigest()[:8], 16)


def signature(terms: list[str | None] | None, count: int) -> list[int]:
    """The definition of MinHash, term by term."""
    found = {digest(term) for term in terms or [] if term is not None}
    of_k = [(1 + digest(f"a{k}") % 2147483647, digest(f"b{k}") % 2147483647) for k in range(count)]
    return [min((a * x + b) % 4294967311 for x in found) for a, b in of_k] if found else []


some_terms = st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=5), max_size=6)


@few
@given(st.lists(st.none() | some_terms), st.integers(1, 20), st.data())
def test_law_minhash_is_its_definition_in_any_layout(
    lists: list[list[str | None] | None], count: int, data: st.DataObject
) -> None:
    expected = [signature(terms, count) for terms in lists]
    column = pa.array([["before"], *lists, ["after"]], pa.list_(pa.string()))[1 : 1 + len(lists)]
    large = column.cast(pa.large_list(pa.large_string()))
    words = pa.array(lists, pa.list_(pa.dictionary(pa.int32(), pa.string())))
    for layout in (column, large, words):
        found = minhash(layout, count)
        assert found.type == pa.list_(pa.int64())
        assert found.to_pylist() == expected
    at = data.draw(st.integers(0, len(lists)))
    assert minhash(column[:at], count).to_pylist() + minhash(column[at:], count).to_pylist() == expected


def test_minhash_of_the_largest_products_does_not_overflow() -> None:
    """Python's integers, over many terms and numbers: the largest hash, of 2,000 terms, is near 2^32."""
    terms = [str(number) for number in range(2000)]
    assert max(map(digest, terms)) > 0.999 * 2**32
    lists = [[term] for term in terms]
    assert minhash(pa.array(lists), 100).to_pylist() == [signature(terms, 100) for terms in lists]


def test_minhash_estimates_the_jaccard_similarity() -> None:
    sets = [[str(number) for number in range(begin, begin + 300)] for begin in (0, 100, 1000)]
    one, other, far = (np.array(found) for found in minhash(pa.array(sets), 2000).to_pylist())
    assert abs((one == other).mean() - 0.5) < 0.05  # 200 of 400; the standard error is 0.011
    assert (one == far).mean() < 0.01


def test_hashes_of_nulls_alone_and_of_nothing() -> None:
    assert minhash(pa.nulls(2), 3).to_pylist() == [[], []]
    assert minhash(pa.array([[], None, [None]]), 3).to_pylist() == [[], [], []]
    assert hash_term(pa.nulls(2), 3).to_pylist() == [None, None]
    assert minhash(pa.array([], pa.list_(pa.string())), 3).to_pylist() == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: minhash(pa.array([["a"]]), 0), "count is 0: give a number from 1 on"),
        (lambda: hash_term(pa.array(["a"]), 0), "size is 0: give a number from 1 to 2147483647"),
        (lambda: hash_term(pa.array(["a"]), 2**31), "size is 2147483648: give"),
    ],
)
def test_a_wrong_size_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


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
