"""The script for TRANSFORM as Hive runs it: a process, rows in and rows out, whatever the texts hold."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs import hive
from udfs.functions import FUNCTIONS
from udfs.text import TextConfig

SCRIPT = Path(__file__).resolve().parents[2] / "udfs/hive.py"
NASTY = [
    "The cat. A mat!", "a\tb\nc\r\nd\re", "nul\0in", "\\N", "\\", "41\t42", "👩‍🚀 İ ﬁ", "यह क्षि है।", "数据 中文。文本",
    "", None, "  ", "\u2028 \x85 \x1f", "e\u0301 don’t",
]  # fmt: skip
MANY = b"41\t41\n" * 30_000
few = settings(deadline=None, max_examples=100)
Row = tuple[str | None, str | None]


def field(value: str | bytes | None) -> str:
    """As Hive's hex writes it, with upper-case digits, and null as Hive writes it for a script."""
    raw = value.encode() if isinstance(value, str) else value
    return "\\N" if raw is None else raw.hex().upper()


def value(field: str) -> str | None:
    return None if field == "\\N" else bytes.fromhex(field).decode()


def rows_of(rows: list[Row]) -> bytes:
    return "".join(f"{field(id)}\t{field(text)}\n" for id, text in rows).encode()


def said(given: bytes, *command: str) -> list[list[str]]:
    """The fields of the rows that a command gives, in this process."""
    target = io.BytesIO()
    hive.transform(io.BytesIO(given), target, hive.parser().parse_args(command))
    return [line.split("\t") for line in target.getvalue().decode("ascii").splitlines()]


def run(given: bytes, *command: str) -> subprocess.CompletedProcess[str]:
    """The script, from a folder that is not its own, with nothing of Textmill on the path."""
    return subprocess.run(
        [sys.executable, "-I", SCRIPT, *command], input=given, cwd="/", capture_output=True, timeout=300
    )


def expected(rows: list[Row], config: TextConfig) -> list[list[str]]:
    """TOKENS of each row by the function itself, one by one."""
    found = []
    for id, text in rows:
        for token in FUNCTIONS["tokenize"](config, pa.array([text], pa.string()))[0].as_py():
            numbers = [str(token[name]) for name in ("sentence", "position", "begin_at", "end_at")]
            found.append([field(id), *numbers[:2], field(token["token"]), *numbers[2:]])
    return found


def upper(rows: list[list[str]]) -> list[list[str]]:
    """With upper-case digits: those of the id are as they came, those of tokens are lower-case."""
    return [[field if field == "\\N" else field.upper() for field in row] for row in rows]


def test_tokens_of_nasty_texts_by_the_process() -> None:
    rows = [(f"id\t{number}\n", text) for number, text in enumerate(NASTY)] + [(None, "null id"), ("", "empty id")]
    done = run(rows_of(rows), "tokens")
    assert (done.returncode, done.stderr) == (0, b"")
    found = [line.split("\t") for line in done.stdout.decode("ascii").splitlines()]
    assert upper(found) == expected(rows, TextConfig())
    assert [value(row[3]) for row in found if row[0] == "\\N"] == ["null", "id"]


texts = st.none() | st.text(
    st.sampled_from("aB.\t\n\r\0\\N 中é\u0301\u200d！") | st.characters(codec="utf-8"), max_size=12
)


@few
@given(st.lists(st.tuples(texts, texts), max_size=12), st.integers(1, 40), st.integers(1, 5))
def test_law_rows_are_those_of_each_row_alone_for_any_cut_into_blocks(rows: list[Row], block: int, many: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hive, "BLOCK_BYTES", block)
        patch.setattr(hive, "ROWS", many)
        assert upper(said(rows_of(rows), "tokens")) == expected(rows, TextConfig())
        assert upper(said(rows_of(rows), "normalize")) == [
            [field(id), field(FUNCTIONS["normalize"](TextConfig(), pa.array([text], pa.string()))[0].as_py())]
            for id, text in rows
        ]


