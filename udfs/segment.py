"""Kernels over UTF-8 bytes: normalisation, word boundaries, runs of characters, addresses, emoji, sentence ends.

Every kernel takes the tables of unicode_tables.py as arguments: numba freezes a global array into the compiled code.
Bytes come as `data` uint8[bytes] with `text` or `offsets` int64[documents + 1], the first byte of each document and the
end of the last. No kernel reads out of bounds, whatever the bytes: one that is not valid UTF-8 counts as U+FFFD.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from udfs.compiled import kernel
from udfs.hashing import load64, word_at
from udfs.unicode_tables import (
    ACCENTED,
    CASE_IGNORABLE,
    CASED,
    CLOSING,
    COMBINING,
    COMBINING_SHIFT,
    COMPLEX,
    CONTENT,
    DROPPED,
    EMOJI,
    EMOJI_MODIFIER_BASE,
    EMOJI_PRESENTATION,
    HAN,
    IGNORABLE,
    JOINING,
    MARK,
    PICTOGRAPHIC,
    SPACE,
    TERMINAL,
    WORD_BREAK,
    Normalizer,
)

Bytes: TypeAlias = npt.NDArray[np.uint8]
Points: TypeAlias = npt.NDArray[np.int32]
Offsets: TypeAlias = npt.NDArray[np.int64]
Properties: TypeAlias = npt.NDArray[np.uint32]

# The Word_Break classes, numbered as in WORD_BREAKS, where 0 is Other.
CR, LF, NEWLINE, WSEGSPACE, EXTEND, FORMAT, ZWJ, REGIONAL, KATAKANA = range(1, 10)
SINGLE_QUOTE, DOUBLE_QUOTE, MIDNUMLET, MIDLETTER, MIDNUM, EXTENDNUMLET, NUMERIC, ALETTER, HEBREW = range(10, 19)
CHUNK = 64  # bytes that the ASCII loops take at once
ONES, HIGHEST, ALL = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(0xFFFFFFFFFFFFFFFF)
GATHER = np.uint64(0x0102040810204080)  # times eight bytes of 0 or 1: these as the bits of the highest byte

REGIONAL_A, REGIONAL_Z, LIGHT_SKIN, DARK_SKIN = 0x1F1E6, 0x1F1FF, 0x1F3FB, 0x1F3FF
TEXT_STYLE, EMOJI_STYLE, KEYCAP, FIRST_TAG, LAST_TAG = 0xFE0E, 0xFE0F, 0x20E3, 0xE0020, 0xE007F


def _ascii_set(characters: str) -> tuple[np.uint64, np.uint64]:
    bits = sum(1 << ord(character) for character in set(characters))
    return np.uint64(bits & 0xFFFFFFFFFFFFFFFF), np.uint64(bits >> 64)


def _prefix(text: str) -> tuple[np.uint64, np.uint64, np.uint64]:
    """A beginning of up to eight bytes for `_begins`: its letters' bits of case, its length as a mask, itself."""
    case = bytes(0x20 * character.isalpha() for character in text)
    return (
        np.uint64(int.from_bytes(case, "little")),
        np.uint64((1 << 8 * len(text)) - 1),
        np.uint64(int.from_bytes(text.encode(), "little")),
    )


ALPHANUMERIC = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
IN_WORD = _ascii_set(ALPHANUMERIC)
IN_URL = _ascii_set(ALPHANUMERIC + "-._~:/?#[]@!$&'()*+,;=%")  # RFC 3986
AFTER_URL = _ascii_set("?!.,:;'*_~([")  # what is no part of a URL at its end
IN_MAILBOX = _ascii_set(ALPHANUMERIC + "._%+-")
HTTP, HTTPS, FTP, WWW = _prefix("http://"), _prefix("https://"), _prefix("ftp://"), _prefix("www.")

# Two habits of the hot loops below, each worth a factor: an index that is unsigned spares numba's test for negative
# ones, and ASCII is told apart before `decode` or `put` is called.
U = np.uintp

# Hangul syllables are composed by arithmetic (The Unicode Standard, 3.12).
S_BASE, L_BASE, V_BASE, T_BASE = 0xAC00, 0x1100, 0x1161, 0x11A7
L_COUNT, V_COUNT, T_COUNT = 19, 21, 28
S_COUNT = L_COUNT * V_COUNT * T_COUNT


@kernel
def decode(data: Bytes, i: int, end: int) -> tuple[int, int]:
    """The code point at byte `i` < `end` and where the next begins; an invalid byte is one U+FFFD (RFC 3629)."""
    lead = np.int64(data[i])
    if lead < 0x80:
        return lead, i + 1
    if 0xC2 <= lead < 0xE0:
        if i + 1 < end:
            second = np.int64(data[i + 1]) ^ 0x80  # below 64 where it is a continuation byte
            if second < 64:
                return (lead & 0x1F) << 6 | second, i + 2
    elif 0xE0 <= lead < 0xF0:
        if i + 2 < end:
            second, third = np.int64(data[i + 1]) ^ 0x80, np.int64(data[i + 2]) ^ 0x80
            point = (lead & 0x0F) << 12 | second << 6 | third
            if second | third < 64 and point >= 0x800 and not 0xD800 <= point < 0xE000:
                return point, i + 3
    elif 0xF0 <= lead < 0xF5 and i + 3 < end:
        second, third = np.int64(data[i + 1]) ^ 0x80, np.int64(data[i + 2]) ^ 0x80
        fourth = np.int64(data[i + 3]) ^ 0x80
        point = (lead & 0x07) << 18 | second << 12 | third << 6 | fourth
        if second | third | fourth < 64 and 0x10000 <= point < 0x110000:
            return point, i + 4
    return 0xFFFD, i + 1


