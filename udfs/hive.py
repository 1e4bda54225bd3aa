"""The text functions for Hive's TRANSFORM: hive.py FUNCTION, rows in on stdin, rows out on stdout.

Strings are written in hexadecimal both ways, since a tab or a line feed would break a row; NULL is \\N. An array is its
values with commas between.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder, which holds modules of common names

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.arrays import string_buffers
from udfs.functions import FUNCTIONS, Function
from udfs.segment import gather
from udfs.text import TOKENIZERS, UNICODE, TextConfig, tokens

BLOCK_BYTES = 2 << 20  # of rows that are read at once
ROWS = 10_000  # that are worked on at once
COMMA = pa.scalar(",", pa.large_string())
NULL = "\\N"
DIGITS = b"0123456789abcdef"
PAIRS = np.array([[high, low] for high in DIGITS for low in DIGITS], np.uint8)  # a byte's digits
NO_DIGIT = 255
VALUES = np.full(256, NO_DIGIT, np.uint8)  # a digit's value
for value, digit in enumerate(DIGITS):
    VALUES[[digit, ord(chr(digit).upper())]] = value


class BadRow(ValueError):
    """A row that is not as it should be: its number among those given, from 0, and what is wrong."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        sys.exit(fail(message))


def parser() -> Parser:
    """All options."""
    p = Parser("hive.py", description="The text functions for Hive's TRANSFORM.", allow_abbrev=False)
    commands = p.add_subparsers(dest="command", required=True, metavar="FUNCTION")
    tokens_of = "The tokens, a row for each: id, sentence, position, token, begin_at, end_at."
    command = commands.add_parser("tokens", help=tokens_of, description=tokens_of, allow_abbrev=False)
    add_text_options(command)
    for name, function in FUNCTIONS.items():
        if name == "tokenize":
            continue
        said = function.description
        command = commands.add_parser(name, help=said, description=said, allow_abbrev=False)
        numbers = [argument for argument, kind in function.arguments.items() if kind == "int"]
        for number in numbers:
            command.add_argument(number, type=int)
        command.set_defaults(numbers=numbers)
        if "text" in function.arguments:
            add_text_options(command)
    return p


def add_text_options(command: argparse.ArgumentParser) -> None:
    """The options of TextConfig."""
    command.add_argument("--tokenizer", choices=TOKENIZERS, default="word")
    command.add_argument("--pattern", help="what a token of the tokenizer regex looks like")
    command.add_argument("--unicode", choices=UNICODE, default="NFC")
    command.add_argument("--no-lowercase", dest="lowercase", action="store_false")
    for flag in ("--strip-accents", "--keep-urls", "--emoji"):
        command.add_argument(flag, action="store_true")


def transform(source: BinaryIO, target: BinaryIO, options: argparse.Namespace) -> None:
    """Write what the function gives for each row; ValueError for a wrong option, BadRow for a wrong row."""
    given = vars(options)
    config = TextConfig(**{name: value for name, value in given.items() if name in TextConfig.__dataclass_fields__})
    done = 0
    for block in blocks(source):
        for ids, values in columns(block, done):
            try:
                hexadecimal(ids, "id")
                if options.command == "tokens":
                    found = token_rows(config, ids, values)
                else:
                    numbers = [given[name] for name in options.numbers]
                    found = [ids, called(FUNCTIONS[options.command], config, values, numbers)]
            except BadRow as error:
                raise BadRow(done + error.row, str(error)) from None
            write(found, target)
            done += len(ids)


def token_rows(config: TextConfig, ids: pa.Array, values: pa.Array) -> list[pa.Array]:
    """The columns of TOKENS."""
    lists = tokens(text(hexadecimal(values, "text")), config)
    of = pc.list_parent_indices(lists.field("token"))
    return [ids.take(of), *(written(lists.field(field.name).flatten()) for field in lists.type)]


def called(function: Function, config: TextConfig, values: pa.Array, numbers: list[int]) -> pa.Array:
    """What a function of one column and some numbers gives."""
    (name, kind), *_ = function.arguments.items()
    column = lists_of(values) if kind.startswith("array") else text(hexadecimal(values, name))
    return written(function.apply(config, column, *numbers))


def blocks(source: BinaryIO) -> Iterator[bytes]:
    """Whole lines, about BLOCK_BYTES at once."""
    held: list[bytes] = []
    while piece := source.read(BLOCK_BYTES):
        lines, end, rest = piece.rpartition(b"\n")
        if end:
            yield b"".join([*held, lines, end])
            held = []
        held.append(rest)
    if any(held):
        yield b"".join([*held, b"\n"])


