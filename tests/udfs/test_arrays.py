"""Arrow's buffers as numpy arrays, for every layout that a column of text may have."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.arrays import is_text, large, string_buffers

few = settings(deadline=None, max_examples=200)
values_of = st.lists(st.text(st.characters(codec="utf-8"), max_size=12) | st.none(), max_size=12)


def values(column: pa.Array | pa.ChunkedArray) -> list[bytes]:
    data, offsets = string_buffers(column)
    assert (data.dtype, offsets.dtype) == (np.uint8, np.int64)
    assert offsets[0] == 0
    assert offsets[-1] == data.size  # no byte outside the slice
    return [data[a:b].tobytes() for a, b in zip(offsets, offsets[1:], strict=False)]


@few
@given(values_of, values_of, values_of)
def test_law_any_layout_gives_the_same_values(
    before: list[str | None], column: list[str | None], after: list[str | None]
) -> None:
    expected = [(value or "").encode() for value in column]
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        cut = pa.array([*before, *column, *after], pa.string()).cast(kind)[len(before) : len(before) + len(column)]
        assert values(cut) == expected
        assert values(cut.dictionary_encode()) == expected
        assert values(pa.chunked_array([cut])) == expected
        assert values(pa.chunked_array([cut[:2], cut[2:3], cut[3:]])) == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_empty_and_null_columns(kind: pa.DataType) -> None:
    assert values(pa.array([], kind)) == []
    assert values(pa.chunked_array([], kind)) == []
    assert values(pa.nulls(3, kind)) == [b"", b"", b""]
    assert values(pa.array(["a", "b"], pa.string()).cast(kind)[1:1]) == []


def test_a_plain_slice_is_not_copied() -> None:
    column = pa.array(["one", "two", "three"])
    data, _ = string_buffers(column[1:])
    assert np.shares_memory(data, np.frombuffer(column.buffers()[2], np.uint8))


def test_chunks_with_dictionaries_of_their_own_are_decoded_before_they_are_joined() -> None:
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", None, "c"]).dictionary_encode()]
    assert values(pa.chunked_array(chunks)) == [b"a", b"b", b"b", b"", b"c"]


@pytest.mark.parametrize("column", [pa.array([1]), pa.array([["a"]]), pa.array([1, 2]).dictionary_encode()])
def test_other_types_are_refused(column: pa.Array) -> None:
    with pytest.raises(TypeError, match="expected strings or binary, got"):
        string_buffers(column)


@pytest.mark.skipif(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 5 << 30, reason="needs 5 GB of memory")
def test_a_column_of_more_than_two_gigabytes_in_chunks_is_read_whole() -> None:
    """Case arrow-01: 32-bit offsets overflow when such chunks are joined. The same 1 GB buffer serves as both."""
    size = (1 << 30) + 1024
    block = pa.py_buffer(np.zeros(size, np.uint8))
    one = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, size], np.int32)), block])
    data, offsets = string_buffers(pa.chunked_array([one, one]))
    assert offsets.tolist() == [0, size, 2 * size]
    assert data.size == 2 * size


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["a", None]), pa.large_string()),
        (pa.array([b"a", None]), pa.large_binary()),
        (pa.array(["a"], pa.large_string()), pa.large_string()),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.large_string()),
    ],
)
def test_large_widens_offsets_and_keeps_values(column: pa.Array, expected: pa.DataType) -> None:
    wide = large(column)
    assert wide.type == expected
    assert wide.to_pylist() == column.to_pylist()


def test_is_text() -> None:
    assert [is_text(kind) for kind in (pa.string(), pa.large_string(), pa.binary(), pa.int64())] == [1, 1, 0, 0]
