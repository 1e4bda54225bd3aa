"""What runs in Spark's Python workers: Arrow batches in, Arrow batches out, no Spark in between.

What a stage leaves behind are cells: each row is a kind and a piece of a Parquet file of that kind, which outputs.py
has Spark write byte by byte: pyarrow encodes the lists in C++ rather than Spark's writer row by row, yet the files go
through Spark's file systems and its commit.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models.counts import (
    BlockCounts,
    TermCounts,
    TermTable,
    deal_counts,
    first_in_order,
    merge_counts,
    take_counts,
)
from models.features import FeatureConfig, weigh
from udfs.arrays import string_buffers
from udfs.hashing import hash_sum
from udfs.records import KEPT_BYTES, REJECTS, Aside, Layout, Parsed, parse, slices, unpacked
from udfs.text import CHARACTERS

MAGIC = b"PAR1"  # how a Parquet file ends, and what outputs.py makes Spark write after each cell
BLOCK_BYTES = 8 << 20  # of text that is counted at once
HELD_TERMS = 4 << 20  # of blocks' dictionaries that are added up at once
SHARDS = 256  # to which terms are dealt by hash: a table of one shard's terms fits into a core's cache
PATTERN_SECONDS = 10  # that the pattern of a tokenizer may take for a document
SLOW_DOCUMENTS = 5  # if a partition has more of them, the pattern is to blame
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
ROW_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
CELLS = "kind string, cell string"
Cells = Iterator[pa.RecordBatch]


def keep_memory() -> None:
    """Have this process keep the memory that it frees, up to 256 MB, for its next block.

    Asking the system for fresh, zeroed pages for each block's arrays took a tenth of the CPU time.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(M_MMAP_THRESHOLD, 256 << 20)
        libc.mallopt(M_TRIM_THRESHOLD, 256 << 20)


class CellFile:
    """A Parquet file written as cells, each of which ends in MAGIC, left off here and added by Spark.

    Between row groups the four bytes are a gap that the footer's offsets allow for; at the end they are Parquet's own.
    """

    def __init__(self, kind: str, schema: pa.Schema, compression: str = "zstd") -> None:
        self.kind, self.schema, self.cells = kind, schema, 0
        self._parts = _Parts()
        self._file = pa.PythonFile(self._parts, "w")  # counts positions
        # Dictionary pages pay for neither sparse entries nor packed tables, nor do their statistics.
        plain = [field.name for field in schema if not pa.types.is_nested(field.type) and field.type != pa.binary()]
        self._writer = pq.ParquetWriter(
            self._file, schema, compression=compression, use_dictionary=False, write_statistics=plain
        )

    def write(self, table: pa.Table) -> pa.RecordBatch:
        """The cell that holds `table` as one row group."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._file.write(MAGIC)
        self.cells += 1
        return self._cell()

    def close(self) -> Cells:
        """The last cell, the footer, if there were others."""
        self._writer.close()
        if self.cells:
            yield self._cell()

    def _cell(self) -> pa.RecordBatch:
        cell = self._parts.take()
        assert cell.endswith(MAGIC)
        # The column is declared a string, since Spark's text writer takes nothing else; its bytes are never looked at.
        offsets = pa.py_buffer(np.array([0, len(cell) - len(MAGIC)], np.int32))
        text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(cell))
        return pa.RecordBatch.from_arrays([pa.array([self.kind]), text], ["kind", "cell"])


class _Parts(io.RawIOBase):
    """Collects what is written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def to_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream, compressed by LZ4."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_bytes(data: pa.Scalar) -> pa.Table:
    """The table that `to_bytes` wrote, each column one chunk."""
    return pa.ipc.open_stream(data.as_buffer()).read_all().combine_chunks()


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def pack(terms: pa.Array, **numbers: np.ndarray) -> bytes:
    """Terms and non-negative numbers for each as one row of an Arrow IPC stream: the text, the lengths, the numbers.

    Numbers take as few bytes as the largest needs.
    """
    text, offsets = string_buffers(terms)
    columns = [pa.BinaryArray.from_buffers(pa.binary(), 1, [None, _row(text), pa.py_buffer(text)])]
    for values in (np.diff(offsets), *numbers.values()):
        narrow = values.astype(np.min_scalar_type(int(values.max(initial=0))))
        columns.append(pa.ListArray.from_arrays(pa.Array.from_buffers(pa.int32(), 2, [None, _row(values)]), narrow))
    return to_bytes(pa.table(columns, ["text", "length", *numbers]))