def columns(lines: bytes, done: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The two columns of the rows, ROWS at once, large_binary; BadRow, counted from `done`, for other rows."""
    data = np.frombuffer(lines, np.uint8)
    ends, tabs = np.flatnonzero(data == ord("\n")), np.flatnonzero(data == ord("\t"))
    begins = np.append(0, ends[:-1] + 1)
    found = 1 + np.diff(np.searchsorted(tabs, ends), prepend=0)
    wrong = np.flatnonzero(found != 2)
    if len(wrong):
        raise BadRow(
            done + int(wrong[0]),
            f"has columns: {found[wrong[0]]}, not 2: give those of hex(cast(id AS string)), hex(text)",
        )
    for at in range(0, len(ends), ROWS):
        rows = slice(at, at + ROWS)
        yield fields(data, begins[rows], tabs[rows]), fields(data, tabs[rows] + 1, ends[rows])


def fields(data: np.ndarray, begin: np.ndarray, end: np.ndarray) -> pa.Array:
    """The fields data[begin:end], large_binary, null where they say so."""
    null = (end - begin == 2) & (data[begin] == ord("\\")) & (data[np.minimum(begin + 1, len(data) - 1)] == ord("N"))
    joined, offsets = gather(data, begin, np.where(null, begin, end))
    return pa.Array.from_buffers(
        pa.large_binary(),
        len(begin),
        [pa.array(~null).buffers()[1], pa.py_buffer(offsets), pa.py_buffer(joined)],
    )


def hexadecimal(column: pa.Array, name: str) -> pa.Array:
    """The bytes that hexadecimal digits say, large_binary; null stays null. BadRow for anything else."""
    data, offsets = string_buffers(column)
    values = VALUES[data]
    odd = np.flatnonzero(np.diff(offsets) % 2)
    none = np.flatnonzero(values == NO_DIGIT)
    bad = [*odd[:1], *(np.searchsorted(offsets, none[:1], "right") - 1)]
    if bad:
        shown = column[int(min(bad))].as_py()
        raise BadRow(
            int(min(bad)),
            f"has no hexadecimal {name} but {shown[:30]!r}: give hex(cast({name} AS string)), and NULL as {NULL}",
        )
    joined = values[0::2] << 4 | values[1::2]
    return assembled(pa.large_binary(), column, offsets // 2, joined)


def assembled(kind: pa.DataType, like: pa.Array, offsets: np.ndarray, data: np.ndarray) -> pa.Array:
    """Strings or bytes of these buffers, null where `like` is."""
    validity = like.is_valid().buffers()[1] if like.null_count else None
    return pa.Array.from_buffers(kind, len(like), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def text(column: pa.Array) -> pa.Array:
    """Bytes as text, which need not be valid UTF-8."""
    return pa.Array.from_buffers(pa.large_string(), len(column), column.buffers())


def lists_of(column: pa.Array) -> pa.Array:
    """Each row's values, which are written with commas between; nothing is no value."""
    lists = pc.split_pattern(pc.if_else(pc.equal(pc.binary_length(column), 0), None, column), ",")
    try:
        values = hexadecimal(lists.flatten(), "term")
    except BadRow as error:
        raise BadRow(pc.list_parent_indices(lists)[error.row].as_py(), str(error)) from None
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return pa.ListArray.from_arrays(np.append(0, np.cumsum(lengths)).astype(np.int32), values)


def written(column: pa.Array) -> pa.Array:
    """A column as large_string: strings in hexadecimal, numbers in decimal digits, lists with commas between."""
    kind = column.type
    if pa.types.is_list(kind):
        parts = pa.LargeListArray.from_arrays(column.offsets.cast(pa.int64()), written(column.values))
        return pc.binary_join(parts, COMMA)
    if pa.types.is_integer(kind):
        return column.cast(pa.large_string())
    data, offsets = string_buffers(column)
    return assembled(pa.large_string(), column, offsets * 2, PAIRS[data])


def write(found: list[pa.Array], target: BinaryIO) -> None:
    """Write rows."""
    tab, end, between = (pa.scalar(text, pa.large_string()) for text in ("\t", "\n", ""))
    rows = pc.binary_join_element_wise(*(pc.fill_null(column.cast(pa.large_string()), NULL) for column in found), tab)
    data, _ = string_buffers(pc.binary_join_element_wise(rows, end, between))
    target.write(data.data)


def fail(reason: str) -> int:
    """Tell a mistake; its exit code."""
    print(f"hive.py: {reason}", file=sys.stderr)
    return 2


def main(arguments: list[str]) -> int:
    """Run a function; the exit code."""
    options = parser().parse_args(arguments)
    try:
        transform(sys.stdin.buffer, sys.stdout.buffer, options)
        sys.stdout.flush()
    except BadRow as error:
        return fail(f"row {error.row + 1} {error}")
    except ValueError as error:
        return fail(str(error))
    return 0


if __name__ == "__main__":
    for number in (signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # end without a traceback
    sys.exit(main(sys.argv[1:]))
