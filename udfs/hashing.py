"""Hashes of UTF-8 bytes: MurmurHash3 for content and for indices, MinHash, and a fast hash for tables in memory."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from udfs.arrays import string_buffers
from udfs.compiled import kernel


@intrinsic
def load64(typingctx, array, index):  # type: ignore[no-untyped-def]
    """Eight bytes of a contiguous uint8 array at any offset as one little-endian uint64; the caller checks bounds."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(view.data, [arguments[1]])
        word = builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(array, types.int64), codegen


@intrinsic
def store64(typingctx, array, index, word):  # type: ignore[no-untyped-def]
    """Write a uint64 as eight little-endian bytes at any offset of a contiguous uint8 array; no check of bounds."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), ir.IntType(64).as_pointer())
        builder.store(arguments[2], pointer).align = 1
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), codegen


@kernel
def copy_bytes(source: np.ndarray, begin: int, target: np.ndarray, to: int, length: int) -> None:
    """target[to:to+length] = source[begin:begin+length], eight bytes at once; they must not be the same array."""
    if length < 8:
        for k in range(length):
            target[to + k] = source[begin + k]
        return
    for k in range(0, length - 8, 8):
        store64(target, to + k, load64(source, begin + k))
    store64(target, to + length - 8, load64(source, begin + length - 8))


@intrinsic
def prefetch(typingctx, array, index):  # type: ignore[no-untyped-def]
    """Ask for the cache line of a one-dimensional contiguous array's element; harmless at any index."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type] + [ir.IntType(32)] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, *(ir.Constant(ir.IntType(32), k) for k in (0, 3, 1))])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@kernel
def word_at(data: np.ndarray, begin: int, length: int) -> int:
    """The first min(length, 8) bytes at `begin` as a zero-padded little-endian uint64."""
    if begin + 8 <= data.size:
        word = load64(data, begin)
        if length >= 8:
            return word
        return word & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))
    word = np.uint64(0)
    for i in range(min(length, 8)):
        word |= np.uint64(data[begin + i]) << np.uint64(8 * i)
    return word


@kernel
def hash64(data: np.ndarray, begin: int, end: int) -> int:
    """A 64-bit hash of data[begin:end] for hash tables (multiply and fold; not a published hash).

    Nothing that is kept holds it, but kept counts are dealt by it: another one makes them unreadable.
    """
    length = end - begin
    h = np.uint64(length) * np.uint64(0x9E3779B97F4A7C15)
    while begin < end:
        h = (h ^ word_at(data, begin, end - begin)) * np.uint64(0xD6E8FEB86659FD93)
        h ^= h >> np.uint64(32)
        begin += 8
    return h


@kernel
def same_bytes(a: np.ndarray, a_begin: int, b: np.ndarray, b_begin: int, length: int) -> bool:
    """Whether a[a_begin:a_begin+length] equals b[b_begin:b_begin+length]."""
    while length > 0:
        if word_at(a, a_begin, length) != word_at(b, b_begin, length):
            return False
        a_begin += 8
        b_begin += 8
        length -= 8
    return True


@kernel
def _rotl(x: int, r: int) -> int:
    return (x << np.uint64(r)) | (x >> np.uint64(64 - r))


@kernel
def fmix64(k: int) -> int:
    """The finaliser of MurmurHash3 (Austin Appleby): a uint64 spread evenly, one to one."""
    k ^= k >> np.uint64(33)
    k *= np.uint64(0xFF51AFD7ED558CCD)
    k ^= k >> np.uint64(33)
    k *= np.uint64(0xC4CEB9FE1A85EC53)
    return k ^ (k >> np.uint64(33))


