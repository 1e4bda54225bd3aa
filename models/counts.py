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
from udfs.hashing import content_hash, copy_bytes, hash64, hash_indices, load64, prefetch, same_bytes, word_at
from udfs.text import Spans

_TAG = np.uint64(0xFFFFFFFF00000000)
_ENTRY = np.uint64(0x00000000FFFFFFFF)
_SPACE = np.uint8(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SHARDS = 256  # to which terms are dealt by hash: a table of one shard's terms fits into a core's cache
U = np.uintp  # an index of this type spares numba's test for negative ones
_AHEAD = 64  # look-ups under way at once: what they read is seldom in a cache, and asked for before it is needed


@dataclass(frozen=True)
class TermCounts:
    """Terms with their document frequency (df) and collection frequency (cf): large_string[t], int64[t], int64[t]."""

    terms: pa.Array
    df: np.ndarray
    cf: np.ndarray


@dataclass(frozen=True)
class BlockCounts:
    """A block's dictionary, and its documents in CSR form over it.

    dictionary: the block's terms in no order of meaning. indptr int64[n+1], ids int32[nnz] into the dictionary in order
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
_START, _LENGTH, _PREFIX, _LAST = range(4)
# A token's _PREFIX is -1, and its bytes lie at _START; an n-gram's _LENGTH is that of its text.
_TOKEN = -1
# Columns of a token's slot: its first and its last eight bytes (0 up to eight), its key and its place. A key is 16 bits
# of the token's hash, 16 of its length (_LONGEST: that or more), 32 of its node plus one; 0 is free.
_HEAD, _TAIL, _KEY, _PLACE = range(4)
_LONGEST = 0x7FFF
# A place is a term's entry in the row being filled; earlier values are stale.
_NOWHERE, _STOP_WORD = -1, -2


@kernel
def _words_of(data: np.ndarray, start: int, length: int) -> tuple[int, int, int]:
    """A token's first eight bytes, its last eight (0 up to eight), and a hash of it."""
    head = word_at(data, start, length)
    tail = load64(data, start + length - 8) if length > 8 else np.uint64(0)
    h = (head ^ np.uint64(length) * _MULTIPLIER) * _MULTIPLIER
    h = (h ^ h >> np.uint64(32) ^ tail) * _MULTIPLIER
    if length > 16:
        h ^= hash64(data, start + 8, start + length - 8)
    return np.int64(head), np.int64(tail), h ^ h >> np.uint64(32)


@kernel
def _key(h: int, length: int, node: int) -> int:
    return np.int64(h >> np.uint64(48)) << 48 | min(length, _LONGEST) << 32 | (node + 1)


@kernel
def _pair_slot(pair: int, size: int) -> int:
    """Where to look first for a pair of nodes in a table of `size` slots."""
    h = np.uint64(pair) * _MULTIPLIER
    return (h ^ h >> np.uint64(32)) & np.uint64(size - 1)


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
    gap: int,
    through_stop_words: bool,
    stop: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    node: np.ndarray,
    place: np.ndarray,
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
    size, pair_size = slots.shape[0], pair_slots.shape[0]
    mask = np.uint64(size - 1)
    pair_mask = np.uint64(pair_size - 1)
    chain = np.empty(highest + 1, np.int64)  # chain[k]: node of the k-gram that ends at the token before
    heads, tails, hashes = np.empty(_AHEAD, np.int64), np.empty(_AHEAD, np.int64), np.empty(_AHEAD, np.uint64)
    found, places = np.empty(_AHEAD, np.int64), np.empty(_AHEAD, np.int64)
    flat_slots, flat_pairs = slots.reshape(-1), pair_slots.reshape(-1)
    d = first
    while d < document.size - 1:
        many = document[d + 1] - document[d]
        if 2 * (tokens + many) > size or 2 * (pairs + many * (highest - 1)) > pair_size:
            break
        row = nnz
        known = 0  # how many tokens the chain holds
        before = -1
        kept = 0
        for t in range(document[d], document[d + 1]):
            here = (t - document[d]) % _AHEAD
            if here == 0:  # find the next tokens' nodes; what the tables will be asked for is on its way by then
                ahead = min(_AHEAD, document[d + 1] - t)
                for k in range(ahead):
                    start, stop_at = begin[U(t + k)], end[U(t + k)]
                    heads[U(k)], tails[U(k)], hashes[U(k)] = _words_of(data, start, stop_at - start)
                    prefetch(flat_slots, np.int64(hashes[U(k)] & mask) * 4)
                for k in range(ahead):
                    start = begin[U(t + k)]
                    length = end[U(t + k)] - start
                    head, tail, h = heads[U(k)], tails[U(k)], hashes[U(k)]
                    at = h & mask
                    token = -1
                    while slots[at, _KEY]:
                        if slots[at, _HEAD] == head and slots[at, _TAIL] == tail:
                            key = slots[at, _KEY]
                            token = (key & np.int64(_ENTRY)) - 1
                            if key == _key(h, length, token) and (
                                length <= 16
                                or (
                                    node[U(token), _LENGTH] == length
                                    and same_bytes(data, start + 8, data, node[U(token), _START] + 8, length - 16)
                                )
                            ):
                                break
                            token = -1
                        at = (at + np.uint64(1)) & mask
                    if token < 0:
                        token = nodes
                        nodes += 1
                        tokens += 1
                        slots[at, _HEAD] = head
                        slots[at, _TAIL] = tail
                        slots[at, _KEY] = _key(h, length, token)
                        slots[at, _PLACE] = _NOWHERE
                        node[U(token), _START] = start
                        node[U(token), _LENGTH] = length
                        node[U(token), _PREFIX] = _TOKEN
                        place[U(token)] = _NOWHERE
                        if stop_starts.size:
                            entry, _ = _find(
                                data, start, start + length, stop_slots, stop_data, stop_starts, stop_lengths
                            )
                            if entry >= 0:
                                place[U(token)] = _STOP_WORD  # outlives this table
                                slots[at, _PLACE] = _STOP_WORD
                    found[U(k)] = token
                    places[U(k)] = at
                    if highest > 1 and k:
                        prefetch(flat_pairs, np.int64(_pair_slot(found[U(k - 1)] << 32 | token, pair_size)) * 2)
            token = found[U(here)]
            at = U(places[U(here)])
            if slots[at, _PLACE] == _STOP_WORD:
                if not through_stop_words:
                    known = 0
                continue
            kept += 1
            if sentence[U(t)] != before:
                known = 0
                before = sentence[U(t)]
            longest = min(known + 1, highest)
            if lowest == 1 or sentence[U(t)] < 0:
                entry = slots[at, _PLACE]
                if entry >= row:
                    tf[U(entry)] += 1
                else:
                    slots[at, _PLACE] = nnz
                    ids[U(nnz)] = token
                    tf[U(nnz)] = 1
                    nnz += 1
            prefix = chain[1]
            chain[1] = token
            for n in range(2, longest + 1):  # prefix is the n-1-gram that ended a token before
                pair = prefix << 32 | token
                at = _pair_slot(pair, pair_size)
                while pair_slots[at, 1] and pair_slots[at, 0] != pair:
                    at = (at + np.uint64(1)) & pair_mask
                term = pair_slots[at, 1] - 1
                if term < 0:
                    term = nodes
                    nodes += 1
                    pairs += 1
                    pair_slots[at, 0] = pair
                    pair_slots[at, 1] = term + 1
                    node[U(term), _LENGTH] = node[U(prefix), _LENGTH] + gap + node[U(token), _LENGTH]
                    node[U(term), _PREFIX] = prefix
                    node[U(term), _LAST] = token
                    place[U(term)] = _NOWHERE
                if n >= lowest:
                    entry = place[U(term)]
                    if entry >= row:
                        tf[U(entry)] += 1
                    else:
                        place[U(term)] = nnz
                        ids[U(nnz)] = term
                        tf[U(nnz)] = 1
                        nnz += 1
                prefix = chain[U(n)]
                chain[U(n)] = term
            known = longest
        indptr[d + 1] = nnz
        lengths[d] = kept
        d += 1
    state[0], state[1], state[2], state[3] = nodes, tokens, pairs, nnz
    return d


@kernel
def _refill(
    nodes: int, node: np.ndarray, place: np.ndarray, data: np.ndarray, slots: np.ndarray, pair_slots: np.ndarray
) -> None:
    """Enter all nodes into empty hash tables (nodes are distinct, so the first free slot is right)."""
    mask = np.uint64(slots.shape[0] - 1)
    pair_mask = np.uint64(pair_slots.shape[0] - 1)
    for n in range(nodes):
        if node[n, _PREFIX] == _TOKEN:
            head, tail, h = _words_of(data, node[n, _START], node[n, _LENGTH])
            at = h & mask
            while slots[at, _KEY]:
                at = (at + np.uint64(1)) & mask
            slots[at, _HEAD] = head
            slots[at, _TAIL] = tail
            slots[at, _KEY] = _key(h, node[n, _LENGTH], n)
            slots[at, _PLACE] = place[n]
        else:
            pair = node[n, _PREFIX] << 32 | node[n, _LAST]
            at = _pair_slot(pair, pair_slots.shape[0])
            while pair_slots[at, 1]:
                at = (at + np.uint64(1)) & pair_mask
            pair_slots[at, 0] = pair
            pair_slots[at, 1] = n + 1


@kernel
def _dictionary(
    nodes: int, node: np.ndarray, gap: int, data: np.ndarray, ids: np.ndarray, tf: np.ndarray
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
            token = part if node[part, _PREFIX] == _TOKEN else node[part, _LAST]
            at -= node[token, _LENGTH]
            copy_bytes(data, node[token, _START], text, at, node[token, _LENGTH])
            if token == part:
                break
            if gap:
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
    """The entry of each value or -1."""
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
    spans: Spans,
    ngrams: tuple[int, int] = (1, 1),
    stop_words: TermTable | None = None,
    through_stop_words: bool = True,
    joined_by_space: bool = True,
) -> BlockCounts:
    """Count each document's n-grams of ngrams[0]..ngrams[1] tokens within a sentence of `spans`.

    Tokens that are stop words are left out; an n-gram reaches across a left-out one only if `through_stop_words`. A
    token with a negative sentence is a term by itself, whatever `ngrams`.
    """
    stop = stop_words or TermTable.build(pa.array([], pa.large_string()))
    lowest, highest = ngrams
    documents, tokens = len(spans.document) - 1, len(spans.begin)
    # Room for the worst case: the system hands out a page of it only when it is first touched.
    node, place = np.empty((tokens * highest, 4), np.int64), np.empty(tokens * highest, np.int32)
    ids, tf = np.empty((2, tokens * (highest - lowest + 1)), np.int32)
    indptr, lengths = np.zeros(documents + 1, np.int64), np.zeros(documents, np.int32)
    size = _table_size(256, tokens // 8)  # a guess
    slots, pair_slots = np.zeros((size, 4), np.int64), np.zeros((4 * size if highest > 1 else 1, 2), np.int64)
    state = np.zeros(4, np.int64)  # nodes, tokens, pairs, nnz
    done = 0
    while True:
        done = _count(
            done,
            state,
            *spans[:5],
            lowest,
            highest,
            int(joined_by_space),
            through_stop_words,
            (stop.slots, stop.data, stop.starts, stop.lengths),
            node,
            place,
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
        slots = np.zeros((_table_size(len(slots), int(state[1]) + many), 4), np.int64)
        pair_slots = np.zeros((_table_size(len(pair_slots), int(state[2]) + many * (highest - 1)), 2), np.int64)
        _refill(state[0], node, place, spans.data, slots, pair_slots)
    nodes, nnz = int(state[0]), int(state[3])
    ids, tf = ids[:nnz].copy(), tf[:nnz].copy()
    text, offsets, df, cf = _dictionary(nodes, node, int(joined_by_space), spans.data, ids, tf)
    return BlockCounts(TermCounts(large_strings(text, offsets), df, cf), indptr, ids, tf, lengths)


def _table_size(size: int, entries: int) -> int:
    """The size of a hash table for `entries` and as many again, if `size` is too small for them; else `size`."""
    return size if 2 * entries <= size else 1 << (4 * entries - 1).bit_length()


@kernel
def renumber(
    indptr: np.ndarray, ids: np.ndarray, tf: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows over dictionary ids as rows over numbers[id], sorted, equal ones added up; a number below 0 drops a term."""
    n = indptr.size - 1
    row_ends = np.zeros(n + 1, np.int64)
    out, out_tf = np.empty(ids.size, np.int32), np.empty(ids.size, np.int32)
    pairs = np.empty(ids.size, np.int64)  # of a row: the number above, tf below
    nnz = 0
    for row in range(n):
        kept = 0
        for i in range(indptr[row], indptr[row + 1]):
            number = np.int64(numbers[ids[i]])
            pairs[kept] = number << 32 | tf[i]
            kept += number >= 0
        pairs[:kept].sort()
        for i in range(kept):
            number, many = pairs[i] >> 32, pairs[i] & 0xFFFFFFFF
            if nnz > row_ends[row] and out[nnz - 1] == number:
                out_tf[nnz - 1] += many
                continue
            out[nnz] = number
            out_tf[nnz] = many
            nnz += 1
        row_ends[row + 1] = nnz
    return row_ends, out[:nnz].copy(), out_tf[:nnz].copy()


def join_equal_terms(counts: BlockCounts) -> BlockCounts:
    """The counts with equal terms as one: a token that holds a space can equal an n-gram, of other tokens."""
    data, offsets = string_buffers(counts.dictionary.terms)
    slots = np.zeros(1 << (2 * len(counts.dictionary.terms)).bit_length(), np.uint64)
    group, first = _group(data, offsets[:-1], np.diff(offsets), slots)
    if len(first) == len(group):
        return counts
    return _renamed(counts, group, counts.dictionary.terms.take(pa.array(first)))


def _renamed(counts: BlockCounts, numbers: np.ndarray, terms: pa.Array) -> BlockCounts:
    """The counts over another dictionary: numbers[id] is the place in `terms` of what was id."""
    indptr, ids, tf = renumber(counts.indptr, counts.ids, counts.tf, numbers.astype(np.int32))
    df = np.bincount(ids, minlength=len(terms)).astype(np.int64)
    return BlockCounts(TermCounts(terms, df, _add_up(ids, tf, len(terms))), indptr, ids, tf, counts.lengths)


def hash_counts(counts: BlockCounts, size: int) -> BlockCounts:
    """The counts of terms told apart by their index among `size` alone (`hashing.hash_indices`), in order of index.

    The dictionary's terms are those of `index_terms`.
    """
    index, numbers = np.unique(hash_indices(counts.dictionary.terms, size), return_inverse=True)
    return _renamed(counts, numbers, index_terms(index))


def index_terms(index: np.ndarray) -> pa.Array:
    """Indices written as terms, large_string: "#" and ten digits, so that they sort alike."""
    digits = np.empty((len(index), 11), np.uint8)
    digits[:, 0] = ord("#")
    rest = index.astype(np.int64)
    for place in range(10, 0, -1):
        digits[:, place] = rest % 10 + ord("0")
        rest = rest // 10
    return large_strings(digits.reshape(-1), np.arange(len(index) + 1, dtype=np.int64) * 11)


def term_indices(terms: pa.Array) -> np.ndarray:
    """The indices that `index_terms` wrote, int64[n]."""
    data, _ = string_buffers(terms)
    return (data.reshape(-1, 11)[:, 1:] - np.uint8(ord("0"))) @ 10 ** np.arange(9, -1, -1)


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


def sort_counts(counts: TermCounts) -> TermCounts:
    """The counts in order of code points."""
    return take_counts(counts, pc.array_sort_indices(counts.terms.cast(pa.large_binary())).to_numpy())


def row_hashes(terms: pa.Array, *numbers: np.ndarray) -> np.ndarray:
    """A 128-bit hash of each term with its numbers (int64[n] each), uint64[n, 2]."""
    rows = np.concatenate([content_hash(terms).view(np.int64), np.stack(numbers, axis=1).astype(np.int64)], axis=1)
    joined = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * (8 * rows.shape[1])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    return content_hash(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), buffers))


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
