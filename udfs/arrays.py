"""Arrow's own buffers as numpy arrays, for kernels: no copy where Arrow's layout allows it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def string_buffers(values: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes and offsets of a string or binary array, large or not, sliced, chunked or dictionary-encoded.

    Returns data uint8[] and offsets int64[n+1]; null is empty. Value i is data[offsets[i]:offsets[i+1]].
    Raises TypeError for any other type.
    """
    if isinstance(values, pa.ChunkedArray):
        if values.num_chunks == 1:
            values = values.chunk(0)
        else:  # 32-bit offsets may overflow when chunks are joined
            values = pa.concat_arrays([large(chunk) for chunk in values.chunks] or [pa.array([], pa.large_string())])
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if not (is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise TypeError(f"expected strings or binary, got {kind}")
    if values.null_count:
        values = values.fill_null(b"" if "binary" in str(kind) else "")
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    _, offsets, data = values.buffers()
    n = len(values)
    if n == 0 or offsets is None:
        return np.empty(0, np.uint8), np.zeros(n + 1, np.int64)
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[values.offset : values.offset + n + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    # Start at the slice's own first byte, so that nothing outside the slice is ever read.
    return raw[ends[0] : ends[-1]], ends.astype(np.int64) - ends[0]


def large(values: pa.Array) -> pa.Array:
    """The same array with 64-bit offsets; a dictionary is decoded."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary(values.type) else values


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text: string or large_string."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