def _row(values: np.ndarray) -> pa.Buffer:
    """The offsets of one list or string that holds all values."""
    return pa.py_buffer(np.array([0, len(values)], np.int32))


def unpack(data: pa.Scalar) -> tuple[pa.Array, list[np.ndarray]]:
    """The terms (large_string) and numbers (int64) that `pack` wrote."""
    text, *lists = from_bytes(data).columns
    length, *numbers = (column.chunk(0).values.to_numpy().astype(np.int64) for column in lists)
    offsets = np.append(0, np.cumsum(length))
    terms = pa.LargeStringArray.from_buffers(len(length), pa.py_buffer(offsets), text.chunk(0).buffers()[2])
    return terms, numbers


def pack_counts(counts: TermCounts) -> bytes:
    """Term counts as bytes."""
    return pack(counts.terms, df=counts.df, cf=counts.cf)


def unpack_counts(data: pa.Scalar) -> TermCounts:
    """The term counts that `pack_counts` wrote."""
    terms, (df, cf) = unpack(data)
    return TermCounts(terms, df, cf)


# -- count: raw records -> blocks, rejects, stats ---------------------------------------------------------------------

BLOCKS = pa.schema([("block", pa.int64()), ("terms", pa.binary()), ("documents", pa.binary()), ("hashes", pa.binary())])
BLOCK_COLUMNS = "block bigint, terms binary, documents binary, hashes binary"
DEALT = pa.schema([("shard", pa.int32()), ("terms", pa.binary())])
DEALT_COLUMNS = "shard int, terms binary"
COUNT_STATS = ("records", "documents", "rejects", "blanks", "repaired", "tokens", "bytes", "dealt_terms")


def count(batches: Iterator[pa.RecordBatch], partition: int, config: str, layout: str) -> Cells:
    """Parse raw records and count the terms of their documents, in blocks of about BLOCK_BYTES of text.

    A block's cell holds the terms of its dictionary, its documents (id, label, carried columns, and the dictionary ids
    and tf of their terms), and the documents' record hashes where they have no id. The blocks' df and cf are added up
    for as many as fit, and dealt to shards.
    """
    settings = FeatureConfig.from_json(config)
    where = Layout(**json.loads(layout))
    block_bytes = BLOCK_BYTES // (4 if settings.text.tokenizer in CHARACTERS else 1)  # each is a token
    blocks, rejects = CellFile("blocks", BLOCKS, "none"), CellFile("rejects", REJECTS)
    dealt = CellFile("dealt", DEALT, "none")
    held: list[list[TermCounts]] = []  # of each block, by shard
    held_terms = 0
    stats = dict.fromkeys(COUNT_STATS, 0)
    slow = 0
    for raw in _joined(_numbered(batches, where.longest)):
        parsed = parse(raw, where)
        stats["records"] += parsed.records
        stats["documents"] += parsed.documents.num_rows
        stats["rejects"] += parsed.rejects.num_rows - parsed.repaired
        stats["blanks"] += parsed.blanks
        stats["repaired"] += parsed.repaired
        if parsed.rejects.num_rows:
            yield rejects.write(parsed.rejects)
        for begin, end in slices(parsed.documents, block_bytes):
            kept, counted, late = count_in_time(settings, parsed, begin, end, SLOW_DOCUMENTS - slow)
            if late.rejected:
                slow += late.rejected
                stats["documents"] -= late.rejected
                stats["rejects"] += late.rejected
                yield rejects.write(late.table())
            part = parsed.documents.take(kept) if late.rejected else parsed.documents.slice(begin, end - begin)
            if not part.num_rows:
                continue
            stats["tokens"] += int(counted.lengths.sum())
            stats["bytes"] += int(pc.sum(pc.binary_length(part["text"])).as_py() or 0)
            block = {
                "block": [partition << 32 | blocks.cells],
                "terms": [pack(counted.dictionary.terms)],
                "documents": [to_bytes(_with_counts(part, counted))],
                "hashes": [None if parsed.hashes is None else parsed.hashes[kept].tobytes()],
            }
            yield blocks.write(pa.table(block, BLOCKS))
            held.append(deal_counts(counted.dictionary, SHARDS))
            held_terms += len(counted.dictionary.df)
            if held_terms > HELD_TERMS:
                yield dealt.write(_dealt(held, stats))
                held, held_terms = [], 0
    if held:
        yield dealt.write(_dealt(held, stats))
    yield from dealt.close()
    yield from blocks.close()
    yield from rejects.close()
    yield from _stats(stats)


