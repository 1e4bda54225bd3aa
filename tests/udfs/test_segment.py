"""The kernels against the Unicode Character Database's own tests and against Python, code point by code point."""

from __future__ import annotations

import gzip
import random
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from udfs import segment, unicode_tables
from udfs.make_unicode_tables import holding, make
from udfs.text import TextConfig, normalize, spans, tokenize

DATA = Path(__file__).parents[1] / "data/unicode"
UCD = Path("/usr/share/unicode")  # of Debian's package unicode-data
EVERY = [point for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
ASSIGNED = unicode_tables.tables().properties & unicode_tables.ASSIGNED != 0
# What both Unicode 15.0 and this Python's version know.
COMMON = [chr(point) for point in EVERY if ASSIGNED[point] and unicodedata.category(chr(point)) != "Cn"]


def lines(name: str) -> Iterator[str]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        for line in file:
            line = line.split("#")[0].strip()
            if line:
                yield line


def points_of(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.int32)


def text_of(points: np.ndarray) -> str:
    return points.tobytes().decode("utf-32-le")


def test_every_line_of_word_break_test_gives_its_boundaries() -> None:
    word = unicode_tables.tables().word
    count = 0
    for line in lines("WordBreakTest.txt.gz"):
        text, expected = b"", []
        for field in line.split():
            if field == "÷":
                expected.append(len(text))
            elif field != "×":
                text += chr(int(field, 16)).encode()
        assert segment.boundaries(np.frombuffer(text, np.uint8), word).tolist() == expected, line
        count += 1
    assert count == 1823


@pytest.mark.parametrize(("form", "column"), [("NFC", 1), ("NFKC", 3)])
def test_every_line_of_normalization_test_gives_its_form(form: str, column: int) -> None:
    table = unicode_tables.normalizer(form, False)
    listed = set()
    part = ""
    for line in lines("NormalizationTest.txt.gz"):
        if line.startswith("@"):
            part = line
            continue
        fields = ["".join(chr(int(point, 16)) for point in field.split()) for field in line.split(";")[:5]]
        if part == "@Part1":
            listed.add(fields[0])
        for source, field in enumerate(fields):
            # NFC of the compatibility columns is their own: NFC(c4) = NFC(c5) = c4.
            expected = fields[column] if form == "NFKC" or source < 3 else fields[3]
            assert text_of(segment.compose(segment.decompose(points_of(field), table), table)) == expected, line
    # Every other character is its own normal form.
    rest = points_of("".join(chr(point) for point in EVERY if chr(point) not in listed))
    alone = np.stack([rest, np.full(len(rest), 10, np.int32)], 1).ravel()  # a line each, so that none meets another
    assert np.array_equal(segment.compose(segment.decompose(alone, table), table), alone)


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_normal_forms_equal_python_s_for_every_common_character(form: str) -> None:
    table = unicode_tables.normalizer(form, False)
    for context in ("{}", "a{}\u0301", "{}\u0323\u0307"):
        text = "\n".join(context.format(character) for character in COMMON)
        ours = text_of(segment.compose(segment.decompose(points_of(text), table), table))
        assert ours == unicodedata.normalize(form, text)  # type: ignore[arg-type]


@pytest.mark.parametrize("context", ["{}", "A{}", "{}A", "AΣ{}", "Σ{}A", "A{}Σ"])
def test_lower_case_equals_python_s_for_every_common_character(context: str) -> None:
    text = [context.format(character) for character in COMMON]
    assert normalize(pa.array(text), TextConfig(unicode="none")).to_pylist() == [one.lower() for one in text]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("form", ["NFC", "NFKC", "none"])
def test_the_quick_way_equals_the_full_one_for_every_character(form: str, lowercase: bool) -> None:
    table = unicode_tables.normalizer(form, lowercase)
    for context in ("{}", "a\u0323{}\u0315b", "क{}\u200dक", "\u0301{}"):
        points = EVERY if context == "{}" else EVERY[:0x20000]  # above there is little but Han
        text = [context.format(chr(point)) + "\n" for point in points]
        quick = spans(pa.array(text), TextConfig(form, lowercase)).data.tobytes().decode()
        full = segment.normalize_points(points_of("".join(text)), table, form != "none", lowercase, False, False)
        assert quick == text_of(full)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("form", ["NFC", "NFKC", "none"])
def test_no_simple_character_grows_by_more_than_half(form: str, lowercase: bool) -> None:
    simple = unicode_tables.normalizer(form, lowercase).simple[EVERY]
    targets = simple & ((1 << unicode_tables.COMBINING_SHIFT) - 1)

    def width(points: np.ndarray) -> np.ndarray:
        return 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)

    assert np.all((width(targets) * 2 <= width(np.array(EVERY)) * 3)[simple >= 0])


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_the_quick_way_equals_the_full_one_where_emoji_stay(form: str) -> None:
    table = unicode_tables.normalizer(form, True, False, True)
    points = [*range(0x3400), *range(0xFE00, 0xFF00), *range(0x1F000, 0x1FC00), *range(0xE0000, 0xE0200)]
    for context in ("{}", "{}\ufe0f", "👩\u200d{}\ufe0e"):
        text = [context.format(chr(point)) + "\n" for point in points]
        quick = spans(pa.array(text), TextConfig(form, emoji=True)).data.tobytes().decode()
        full = segment.normalize_points(points_of("".join(text)), table, True, True, False, True)
        assert quick == text_of(full)


