"""The example in the header of a query file: the tables and parameters that go in, and the rows that come out.

-- Example
--   given NAME (COLUMN TYPE, ...)      a table, its rows below
--     VALUE | VALUE                    NULL, JSON, or text as it stands
--   given NAME = VALUE                 a parameter
--   gives                              the result, its rows below
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SQL = Path(__file__).resolve().parents[2] / "sql"
QUERIES = sorted(SQL.glob("*.sql"))
TABLE = re.compile(r"given (\w+) \((.*)\)")
SETTING = re.compile(r"given (\w+) = (.*)")
Row = tuple[Any, ...]


@dataclass
class Table:
    """Columns with their types in SQL, and rows."""

    columns: dict[str, str]
    rows: list[Row] = field(default_factory=list)


@dataclass
class Example:
    """What goes in and what comes out."""

    tables: dict[str, Table]
    settings: dict[str, str]
    gives: list[Row]


def example(path: Path) -> Example:
    """The example of a file; AssertionError if it has none."""
    lines = [line.removeprefix("--") for line in path.read_text("utf-8").splitlines() if line.startswith("--")]
    assert " Example" in lines, f"{path.name} has no example"
    found = Example({}, {}, [])
    rows: list[Row] = []
    kinds: list[str] = []
    for line in lines[lines.index(" Example") + 1 :]:
        if line.startswith("     "):
            cells = line.strip().split(" | ")
            rows.append(tuple(cell(*pair) for pair in zip(cells, kinds or [""] * len(cells), strict=True)))
        elif table := TABLE.fullmatch(line.strip()):
            columns = dict(column.split(" ", 1) for column in table[2].split(", "))
            found.tables[table[1]] = Table(columns)
            rows, kinds = found.tables[table[1]].rows, list(columns.values())
        elif setting := SETTING.fullmatch(line.strip()):
            found.settings[setting[1]] = setting[2]
        else:
            assert line.strip() == "gives", f"{path.name}: {line}"
            rows, kinds = found.gives, []
    assert found.gives, f"{path.name}: the example gives nothing"
    return found


def cell(text: str, kind: str) -> Any:
    """A value as it is written; of a column of strings only null and what is in quotes is not the text itself."""
    if text == "NULL":
        return None
    if kind == "string" and not text.startswith('"'):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