@kernel
def murmur128(data: np.ndarray, begin: int, end: int, seed: int) -> tuple[int, int]:
    """MurmurHash3 x64_128 (Austin Appleby) of data[begin:end], as its two little-endian uint64 halves."""
    c1 = np.uint64(0x87C37B91114253D5)
    c2 = np.uint64(0x4CF5AD432745937F)
    length = end - begin
    h1 = np.uint64(seed)
    h2 = np.uint64(seed)
    while begin + 16 <= end:
        k1 = load64(data, begin)
        k2 = load64(data, begin + 8)
        h1 ^= _rotl(k1 * c1, 31) * c2
        h1 = (_rotl(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= _rotl(k2 * c2, 33) * c1
        h2 = (_rotl(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
        begin += 16
    tail = end - begin
    if tail > 8:
        h2 ^= _rotl(word_at(data, begin + 8, tail - 8) * c2, 33) * c1
    if tail > 0:
        h1 ^= _rotl(word_at(data, begin, tail) * c1, 31) * c2
    h1 ^= np.uint64(length)
    h2 ^= np.uint64(length)
    h1 += h2
    h2 += h1
    h1 = fmix64(h1)
    h2 = fmix64(h2)
    h1 += h2
    h2 += h1
    return h1, h2


@kernel
def murmur32(data: np.ndarray, begin: int, end: int, seed: int) -> int:
    """MurmurHash3 x86_32 (Austin Appleby) of data[begin:end], from 0 to 2^32 - 1."""
    low = np.uint64(0xFFFFFFFF)
    c1, c2 = np.uint64(0xCC9E2D51), np.uint64(0x1B873593)
    h = np.uint64(seed)
    length = np.uint64(end - begin)
    while begin < end:
        k = word_at(data, begin, min(4, end - begin)) & low
        k = k * c1 & low
        k = (k << np.uint64(15) | k >> np.uint64(17)) & low
        h ^= k * c2 & low
        if end - begin >= 4:
            h = (h << np.uint64(13) | h >> np.uint64(19)) & low
            h = h * np.uint64(5) + np.uint64(0xE6546B64) & low
        begin += 4
    h ^= length
    h ^= h >> np.uint64(16)
    h = h * np.uint64(0x85EBCA6B) & low
    h ^= h >> np.uint64(13)
    h = h * np.uint64(0xC2B2AE35) & low
    return h ^ h >> np.uint64(16)


@kernel
def _indices(data: np.ndarray, offsets: np.ndarray, size: int) -> np.ndarray:
    out = np.empty(offsets.size - 1, np.int64)
    for i in range(out.size):
        signed = np.int64(np.int32(murmur32(data, offsets[i], offsets[i + 1], 42)))
        out[i] = signed % size  # never negative, unlike Java's
    return out


def hash_indices(terms: pa.Array, size: int) -> np.ndarray:
    """The index of each term among `size`, int64[n]: MurmurHash3 x86_32 with seed 42, as Spark 3's ml.HashingTF."""
    return _indices(*string_buffers(terms), size)


def murmur3(terms: pa.Array) -> pa.Array:
    """MurmurHash3 x86_32 with seed 42 of each term (any string array), int32; null stays null.

    Its non-negative remainder by a size is the term's index.
    """
    hashes = hash_indices(terms, 1 << 32).astype(np.uint32).view(np.int32)
    return pa.array(hashes, mask=~np.asarray(terms.is_valid()))


def hash_term(terms: pa.Array, size: int) -> pa.Array:
    """The index of each term (any string array) among `size`, int32: see `hash_indices`; null stays null.

    ValueError unless 1 <= size < 2^31.
    """
    if not 1 <= size < 2**31:
        raise ValueError(f"size is {size}: give a number from 1 to 2147483647")
    if pa.types.is_null(terms.type):
        terms = terms.cast(pa.string())
    return pa.array(hash_indices(terms, size).astype(np.int32), mask=~np.asarray(terms.is_valid()))


MERSENNE = 2**31 - 1  # the multipliers and summands of `minhash` are taken modulo this prime
PRIME = 2**32 + 15  # and its values modulo this one, the first above all hashes of terms


def _digest32(text: bytes) -> int:
    """The first eight hexadecimal digits of MD5 as a number."""
    return int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest()[:4], "big")


def minhash(terms: pa.Array, count: int) -> pa.Array:
    """The MinHash signature of each list of terms, list<int64> of `count` numbers; of no terms an empty one.

    The share of equal numbers in two signatures estimates the Jaccard similarity of the sets of terms (Broder 1997).
    Number k is the least of (a x + b) mod (2^32 + 15) over all terms, where x, a - 1 and b are the first eight
    hexadecimal digits of the MD5 of the term, of "a" and k in decimal digits, and of "b" and k, the latter two modulo
    2^31 - 1: SQL can say the same. terms: a list of any strings; a null term is none, a null list has none.
    ValueError unless count >= 1.
    """
    if count < 1:
        raise ValueError(f"count is {count}: give a number from 1 on")
    if pa.types.is_null(terms.type) or pa.types.is_null(terms.type.value_type):
        terms = terms.cast(pa.list_(pa.string()))
    of_list = pc.list_parent_indices(terms)  # none for a null list
    flat = terms.flatten()
    if flat.null_count:
        of_list, flat = of_list.filter(flat.is_valid()), flat.drop_null()
    found = flat.dictionary_encode()
    distinct = found.dictionary.cast(pa.large_binary()).to_pylist()
    x = np.array([_digest32(term) for term in distinct], np.uint64)
    code = found.indices.to_numpy()
    sizes = np.bincount(of_list.to_numpy(), minlength=len(terms))
    some = sizes > 0
    starts = (np.cumsum(sizes) - sizes)[some]
    signatures = np.empty((len(starts), count), np.int64)
    for k in range(count):  # (2^31 - 1) (2^32 - 1) + 2^31 - 2 is below 2^63
        a, b = 1 + _digest32(b"a%d" % k) % MERSENNE, _digest32(b"b%d" % k) % MERSENNE
        values = (np.uint64(a) * x + np.uint64(b)) % np.uint64(PRIME)
        signatures[:, k] = np.minimum.reduceat(values[code], starts) if len(starts) else 0
    ends = np.append(0, np.cumsum(some * count)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(signatures.reshape(-1)))


@kernel
def _hash_each(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    out = np.empty((offsets.size - 1, 2), np.uint64)
    for i in range(offsets.size - 1):
        out[i, 0], out[i, 1] = murmur128(data, offsets[i], offsets[i + 1], 0)
    return out


@kernel
def _sum128(hashes: np.ndarray) -> tuple[int, int]:
    low = np.uint64(0)
    high = np.uint64(0)
    for i in range(hashes.shape[0]):
        low += hashes[i, 0]
        high += hashes[i, 1] + np.uint64(low < hashes[i, 0])
    return low, high


def hash_each(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """MurmurHash3 x64_128, seed 0, of data[offsets[i]:offsets[i+1]] for each i: uint64[n, 2], low half first."""
    return _hash_each(data, offsets)


def content_hash(values: pa.Array) -> np.ndarray:
    """MurmurHash3 x64_128, seed 0, of each string or binary value: uint64[n, 2]; null hashes as empty."""
    data, offsets = string_buffers(values)
    return _hash_each(data, offsets)


def hash_sum(hashes: np.ndarray) -> int:
    """Sum mod 2^128 of 128-bit hashes uint64[n, 2]: free of their order, so of any file layout."""
    low, high = _sum128(hashes)
    return int(low) | int(high) << 64