class SlowPattern(ValueError):
    """A tokenizer's pattern that takes too long for many documents: one line with the pattern and one of them."""


def count_in_time(
    settings: FeatureConfig, parsed: Parsed, begin: int, end: int, most: int
) -> tuple[np.ndarray, BlockCounts, Aside]:
    """The counts of the documents begin:end, save those for which the pattern takes too long: these go aside.

    Returns the rows that were counted, too. Raises SlowPattern if more than `most` go aside.
    """
    text, kept, aside = parsed.documents["text"].slice(begin, end - begin), np.arange(begin, end), Aside()
    try:
        with time_limit(PATTERN_SECONDS if settings.text.pattern else None):
            return kept, settings.count(text), aside
    except TimeoutError:
        pass
    for row in range(begin, end):
        one = parsed.documents["text"].slice(row, 1)
        try:
            with time_limit(PATTERN_SECONDS):
                settings.count(one)
        except TimeoutError:
            source, position = parsed.place(row)
            why = f"takes more than {PATTERN_SECONDS} s"
            aside.put(source, position, f"the pattern {why}", one[0].as_buffer()[:KEPT_BYTES].to_pybytes())
            kept = kept[kept != row]
            if aside.rejected > most:
                raise SlowPattern(
                    f"pattern {settings.text.pattern!r} {why} for each of {aside.rejected} documents, such as record "
                    f"{position} of {source}: write it so that a text matches in one way only"
                ) from None
    return kept, settings.count(parsed.documents["text"].take(kept)), aside


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError if the block takes longer, unless it is in compiled code, which a signal does not end.

    Only in the main thread, where signals arrive; None is no limit.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: object) -> None:
        raise TimeoutError

    handler, timer = signal.signal(signal.SIGALRM, late), signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _dealt(held: list[list[TermCounts]], stats: dict[str, int]) -> pa.Table:
    """The sum of some blocks' counts, a row for each shard that has any (and for the first, so that there is one)."""
    shards = [merge_counts(list(parts)) for parts in zip(*held, strict=True)]
    stats["dealt_terms"] += sum(len(counts.df) for counts in shards)
    rows = [number for number, counts in enumerate(shards) if len(counts.df) or not number]
    cells = [pack_counts(shards[number]) for number in rows]
    return pa.table({"shard": rows, "terms": cells}, DEALT)


RAW = ("bytes", "source", "position", "size", "damage")