def test_every_line_of_emoji_test_is_a_token_if_it_is_shown_as_an_emoji() -> None:
    """Unqualified ones are so where they are more than a character."""
    kinds: dict[str, list[str]] = {}
    for line in lines("emoji-test.txt.gz"):
        points, kind = line.split(";")
        kinds.setdefault(kind.strip(), []).append("".join(chr(int(point, 16)) for point in points.split()))
    assert {kind: len(found) for kind, found in kinds.items()} == {
        "component": 9, "fully-qualified": 3655, "minimally-qualified": 827, "unqualified": 242
    }  # fmt: skip
    rows, expected = [], []
    for kind, sequences in kinds.items():
        for text in sequences:
            shown = [text] * (kind != "unqualified" or len(text) > 1)
            rows.append(f"中{text}文 {text}.{text} {text}")
            expected.append(["中", *shown, "文", *shown, *shown, *shown])
    expected[rows.index("中ℹ文 ℹ.ℹ ℹ")] = ["中", "ℹ", "文", "ℹ.ℹ", "ℹ"]  # a letter
    assert tokenize(pa.array(rows), TextConfig(emoji=True)).to_pylist() == expected


def test_sklearn_word_characters_are_those_of_re() -> None:
    tokens = tokenize(pa.array([character * 2 for character in COMMON]), TextConfig("none", False, "sklearn"))
    word = re.compile(r"(?u)\b\w\w+\b")
    assert tokens.to_pylist() == [word.findall(character * 2) for character in COMMON]


def test_white_space_is_that_of_str_split() -> None:
    text = [f"a{chr(point)}b" for point in EVERY]
    assert tokenize(pa.array(text), TextConfig("none", False, "whitespace")).to_pylist() == [
        one.split() for one in text
    ]


def test_letters_and_numbers_are_those_of_python() -> None:
    content = unicode_tables.tables().word[[ord(character) for character in COMMON]] & unicode_tables.CONTENT != 0
    assert content.tolist() == [unicodedata.category(character)[0] in "LN" for character in COMMON]


@pytest.mark.parametrize("length", range(5))
def test_no_kernel_trips_over_invalid_bytes(length: int) -> None:
    table = unicode_tables.tables()
    random_ = random.Random(length)
    edges = bytes([0x00, 0x41, 0x7F, 0x80, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF])
    for _ in range(3000):
        raw = bytes(random_.choices(edges, k=length))
        data = np.frombuffer(raw, np.uint8)
        points = segment.decode_all(data, 0, length)
        if "\ufffd" not in raw.decode("utf-8", "replace"):
            assert text_of(points) == raw.decode()
        else:
            assert 0xFFFD in points
        assert np.all((points >= 0) & (points <= sys.maxunicode) & ((points < 0xD800) | (points > 0xDFFF)))
        ends = segment.boundaries(data, table.word)
        assert ends.tolist() == sorted(set(ends.tolist()))
        text = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(np.array([0, length], np.int32)), pa.py_buffer(raw or b" ")]
        )
        for form in ("NFC", "none"):
            assert normalize(text, TextConfig(form, False)).to_pylist()[0].count("\ufffd") == (points == 0xFFFD).sum()


@pytest.mark.parametrize(
    "text",
    [
        "a" + "\u0315\u0316" * 500_000,
        "क" + "\u200d\u094d" * 500_000 + "क",
        "क" + "\u200d" * 1_000_000,
        "AΣ" + "'" * 1_000_000,
        "Σ'" * 500_000,
        "a" + "\u200d:" * 500_000,
        "a:" + "\u0308" * 1_000_000,
        "\n " * 500_000,
        ".)" * 500_000,
        "🇩" * 500_000,
        "🏴" + "\U000e0067" * 300_000,
        "👩\u200d" * 300_000,
        "www.a(" * 300_000,
        "http://[" * 300_000,
        "http://a" + "." * 1_000_000,
        "a@" * 500_000,
        "a@b." * 300_000,
        "." * 1_000_000 + "@b.cc",
        "@b" + "-" * 1_000_000,
    ],
    ids=lambda text: ascii(text[:4]),
)
def test_a_hostile_text_takes_linear_time(text: str) -> None:
    # In quadratic time each would take hours: the time limit of the test run is the assertion.
    for config in (TextConfig(), TextConfig(keep_urls=True, emoji=True)):
        found = spans(pa.array([text]), config, sentences=True)
        assert found.text[-1] <= len(text.encode())


def test_the_shipped_tables_are_those_of_the_character_database() -> None:
    if not (UCD / "UnicodeData.txt").is_file():
        pytest.skip(f"no {UCD}: install unicode-data")
    made = make(UCD)
    with np.load(unicode_tables.FILE) as shipped:
        assert sorted(shipped.files) == sorted(made)
        for name in made:
            assert np.array_equal(shipped[name], made[name]), name


def test_the_generator_refuses_another_version(tmp_path: Path) -> None:
    (tmp_path / "PropList.txt").write_text("# PropList-14.0.0.txt\n0020 ; White_Space\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"14\.0\.0, not 15\.0\.0"):
        holding(tmp_path / "PropList.txt", "White_Space")
