"""Counts of terms by Hadoop Streaming: stream_counts.py map [options], then stream_counts.py reduce [--help].

Bytes in on stdin, lines of term, df and cf out on stdout, the terms' control characters, % and \\ written %XX. All else
goes to stderr: what Hadoop takes for its counters, rejected records, errors.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

if (Path(__file__).resolve().parents[1] / "udfs").is_dir():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from jobs.options import (
    FITTING,
    SIZE,
    Parser,
    add_text_options,
    check_text_options,
    converts,
    feature_config,
    refuse_empty,
)
from jobs.session import Mistake, exit_code
from jobs.workers import BLOCK_BYTES, Block, SlowPattern, count_blocks, keep_memory
from models.counts import TermCounts, join_counts, merge_counts, take_counts
from models.features import FeatureConfig
from udfs.arrays import string_buffers
from udfs.records import JSON_TYPES, Layout, cut_lines, lines_of, one

HELD_BYTES = 64 << 20  # of blocks' dictionaries that are added up at once
COUNTERS = ("records", "documents", "rejects", "blanks", "repaired", "tokens")
TOLD = 1000  # rejected and repaired records of a task that are told one by one
REASONS = 20  # of a task that have a counter: Hadoop allows a job 120 counters
ESCAPED = r"[\x00-\x1f%\\]"  # what would end a line or a field, come before the tab in a sort, or mean more to Hive
HEADER = b"term\tdf\tcf\n"
TYPES = {"term": pa.large_string(), "df": pa.int64(), "cf": pa.int64()}


def field_list(text: str) -> dict[str, str]:
    """NAME=TYPE,NAME=TYPE with the types of JSON_TYPES."""
    fields = dict(part.split("=") for part in text.split(","))
    if not all(name and kind in JSON_TYPES for name, kind in fields.items()):
        raise ValueError
    return fields


FIELDS = converts(field_list, f"a list such as id=bigint,text=string, of the types {', '.join(JSON_TYPES)}")


def parser() -> argparse.ArgumentParser:
    """All options."""
    p = Parser("stream_counts.py", description="Term, df and cf by Hadoop Streaming, or any pipe.", allow_abbrev=False)
    steps = p.add_subparsers(dest="step", required=True, metavar="map|reduce")
    m = steps.add_parser("map", parents=[own_options()], help="count the documents on stdin", allow_abbrev=False)
    add_text_options(m.add_argument_group("terms, as in featurize.py"))
    left_out = set(FITTING) - {action.dest for action in m._actions}
    m.set_defaults(**dict.fromkeys(left_out))
    steps.add_parser("reduce", help="add up lines that are sorted by term; also a combiner", allow_abbrev=False)
    return p


def own_options() -> Parser:
    """The options of map that do not shape terms."""
    p = Parser(add_help=False)
    p.add_argument("--format", choices=("text", "jsonl"), required=True, help="a document, or a JSON object, a line")
    for role, what in (("text", "the text"), ("id", "the id"), ("label", "the label")):
        p.add_argument(f"--{role}", metavar="FIELD", help=f"of jsonl, the field with {what} (default: {role})")
    p.add_argument("--fields", type=FIELDS, default={}, metavar="NAME=TYPE,...", help="of jsonl, fields to check")
    p.add_argument(
        "--max-document-bytes", type=SIZE, default=16 << 20, metavar="SIZE", help="reject above (default: 16MB)"
    )
    return p


def layout_of(options: argparse.Namespace) -> Layout:
    """How the records on stdin are laid out; raises Mistake for fields that don't fit."""
    longest = options.max_document_bytes
    if options.format == "text":
        given = [name for name in ("text", "id", "label", "fields") if getattr(options, name)]
        if given:
            raise Mistake(f"--{given[0]} is for --format jsonl: text has no columns; leave it out")
        return Layout("text", max_document_bytes=longest)
    names = {name.lower(): name for name in options.fields}
    roles = {role: names.get((getattr(options, role) or role).lower()) for role in ("id", "label")}
    for role, name in roles.items():
        if getattr(options, role) and not name:
            asked = getattr(options, role)
            raise Mistake(f"--{role} {asked} has no type: name it in --fields, such as {asked}=string")
    text = names.get((options.text or "text").lower(), options.text or "text")
    if options.fields.get(text, "string") != "string":
        raise Mistake(f"--fields {text}={options.fields[text]}: the text must be a string")
    carried = tuple(name for name in options.fields if name not in (text, *roles.values()))
    return Layout("jsonl", text, roles["id"], roles["label"], carried, options.fields, max_document_bytes=longest)


def map_counts(source: BinaryIO, target: BinaryIO, config: FeatureConfig, layout: Layout) -> None:
    """Count the terms of the documents that the lines of `source` hold: lines of term, df and cf, in no order.

    A term comes once for about HELD_BYTES of distinct terms. Raises Mistake for a pattern that takes too long.
    """
    stats, reasons = dict.fromkeys(COUNTERS, 0), Counter[str]()
    held: list[TermCounts] = []  # of each block
    size = 0
    try:
        for found in count_blocks(tables(source, layout), config, layout, stats):
            if not isinstance(found, Block):
                tell_rejects(found, reasons)
                continue
            terms = found.counts.dictionary
            held.append(terms)
            size += terms.terms.nbytes + terms.df.nbytes + terms.cf.nbytes
            if size > HELD_BYTES:
                write_sum(held, target)
                held, size = [], 0
            print(f"reporter:status:{stats['documents']} documents", file=sys.stderr)
    except SlowPattern as error:
        raise Mistake(str(error)) from None
    write_sum(held, target)
    for name, number in stats.items():
        print(f"reporter:counter:Textmill,{name},{number}", file=sys.stderr)
    for reason, number in reasons.items():
        print(f"reporter:counter:Textmill reasons,{reason},{number}", file=sys.stderr)


