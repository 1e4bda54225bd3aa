"""Count the terms of a block of documents, add up such counts, and find terms in a table: numba kernels over bytes.

A block (some megabytes of text) is counted on its own: its distinct terms become a small dictionary, its documents rows
of (dictionary id, tf). What follows (df over a corpus, the vocabulary, the weights) works on dictionaries and ids and
never touches the text again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.arrays import string_buffers
from udfs.compiled import kernel
from udfs.hashing import copy_bytes, hash64, prefetch, same_bytes, word_at
from udfs.text import Spans

_TAG = np.uint64(0xFFFFFFFF00000000)
_ENTRY = np.uint64(0x00000000FFFFFFFF)
_SPACE = np.uint8(32)
_AHEAD = 64  # look-ups under way at once


@dataclass(frozen=True)
class TermCounts:
    """Terms with their document frequency (df) and collection frequency (cf): large_string[t], int64[t], int64[t]."""

    terms: pa.Array
    df: np.ndarray
    cf: np.ndarray


@dataclass(frozen=True)
class BlockCounts:
    """A block's dictionary, and its documents in CSR form over it.

    dictionary: the block's terms in order of first use. indptr int64[n+1], ids int32[nnz] into the dictionary in order
    of first use, tf int32[nnz]; lengths int32[n]: tokens of each document after stop words.
    """

    dictionary: TermCounts
    indptr: np.ndarray
    ids: np.ndarray
    tf: np.ndarray
    lengths: np.ndarray


@kernel
def _find(
    data: np.ndarray,
    begin: int,
    end: int,
    slots: np.ndarray,
    table_data: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
) -> tuple[int, int]:
    """(entry, slot) of data[begin:end] in an open-addressing table; entry is -1 if absent, slot then the free one.

    A slot holds the upper half of the entry's hash and, below it, the entry's number plus one; 0 is free.
    """
    h = hash64(data, begin, end)
    mask = np.uint64(slots.size - 1)
    at = h & mask
    while True:
        slot = slots[at]
        if slot == 0:
            return -1, np.int64(at)
        if slot & _TAG == h & _TAG:
            entry = np.int64(slot & _ENTRY) - 1
            if lengths[entry] == end - begin and same_bytes(data, begin, table_data, starts[entry], end - begin):
                return entry, np.int64(at)
        at = (at + np.uint64(1)) & mask


# Columns of a node, which is a term: a token, or an n-gram = the node of its first n-1 tokens + its last token.
_START, _LENGTH, _HEAD, _PLACE, _PREFIX, _LAST = range(6)
# A token's _PREFIX is -1, or -2 for a stop word; its bytes lie at _START, the first 8 of them also in _HEAD.
# An n-gram's _LENGTH is that of its text. _PLACE is a node's entry in the row being filled; earlier values are stale.
_TOKEN, _STOP_WORD = -1, -2


@kernel
def _count(  # one pass over the tokens, kept whole: arrays must not be passed on or replaced in it, that cost 3 times
    first: int,
    state: np.ndarray,
    data: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    document: np.ndarray,
    sentence: np.ndarray,
    lowest: int,
    highest: int,
    through_stop_words: bool,
    stop: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    node: np.ndarray,
    slots: np.ndarray,
    pair_slots: np.ndarray,
    indptr: np.ndarray,
    ids: np.ndarray,
    tf: np.ndarray,
    lengths: np.ndarray,
) -> int:
    """Count documents from `first` on; returns the first one for which a hash table might get more than half full."""
    nodes, tokens, pairs, nnz = state[0], state[1], state[2], state[3]
    stop_slots, stop_data, stop_starts, stop_lengths = stop
    mask = np.uint64(slots.size - 1)
    pair_mask = np.uint64(pair_slots.size - 1)
    chain = np.empty(highest + 1, np.int64)  # chain[k]: node of the k-gram that ends at the token before
    d = first
    while d < document.size - 1:
        many = document[d + 1] - document[d]
        if 2 * (tokens + many) > slots.size or 2 * (pairs + many * (highest - 1)) > pair_slots.size:
            break
        row = nnz
        known = 0  # how many tokens the chain holds
        before = -1
        kept = 0
        for t in range(document[d], document[d + 1]):
            start = begin[t]
            length = end[t] - start
            h = hash64(data, start, end[t])
            head = np.int64(word_at(data, start, length))
            at = h & mask
            token = -1
            while slots[at]:
                if (slots[at] ^ h) & _TAG == 0:
                    token = np.int64(slots[at] & _ENTRY) - 1
                    if (
                        node[token, _LENGTH] == length
                        and node[token, _HEAD] == head
                        and (length <= 8 or same_bytes(data, start, data, node[token, _START], length))
                    ):
                        break
                    token = -1
                at = (at + np.uint64(1)) & mask
            if token < 0:
                token = nodes
                nodes += 1
                tokens += 1
                slots[at] = (h & _TAG) | np.uint64(token + 1)
                node[token, _START] = start
                node[token, _LENGTH] = length
                node[token, _HEAD] = head
                node[token, _PLACE] = -1
                node[token, _PREFIX] = _TOKEN
                if stop_starts.size:
                    found, _ = _find(data, start, end[t], stop_slots, stop_data, stop_starts, stop_lengths)
                    if found >= 0:
                        node[token, _PREFIX] = _STOP_WORD
            if node[token, _PREFIX] == _STOP_WORD:
                if not through_stop_words:
                    known = 0
                continue
            kept += 1
            if sentence[t] != before:
                known = 0
                before = sentence[t]
            longest = min(known + 1, highest)
            term = token
            prefix = chain[1]
            size = 1
            while True:  # term is the n-gram of `size` tokens that ends here, prefix the one that ended a token before
                if size >= lowest:
                    place = node[term, _PLACE]
                    if place >= row:
                        tf[place] += 1
                    else:
                        node[term, _PLACE] = nnz
                        ids[nnz] = term
                        tf[nnz] = 1
                        nnz += 1
                if size == longest:
                    chain[size] = term
                    break
                next_prefix = chain[size + 1]
                chain[size] = term
                key = np.uint64(prefix) << np.uint64(32) | np.uint64(token)
                h = key * np.uint64(0x9E3779B97F4A7C15)
                at = (h ^ h >> np.uint64(32)) & pair_mask
                term = -1
                while pair_slots[at]:
                    term = pair_slots[at] - 1
                    if node[term, _PREFIX] == prefix and node[term, _LAST] == token:
                        break
                    term = -1
                    at = (at + np.uint64(1)) & pair_mask
                if term < 0:
                    term = nodes
                    nodes += 1
                    pairs += 1
                    pair_slots[at] = term + 1
                    node[term, _LENGTH] = node[prefix, _LENGTH] + 1 + length
                    node[term, _PLACE] = -1
                    node[term, _PREFIX] = prefix
                    node[term, _LAST] = token
                prefix = next_prefix
                size += 1
            known = longest
        indptr[d + 1] = nnz
        lengths[d] = kept
        d += 1
    state[0], state[1], state[2], state[3] = nodes, tokens, pairs, nnz
    return d


@kernel
def _refill(nodes: int, node: np.ndarray, data: np.ndarray, slots: np.ndarray, pair_slots: np.ndarray) -> None:
    """Enter all nodes into empty hash tables (nodes are distinct, so the first free slot is right)."""
    for n in range(nodes):
        if node[n, _PREFIX] < 0:
            h = hash64(data, node[n, _START], node[n, _START] + node[n, _LENGTH])
            at = h & np.uint64(slots.size - 1)
            while slots[at]:
                at = (at + np.uint64(1)) & np.uint64(slots.size - 1)
            slots[at] = (h & _TAG) | np.uint64(n + 1)
        else:
            h = (np.uint64(node[n, _PREFIX]) << np.uint64(32) | np.uint64(node[n, _LAST])) * np.uint64(
                0x9E3779B97F4A7C15
            )
            at = (h ^ h >> np.uint64(32)) & np.uint64(pair_slots.size - 1)
            while pair_slots[at]:
                at = (at + np.uint64(1)) & np.uint64(pair_slots.size - 1)
            pair_slots[at] = n + 1


@kernel
def _dictionary(
    nodes: int, node: np.ndarray, data: np.ndarray, ids: np.ndarray, tf: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The text, df and cf of the nodes that are in a row, in order of creation; `ids` are renamed to them in place."""
    sums = np.zeros((nodes, 2), np.int64)  # df and cf
    for i in range(ids.size):
        sums[ids[i], 0] += 1
        sums[ids[i], 1] += tf[i]
    renamed = np.full(nodes, -1, np.int32)
    df = np.empty(nodes, np.int64)
    cf = np.empty(nodes, np.int64)
    terms = 0
    size = 0
    for n in range(nodes):
        if sums[n, 0]:
            renamed[n] = terms
            df[terms] = sums[n, 0]
            cf[terms] = sums[n, 1]
            terms += 1
            size += node[n, _LENGTH]
    if terms < nodes:
        for i in range(ids.size):
            ids[i] = renamed[ids[i]]
    text = np.empty(size, np.uint8)
    offsets = np.zeros(terms + 1, np.int64)
    for n in range(nodes):
        if renamed[n] < 0:
            continue
        at = offsets[renamed[n]] + node[n, _LENGTH]
        offsets[renamed[n] + 1] = at
        part = n
        while True:  # from the last token to the first
            token = part if node[part, _PREFIX] < 0 else node[part, _LAST]
            at -= node[token, _LENGTH]
            copy_bytes(data, node[token, _START], text, at, node[token, _LENGTH])
            if token == part:
                break
            at -= 1
            text[at] = _SPACE
            part = node[part, _PREFIX]
    return text, offsets, df[:terms], cf[:terms]


