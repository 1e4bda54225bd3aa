"""Make unicode_tables.npz from the Unicode Character Database: python -m udfs.make_unicode_tables [FOLDER].

FOLDER holds UnicodeData.txt and its companions as Debian's package unicode-data installs them.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from udfs import unicode_tables as ut

VERSION = "15.0.0"

# Scripts whose spelling needs ZWJ or ZWNJ inside words: the cursive ones first, then those of the Brahmic family.
JOINING_SCRIPTS = frozenset(
    """Arabic Syriac Mandaic Mongolian Phags_Pa Nko Adlam Hanifi_Rohingya Manichaean Psalter_Pahlavi Sogdian Chorasmian
    Old_Uyghur
    Devanagari Bengali Gurmukhi Gujarati Oriya Tamil Telugu Kannada Malayalam Sinhala Khmer Myanmar Tibetan Ahom
    Balinese Batak Bhaiksuki Brahmi Buginese Chakma Cham Dives_Akuru Dogra Grantha Gunjala_Gondi Javanese Kaithi Kawi
    Kharoshthi Khojki Khudawadi Lepcha Limbu Mahajani Makasar Marchen Masaram_Gondi Meetei_Mayek Modi Multani
    Nandinagari Newa Rejang Saurashtra Sharada Siddham Soyombo Sundanese Syloti_Nagri Tai_Tham Takri Tirhuta
    Zanabazar_Square""".split()
)


def rows(path: Path) -> Iterator[tuple[int, int, list[str]]]:
    """First and last code point and the other fields of each line of a UCD file.

    Raises ValueError where the file is of another Unicode version.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            named = re.match(r"# \w+-(\d+\.\d+\.\d+)\.txt", line) if number == 0 else None
            if named and named[1] != VERSION:
                raise ValueError(f"{path} is of Unicode {named[1]}, not {VERSION}: install unicode-data {VERSION}")
            fields = [field.strip() for field in line.split("#")[0].split(";")]
            if len(fields) > 1:
                ends = [int(end, 16) for end in fields[0].split("..")]
                yield ends[0], ends[-1], fields[1:]


def holding(path: Path, value: str) -> npt.NDArray[np.bool_]:
    """bool[0x110000]: the code points whose first property value in a UCD file is `value`."""
    held = np.zeros(ut.SIZE, bool)
    for first, last, fields in rows(path):
        if fields[0] == value:
            held[first : last + 1] = True
    return held


def runs(name: str, table: npt.NDArray[np.generic]) -> dict[str, npt.NDArray[np.generic]]:
    """A flat table as the beginnings of its runs and their values."""
    begins = np.concatenate(([0], np.flatnonzero(table[1:] != table[:-1]) + 1)).astype(np.int32)
    return {f"{name}_begins": begins, f"{name}_values": table[begins]}


