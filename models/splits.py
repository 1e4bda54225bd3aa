"""Which part of a split a document is in: by a hash of its content, by a column, or by time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.hashing import content_hash
from udfs.text import normalize

PARTS = ("train", "validation", "test")
FORMS = "hash:0.8,0.1,0.1, hash:0.8,0.2, column:NAME or time:NAME,0.8,0.1,0.1"


@dataclass(frozen=True)
class Split:
    """How documents are dealt to parts; raises ValueError for what `parse` does not take.

    by: hash, column or time; column: for the last two; shares: of train, [validation,] test, none for `column`.
    cutoffs: of a time split that was fitted to documents, the first time of each later part, as `sortable` gives it.
    """

    by: str
    column: str | None = None
    shares: tuple[float, ...] = ()
    cutoffs: tuple[int | float | str, ...] = ()

    def __post_init__(self) -> None:
        shares = self.shares
        if self.by == "column":
            return
        if len(shares) not in (2, 3):
            raise ValueError(f"{len(shares)} shares: give those of train, validation and test, or of train and test")
        if not all(0 < share < 1 for share in shares) or abs(math.fsum(shares) - 1) > 1e-9:
            given = ",".join(f"{share:g}" for share in shares)
            raise ValueError(f"shares {given}: give shares above 0 that add up to 1, such as 0.8,0.1,0.1")

    @classmethod
    def parse(cls, text: str) -> Split:
        """The split that is written as one of FORMS."""
        by, _, rest = text.partition(":")
        name, *numbers = [""] * (by == "hash") + (rest.split(",") if by != "column" else [rest])
        if by not in ("hash", "column", "time") or (by != "hash" and not name):
            raise ValueError(f"{text!r}: give {FORMS}")
        try:
            shares = tuple(float(number) for number in numbers)
        except ValueError:
            raise ValueError(f"{text!r}: the shares are no numbers: give {FORMS}") from None
        return cls(by, name or None, shares)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts, in order."""
        return PARTS if len(self.shares) != 2 else (PARTS[0], PARTS[2])

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold, without what is empty."""
        found = {name: value for name, value in asdict(self).items() if value}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Split:
        """The split that `to_dict` gave."""
        return cls(**{**values, **{name: tuple(values.get(name, ())) for name in ("shares", "cutoffs")}})

    def of(self, documents: pa.Table) -> np.ndarray:
        """The part of each document, int8[n], as its place in PARTS.

        documents: with `content` (binary[16]) for a hash, or with `group`, which then goes before it; or the split's
        column. Raises ValueError for a column's value that is no part, and for a time that is null.
        """
        if self.by == "column":
            return _named(documents[self.column])
        if self.by == "hash":
            heads = content_heads(documents["group" if "group" in documents.column_names else "content"])
            ends = [np.uint64(round(share * 2**53) << 11) for share in list(accumulate(self.shares))[:-1]]
            found = np.searchsorted(np.array(ends, np.uint64), heads, side="right")
        else:
            found = _before(sortable(documents[self.column]), self.cutoffs)
        return np.array([PARTS.index(name) for name in self.parts], np.int8)[found]


def contents(text: pa.Array | pa.ChunkedArray) -> pa.Array:
    """binary[16] of each document: MurmurHash3 x64_128 of its text in NFC and lower case, whatever a run's options."""
    hashes = content_hash(normalize(text))
    ends = pa.py_buffer(16 * np.arange(len(text) + 1, dtype=np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(text), [None, ends, pa.py_buffer(hashes.tobytes())])


def content_heads(content: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """The first eight bytes of each content as a number, uint64[n]."""
    array = content.combine_chunks() if isinstance(content, pa.ChunkedArray) else content
    if not len(array):
        return np.empty(0, np.uint64)
    begin = int(np.frombuffer(array.buffers()[1], np.int32)[array.offset])
    return np.frombuffer(array.buffers()[2], np.uint64, 2 * len(array), begin)[::2].copy()


def sortable(times: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Dates, timestamps, integers, fractions or strings as int64 (days, microseconds), float64 or string.

    Raises ValueError for a null or NaN, TypeError for any other type.
    """
    array = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
    kind = array.type
    if pa.types.is_date(kind):
        array = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_integer(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, pa.float64()), array)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        array = array.cast(pa.large_string())
    else:
        raise TypeError(f"{kind}: a time is a date, timestamp, number or string")
    if array.null_count:
        raise ValueError("a time is null: each document needs one")
    return array


def _before(times: pa.Array, cutoffs: Sequence[int | float | str]) -> np.ndarray:
    """How many cutoffs are not after each time; strings compare by their UTF-8 bytes, which is by code point."""
    found = np.zeros(len(times), np.int64)
    for cutoff in cutoffs:
        found += pc.greater_equal(times, pa.scalar(cutoff, times.type)).to_numpy(zero_copy_only=False)
    return found


def _named(values: pa.ChunkedArray) -> np.ndarray:
    places = pc.index_in(values.cast(pa.string()), pa.array(PARTS))
    if places.null_count:
        bad = values.filter(pc.is_null(places))[0].as_py()
        shown = "null" if bad is None else repr(str(bad)[:80])
        raise ValueError(f"{shown} is no part: its values must be {', '.join(PARTS)}")
    return places.to_numpy().astype(np.int8)