@kernel
def _build(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, slots: np.ndarray) -> int:
    """Fill `slots` with all entries; returns the first entry equal to an earlier one, or -1."""
    for entry in range(starts.size):
        begin = starts[entry]
        found, at = _find(data, begin, begin + lengths[entry], slots, data, starts, lengths)
        if found >= 0:
            return entry
        slots[at] = (hash64(data, begin, begin + lengths[entry]) & _TAG) | np.uint64(entry + 1)
    return -1


@kernel
def _find_each(
    data: np.ndarray,
    offsets: np.ndarray,
    slots: np.ndarray,
    table_data: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
) -> np.ndarray:
    """The entry of each value or -1. What look-ups read, seldom in a cache, is asked for some values ahead."""
    n = offsets.size - 1
    mask = np.uint64(slots.size - 1)
    found = np.empty(n, np.int32)
    hashes = np.empty(_AHEAD, np.uint64)
    for begin in range(0, n, _AHEAD):
        many = min(_AHEAD, n - begin)
        for k in range(many):
            hashes[k] = hash64(data, offsets[begin + k], offsets[begin + k + 1])
            prefetch(slots, np.int64(hashes[k] & mask))
        for k in range(many):
            slot = slots[hashes[k] & mask]
            if slot and slot & _TAG == hashes[k] & _TAG:
                prefetch(starts, np.int64(slot & _ENTRY) - 1)
                prefetch(lengths, np.int64(slot & _ENTRY) - 1)
        for k in range(many):
            slot = slots[hashes[k] & mask]
            if slot and slot & _TAG == hashes[k] & _TAG:
                prefetch(table_data, starts[np.int64(slot & _ENTRY) - 1])
        for i in range(begin, begin + many):
            found[i], _ = _find(data, offsets[i], offsets[i + 1], slots, table_data, starts, lengths)
    return found