def _numbered(batches: Iterator[pa.RecordBatch], longest: int) -> Iterator[pa.RecordBatch]:
    """The batches with a column `position` in place of `start`: the record's number in its part of a file, from 0.

    A source that starts in mid-file gets "@" and the byte at which its part starts. Where start is null, the bytes are
    a whole compressed file, in place of which its lines come; `longest` as for `unpacked`.
    """
    last: tuple[object, object] = (None, None)
    seen = 0
    for batch in batches:
        if "start" not in batch.schema.names:
            yield batch
            continue
        if batch["start"].null_count:
            packed = batch.filter(batch["start"].is_null())
            for path, content in zip(packed["source"].to_pylist(), packed["bytes"], strict=True):
                yield from unpacked(path, memoryview(content.as_buffer()), longest)
            batch = batch.filter(batch["start"].is_valid())
        source, start = batch["source"], batch["start"].to_numpy()
        codes = source.dictionary_encode().indices.to_numpy()
        new = np.flatnonzero((np.diff(codes) != 0) | (np.diff(start) != 0)) + 1
        firsts = np.concatenate([[0], new])
        position = np.arange(len(start)) - np.repeat(firsts, np.diff(np.append(firsts, len(start))))
        if len(start):
            if last == (source[0], start[0]):
                position[: firsts[1] if len(firsts) > 1 else len(start)] += seen
            last, seen = (source[-1], start[-1]), int(position[-1]) + 1
        mid_file = pc.binary_join_element_wise(source, pa.array(start).cast(pa.string()), "@")
        source = pc.if_else(pc.equal(batch["start"], 0), source, mid_file)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {"source": source}
        columns["position"] = pa.array(position)
        del columns["start"]
        yield pa.RecordBatch.from_pydict({name: columns[name] for name in RAW if name in columns})


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of consecutive batches that hold about BLOCK_BYTES together."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= BLOCK_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _with_counts(documents: pa.Table, counts: BlockCounts) -> pa.Table:
    """Documents without their text, with lists of dictionary ids and tf in its place."""
    offsets = pa.array(counts.indptr.astype(np.int32))
    for name, values in (("__ids", counts.ids), ("__tf", counts.tf)):
        documents = documents.append_column(name, pa.ListArray.from_arrays(offsets, pa.array(values)))
    return documents.append_column("__length", pa.array(counts.lengths)).drop_columns(["text"])


def _block_counts(terms: pa.Array, documents: pa.Table) -> BlockCounts:
    """What `_with_counts` put into a block's documents; df and cf have gone their own way."""
    ids, tf = _column(documents, "__ids"), _column(documents, "__tf")
    lengths = _column(documents, "__length").to_numpy()
    indptr = ids.offsets.to_numpy().astype(np.int64)
    none = np.empty(0, np.int64)
    dictionary = TermCounts(terms, none, none)
    return BlockCounts(dictionary, indptr, ids.values.to_numpy(), tf.values.to_numpy(), lengths)


def _stats(stats: dict[str, int]) -> Cells:
    file = CellFile("stats", pa.schema([(name, pa.int64()) for name in stats]))
    yield file.write(pa.table({name: [value] for name, value in stats.items()}, file.schema))
    yield from file.close()


# -- terms: shards -> the corpus's terms with df and cf, or the first of them ----------------------------------------

FIRST_TERMS = "terms binary, last string"


def first_terms(
    batches: Iterator[pa.RecordBatch], partition: int, low: float, high: float, most: int | None
) -> Iterator[pa.RecordBatch]:
    """Add up the terms of each shard; of those with low <= df <= high the first `most` in order (cf desc, term asc).

    A row for each shard: its terms, and the last of them if there were more (so that others might have come next).
    """
    held: dict[int, list[pa.Scalar]] = {}  # packed until their turn: so they take a fraction of the memory
    for batch in batches:
        for shard, cell in zip(batch["shard"].to_pylist(), batch["terms"], strict=True):
            held.setdefault(shard, []).append(cell)
    for cells in held.values():
        counts = merge_counts([unpack_counts(cell) for cell in cells])
        within = np.flatnonzero((counts.df >= low) & (counts.df <= high))
        rows = first_in_order(counts, within, most)
        last = counts.terms[rows[-1]].as_py() if len(rows) < len(within) else None
        columns = [pa.array([pack_counts(take_counts(counts, rows))], pa.binary()), pa.array([last], pa.string())]
        yield pa.RecordBatch.from_arrays(columns, ["terms", "last"])


# -- repeats: which of equal records without an id is the how many-th ------------------------------------------------


