"""The Unicode 15.0 properties that segment.py needs, as flat arrays over all code points.

The arrays are made by make_unicode_tables.py and shipped in unicode_tables.npz; nothing here asks Python, Java or Arrow
about Unicode, since each of them follows a version of its own.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FILE = Path(__file__).with_name("unicode_tables.npz")
SIZE = 0x110000

# Bits of Tables.properties; the low eight are the canonical combining class.
COMBINING = 0xFF
SPACE = 1 << 8  # White_Space, and U+001C to U+001F
WORD = 1 << 9  # Python's \w: a letter, a character with a numeric value, or "_"
TERMINAL = 1 << 10  # Sentence_Terminal
CLOSING = 1 << 11  # general category Pe or Pf, or Quotation_Mark
HAN = 1 << 12  # Script=Han
MARK = 1 << 13  # general category M*
IGNORABLE = 1 << 14  # Default_Ignorable_Code_Point
JOINING = 1 << 15  # a letter of a script that needs ZWJ or ZWNJ
CASED = 1 << 16
CASE_IGNORABLE = 1 << 17
NOT_NFC = 1 << 18  # NFC_Quick_Check is not Yes
NOT_NFKC = 1 << 19  # NFKC_Quick_Check is not Yes
ASSIGNED = 1 << 20  # in Unicode 15.0: where other versions can be asked to judge
ACCENTED = 1 << 21  # a letter of a script whose accents can be taken off: Latin, Greek, Cyrillic
EMOJI = 1 << 22  # so these three: as UTS #51 defines them
EMOJI_PRESENTATION = 1 << 23
EMOJI_MODIFIER_BASE = 1 << 24

# Tables.word: the Word_Break property in five bits, and two flags. Between the classes from ExtendNumLet on there is
# never a boundary (WB5, WB8 to WB10, WB13a, WB13b): segment.py relies on this order.
WORD_BREAKS = (
    "Other CR LF Newline WSegSpace Extend Format ZWJ Regional_Indicator Katakana Single_Quote Double_Quote MidNumLet"
    " MidLetter MidNum ExtendNumLet Numeric ALetter Hebrew_Letter"
).split()
WORD_BREAK = 31
PICTOGRAPHIC = 32  # Extended_Pictographic
CONTENT = 64  # general category L* or N*: its segment is a token

# Normalizer.simple: what is left of a code point that needs no look at its neighbours, its combining class above it.
COMBINING_SHIFT = 21
DROPPED = -1
COMPLEX = -2


class Tables(NamedTuple):
    """Properties by code point; mapping k of `decompositions` is points[starts[k]:starts[k + 1]]."""

    properties: npt.NDArray[np.uint32]  # [0x110000]
    word: npt.NDArray[np.uint8]  # [0x110000]
    lower: npt.NDArray[np.int32]  # [0x110000]; U+0130 maps to itself here
    decompositions: dict[str, npt.NDArray[np.uint16]]  # [0x110000] for NFC and NFKC: full mappings, 0 = itself
    starts: npt.NDArray[np.int32]
    points: npt.NDArray[np.int32]
    first: npt.NDArray[np.uint16]  # [0x110000]: row in composites, 0 = begins no composite
    second: npt.NDArray[np.uint8]  # [0x110000]: column in composites, 0 = ends no composite
    composites: npt.NDArray[np.int32]  # [firsts, seconds]: 0 = no composite


class Normalizer(NamedTuple):
    """The tables of one kind of normalisation, in the form in which kernels take them."""

    simple: npt.NDArray[np.int32]  # [0x110000]: DROPPED, COMPLEX, or code point | combining class << COMBINING_SHIFT
    properties: npt.NDArray[np.uint32]
    lower: npt.NDArray[np.int32]
    decomposition: npt.NDArray[np.uint16]
    starts: npt.NDArray[np.int32]
    points: npt.NDArray[np.int32]
    first: npt.NDArray[np.uint16]
    second: npt.NDArray[np.uint8]
    composites: npt.NDArray[np.int32]


@lru_cache(maxsize=1)
def tables() -> Tables:
    """All tables, read once a process."""
    with np.load(FILE, allow_pickle=False) as file:
        stored = {name: file[name] for name in file.files}

    def flat(name: str) -> npt.NDArray[np.generic]:
        return np.repeat(stored[f"{name}_values"], np.diff(stored[f"{name}_begins"], append=SIZE))

    lower = np.arange(SIZE, dtype=np.int32)
    lower[stored["lower"][:, 0]] = stored["lower"][:, 1]
    canonical, compatible = stored["canonical"], stored["compatible"]
    numbers = np.arange(1, len(canonical) + len(compatible) + 1, dtype=np.uint16)
    nfc = np.zeros(SIZE, np.uint16)
    nfc[canonical] = numbers[: len(canonical)]
    nfkc = nfc.copy()
    nfkc[compatible] = numbers[len(canonical) :]
    begins, ends, wholes = stored["pairs"].T
    first, second = np.zeros(SIZE, np.uint16), np.zeros(SIZE, np.uint8)
    for table, points in ((first, begins), (second, ends)):
        unique = np.unique(points)
        table[unique] = np.arange(1, len(unique) + 1)
    composites = np.zeros((first.max() + 1, second.max() + 1), np.int32)
    composites[first[begins], second[ends]] = wholes
    return Tables(
        properties=flat("properties"),
        word=flat("word"),
        lower=lower,
        decompositions={"NFC": nfc, "NFKC": nfkc},
        starts=np.concatenate(([0, 0], np.cumsum(stored["lengths"], dtype=np.int64))).astype(np.int32),
        points=stored["mappings"],
        first=first,
        second=second,
        composites=composites,
    )


@lru_cache(maxsize=1)
def token_breaks() -> npt.NDArray[np.uint8]:
    """Tables.word as tokens need it, so that none holds white space, tailored as UAX #29 allows.

    U+202F, which UAX #29 joins to letters and French writes before "!", is Other; a letter that is Extend (a halfwidth
    voicing mark) makes no token of the space it stands on; what joins letters, or is one, and is a pictograph, too
    (U+24C2, U+2139), is only the former, and no ZWJ joins it to a space.
    """
    word = tables().word.copy()
    word[0x202F] = WORD_BREAKS.index("Other")
    word[word & WORD_BREAK == WORD_BREAKS.index("Extend")] &= WORD_BREAK | PICTOGRAPHIC
    word[(word & CONTENT != 0) | (word & WORD_BREAK >= WORD_BREAKS.index("Katakana"))] &= WORD_BREAK | CONTENT
    return word


@lru_cache
def normalizer(unicode: str, lowercase: bool, strip_accents: bool = False, emoji: bool = False) -> Normalizer:
    """The tables for `unicode` ("NFC", "NFKC" or "none") with or without lower-casing and accents, made once a process.

    With `emoji`, what joins emoji is looked at, and an emoji (the letter M in a circle) has no case.

    A code point is simple where normalisation turns it into at most one code point whatever stands beside it, save for
    the order of combining classes, which the kernel checks on its way.
    """
    table = tables()
    decomposition = table.decompositions["NFC" if unicode == "none" else unicode]
    same = np.arange(SIZE, dtype=np.int32)
    lower = np.where(table.properties & EMOJI, same, table.lower) if emoji else table.lower
    simple = lower.copy() if lowercase else same
    if lowercase:
        simple[[0x130, 0x3A3]] = COMPLEX  # the one full mapping and the one with a context
    if unicode != "none":
        not_normal = NOT_NFC if unicode == "NFC" else NOT_NFKC
        properties = table.properties
        # Only these differ from what `simple` already holds; few, so that loading stays quick.
        points = np.flatnonzero((properties & (COMBINING | IGNORABLE | not_normal)) | decomposition)
        points = np.append(points, 0x2019)
        base = points.copy()
        alone = np.flatnonzero(np.diff(table.starts)[decomposition[points]] == 1)
        base[alone] = table.points[table.starts[decomposition[points[alone]]]]
        base[-1] = ord("'")
        simple[points] = simple[base] | (properties[base] & COMBINING).astype(np.int32) << COMBINING_SHIFT
        simple[points[(properties[base] & IGNORABLE) != 0]] = DROPPED
        simple[points[(properties[base] & not_normal) != 0]] = COMPLEX
        simple[[0x200C, 0x200D]] = COMPLEX
        if emoji:
            simple[[0xFE0E, 0xFE0F, *range(0xE0020, 0xE0080)]] = COMPLEX
        if strip_accents:
            letters = points[decomposition[points] != 0]
            begins, ends = table.starts[decomposition[letters]], table.starts[decomposition[letters] + 1]
            marks = np.append(0, np.cumsum(properties[table.points] & MARK != 0))
            first = table.points[begins]
            bare = (properties[first] & ACCENTED != 0) & (marks[ends] - marks[begins] == ends - begins - 1)
            simple[letters[bare]] = simple[first[bare]]
            simple[(properties & MARK) != 0] = COMPLEX  # goes or stays by what it stands on
    return Normalizer(
        simple, table.properties, lower, decomposition, table.starts, table.points, table.first, table.second,
        table.composites,
    )  # fmt: skip