@kernel
def _group(
    data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, slots: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The group of each value and, for each group, its first value: equal bytes are one group."""
    group = np.empty(starts.size, np.int64)
    first = np.empty(starts.size, np.int64)
    groups = 0
    for i in range(starts.size):
        found, at = _find(data, starts[i], starts[i] + lengths[i], slots, data, starts, lengths)
        if found >= 0:
            group[i] = group[found]
            continue
        slots[at] = (hash64(data, starts[i], starts[i] + lengths[i]) & _TAG) | np.uint64(i + 1)
        group[i] = groups
        first[groups] = i
        groups += 1
    return group, first[:groups].copy()


def large_strings(data: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """A large_string array over the given UTF-8 bytes (uint8) and offsets (int64[n+1]), without a copy."""
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


class TermTable:
    """Terms and a weight for each in a hash table that a file can hold and all processes of a machine share by mapping.

    The file: three int64 (entries, slots, bytes), slots uint64[slots], offsets int64[entries+1], weights
    float64[entries], the terms' bytes.
    """

    def __init__(self, slots: np.ndarray, offsets: np.ndarray, weights: np.ndarray, data: np.ndarray) -> None:
        self.slots, self.offsets, self.weights, self.data = slots, offsets, weights, data
        self.starts, self.lengths = offsets[:-1], np.diff(offsets)

    @classmethod
    def build(cls, terms: pa.Array, weights: np.ndarray | None = None) -> TermTable:
        """The table of distinct terms (any string array), each weighing 1 by default; ValueError on a repeated one."""
        data, offsets = string_buffers(terms)
        slots = np.zeros(1 << max(4, (2 * len(terms)).bit_length()), np.uint64)
        repeated = _build(data, offsets[:-1], np.diff(offsets), slots)
        if repeated >= 0:
            raise ValueError(f"term {terms[repeated].as_py()!r} occurs twice: a vocabulary holds each term once")
        return cls(slots, offsets, np.ones(len(terms)) if weights is None else weights, data)

    def find(self, terms: pa.Array) -> np.ndarray:
        """The entry of each term, int32[n]; -1 where the table lacks it."""
        data, offsets = string_buffers(terms)
        return _find_each(data, offsets, self.slots, self.data, self.starts, self.lengths)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a local file."""
        with open(path, "wb") as file:
            file.write(np.array([len(self.starts), self.slots.size, self.data.size], np.int64).tobytes())
            for part in (self.slots, self.offsets, self.weights, self.data):
                file.write(np.ascontiguousarray(part).data)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> TermTable:
        """Map a saved table into memory, read-only; raises ValueError if the file is not whole."""
        raw = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.empty(0, np.uint8)
        entries, slots, size = (int(x) for x in raw[:24].view(np.int64)) if raw.size >= 24 else (0, 0, -1)
        ends = np.cumsum([24, 8 * slots, 8 * (entries + 1), 8 * entries, size])
        if raw.size != ends[-1]:
            raise ValueError(f"{path} is not a whole term table: {raw.size} bytes, expected {ends[-1]}")
        parts = [raw[a:b] for a, b in zip(ends, ends[1:], strict=False)]
        return cls(parts[0].view(np.uint64), parts[1].view(np.int64), parts[2].view(np.float64), parts[3])


def count_terms(
    spans: Spans, ngrams: tuple[int, int] = (1, 1), stop_words: TermTable | None = None, through_stop_words: bool = True
) -> BlockCounts:
    """Count each document's n-grams of ngrams[0]..ngrams[1] tokens, joined by a space, within a sentence of `spans`.

    Tokens that are stop words are left out; an n-gram reaches across a left-out one only if `through_stop_words`.
    """
    stop = stop_words or TermTable.build(pa.array([], pa.large_string()))
    lowest, highest = ngrams
    documents, tokens = len(spans.document) - 1, len(spans.begin)
    # Room for the worst case: the system hands out a page of it only when it is first touched.
    node = np.empty((tokens * highest, 6), np.int64)
    ids, tf = np.empty((2, tokens * (highest - lowest + 1)), np.int32)
    indptr, lengths = np.zeros(documents + 1, np.int64), np.zeros(documents, np.int32)
    slots, pair_slots = np.zeros(1 << 15, np.uint64), np.zeros(1 << 15 if highest > 1 else 1, np.int32)
    state = np.zeros(4, np.int64)  # nodes, tokens, pairs, nnz
    done = 0
    while True:
        done = _count(
            done,
            state,
            *spans[:5],
            lowest,
            highest,
            through_stop_words,
            (stop.slots, stop.data, stop.starts, stop.lengths),
            node,
            slots,
            pair_slots,
            indptr,
            ids,
            tf,
            lengths,
        )
        if done == documents:
            break
        many = int(spans.document[done + 1] - spans.document[done])
        slots = np.zeros(_table_size(slots.size, int(state[1]) + many), np.uint64)
        pair_slots = np.zeros(_table_size(pair_slots.size, int(state[2]) + many * (highest - 1)), np.int32)
        _refill(state[0], node, spans.data, slots, pair_slots)
    nodes, nnz = int(state[0]), int(state[3])
    ids, tf = ids[:nnz].copy(), tf[:nnz].copy()
    text, offsets, df, cf = _dictionary(nodes, node, spans.data, ids, tf)
    return BlockCounts(TermCounts(large_strings(text, offsets), df, cf), indptr, ids, tf, lengths)


def _table_size(size: int, entries: int) -> int:
    """The size of a hash table for `entries` and as many again, if `size` is too small for them; else `size`."""
    return size if 2 * entries <= size else 1 << (4 * entries - 1).bit_length()


def join_counts(parts: list[TermCounts]) -> TermCounts:
    """Term counts one after the other; a term that several parts hold is there several times."""
    if len(parts) == 1:
        return parts[0]
    terms = pa.concat_arrays([part.terms for part in parts] or [pa.array([], pa.large_string())])
    none = np.empty(0, np.int64)
    df, cf = (np.concatenate([none, *(getattr(part, name) for part in parts)]) for name in ("df", "cf"))
    return TermCounts(terms, df, cf)


def take_counts(counts: TermCounts, rows: np.ndarray) -> TermCounts:
    """The counts in these rows."""
    return TermCounts(counts.terms.take(pa.array(rows)), counts.df[rows], counts.cf[rows])


def first_in_order(counts: TermCounts, rows: np.ndarray, most: int | None) -> np.ndarray:
    """The first `most` (None: all) of these rows in order (cf desc, term asc), the last one last."""
    if most is None or len(rows) <= most:
        return rows
    cut = np.partition(counts.cf[rows], -most)[-most]
    above, ties = rows[counts.cf[rows] > cut], rows[counts.cf[rows] == cut]
    order = pc.array_sort_indices(counts.terms.take(pa.array(ties)).cast(pa.large_binary())).to_numpy()
    return np.concatenate([above, ties[order[: most - len(above)]]])


def deal_counts(counts: TermCounts, shards: int) -> list[TermCounts]:
    """Part term counts among shards by a hash of the term, the same for all counts ever dealt to that many.

    shards: a power of two up to 65,536.
    """
    data, offsets = string_buffers(counts.terms)
    text, starts, df, cf, ends = _deal(data, offsets, counts.df, counts.cf, shards)
    terms = large_strings(text, starts)
    slices = list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
    return [TermCounts(terms.slice(begin, end - begin), df[begin:end], cf[begin:end]) for begin, end in slices]


@kernel
def _deal(
    data: np.ndarray, offsets: np.ndarray, df: np.ndarray, cf: np.ndarray, shards: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Text, offsets, df and cf in order of shards, and the shards' ends: a counting sort."""
    n = offsets.size - 1
    shard = np.empty(n, np.int32)
    ends = np.zeros(shards + 1, np.int64)
    byte_ends = np.zeros(shards + 1, np.int64)
    for i in range(n):
        # Not the hash's lowest bits: a table of one shard's terms goes by those.
        h = hash64(data, offsets[i], offsets[i + 1])
        shard[i] = np.int64((h >> np.uint64(48)) & np.uint64(shards - 1))
        ends[shard[i] + 1] += 1
        byte_ends[shard[i] + 1] += offsets[i + 1] - offsets[i]
    for s in range(shards):
        ends[s + 1] += ends[s]
        byte_ends[s + 1] += byte_ends[s]
    text = np.empty(byte_ends[shards], np.uint8)
    starts = np.empty(n + 1, np.int64)
    starts[n] = byte_ends[shards]
    out_df = np.empty(n, np.int64)
    out_cf = np.empty(n, np.int64)
    place = ends.copy()
    at = byte_ends.copy()
    for i in range(n):
        s = shard[i]
        p = place[s]
        place[s] = p + 1
        starts[p] = at[s]
        out_df[p] = df[i]
        out_cf[p] = cf[i]
        length = offsets[i + 1] - offsets[i]
        copy_bytes(data, offsets[i], text, at[s], length)
        at[s] += length
    return text, starts, out_df, out_cf, ends


def merge_counts(parts: list[TermCounts]) -> TermCounts:
    """The sum of term counts: each distinct term once, in order of first appearance, with df and cf added up."""
    joined = join_counts(parts)
    data, offsets = string_buffers(joined.terms)
    slots = np.zeros(1 << (2 * len(joined.terms)).bit_length(), np.uint64)
    group, first = _group(data, offsets[:-1], np.diff(offsets), slots)
    terms = joined.terms.take(pa.array(first))
    return TermCounts(terms, _add_up(group, joined.df, len(first)), _add_up(group, joined.cf, len(first)))


@kernel
def _add_up(group: np.ndarray, values: np.ndarray, groups: int) -> np.ndarray:
    sums = np.zeros(groups, np.int64)
    for i in range(group.size):
        sums[group[i]] += values[i]
    return sums