def make(folder: Path) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of unicode_tables.npz from the UCD in `folder`; their meaning is in unicode_tables.Tables."""
    category = np.full(ut.SIZE, "Cn")
    combining = np.zeros(ut.SIZE, np.uint32)
    numeric = np.zeros(ut.SIZE, bool)
    lower: dict[int, int] = {}
    canonical: dict[int, list[int]] = {}
    compatible: dict[int, list[int]] = {}
    start = 0
    for first, _, fields in rows(folder / "UnicodeData.txt"):
        if fields[0].endswith("First>"):
            start = first
            continue
        block = slice(start if fields[0].endswith("Last>") else first, first + 1)
        category[block], combining[block], numeric[block] = fields[1], int(fields[2]), fields[7] != ""
        if fields[12]:
            lower[first] = int(fields[12], 16)
        if fields[4]:
            *tag, mapping = re.fullmatch(r"(?:(<\w+>) )?(.*)", fields[4]).groups()  # type: ignore[union-attr]
            (compatible if tag[0] else canonical)[first] = [int(point, 16) for point in mapping.split()]

    properties = combining
    derived, listed = folder / "DerivedCoreProperties.txt", folder / "PropList.txt"
    general = np.char.array(category.astype("U2"))
    letter, mark, number = (general.startswith(kind) for kind in "LMN")
    joining = np.logical_or.reduce([holding(folder / "Scripts.txt", script) for script in sorted(JOINING_SCRIPTS)])
    accented = np.logical_or.reduce([holding(folder / "Scripts.txt", name) for name in ("Latin", "Greek", "Cyrillic")])
    space = holding(listed, "White_Space")
    space[0x1C:0x20] = True  # as Python's str.isspace, which goes by the bidirectional class
    word = letter | numeric
    word[ord("_")] = True
    emoji = folder / "emoji/emoji-data.txt"
    closing = holding(listed, "Quotation_Mark") | (category == "Pe") | (category == "Pf")
    not_nfc, not_nfkc = np.zeros(ut.SIZE, bool), np.zeros(ut.SIZE, bool)
    for first, last, (name, *value) in rows(folder / "DerivedNormalizationProps.txt"):
        if name == "NFC_QC" and value[0] in "NM":
            not_nfc[first : last + 1] = True
        if name == "NFKC_QC" and value[0] in "NM":
            not_nfkc[first : last + 1] = True
    for bit, held in (
        (ut.SPACE, space),
        (ut.WORD, word),
        (ut.TERMINAL, holding(listed, "Sentence_Terminal")),
        (ut.CLOSING, closing),
        (ut.HAN, holding(folder / "Scripts.txt", "Han")),
        (ut.MARK, mark),
        (ut.IGNORABLE, holding(derived, "Default_Ignorable_Code_Point")),
        (ut.JOINING, joining & letter),
        (ut.CASED, holding(derived, "Cased")),
        (ut.CASE_IGNORABLE, holding(derived, "Case_Ignorable")),
        (ut.NOT_NFC, not_nfc),
        (ut.NOT_NFKC, not_nfkc),
        (ut.ASSIGNED, category != "Cn"),
        (ut.ACCENTED, accented & letter),
        (ut.EMOJI, holding(emoji, "Emoji")),
        (ut.EMOJI_PRESENTATION, holding(emoji, "Emoji_Presentation")),
        (ut.EMOJI_MODIFIER_BASE, holding(emoji, "Emoji_Modifier_Base")),
    ):
        properties[held] |= bit

    breaks = np.zeros(ut.SIZE, np.uint8)
    for first, last, fields in rows(folder / "auxiliary/WordBreakProperty.txt"):
        breaks[first : last + 1] = ut.WORD_BREAKS.index(fields[0])
    breaks[holding(emoji, "Extended_Pictographic")] |= ut.PICTOGRAPHIC
    breaks[letter | number] |= ut.CONTENT

    special = {
        first: fields[0].split()
        for first, _, fields in rows(folder / "SpecialCasing.txt")
        if len(fields) == 4 and len(fields[0].split()) > 1  # five fields: with a condition
    }
    if special != {0x130: ["0069", "0307"]}:
        raise ValueError(f"SpecialCasing.txt lower-cases {special} to several code points: segment.lower knows U+0130")
    lower.pop(0x130)
    order = np.uint32(ut.COMBINING | ut.NOT_NFC | ut.NOT_NFKC)
    changed = [c for c, small in lower.items() if properties[small] & order & ~properties[c]]
    if changed:  # unicode_tables.normalizer takes it for granted
        raise ValueError(f"lower-casing takes {changed} out of normal form: they need the slow path")

    def expand(point: int, compatibly: bool) -> list[int]:
        mapping = canonical.get(point) or (compatible.get(point) if compatibly else None)
        return [last for part in mapping for last in expand(part, compatibly)] if mapping else [point]

    excluded = holding(folder / "DerivedNormalizationProps.txt", "Full_Composition_Exclusion")
    full = [(point, expand(point, False)) for point in sorted(canonical)]
    every = [(point, expand(point, True)) for point in sorted(canonical.keys() | compatible.keys())]
    kept = [(point, mapping) for point, mapping in every if point in compatible or mapping != expand(point, False)]
    return {
        **runs("properties", properties),
        **runs("word", breaks),
        "lower": np.array(sorted(lower.items()), np.int32),
        "canonical": np.array([point for point, _ in full], np.int32),
        "compatible": np.array([point for point, _ in kept], np.int32),
        "lengths": np.array([len(mapping) for _, mapping in full + kept], np.uint8),
        "mappings": np.array([point for _, mapping in full + kept for point in mapping], np.int32),
        "pairs": np.array([(*canonical[p], p) for p in sorted(canonical) if not excluded[p]], np.int32),
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    source = Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode")
    np.savez_compressed(ut.FILE, **make(source))
    logging.info("wrote %s, %d bytes", ut.FILE, ut.FILE.stat().st_size)