@few
@given(st.lists(st.tuples(texts, texts), max_size=8))
def test_law_arrays_are_the_functions_and_terms_go_from_one_to_the_next(rows: list[Row]) -> None:
    text = pa.array([text for _, text in rows], pa.string())

    def column(number: int) -> pa.Array:
        return pa.array([number] * len(rows), pa.int32())

    terms = FUNCTIONS["ngrams"](TextConfig(), text, column(1), column(2))
    found = said(rows_of(rows), "ngrams", "1", "2")
    assert upper([row[:1] for row in found]) == [[field(id)] for id, _ in rows]
    assert [[value(term) for term in row[1].split(",") if term] for row in found] == terms.to_pylist()
    signatures = said("".join("\t".join(row) + "\n" for row in found).encode(), "minhash", "7")
    assert [[int(number) for number in row[1].split(",") if number] for row in signatures] == FUNCTIONS["minhash"](
        TextConfig(), terms, column(7)
    ).to_pylist()
    hashes = said(rows_of(rows), "hash_term", "1000")
    assert [None if row[1] == "\\N" else int(row[1]) for row in hashes] == FUNCTIONS["hash_term"](
        TextConfig(), text, column(1000)
    ).to_pylist()


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ("--no-lowercase --unicode NFKC", TextConfig("NFKC", False)),
        ("--tokenizer char_wb", TextConfig(tokenizer="char_wb")),
        ("--keep-urls --emoji --strip-accents", TextConfig(keep_urls=True, emoji=True, strip_accents=True)),
        ("--tokenizer regex --pattern [^\\s]+", TextConfig(tokenizer="regex", pattern="[^\\s]+")),
        ("--tokenizer jieba", TextConfig(tokenizer="jieba")),
    ],
)
def test_options_are_those_of_the_configuration(options: str, config: TextConfig) -> None:
    rows: list[Row] = [("a", text) for text in NASTY] + [("b", "Dé http://A.cc 😀 ﬁ 云计算")]
    assert upper(said(rows_of(rows), "tokens", *options.split())) == expected(rows, config)


def test_invalid_utf_8_is_repaired_as_everywhere() -> None:
    assert said(b"31\t61FF62\n", "normalize") == [["31", "a\ufffdb".encode().hex()]]


def test_a_text_larger_than_a_block_and_a_last_line_without_its_end() -> None:
    large = "word 中 " * 600_000
    found = said(f"31\t{field(large)}\n32\t{field('x')}".encode(), "normalize")
    assert found == [["31", large.encode().hex()], ["32", b"x".hex()]]


def no_hex(row: int, name: str, shown: str) -> str:
    return f"row {row} has no hexadecimal {name} but b'{shown}': give hex(cast({name} AS string)), and NULL as \\N"


@pytest.mark.parametrize(
    ("given", "command", "told"),
    [
        (b"41\t41\n41\t414\n", "tokens", no_hex(2, "text", "414")),
        (b"41\t41\n\\n\t41\n", "tokens", no_hex(2, "id", "\\\\n")),
        (b"41\tplain\n", "normalize", no_hex(1, "text", "plain")),
        (b"41\t41\r\n", "normalize", no_hex(1, "text", "41\\r")),
        (b"41\t41\n41\t61,6\n", "minhash 2", no_hex(2, "term", "6")),
        (b"41\t41\n\n", "tokens", "row 2 has columns: 1, not 2: give "),
        (MANY + b"1\t1\t1\n", "tokens", "row 30001 has columns: 3, not 2: give "),
        (MANY + b"41\t4\n", "tokens", no_hex(30001, "text", "4")),
        (
            b"",
            "tokens --emoji --tokenizer char",
            "emoji has no meaning with tokenizer 'char': leave it out, or choose ",
        ),
        (b"41\t41\n", "hash_term 0", "size is 0: give a number from 1 to 2147483647"),
        (b"", "ngrams 1", "the following arguments are required: most"),
        (b"", "ngrams 1 x", "argument most: invalid int value: 'x'"),
        (b"", "", "the following arguments are required: FUNCTION"),
    ],
)
def test_a_mistake_is_one_line_with_the_row_and_exit_code_2(given: bytes, command: str, told: str) -> None:
    done = run(given, *command.split())
    assert done.returncode == 2
    said = done.stderr.decode()
    assert said.startswith(f"hive.py: {told}")
    assert said.count("\n") == 1


def test_a_reader_that_stops_early_ends_it_without_a_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, SCRIPT, "normalize"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        try:
            process.stdin.write(b"41\t4142\n" * 2_000_000)
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert process.stderr.read() == b""