@kernel
def put(out: Bytes, size: int, point: int) -> int:
    """Write `point` as UTF-8 at out[size:] and return the new size."""
    if point < 0x80:
        out[size] = point
        return size + 1
    if point < 0x800:
        out[size] = 0xC0 | point >> 6
        out[size + 1] = 0x80 | point & 0x3F
        return size + 2
    if point < 0x10000:
        out[size] = 0xE0 | point >> 12
        out[size + 1] = 0x80 | point >> 6 & 0x3F
        out[size + 2] = 0x80 | point & 0x3F
        return size + 3
    out[size] = 0xF0 | point >> 18
    out[size + 1] = 0x80 | point >> 12 & 0x3F
    out[size + 2] = 0x80 | point >> 6 & 0x3F
    out[size + 3] = 0x80 | point & 0x3F
    return size + 4


# Normalisation, one character at a time where that will do.


@kernel
def normalize_all(
    data: Bytes, offsets: Offsets, table: Normalizer, unicode: bool, lowercase: bool, strip_accents: bool, emoji: bool
) -> tuple[Bytes, Offsets]:
    """Normalise every document: UTF-8 bytes uint8[size] and their offsets int64[documents + 1].

    `table` must be unicode_tables.normalizer of the same settings; `unicode` is false for the form "none". A document
    in which each character maps on its own is done in one pass over its bytes; at the first that does not, it is done
    anew by `normalize_points`.
    """
    text = np.zeros(len(offsets), np.int64)
    total = offsets[-1] - offsets[0]
    out = np.empty(total + total // 8 + CHUNK, np.uint8)
    size = 0
    for document in range(len(offsets) - 1):
        begin, end = offsets[document], offsets[document + 1]
        # No simple character grows by more than half in UTF-8 (tested); the ASCII loop writes whole chunks.
        out = _reserve(out, size, (end - begin) * 3 // 2 + CHUNK)
        written = _normalize_simple(data, begin, end, out, size, table.simple, lowercase)
        if written < 0:
            points = decode_all(data, begin, end)
            points = normalize_points(points, table, unicode, lowercase, strip_accents, emoji)
            out = _reserve(out, size, 4 * len(points))
            written = size
            for point in points:
                written = put(out, written, point)
        size = written
        text[document + 1] = size
    return out[:size], text


@kernel
def _reserve(out: Bytes, size: int, more: int) -> Bytes:
    if size + more <= len(out):
        return out
    grown = np.empty(max(size + more, 2 * len(out)), np.uint8)
    grown[:size] = out[:size]
    return grown


@kernel
def _normalize_simple(data: Bytes, begin: int, end: int, out: Bytes, size: int, simple: Points, lowercase: bool) -> int:
    """The new size, or -1 where some character needs a look at its neighbours."""
    shift = np.uint8(32 if lowercase else 0)
    combining = 0
    i = begin
    while i < end:
        stop = min(i + CHUNK, end)
        if _is_ascii(data[i:stop]):
            _lower_ascii(data[i:stop], out[size : size + stop - i], shift)
            size += stop - i
            i = stop
            combining = 0
            continue
        while i < stop:
            point, following = np.int64(data[U(i)]), i + 1
            if point >= 0x80:
                point, following = decode(data, i, end)
                if following == i + 1:
                    return -1
            target = np.int64(simple[U(point)])
            i = following
            if target < 0x80:
                if target == COMPLEX:
                    return -1
                if target != DROPPED:
                    out[U(size)] = target
                    size += 1
                    combining = 0
                continue
            previous = combining
            combining = target >> COMBINING_SHIFT
            if 0 < combining < previous:
                return -1
            size = put(out, size, target & ((1 << COMBINING_SHIFT) - 1))
    return size


@kernel
def _is_ascii(data: Bytes) -> bool:
    seen = np.uint8(0)
    for i in range(len(data)):  # no way out of the loop, so that LLVM vectorises it; so below
        seen |= data[i]
    return seen < 0x80


@kernel
def _lower_ascii(data: Bytes, out: Bytes, shift: np.uint8) -> None:
    for i in range(len(data)):
        capital = np.uint8(data[i] - np.uint8(65)) <= np.uint8(25)
        out[i] = data[i] + shift * np.uint8(capital)


# Normalisation in full, over an array of code points.


@kernel
def decode_all(data: Bytes, begin: int, end: int) -> Points:
    """The code points int32 of data[begin:end]."""
    points = np.empty(end - begin, np.int32)
    size = 0
    i = begin
    while i < end:
        point, following = np.int64(data[U(i)]), i + 1
        if point >= 0x80:
            point, following = decode(data, i, end)
        points[U(size)] = point
        size += 1
        i = following
    return points[:size]


@kernel
def normalize_points(
    points: Points, table: Normalizer, unicode: bool, lowercase: bool, strip_accents: bool, emoji: bool
) -> Points:
    """The steps of text.normalize one after another, over the code points int32 of one document."""
    if unicode:
        points = drop_ignorables(compose(decompose(points, table), table), table.properties, emoji)
        for i in range(len(points)):
            if points[i] == 0x2019:
                points[i] = 0x27
    if lowercase:
        points = lower(points, table.lower, table.properties)
    if unicode:
        points = decompose(points, table)
        if strip_accents:
            points = drop_accents(points, table.properties)
        points = compose(points, table)
        if emoji:  # U+2194 with U+0338, if they only now meet, are no emoji any more
            points = drop_ignorables(points, table.properties, True)
    return points


@kernel
def decompose(points: Points, table: Normalizer) -> Points:
    """NFD or NFKD of code points, by the table's decomposition (The Unicode Standard, 3.11)."""
    size = 0
    for point in points:
        mapping = table.decomposition[point]
        size += 3 if S_BASE <= point < S_BASE + S_COUNT else table.starts[mapping + 1] - table.starts[mapping]
        size += mapping == 0
    out = np.empty(size, np.int32)
    size = 0
    for point in points:
        mapping = table.decomposition[point]
        if mapping:
            for k in range(table.starts[mapping], table.starts[mapping + 1]):
                out[size] = table.points[k]
                size += 1
        elif S_BASE <= point < S_BASE + S_COUNT:
            index = point - S_BASE
            out[size] = L_BASE + index // (V_COUNT * T_COUNT)
            out[size + 1] = V_BASE + index % (V_COUNT * T_COUNT) // T_COUNT
            out[size + 2] = T_BASE + index % T_COUNT
            size += 3 if index % T_COUNT else 2
        else:
            out[size] = point
            size += 1
    out = out[:size]
    _reorder(out, table.properties)
    return out


@kernel
def _reorder(points: Points, properties: Properties) -> None:
    """The canonical ordering: each run of combining characters sorted stably by class, in place."""
    i = 0
    while i < len(points):
        begin = i
        ordered = True
        previous = np.uint32(0)
        while i < len(points):
            combining = properties[points[i]] & np.uint32(COMBINING)
            if combining == 0:
                break
            ordered &= previous <= combining
            previous = combining
            i += 1
        if not ordered:
            _sort(points[begin:i], properties)
        i += 1


@kernel
def _sort(run: Points, properties: Properties) -> None:
    if len(run) <= 32:
        for i in range(1, len(run)):
            point = run[i]
            combining = properties[point] & np.uint32(COMBINING)
            k = i
            while k > 0 and properties[run[k - 1]] & np.uint32(COMBINING) > combining:
                run[k] = run[k - 1]
                k -= 1
            run[k] = point
        return
    begins = np.zeros(COMBINING + 2, np.int64)  # counting sort: a hostile run must not take quadratic time
    for point in run:
        begins[(properties[point] & np.uint32(COMBINING)) + 1] += 1
    begins = np.cumsum(begins)
    for point in run.copy():
        combining = properties[point] & np.uint32(COMBINING)
        run[begins[combining]] = point
        begins[combining] += 1


@kernel
def compose(points: Points, table: Normalizer) -> Points:
    """The canonical composition of decomposed code points, in place (The Unicode Standard, 3.11)."""
    size = 0
    starter = -1
    previous = np.uint32(0)
    for point in points:
        combining = table.properties[point] & np.uint32(COMBINING)
        if starter >= 0 and (starter == size - 1 or previous < combining):
            before = points[starter]
            if L_BASE <= before < L_BASE + L_COUNT and V_BASE <= point < V_BASE + V_COUNT:
                whole = S_BASE + ((before - L_BASE) * V_COUNT + point - V_BASE) * T_COUNT
            elif (
                T_BASE < point < T_BASE + T_COUNT
                and S_BASE <= before < S_BASE + S_COUNT
                and (before - S_BASE) % T_COUNT == 0
            ):
                whole = before + point - T_BASE
            else:
                whole = np.int64(table.composites[table.first[before], table.second[point]])
            if whole:
                points[starter] = whole
                continue
        if combining == 0:
            starter = size
        previous = combining
        points[size] = point
        size += 1
    return points[:size]


@kernel
def drop_ignorables(points: Points, properties: Properties, emoji: bool) -> Points:
    """Without default-ignorable code points, in place; ZWJ and ZWNJ stay inside words of scripts that need them.

    That is: one stays where the nearest characters on both sides, marks and ignorables aside, are letters of such
    scripts, and the character kept before it is not itself a joiner. With `emoji`, all stay inside emoji, and the
    variation selector that asks for text instead.
    """
    size = 0
    emoji_stop = 0  # the end of the last emoji
    joining = False  # whether the last base is a letter that joins
    ahead = 0  # the next base: where the last search from a joiner ended
    for i in range(len(points)):
        point = points[i]
        flags = properties[point]
        if emoji and i >= emoji_stop:
            emoji_stop = emoji_end(points, i, properties)
        if i < emoji_stop or (
            emoji and point == TEXT_STYLE and i > 0 and properties[points[i - 1]] & np.uint32(EMOJI_PRESENTATION)
        ):
            joining = False
        elif flags & np.uint32(IGNORABLE):
            if not joining or (point != 0x200C and point != 0x200D) or (points[size - 1] | 1) == 0x200D:
                continue
            ahead = max(ahead, i)
            while ahead < len(points) and properties[points[ahead]] & np.uint32(IGNORABLE | MARK):
                ahead += 1
            if ahead == len(points) or not properties[points[ahead]] & np.uint32(JOINING):
                continue
        elif not flags & np.uint32(MARK):
            joining = flags & np.uint32(JOINING) != 0
        points[size] = point
        size += 1
    return points[:size]


@kernel
def drop_accents(points: Points, properties: Properties) -> Points:
    """Decomposed code points without the marks on letters of Latin, Greek and Cyrillic, in place."""
    size = 0
    bare = False  # whether the last character that is no mark is such a letter
    for point in points:
        flags = properties[point]
        if flags & np.uint32(MARK):
            if bare:
                continue
        else:
            bare = flags & np.uint32(ACCENTED) != 0
        points[size] = point
        size += 1
    return points[:size]


@kernel
def lower(points: Points, mapping: Points, properties: Properties) -> Points:
    """Full lower-casing without a locale (The Unicode Standard, 3.13; SpecialCasing: U+0130 and Final_Sigma)."""
    out = np.empty(len(points) + np.sum(points == 0x130), np.int32)
    size = 0
    after_cased = False  # a cased letter stands before, with nothing but case-ignorables between
    for i in range(len(points)):
        point = points[i]
        out[size] = mapping[point]
        size += 1
        if point == 0x130:
            out[size - 1] = 0x69
            out[size] = 0x307
            size += 1
        elif point == 0x3A3 and after_cased:
            k = i + 1
            while k < len(points) and properties[points[k]] & np.uint32(CASE_IGNORABLE):
                k += 1
            if k == len(points) or not properties[points[k]] & np.uint32(CASED):
                out[size - 1] = 0x3C2
        if not properties[point] & np.uint32(CASE_IGNORABLE):
            after_cased = properties[point] & np.uint32(CASED) != 0
    return out


# Tokens.


@kernel
def segment(data: Bytes, i: int, end: int, word: Bytes) -> tuple[int, bool]:
    """The end of the word segment that begins at byte `i` < `end`, and whether it holds a letter or a number.

    By UAX #29 of Unicode 15.0, with Tables.word or its tailoring for tokens as `word`. No rule looks back over a
    boundary, so that a segment can be found from its beginning.
    """
    point, i = decode(data, i, end)
    value = word[point]
    seen = value
    last = value & WORD_BREAK  # class of the last character that WB4 does not skip
    adjacent = last  # class of the last character
    if CR <= last <= NEWLINE:  # WB3, WB3a
        return i + (last == CR and i < end and data[i] == 10), False
    pair = last == REGIONAL
    while i < end:
        point, following = np.int64(data[U(i)]), i + 1
        if point >= 0x80:
            point, following = decode(data, i, end)
        value = word[U(point)]
        this = value & WORD_BREAK
        if last >= EXTENDNUMLET and this >= EXTENDNUMLET:  # WB5, WB8 to WB10, WB13a, WB13b
            last = this
        elif EXTEND <= this <= ZWJ or (adjacent == ZWJ and value & PICTOGRAPHIC):  # WB4, WB3c
            if this < EXTEND or this > ZWJ:
                last = this
        elif this <= WSEGSPACE:
            if this != WSEGSPACE or adjacent != WSEGSPACE:  # WB3b, WB3d, WB999
                break
        elif SINGLE_QUOTE <= this <= MIDNUM:
            # What joins these to `last` also joins the next character to them: skipping them, as WB4 does, is enough.
            if last >= ALETTER and this in (SINGLE_QUOTE, MIDNUMLET, MIDLETTER):
                joined = _next_word_break(data, following, end, word) >= ALETTER  # WB6, WB7
                if not joined and last == HEBREW and this == SINGLE_QUOTE:  # WB7a
                    joined = True
                    last = this
            elif last == HEBREW and this == DOUBLE_QUOTE:
                joined = _next_word_break(data, following, end, word) == HEBREW  # WB7b, WB7c
            else:
                joined = (
                    last == NUMERIC
                    and this in (SINGLE_QUOTE, MIDNUMLET, MIDNUM)
                    and _next_word_break(data, following, end, word) == NUMERIC  # WB11, WB12
                )
            if not joined:
                break
        elif this == REGIONAL and last == REGIONAL and pair:  # WB15, WB16
            pair = False
        elif (
            (this == KATAKANA and last in (KATAKANA, EXTENDNUMLET))  # WB13, WB13b
            or (this == EXTENDNUMLET and last == KATAKANA)  # WB13a
        ):
            last = this
        else:
            break
        adjacent = this
        seen |= value
        i = following
    return i, seen & CONTENT != 0


@kernel
def _next_word_break(data: Bytes, i: int, end: int, word: Bytes) -> int:
    """Class of the first character from byte `i` on that WB4 does not skip; 0 at the end."""
    while i < end:
        point, i = decode(data, i, end)
        this = word[point] & WORD_BREAK
        if not EXTEND <= this <= ZWJ:
            return this
    return 0


@kernel
def boundaries(data: Bytes, word: Bytes) -> Offsets:
    """All word boundaries of one text, int64 byte offsets, both ends included (UAX #29); none in an empty text."""
    out = np.empty(len(data) + 1, np.int64)
    out[0] = 0
    size = 1
    i = 0
    while i < len(data):
        i, _ = segment(data, i, len(data), word)
        out[size] = i
        size += 1
    return out[: size if size > 1 else 0]


@intrinsic
def trailing_zeros(typingctx, word):  # type: ignore[no-untyped-def]
    """The number of the lowest bit that is set in a uint64, which must not be 0."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@kernel
def _ascii_ranges(member: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """The ranges of ASCII in bool[128] `member`, at most 4, for `_members`: for each, what to add to eight bytes.

    The first sum's highest bit in a byte says that it is not below the range, the second one's that it is above.
    """
    ranges = np.zeros(8, np.uint64)
    size = 0
    for k in range(128):
        if member[k] != (k > 0 and member[k - 1]):
            if size == 8:
                raise ValueError("more than 4 ranges of ASCII")
            ranges[size] = ONES * np.uint64(128 - k)
            size += 1
    return ranges


@kernel
def _members(data: Bytes, i: int, ranges: npt.NDArray[np.uint64]) -> int:
    """Which of the 64 ASCII bytes from `i` on are in the ranges: bit k of a uint64 tells of byte i + k."""
    a, b, c, d = ranges[0], ranges[1], ranges[2], ranges[3]
    e, f, g, h = ranges[4], ranges[5], ranges[6], ranges[7]
    bits = np.uint64(0)
    for k in range(8):
        w = load64(data, np.int64(i + 8 * k))
        inside = ((w + a) & ~(w + b)) | ((w + c) & ~(w + d)) | ((w + e) & ~(w + f)) | ((w + g) & ~(w + h))
        bits |= ((inside & HIGHEST) >> np.uint64(7)) * GATHER >> np.uint64(56) << np.uint64(8 * k)
    return bits


@kernel
def _first(bits: int, n: int) -> int:
    """The lowest n bits, 0 < n <= 64."""
    return bits & ALL >> np.uint64(64 - n)


@kernel
def words(data: Bytes, text: Offsets, word: Bytes) -> tuple[Offsets, Offsets, Offsets]:
    """The word segments that hold a letter or a number: begin, end int64[tokens], document int64[documents + 1]."""
    begin = np.empty(len(data) // 4 + 16, np.int64)
    end = np.empty_like(begin)
    document = np.zeros(len(text), np.int64)
    ranges = _ascii_ranges(word[:128] & WORD_BREAK >= EXTENDNUMLET)
    for d in range(len(text) - 1):
        begin, end = _room(begin, end, document[d], text[d + 1] - text[d])
        document[d + 1] = _words(data, text[d], text[d + 1], word, ranges, begin, end, document[d])
    return begin[: document[-1]], end[: document[-1]], document


@kernel
def _room(begin: Offsets, end: Offsets, size: int, more: int) -> tuple[Offsets, Offsets]:
    """The two arrays with room for `more` tokens after `size`; grown out of the loops, which would pay for it."""
    if size + more <= len(begin):
        return begin, end
    new_begin = np.empty(max(size + more, 2 * len(begin)), np.int64)
    new_end = np.empty_like(new_begin)
    new_begin[:size] = begin[:size]
    new_end[:size] = end[:size]
    return new_begin, new_end


@kernel
def _words(
    data: Bytes,
    i: int,
    stop: int,
    word: Bytes,
    ranges: npt.NDArray[np.uint64],
    begin: Offsets,
    end: Offsets,
    size: int,
) -> int:
    start = i  # of a run of letters, digits and "_" that is not yet over
    inside = False
    slow = i  # up to here one segment is taken after the other
    while i < stop:
        # What makes most of most texts: runs in ASCII, 64 bytes at once, before a character that never joins them.
        if i >= slow and i + CHUNK < len(data) and _is_ascii(data[i : i + CHUNK]):
            # The last byte's segment goes on if what follows is, say, a combining mark.
            n = min(stop - i, CHUNK - (data[U(i + CHUNK)] >= 0x80))
            member = _first(_members(data, i, ranges), n)
            edges = _first(member ^ (member << np.uint64(1) | np.uint64(inside)), n)
            while edges:
                if not inside:
                    start = i + np.int64(trailing_zeros(edges))
                    edges &= edges - np.uint64(1)
                    inside = True
                    if not edges:
                        break
                at = following = i + np.int64(trailing_zeros(edges))
                edges &= edges - np.uint64(1)
                inside = False
                if SINGLE_QUOTE <= word[U(data[U(at)])] & WORD_BREAK < EXTENDNUMLET and (
                    at + 1 < stop and (data[U(at + 1)] >= 0x80 or word[U(data[U(at + 1)])] & WORD_BREAK > EXTENDNUMLET)
                ):
                    following, _ = segment(data, start, stop, word)
                    if following > at:
                        if following >= i + n:
                            n = following - i
                            edges = np.uint64(0)
                        else:
                            member &= ALL << np.uint64(following - i)
                            edges = _first(member ^ member << np.uint64(1), n)
                begin[U(size)] = start
                end[U(size)] = following
                size += np.int64(_has_content(data, start, following, word))
            i += n
            continue
        if i >= slow:
            slow = i + CHUNK
        if inside:
            i = start
            inside = False
        before_ascii = i + 1 == stop or data[U(i + 1)] < 0x80
        if before_ascii and data[U(i)] < 0x80 and word[U(data[U(i)])] & WORD_BREAK < EXTENDNUMLET:
            i += 1  # ASCII punctuation or space: no token begins here
            continue
        following, content = segment(data, i, stop, word)
        if content:
            begin[U(size)] = i
            end[U(size)] = following
            size += 1
        i = following
    if inside and _has_content(data, start, stop, word):
        begin[U(size)] = start
        end[U(size)] = stop
        size += 1
    return size


@kernel
def _has_content(data: Bytes, begin: int, end: int, word: Bytes) -> bool:
    """Whether a segment that begins with an ASCII letter, digit or "_" has any but the last."""
    i = begin
    while i < end and not word[U(data[U(i)])] & CONTENT:
        i += 1
    return i < end


@kernel
def runs(
    data: Bytes, text: Offsets, properties: Properties, mask: int, wanted: int, least: int
) -> tuple[Offsets, Offsets, Offsets]:
    """The maximal runs of at least `least` characters with properties & mask == wanted: as `words` returns them."""
    begin = np.empty(len(data) // 4 + 16, np.int64)
    end = np.empty_like(begin)
    document = np.zeros(len(text), np.int64)
    ranges = _ascii_ranges(properties[:128] & np.uint32(mask) == np.uint32(wanted))
    for d in range(len(text) - 1):
        begin, end = _room(begin, end, document[d], text[d + 1] - text[d])
        document[d + 1] = _runs(
            data, text[d], text[d + 1], properties, mask, wanted, ranges, least, begin, end, document[d]
        )
    return begin[: document[-1]], end[: document[-1]], document


@kernel
def _runs(
    data: Bytes,
    i: int,
    stop: int,
    properties: Properties,
    mask: int,
    wanted: int,
    ranges: npt.NDArray[np.uint64],
    least: int,
    begin: Offsets,
    end: Offsets,
    size: int,
) -> int:
    start = i  # of a run that is not yet over
    inside = False
    longer = 0  # bytes of that run beyond one a character
    while i < stop:
        if i + CHUNK <= len(data) and _is_ascii(data[i : i + CHUNK]):
            n = min(stop - i, CHUNK)
            member = _first(_members(data, i, ranges), n)
            edges = _first(member ^ (member << np.uint64(1) | np.uint64(inside)), n)
            while edges:
                if not inside:
                    start = i + np.int64(trailing_zeros(edges))
                    edges &= edges - np.uint64(1)
                    longer = 0
                    inside = True
                    if not edges:
                        break
                at = i + np.int64(trailing_zeros(edges))
                edges &= edges - np.uint64(1)
                begin[U(size)] = start
                end[U(size)] = at
                size += np.int64(at - start - longer >= least)
                inside = False
            i += n
            continue
        chunk = min(stop, i + CHUNK)
        while i < chunk:
            point, following = np.int64(data[U(i)]), i + 1
            if point >= 0x80:
                point, following = decode(data, i, stop)
            if np.int64(properties[U(point)]) & mask == wanted:
                if not inside:
                    start = i
                    longer = 0
                    inside = True
                longer += following - i - 1
            elif inside:
                begin[U(size)] = start
                end[U(size)] = i
                size += np.int64(i - start - longer >= least)
                inside = False
            i = following
    if inside:
        begin[U(size)] = start
        end[U(size)] = stop
        size += np.int64(stop - start - longer >= least)
    return size


# URLs, addresses and emoji: tokens that word boundaries would cut.


@kernel
def _in(byte: int, members: tuple[np.uint64, np.uint64]) -> bool:
    return byte < 0x80 and (members[byte >> 6] >> np.uint64(byte & 63)) & np.uint64(1) != 0


@kernel
def _begins(word: int, prefix: tuple[np.uint64, np.uint64, np.uint64]) -> bool:
    return (word | prefix[0]) & prefix[1] == prefix[2]


@kernel
def _word_character(data: Bytes, i: int, stop: int, properties: Properties, mask: int) -> tuple[bool, int]:
    """Whether an ASCII letter or digit, or one with properties & mask, is at byte `i`, and where the next begins."""
    if data[i] < 0x80:
        return _in(data[i], IN_WORD), i + 1
    point, following = decode(data, i, stop)
    return np.int64(properties[point]) & mask != 0, following


@kernel
def _before(data: Bytes, i: int, start: int) -> int:
    """Where the character before byte `i` > `start` begins."""
    i -= 1
    while i > start and data[i] & 0xC0 == 0x80:
        i -= 1
    return i


@kernel
def addresses(data: Bytes, text: Offsets, properties: Properties) -> tuple[Offsets, Offsets]:
    """The URLs and e-mail addresses in each text, from left to right: begin, end int64 byte offsets.

    A URL begins with http://, https://, ftp:// or www. and a host, but not within a word. It goes on over RFC 3986's
    characters and over letters of Latin, Greek and Cyrillic, up to a bracket that it does not open, and ends before
    the closing punctuation there. An e-mail address is a name of letters, digits and ._%+- around "@" with a domain of
    at least two labels, the last of two characters and not beginning with a digit.
    """
    begin = np.empty(len(data) // 5 + 1, np.int64)  # www.x is the shortest
    end = np.empty_like(begin)
    size = 0
    for d in range(len(text) - 1):
        i = start = text[d]  # start: from where the next one may begin
        stop = text[d + 1]
        while i < stop:
            byte = data[U(i)]
            first = last = i
            if byte == 64:  # @
                first, last = _mail(data, i, start, stop, properties)
            elif byte | 0x20 == 0x68 or byte | 0x20 == 0x66 or byte | 0x20 == 0x77:  # h, f, w
                last = _url(data, i, start, stop, properties)
            if last > first:
                begin[size] = first
                end[size] = last
                size += 1
                i = start = last
            else:
                i += 1
    return begin[:size], end[:size]


@kernel
def _url(data: Bytes, i: int, start: int, stop: int, properties: Properties) -> int:
    """Where the URL ends that begins at byte `i`; `i` if none does."""
    head = word_at(data, i, stop - i)
    if _begins(head, HTTPS):
        host = i + 8
    elif _begins(head, HTTP):
        host = i + 7
    elif _begins(head, FTP):
        host = i + 6
    elif _begins(head, WWW):
        host = i + 4
    else:
        return i
    if i > start and _word_character(data, _before(data, i, start), stop, properties, ACCENTED)[0]:
        return i
    if host >= stop or (data[host] != 91 and not _word_character(data, host, stop, properties, ACCENTED)[0]):
        return i  # 91 is [, which begins an address of IPv6
    end = host
    depth = 0  # of open brackets
    while end < stop:
        byte = data[U(end)]
        inside, following = _word_character(data, end, stop, properties, ACCENTED | MARK)
        if not inside and not _in(byte, IN_URL):
            break
        if byte == 40 or byte == 91:
            depth += 1
        elif byte == 41 or byte == 93:
            if depth == 0:
                break
            depth -= 1
        end = following
    while end > host and _in(data[end - 1], AFTER_URL):
        end -= 1
    return end if end > host else i


@kernel
def _mail(data: Bytes, at: int, start: int, stop: int, properties: Properties) -> tuple[int, int]:
    """Begin and end of the e-mail address around the "@" at byte `at`; `at` twice if there is none."""
    begin = i = at
    while i > start:
        i = _before(data, i, start)
        inside, _ = _word_character(data, i, stop, properties, ACCENTED)
        if inside:
            begin = i
        elif not _in(data[i], IN_MAILBOX):
            break
    end = at
    label = at + 1
    labels = 0
    while begin < at:
        i = last = label  # last: the end of the label's last letter or digit
        while i < stop:
            inside, following = _word_character(data, i, stop, properties, ACCENTED | MARK)
            if inside:
                last = following
            elif data[i] != 45:  # -
                break
            i = following
        if last == label or data[label] == 45:
            break
        labels += 1
        _, second = _word_character(data, label, stop, properties, ACCENTED)
        if labels > 1 and last > second and not 48 <= data[label] <= 57:
            end = last
        if last < i or i == stop or data[i] != 46:  # .
            break
        label = i + 1
    return (begin, end) if end > at else (at, at)


@kernel
def emoji(data: Bytes, text: Offsets, properties: Properties) -> tuple[Offsets, Offsets]:
    """The emoji in each text (`emoji_end`), from left to right: begin, end int64 byte offsets."""
    begin = np.empty(16, np.int64)
    end = np.empty_like(begin)
    size = 0
    for d in range(len(text) - 1):
        if _is_ascii(data[text[d] : text[d + 1]]):
            continue
        points = decode_all(data, text[d], text[d + 1])
        begin, end = _room(begin, end, size, len(points))
        at = text[d]
        i = 0
        while i < len(points):
            stop = emoji_end(points, i, properties)
            begin[size] = at
            for point in points[i : max(stop, i + 1)]:
                at += 1 + (point >= 0x80) + (point >= 0x800) + (point >= 0x10000)
            end[size] = at
            size += stop > i
            i = max(stop, i + 1)
    return begin[:size], end[:size]


@kernel
def emoji_end(points: Points, i: int, properties: Properties) -> int:
    """Where the emoji (UTS #51) ends that begins at points[i]; `i` if none does.

    It is a flag, a keycap, a character with the variation selector for emoji, a skin tone or tags, several of these
    joined by ZWJ, or one character that is shown as an emoji by default.
    """
    n = len(points)
    point = points[i]
    if not properties[point] & np.uint32(EMOJI):
        return i
    if REGIONAL_A <= point <= REGIONAL_Z:
        return i + 2 if i + 1 < n and REGIONAL_A <= points[i + 1] <= REGIONAL_Z else i
    if point < 0x80:
        end = i + 1
        end += end < n and points[end] == EMOJI_STYLE
        end += end < n and points[end] == KEYCAP
        return end if end > i + 1 else i
    end = _emoji_part(points, i, properties)
    while end + 1 < n and points[end] == 0x200D:
        point = points[end + 1]
        if point < 0x80 or REGIONAL_A <= point <= REGIONAL_Z or not properties[point] & np.uint32(EMOJI):
            break
        end = _emoji_part(points, end + 1, properties)
    if end > i + 1:
        return end
    text_style = end < n and points[end] == TEXT_STYLE
    return end if properties[points[i]] & np.uint32(EMOJI_PRESENTATION) and not text_style else i


@kernel
def _emoji_part(points: Points, i: int, properties: Properties) -> int:
    """The end of the emoji character at points[i] with what follows it: a variation selector, a skin tone, or tags."""
    n = len(points)
    end = i + 1
    if end == n or LIGHT_SKIN <= points[i] <= DARK_SKIN:
        return end
    if points[end] == EMOJI_STYLE:
        return end + 1
    if LIGHT_SKIN <= points[end] <= DARK_SKIN and properties[points[i]] & np.uint32(EMOJI_MODIFIER_BASE):
        return end + 1
    tag = end
    while tag < n and FIRST_TAG <= points[tag] < LAST_TAG:
        tag += 1
    return tag + 1 if end < tag < n and points[tag] == LAST_TAG else end


# Of tokens.


@kernel
def sentences(
    data: Bytes, text: Offsets, document: Offsets, begin: Offsets, properties: Properties
) -> npt.NDArray[np.int32]:
    """int32[tokens]: the number of sentence ends at or before each token's begin, within its document.

    A sentence ends at an empty line (nothing or only spaces and tabs between two line ends, LF, CR or CRLF), or after
    Sentence_Terminal characters and the closing punctuation behind them (category Pe or Pf, or Quotation_Mark) where
    white space, a Han character or the end of the text follows. White space alone is no sentence: of the ends with
    nothing else between them, and before the first other character, only one and none count.
    """
    number = np.zeros(len(begin), np.int32)
    for d in range(len(text) - 1):
        i, stop = text[d], text[d + 1]
        token = document[d]
        sentence = 0
        while token < document[d + 1]:
            i = _sentence_end(data, _skip(data, i, stop, properties, SPACE), stop, properties)
            while token < document[d + 1] and (begin[token] < i or i == stop):
                number[token] = sentence
                token += 1
            sentence += 1
    return number


@kernel
def _skip(data: Bytes, i: int, end: int, properties: Properties, mask: int) -> int:
    while i < end:
        point, following = decode(data, i, end)
        if not np.int64(properties[point]) & mask:
            break
        i = following
    return i


@kernel
def _sentence_end(data: Bytes, i: int, end: int, properties: Properties) -> int:
    """The first sentence end from byte `i` on; the end of the text where there is no other."""
    while i < end:
        point, following = np.int64(data[U(i)]), i + 1
        if point >= 0x80:
            point, following = decode(data, i, end)
        i = following
        if np.int64(properties[U(point)]) & TERMINAL:
            i = _skip(data, _skip(data, i, end, properties, TERMINAL), end, properties, CLOSING)
            if i == end or np.int64(properties[decode(data, i, end)[0]]) & (SPACE | HAN):
                return i
        elif point == 10 or point == 13:
            if point == 13 and i < end and data[i] == 10:
                i += 1
            while i < end and (data[i] == 32 or data[i] == 9):
                i += 1
            if i < end and (data[i] == 10 or data[i] == 13):
                return i
    return end


@kernel
def code_points(
    data: Bytes, text: Offsets, document: Offsets, begin: Offsets, end: Offsets
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """begin, end int32[tokens] in code points from the document's start, of tokens given in bytes of `data`."""
    first, last = np.empty(len(begin), np.int32), np.empty(len(end), np.int32)
    for d in range(len(text) - 1):
        i = text[d]
        count = 0
        for token in range(document[d], document[d + 1]):
            if begin[token] < i:  # a pattern's group may lie before the last one
                i = text[d]
                count = 0
            while i < begin[token]:
                count += data[i] & 0xC0 != 0x80
                i += 1
            first[token] = count
            length = 0
            for k in range(begin[token], end[token]):
                length += data[k] & 0xC0 != 0x80
            last[token] = count + length
    return first, last


@kernel
def gather(data: Bytes, begin: Offsets, end: Offsets) -> tuple[Bytes, Offsets]:
    """The bytes of the spans, one after another, and their offsets int64[spans + 1]."""
    offsets = np.zeros(len(begin) + 1, np.int64)
    for k in range(len(begin)):
        offsets[k + 1] = offsets[k] + end[k] - begin[k]
    out = np.empty(offsets[-1], np.uint8)
    for k in range(len(begin)):
        size = offsets[k]
        for i in range(begin[k], end[k]):
            out[U(size)] = data[U(i)]
            size += 1
    return out, offsets