def block_records(batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
    """The record hashes of each block, with how often the block holds each."""
    for batch in batches:
        for block, cell in zip(batch["block"], batch["hashes"], strict=True):
            hashes, number = np.unique(_void(cell), return_counts=True)
            size = pa.py_buffer(np.arange(len(hashes) + 1, dtype=np.int32) * 16)
            record = pa.BinaryArray.from_buffers(pa.binary(), len(hashes), [None, size, pa.py_buffer(hashes.tobytes())])
            columns = [pa.array([block.as_py()] * len(hashes), pa.int64()), record, pa.array(number)]
            yield pa.RecordBatch.from_arrays(columns, ["block", "record", "records"])


def _void(cell: pa.Scalar) -> np.ndarray:
    return np.frombuffer(cell.as_buffer(), "V16")


def record_ids(cell: pa.Scalar, earlier: dict[bytes, int]) -> pa.Array:
    """Ids of a block's records: the hash in hex, and for its k-th repetition "-k"; `earlier` counts other blocks'."""
    hashes = _void(cell)
    distinct, of = np.unique(hashes, return_inverse=True)
    order = np.argsort(of, kind="stable")
    firsts = np.searchsorted(of[order], np.arange(len(distinct)))
    repetition = np.empty(len(hashes), np.int64)
    repetition[order] = np.arange(len(hashes)) - firsts[of[order]]
    if earlier:
        repetition += np.array([earlier.get(record.tobytes(), 0) for record in distinct])[of]
    digits = np.frombuffer(hashes.tobytes().hex().encode(), np.uint8)
    size = pa.py_buffer(np.arange(len(hashes) + 1, dtype=np.int32) * 32)
    names = pa.StringArray.from_buffers(len(hashes), size, pa.py_buffer(digits))
    suffixed = pc.binary_join_element_wise(names, pa.array(repetition).cast(pa.string()), "-")
    return pc.if_else(pa.array(repetition == 0), names, suffixed)


# -- features: blocks + vocabulary -> features, stats ----------------------------------------------------------------

HASH_PARTS = (
    "hash_0",
    "hash_1",
    "hash_2",
    "hash_3",
)  # the content hash, 32 bits at a time, so that sums can't overflow
FEATURE_STATS = ("documents", "entries", "empty", *HASH_PARTS)


def write_features(
    batches: Iterator[pa.RecordBatch],
    partition: int,
    config: str,
    table: str,
    mean_length: float,
    unseen_idf: float,
    schema: str,
) -> Cells:
    """Weigh the blocks' documents over the vocabulary in the file `table` (a name that Spark brought); FEATURES, stats.

    `schema` is the JSON of the rows' Spark schema, kept in each file so that Spark reads just that again.
    """
    if not os.path.isabs(table):
        from pyspark import SparkFiles

        table = SparkFiles.get(table)
    settings = FeatureConfig.from_json(config)
    vocabulary = TermTable.open(table)
    names = [field["name"] for field in json.loads(schema)["fields"]]
    file: CellFile | None = None
    stats = dict.fromkeys(FEATURE_STATS, 0)
    total = 0
    for batch in batches:
        for row in range(batch.num_rows):
            documents = from_bytes(batch["documents"][row])
            counts = _block_counts(unpack(batch["terms"][row])[0], documents)
            features = weigh(counts, vocabulary, settings, mean_length, unseen_idf)
            if batch["hashes"][row].is_valid:
                earlier = {item["record"]: item["earlier"] for item in batch["repeats"][row].as_py() or []}
                documents = documents.append_column("id", record_ids(batch["hashes"][row], earlier))
            indices, values = features.arrow()
            whole = documents.append_column("indices", indices).append_column("values", values).select(names)
            label = next((_column(documents, name) for name in ("label", "labels") if name in names), None)
            total += hash_sum(features.hashes(_column(documents, "id"), label))
            stats["documents"] += documents.num_rows
            stats["entries"] += len(features.indices)
            stats["empty"] += int((np.diff(features.indptr) == 0).sum())
            if file is None:
                file = CellFile("features", whole.schema.with_metadata({ROW_SCHEMA_KEY: schema.encode()}))
            yield file.write(whole.cast(file.schema))
    if file is None:
        return
    yield from file.close()
    for part, name in enumerate(HASH_PARTS):
        stats[name] = total >> 32 * part & 0xFFFFFFFF
    yield from _stats(stats)
