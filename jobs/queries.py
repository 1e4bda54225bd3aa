"""Query files of sql/: their parameters, and the text of a query as Spark SQL or Hive takes it, with nothing to inject.

A header line `-- param: NAME TYPE [DEFAULT] [(LEAST to MOST)]` declares a parameter, and `:NAME` in the query stands
for it. TYPE is string, int, double or identifier (a table: NAME or DATABASE.NAME). A string may have (ONE|OTHER), the
values that it can have.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

TYPES = ("string", "int", "double", "identifier")
PARAM = re.compile(r"-- param: *(.*)")
DECLARED = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*) (?P<type>[a-z]+)(?: (?P<default>'(?:[^']|'')*'|[^\s()']+))?"
    r"(?: \((?:(?P<least>[-+.\deE]+) to (?P<most>[-+.\deE]+)|(?P<choices>\w+(?:\|\w+)+))\))?"
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 128  # of Hive's metastore
# A query in pieces: what is quoted, comments, placeholders, and each other character.
PIECES = re.compile(
    r"(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`)|(?P<comment>--[^\n]*|/\*.*?\*/)"
    r"|(?P<param>(?<![:\w]):[A-Za-z_]\w*)|(?P<other>.)",
    re.DOTALL,
)
Value = str | int | float


@dataclass(frozen=True)
class Parameter:
    """A declared parameter; least and most bound a number, a string is one of the choices, if there are any."""

    name: str
    type: str
    default: Value | None = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()

    def value(self, text: str) -> Value:
        """The value that a text stands for; ValueError if it has another type, or is out of bounds."""
        if self.least is None or self.most is None:
            value = _CONVERT[self.type](f"parameter {self.name}", text)
        else:
            kind = "a whole number" if self.type == "int" else "a number"
            wanted = f"give {kind} from {_plain(self.least)} to {_plain(self.most)}"
            try:
                value = _CONVERT[self.type]("", text)
            except ValueError:
                raise ValueError(f"parameter {self.name} is {text[:80]!r}: {wanted}") from None
            if not self.least <= value <= self.most:  # type: ignore[operator]  # bounds are of numbers
                raise ValueError(f"parameter {self.name} is {text}: {wanted}")
        if self.choices and value not in self.choices:
            raise ValueError(f"parameter {self.name} is {text[:80]!r}: choose one of {', '.join(self.choices)}")
        return value


@dataclass(frozen=True)
class Query:
    """A query of one statement, its parameters and what its header says."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    text: str  # without comments

    def values(self, given: Mapping[str, str]) -> dict[str, Value]:
        """A value for each parameter; ValueError for one that is unknown, missing or not of its type."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                declared = ", ".join(known) or "none"
                raise ValueError(f"{self.name} has no parameter {name[:80]}: its parameters are {declared}")
        values = {name: known[name].value(text) for name, text in given.items()}
        for name, parameter in known.items():
            if name in values:
                continue
            if parameter.default is None:
                raise ValueError(f"{self.name} needs parameter {name} ({parameter.type}): give --param {name}=…")
            values[name] = parameter.default
        return values

    def tables(self, values: Mapping[str, Value]) -> list[str]:
        """The tables that the query reads, as named by its parameters."""
        return [str(values[each.name]) for each in self.parameters if each.type == "identifier"]

    def for_spark(self, values: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
        """The query with its names written in it, and the values for spark.sql to bind."""
        bound = {each.name: values[each.name] for each in self.parameters if each.type != "identifier"}
        return self._written({name: f":{name}" for name in bound}, values), bound

    def for_hive(self, values: Mapping[str, Value]) -> str:
        """The query with names and values written in it, for Hive, which binds none."""
        return self._written({name: hive_literal(value) for name, value in values.items()}, values)

    def _written(self, literals: dict[str, str], values: Mapping[str, Value]) -> str:
        names = {
            each.name: back_ticked(str(values[each.name])) for each in self.parameters if each.type == "identifier"
        }
        return "".join((literals | names)[piece[1:]] if kind == "param" else piece for kind, piece in pieces(self.text))


def read_query(path: Path) -> Query:
    """The query in a file; OSError if it can't be read, ValueError for a header or a query that is not one."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}): save it as UTF-8") from None
    header = re.match(r"(?:--[^\n]*\n|\s*\n)*", text)
    assert header
    lines = header[0].splitlines()
    declared = [found[1] for line in lines if (found := PARAM.fullmatch(line.strip()))]
    parameters = tuple(_parameter(path.name, line) for line in declared)
    about = "\n".join(line.removeprefix("--").removeprefix(" ") for line in lines).strip()
    body = "".join(" " if kind == "comment" else piece for kind, piece in pieces(text))
    query = Query(path.stem, about, parameters, re.sub(r"\s*;\s*\Z", "", body).strip())
    _check(path.name, query)
    return query


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """The pieces of a query, which together are its text, each with its kind: quoted, comment, param, other."""
    for found in PIECES.finditer(text):
        assert found.lastgroup
        yield found.lastgroup, found[found.lastgroup]