def tables(source: BinaryIO, layout: Layout) -> Iterator[pa.Table]:
    """The lines of `source` as raw records, a block at a time; a task of Hadoop knows their file."""
    start = os.environ.get("mapreduce_map_input_start", "0")  # noqa: SIM112
    path = os.environ.get("mapreduce_map_input_file", "-") + f"@{start}" * (start != "0")  # noqa: SIM112
    # Hadoop's reader has taken a byte order mark off the file's start already, as it does for Spark.
    for block in cut_lines(path, iter(lambda: source.read(BLOCK_BYTES), b""), layout):
        yield pa.Table.from_batches([lines_of([block], layout.longest)])


def tell_rejects(rejects: pa.Table, reasons: Counter[str]) -> None:
    """Name rejected and repaired records on stderr, the first TOLD of a task, and add up their reasons by kind."""
    for row in rejects.to_pylist():
        if reasons.total() < TOLD:
            print(f"{row['kind']}: {row['source']} {row['position']} {row['reason']}", file=sys.stderr)
        # A comma would end the counter's name; numbers and names would make thousands of kinds.
        kind = re.sub(r"'.*'|\d+", "N", row["reason"]).replace(",", ";")[:80]
        reasons[kind if kind in reasons or len(reasons) < REASONS else "other reasons"] += 1


def write_sum(held: list[TermCounts], target: BinaryIO) -> None:
    """Write the sum of some blocks' counts."""
    counts = merge_counts(held)
    write(TermCounts(escape(counts.terms), counts.df, counts.cf), target)


def escape(terms: pa.Array) -> pa.Array:
    """Terms with each control character below space, % and \\ as %XX; urllib.parse.unquote is the way back."""
    where = pc.match_substring_regex(terms, ESCAPED)
    if not pc.any(where).as_py():
        return terms
    parts = [re.sub(ESCAPED, lambda found: f"%{ord(found[0]):02X}", term) for term in terms.filter(where).to_pylist()]
    return pc.replace_with_mask(terms, where, pa.array(parts, terms.type))


def write(counts: TermCounts, target: BinaryIO) -> None:
    """Write lines of term, df and cf."""
    df, cf = (pa.array(numbers).cast(pa.large_string()) for numbers in (counts.df, counts.cf))
    tab, end, between = (pa.scalar(text, pa.large_string()) for text in ("\t", "\n", ""))
    text, _ = string_buffers(pc.binary_join_element_wise(counts.terms, tab, df, tab, cf, end, between))
    target.write(text.data)


def reduce_counts(source: BinaryIO, target: BinaryIO) -> None:
    """Add up the counts of each term in lines of term, df and cf that are sorted by term, or as lines, by bytes."""
    last = join_counts([])
    for counts in read(source):
        counts = merge_counts([last, counts])
        if pc.any(pc.less(counts.terms[1:], counts.terms[:-1])).as_py():
            raise Mistake("stdin is not sorted by bytes: leave that to Hadoop, or sort with LC_ALL=C sort")
        rows = np.arange(len(counts.df))
        write(take_counts(counts, rows[:-1]), target)
        last = take_counts(counts, rows[-1:])  # the next lines may hold it too
    write(last, target)


def read(source: BinaryIO) -> Iterator[TermCounts]:
    """The counts in lines of term, df and cf, as they come; raises Mistake for other lines."""
    rest = b""
    while piece := source.read(BLOCK_BYTES):
        lines, end, rest = (rest + piece).rpartition(b"\n")
        if end:
            yield read_lines(lines + end)
    if rest:
        yield read_lines(rest)


def read_lines(lines: bytes) -> TermCounts:
    """Whole lines of term, df and cf; raises Mistake for other ones."""
    content = HEADER + lines  # a byte order mark at the start, which the first term may have, would be left off
    try:
        table = csv.read_csv(
            pa.BufferReader(content),
            csv.ReadOptions(use_threads=False, block_size=len(content) + 1),
            csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
            csv.ConvertOptions(column_types=TYPES, null_values=[], strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        raise Mistake(f"stdin holds other lines than map writes: {error}") from None
    return TermCounts(one(table["term"]), one(table["df"]).to_numpy(), one(table["cf"]).to_numpy())


def main(arguments: list[str]) -> None:
    """Run a step."""
    options = parser().parse_args(arguments)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    if options.step == "reduce":
        reduce_counts(source, target)
    else:
        refuse_empty(options)
        check_text_options(options)
        keep_memory()
        map_counts(source, target, feature_config(options), layout_of(options))
    target.flush()


if __name__ == "__main__":
    os.environ.setdefault("TEXTMILL_LOG", "/dev/stderr")  # the task's log is what one can read afterwards
    sys.exit(exit_code(main, sys.argv[1:]))