def back_ticked(name: str) -> str:
    """A checked name of a table as both engines take it."""
    return ".".join(f"`{part}`" for part in name.split("."))


def hive_literal(value: Value) -> str:
    """A value as Hive takes it, whatever a string holds."""
    if isinstance(value, str):
        return f"decode(unhex('{value.encode().hex()}'), 'UTF-8')"
    if isinstance(value, float):
        return f"cast('{value!r}' AS double)"
    return str(value) if value >= 0 else f"({value})"


def as_table(columns: list[str], rows: list[tuple[Any, ...]]) -> str:
    """Rows for a terminal, in columns: numbers on the right; long values cut, control characters replaced by �."""
    cells = [columns, *([_cell(value) for value in row] for row in rows)]
    wide = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    right = [bool(rows) and all(isinstance(row[k], int | float) for row in rows) for k in range(len(columns))]
    lines = [
        "  ".join(
            " " * (wide[k] - _width(cell)) + cell if right[k] else cell + " " * (wide[k] - _width(cell))
            for k, cell in enumerate(row)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in wide), *lines[1:]])


def _cell(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    text = "".join("�" if unicodedata.category(character) in ("Cc", "Cs") else character for character in text[:61])
    return text[:60] + "…" if len(text) > 60 else text


def _width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _parameter(file: str, line: str) -> Parameter:
    found = DECLARED.fullmatch(line.strip())
    if not found or found["type"] not in TYPES:
        raise ValueError(
            f"{file}: `-- param: {line}` is not NAME TYPE [DEFAULT] [(LEAST to MOST)] with a type of {', '.join(TYPES)}"
        )
    least, most = (float(found[bound]) if found[bound] else None for bound in ("least", "most"))
    choices = tuple(found["choices"].split("|")) if found["choices"] else ()
    parameter = Parameter(found["name"], found["type"], None, least, most, choices)
    if found["default"] is None:
        return parameter
    default = found["default"]
    if default.startswith("'"):
        default = default[1:-1].replace("''", "'")
    return replace(parameter, default=parameter.value(default))


def _check(file: str, query: Query) -> None:
    """Raise ValueError for what would run as something else than one query with the parameters of its header."""
    names = [each.name for each in query.parameters]
    used = {piece[1:] for kind, piece in pieces(query.text) if kind == "param"}
    for name in names:
        if names.count(name) > 1 or name not in used:
            what = "declared twice" if names.count(name) > 1 else "declared, but not used"
            raise ValueError(f"{file}: parameter {name} is {what}")
    for name in sorted(used - set(names)):
        raise ValueError(f"{file}: `:{name}` is not declared: add `-- param: {name} TYPE`")
    others = "".join(piece for kind, piece in pieces(query.text) if kind == "other")
    if not re.match(r"(?i)(select|with|from|create)\b", query.text):
        raise ValueError(f"{file} holds no query: it begins with {query.text[:30]!r}")
    if ";" in others:
        raise ValueError(f"{file} holds more than one statement: a file is one query")
    if re.search(r"[`'\"\\]|\$\{", others) or "${" in query.text:
        raise ValueError(f"{file} has a quote that does not end, a backslash, or ${{…}}, which engines replace")


def _plain(number: float) -> str:
    """A bound as the header has it."""
    return str(int(number)) if number == int(number) else f"{number:g}"


def _int(what: str, text: str) -> int:
    if not re.fullmatch(r"[-+]?[0-9]{1,20}", text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError(f"{what} is {text[:80]!r}: give a whole number of at most 64 bits")
    return int(text)


def _double(what: str, text: str) -> float:
    number = re.fullmatch(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", text)
    if not number or not math.isfinite(float(text)):
        raise ValueError(f"{what} is {text[:80]!r}: give a number such as 1.5 or 1e-3")
    return float(text)


def _string(what: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is {text[:80]!r}, which is not UTF-8: give text in UTF-8") from None
    return text


def identifier(what: str, text: str) -> str:
    """A name of a table, if it is one; ValueError for anything else, named by `what`."""
    parts = text.split(".")
    if len(parts) > 2 or not all(NAME.fullmatch(part) and len(part) <= LONGEST_NAME for part in parts):
        raise ValueError(
            f"{what} is {text[:80]!r}: give NAME or DATABASE.NAME, of ASCII letters, digits and _, not beginning with "
            f"a digit, of at most {LONGEST_NAME} characters each"
        )
    return text


_CONVERT: dict[str, Callable[[str, str], Value]] = {
    "string": _string,
    "int": _int,
    "double": _double,
    "identifier": identifier,
}
