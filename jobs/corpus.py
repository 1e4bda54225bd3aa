"""Any input as raw records for udfs/records.py: list, check and lay out before a byte of text is read."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any
from urllib.parse import unquote

import numpy as np
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    FractionalType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    _parse_datatype_string,
)

from jobs.outputs import FileSystem, literal
from jobs.session import Mistake, log, reason
from jobs.tables import (
    PLACE,
    PREFIX,
    Alike,
    Unfooted,
    alike,
    all_columns,
    catalog_table,
    file_folders,
    placed,
    quoted,
    read_files,
    rows_where,
    table_name,
)
from models.splits import Split
from udfs.records import (
    BOM,
    KEPT_BYTES,
    UNPACKED,
    WHOLE_FILE_LIMIT,
    Damaged,
    Layout,
    csv_columns,
    decoded_start,
    field_types,
    plain_path,
)

TABLES = ("parquet", "orc", "table")
EXTENSIONS = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".txt": "text",
    ".text": "text",
}
CODECS = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
SAMPLE_BYTES = 1 << 20  # of the largest file
SMALL_SAMPLE = 1 << 16  # of each of the next largest jsonl files
SAMPLED_FILES = 20
OPEN_COST_CONF = "spark.sql.files.openCostInBytes"
WILDCARD = re.compile(r"[*?\[\]{}\\]")
RAW_LOCAL = "org.apache.hadoop.fs.RawLocalFileSystem"
CHECKED_FILES = 1000  # as many, the largest ones, are opened before the job starts
MANY_FILES = 1000  # local files above this number are opened by the workers, at less cost a file
SMALL_FILE = 1 << 20  # bytes up to which those of lines are
OPEN_COST = 64 << 10  # bytes that can be read and counted in the time that it takes to open a file
MAGIC = {"parquet": (b"PAR1", b"PARE"), "orc": (b"ORC",)}
NOT_UTF8 = (
    (re.compile(rb"\x1f\x8b"), "is compressed by gzip: name it .gz"),
    (re.compile(rb"BZh[1-9]1AY&SY"), "is compressed by bzip2: name it .bz2"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "is compressed by zstd: name it .zst"),
    (re.compile(rb"PK\x03\x04"), "is a zip: unpack it"),
    (re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"), "is UTF-32: convert it to UTF-8"),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "is UTF-16: convert it to UTF-8"),
)
NO_UTF8 = re.compile("[\ud800-\udfff]")  # as Python decodes names of files
NOT_CARRIED = re.compile("interval|variant|void|geo")
READ_FAILURE = re.compile(  # of a plain path, or of a URL and maybe with a hint; then the same of Spark 3.5
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file "
    r"(?:(.+)\. Could not read footer|(\S+)\. +(.*?) *SQLSTATE)"
    r"|Could not read footer for file: (.+)\. Please ensure"
    r"|(?:Encountered error while reading|Parquet column cannot be converted in) file (\S+)\. (?:Details:|(.*))"
)
# Spark 3.5 names no file when the content of a compressed one can't be decoded.
UNNAMED_FAILURE = re.compile(r"^Caused by: [\w.]+: (.*)\n\s+at org\.apache\.hadoop\.io\.compress\.", re.MULTILINE)
# Of an expression: data exceptions of the SQL standard, of which Spark 3.5 tells no SQLSTATE; bad patterns, bad JSON.
WHERE_FAILURE = re.compile(
    r"\[[A-Z_.]+\] (.*?)\s*SQLSTATE: (?:22\w{3}|42601)"
    r"|Spark(?:(?:NumberFormat|Arithmetic|ArrayIndexOutOfBounds|DateTime)Exception: \[|RuntimeException: \[INVALID_)"
    r"[A-Z_.]+\] (.*?)(?: *SQLSTATE.*)?$"
    r"|(?:regex\.PatternSyntaxException|JsonParseException|java\.time\.DateTimeException): (.*)",
    re.MULTILINE,
)
OTHERWISE_UNREADABLE = re.compile(r"denied|library|not exist|mismatch|Expected:|No such|URI")  # than by its content


@dataclass(frozen=True)
class Input:
    """What an input path names, as it was given: files with their sizes and their format, or a table (form "table").

    places: the path itself, or what it matches as a glob; fs.root is then the folder above its first wildcard. where:
    a condition for the rows. listing: a hash of the files' paths, sizes and times of modification; of a table empty.
    salvage: of a damaged compressed file, keep the records before the damage.
    """

    path: str
    form: str
    fs: FileSystem | None = None
    places: tuple[str, ...] = ()
    files: tuple[tuple[str, int], ...] = ()
    where: str | None = None
    listing: str = ""
    salvage: bool = False

    @property
    def folders(self) -> list[str]:
        """Where the input lies: the path itself, or the folders that a glob matches, or that hold what it matches."""
        if self.fs is None or self.places == (self.fs.root,):
            return list(self.places)
        files = {name for name, _ in self.files}
        return sorted({place.rsplit("/", 1)[0] if place in files else place for place in self.places})

    @property
    def decoded(self) -> tuple[str, ...]:
        """The names' ends of the compressed files that are decoded by Python, and not by Spark."""
        return UNPACKED if self.salvage else (".zst",)


@dataclass(frozen=True)
class Corpus:
    """Raw records with how to parse them; what FEATURES rows will hold of them; size in bytes as stored."""

    raw: DataFrame
    layout: Layout
    id_type: DataType
    label: str | None  # "label", "labels" or None
    carried: list[StructField]
    path: str
    files: int
    size: int
    folders: tuple[str, ...] = ()  # of a table's files, as far as Spark knows them
    split: Split | None = None


def find_input(
    path: str, form: str = "auto", glob: bool = False, where: str | None = None, salvage: bool = False
) -> Input:
    """Find the files of a path (literal, unless it is a glob), and their format; needs no session.

    Raises Mistake for a path that does not exist, holds no data, can't be read, or is not of the format, and for a
    condition where there are no columns yet.
    """
    if path.startswith(PREFIX):
        table_name(path)
        if glob or form != "auto":
            raise Mistake(f"--input {path} is a table: leave out {'--glob' if glob else '--format'}")
        return Input(path, "table", where=where)
    fs, places, files, listing = _files(path, glob)
    form = _format([name for name, _ in files], path) if form == "auto" else form
    if where and form not in TABLES:
        raise Mistake(
            f"--where can't be asked of {form}, where columns are told apart only as the text is read: leave it out, "
            "or convert the input to Parquet"
        )
    if _with_colons(files):
        fs.read_unchecked()
    _check_files(fs, files, form, salvage)
    return Input(path, form, fs, tuple(places), tuple(files), where, listing, salvage)


def open_corpus(
    spark: SparkSession,
    found: Input,
    text: str | None = None,
    id: str | None = None,
    label: str | None = None,
    max_document_bytes: int = 16 << 20,
    split: Split | None = None,
) -> Corpus:
    """Find the columns of an input, and how to read its records.

    text, id and label name columns; None means the one of that name if there is one (text must exist). split: its
    column must be among the others. Raises Mistake for files that can't be read, for missing or clashing columns.
    """
    if found.fs is None:
        table = catalog_table(spark, table_name(found.path))
        fields = list(table.schema.fields)
        roles, id_type, label_name, carried = _columns(fields, text, id, label, found.path, split)
        split = _with_column(split, carried, found.path)
        layout = _layout("table", roles, carried, max_document_bytes, table=found.path)
        raw = _table_rows(placed(rows_where(table, found.where) if found.where else table), layout)
        shown = _without_split(carried, split)
        return Corpus(raw, layout, id_type, label_name, shown, found.path, 0, 0, tuple(file_folders(table)), split)
    path, fs, files, form = found.path, found.fs, found.files, found.form
    size = sum(size for _, size in files)
    sized = sorted(files, key=lambda file: (-file[1], file[0]))
    names = [name for name, _ in sized]
    reader = spark.read
    if _with_colons(files):
        reader = reader.option("fs.file.impl", RAW_LOCAL).option("fs.file.impl.disable.cache", True)  # for executors
    keys = _partitioned(files, fs.root) if form in TABLES else ()
    reader = reader.option("recursiveFileLookup", not keys)
    places = [literal(place) for place in found.places]
    types: dict[str, str] = {}
    groups: list[Alike] = []
    try:
        if form in TABLES:
            with reading(path):
                groups = _alike(reader, fs, [name for name, size in sized if size], form)
                fields = all_columns(groups)
                if keys:
                    reader = reader.option("basePath", fs.root)
                    found_by_spark = reader.format(form).load(places).schema
                    ours = [field for field in found_by_spark if field.name.lower() in keys]
                    fields = [field for field in fields if field.name.lower() not in keys] + ours
        elif form == "jsonl":
            sizes = [SAMPLE_BYTES] + [SMALL_SAMPLE] * (SAMPLED_FILES - 1)
            samples = [_sample(fs, name, size, found.salvage) for name, size in zip(names, sizes, strict=False)]
            lines = [line for sample in samples for line in sample.removeprefix(BOM).split(b"\n")]
            types = field_types(lines, {text or "text", id or "id", label or "label"})
            fields = [StructField(name, _parse_datatype_string(kind)) for name, kind in types.items()]
        elif form == "csv":
            header = csv_columns(_sample(fs, names[0], SAMPLE_BYTES, found.salvage))
            fields = [StructField(name, StringType()) for name in header]
        else:
            fields = [StructField("text", StringType())]
    except Mistake:
        raise
    except Exception as error:
        raise Mistake(f"--input {path} cannot be read as {form}: {reason(error)}") from None
    roles, id_type, label_name, carried = _columns(fields, text, id, label, path, split)
    split = _with_column(split, carried, path)
    root = fs.root if fs.is_dir(fs.root) else fs.root.rsplit("/", 1)[0]
    layout = _layout(
        "table" if groups else form, roles, carried, max_document_bytes, types=types, root=root, salvage=found.salvage
    )
    if groups:
        _check_roles(groups, roles, keys)
        rows = read_files(reader, form, places, groups, fields)
        raw = _table_rows(rows_where(rows, found.where) if found.where else rows, layout)
    else:
        raw = _raw(spark, reader, found, places, layout)
    shown = _without_split(carried, split)
    return Corpus(raw, layout, id_type, label_name, shown, path, len(files), size, split=split)


def _with_column(split: Split | None, carried: list[StructField], path: str) -> Split | None:
    """The split with its column as the input writes it; raises Mistake if there is none, or one of another type."""
    if split is None or split.column is None:
        return split
    wanted = split.column.lower()
    field = next((field for field in carried if field.name.lower() == wanted), None)
    if field is None:
        there = ", ".join(field.name for field in carried)[:300] or "none"
        raise Mistake(
            f"--split {split.by}:{split.column} is no column of --input {path} beside text, id and label: there is "
            f"{there}"
        )
    times = (StringType, IntegralType, FractionalType, DateType, TimestampType, TimestampNTZType)
    if not isinstance(field.dataType, times if split.by == "time" else StringType):
        kinds = "a date, timestamp, number or string" if split.by == "time" else "string"
        raise Mistake(
            f"column {field.name} (--split {split.by}:{split.column}) is {field.dataType.simpleString()[:80]}: it must "
            f"be {kinds}"
        )
    return replace(split, column=field.name)


def _without_split(carried: list[StructField], split: Split | None) -> list[StructField]:
    """The carried columns but for one named split, which the output's own column of that name shows."""
    return [field for field in carried if not (split and field.name.lower() == "split")]


def _layout(
    form: str, roles: dict[str, str | None], carried: list[StructField], max_document_bytes: int, **more: Any
) -> Layout:
    return Layout(
        format=form,
        text=roles["text"] or "text",
        id=roles["id"],
        label=roles["label"],
        carried=tuple(field.name for field in carried),
        max_document_bytes=max_document_bytes,
        **more,
    )


def _alike(reader: DataFrameReader, fs: FileSystem, names: list[str], form: str) -> list[Alike]:
    """Files by their columns; raises Mistake, with its name, for one whose footer can't be read."""
    try:
        return alike(reader, fs, names, form)
    except Unfooted as error:
        raise _unreadable(
            "--input", error.name, error.why if OTHERWISE_UNREADABLE.search(error.why) else "no footer"
        ) from None


def _check_roles(groups: list[Alike], roles: dict[str, str | None], keys: Collection[str]) -> None:
    """Raise Mistake for a file without the column of the text or the id: its documents would be empty."""
    for group in groups:
        for role in ("text", "id"):
            name = roles[role]
            if name and name.lower() not in keys and not group.find(name):
                more = f" and {len(group.files) - 1} more" if len(group.files) > 1 else ""
                raise Mistake(
                    f"--input {group.files[0]}{more} has no column {name!r} (--{role}), which other files have: leave "
                    "it out, or give it that column"
                )


def _files(path: str, glob: bool = False) -> tuple[FileSystem, list[str], list[tuple[str, int]], str]:
    """What a path names, the files there that Spark would read with their sizes, and a hash of that and of their times.

    Raises Mistake if there is nothing.
    """
    try:
        fs = FileSystem(path)
        fs.reach()
        local = plain_path(fs.root) != fs.root
        if glob and WILDCARD.search(fs.root):
            matches = fs.glob(fs.root)
            fs.root = _before_wildcards(fs.root)
        else:
            matches = [(fs.root, None, 0)] if fs.exists(fs.root) else []
        found = [file for match in matches for file in _below(fs, match, local)]
        folder = fs.is_dir(fs.root)
    except Mistake:
        raise
    except Exception as error:
        raise Mistake(f"--input {path} cannot be listed: {reason(error)}") from None
    encoding = fs.name_encoding()
    if local and encoding != "UTF-8" and not all(name.isascii() for name, *_ in found):
        raise Mistake(
            f"--input {path} holds names beyond ASCII, which Java cannot open with the encoding {encoding}: "
            "set LC_ALL=C.UTF-8 where the job is started"
        )
    if not matches:
        what = "matches nothing: mend the pattern" if glob else "does not exist: give a file or a folder"
        raise Mistake(f"--input {path} {what}")
    if not folder and _hidden(fs.root.rsplit("/", 1)[-1]):
        raise Mistake(f"--input {path} is hidden from Spark by its name (_ or . first, ._COPYING_ last): rename it")
    shown = sorted(file for file in found if not folder or not _hidden(file[0][len(fs.root) :]))
    files = [(name, size) for name, size, _ in shown]
    left_out = f"{len(found) - len(files)} hidden or unfinished files are left out (_ or . first, ._COPYING_ last)"
    if not any(size for _, size in files):
        raise Mistake(f"--input {path} holds no data: {len(files)} files, 0 bytes; {left_out}")
    if len(files) < len(found):
        log.warning("input: %s", left_out)
    places = [place for place, *_ in matches if not _hidden(place[len(fs.root) :])]
    return fs, places, files, hashlib.blake2b(repr(shown).encode(), digest_size=16).hexdigest()


def _before_wildcards(pattern: str) -> str:
    """The folder of a glob above its first part with a wildcard, which does not depend on what there is."""
    parts = pattern.split("/")
    folder = "/".join(parts[: next(i for i, part in enumerate(parts) if WILDCARD.search(part))])
    return folder if re.search(r":(//[^/]*)?/[^/]", folder) else f"{folder}/"  # the root itself


def _below(fs: FileSystem, match: tuple[str, int | None, int], local: bool) -> Iterable[tuple[str, int, int]]:
    """The files at or below a path with their sizes and times of modification."""
    place, size, modified = match
    if size is not None:
        return [(place, size, modified)]
    return _local_files(place) if local else fs.files(place)


def _with_colons(files: Iterable[tuple[str, int]]) -> bool:
    """Whether a name has a colon: Hadoop takes its local checksum, .a:b.crc, for a URI."""
    return any(":" in name.rsplit("/", 1)[-1] for name, _ in files)


def _local_files(root: str) -> Iterator[tuple[str, int, int]]:
    """The files at or below a local path, named as Hadoop does, with their sizes and times of modification (ns).

    Hadoop takes milliseconds a file, follows a link that leads back 40 times, and leaves out without a word what it
    can't open. Raises OSError for that, but not where it is hidden.
    """
    top = plain_path(root)
    if not os.path.isdir(top):
        yield root, *_size_and_time(top)
        return
    for folder, folders, names in os.walk(top, onerror=_raise, followlinks=True):
        base = root.rstrip("/") + folder[len(top.rstrip("/")) :].rstrip("/")
        shown = [name for name in folders + names if not _hidden(f"{base}/{name}"[len(root) :])]
        unnamed = sum(not name.isascii() and bool(NO_UTF8.search(name)) for name in shown)
        if unnamed:
            raise OSError(f"{folder} holds {unnamed} names that are not valid UTF-8: rename them")
        for name in [name for name in folders if _leads_back(os.path.join(folder, name), top)]:
            if name in shown:
                raise OSError(f"the link {os.path.join(folder, name)} leads back to a folder above it: take it away")
            folders.remove(name)
        for name in names:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                if not (name.startswith(".") and name.endswith(".crc")):  # Hadoop's own
                    yield f"{base}/{name}", *_size_and_time(path)
            elif name in shown:
                raise OSError(f"the link {path} leads nowhere: mend it, or take it away")


def _size_and_time(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _raise(error: OSError) -> None:
    raise OSError(f"{error.filename}: {error.strerror}")


def _leads_back(path: str, top: str) -> bool:
    """Whether a path is a link to a folder that it lies in, by the way from `top` on."""
    if not os.path.islink(path):
        return False
    target, folder = os.path.join(os.path.realpath(path), ""), path
    while folder != top:
        folder = os.path.dirname(folder)
        if os.path.join(os.path.realpath(folder), "").startswith(target):
            return True
    return False


def _check_files(fs: FileSystem, files: Iterable[tuple[str, int]], form: str, salvage: bool) -> None:
    """Raise Mistake for files that are too large, can't be opened, or show by their first bytes what they are not."""
    for number, (name, size) in enumerate(sorted(files, key=lambda file: -file[1])):
        packed = salvage and name.endswith(UNPACKED)
        if packed and size > WHOLE_FILE_LIMIT:
            raise Mistake(
                f"{name} has {size} bytes, above the limit of {WHOLE_FILE_LIMIT} for --salvage: decompress what is "
                "left of it, or leave out --salvage if it is whole"
            )
        if (form == "csv" or name.endswith(".zst")) and size > WHOLE_FILE_LIMIT:
            raise Mistake(
                f"{name} has {size} bytes, above the limit of {WHOLE_FILE_LIMIT} for a {form} file: split it, "
                "or convert it to jsonl or parquet"
            )
        codecs = {"text": CODECS, "jsonl": CODECS, "csv": (".gz", ".bz2", ".zst")}.get(form, ())
        if name.endswith(CODECS) and not name.endswith(codecs):
            what = f"other than as {', '.join(codecs)}" if codecs else f"which a {form} file may not be"
            raise Mistake(f"{name} is compressed, {what}: decompress it")
        if number < CHECKED_FILES and size and not packed:
            head = _head(fs, name, 16)
            if form in MAGIC:
                if not head.startswith(MAGIC[form]):
                    what = {"parquet": "a Parquet", "orc": "an ORC"}[form]
                    raise Mistake(f"{name} is not {what} file: take it away, or give another --format")
                continue
            for magic, what in NOT_UTF8:
                if magic.match(head):
                    raise Mistake(f"{name} {what}")


def _partitioned(files: Iterable[tuple[str, int]], root: str) -> tuple[str, ...]:
    """The keys of the key=value folders that the files lie in, in lower case.

    Raises Mistake where only some do: Spark would skip the others.
    """
    folders = [name[len(root) :].split("/")[:-1] for name, _ in files]
    keys = {tuple(part.split("=")[0] for part in parts if "=" in part) for parts in folders}
    if len(keys) > 1:
        found = ", ".join("/".join(f"{key}=…" for key in each) or "no such folder" for each in sorted(keys))
        raise Mistake(f"--input {root} mixes files in different key=value folders: {found}: read them one by one")
    return tuple(key.lower() for key in next(iter(keys)))


def _sample(fs: FileSystem, name: str, size: int, salvage: bool) -> bytes:
    """The first bytes of a file, `size` or more if the first line is longer; the last line may be cut off."""
    while len(head := _head(fs, name, size, salvage)) == size and b"\n" not in head and size < WHOLE_FILE_LIMIT:
        size *= 8
    return head


def _head(fs: FileSystem, name: str, size: int, salvage: bool = False) -> bytes:
    """The first bytes of a file's content, with `salvage` those that can be decoded; else raises Mistake."""
    try:
        if not (salvage and name.endswith(UNPACKED)):
            return fs.head(name, size)
        return decoded_start(name, fs.head(name, size, decompress=False), size)
    except Exception as error:
        if salvage and isinstance(error, Damaged):
            return b""
        raise _unreadable("--input", name, reason(error)) from None


@contextmanager
def reading(source: str, where: str | None = None, option: str = "--input") -> Iterator[None]:
    """Around what reads the input `source` of an option, of a table the rows `where` a condition holds.

    A file at which Spark or a worker fails is a Mistake that names it, and so is a condition that fails for a row.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        if told := re.search(r"udfs\.records\.Unreadable: (.*)", text):
            raise Mistake(f"{option} {told[1]}") from None
        if told := re.search(r"jobs\.workers\.SlowPattern: (.*)", text):
            raise Mistake(told[1]) from None
        if where and (told := WHERE_FAILURE.search(text)):
            raise Mistake(f"--where {where} fails for a row: {told[1] or told[2] or told[3]}") from None
        found = READ_FAILURE.search(text)
        if not found and (told := UNNAMED_FAILURE.search(text)):
            raise Mistake(
                f"{option} {source}: a compressed file is truncated or damaged ({told[1]}): find it with gzip -t or "
                "bzip2 -t and fetch it again, or keep what is before the damage with --salvage"
            ) from None
        if not found:
            raise
        path, url, hint = found.groups()[:3] if any(found.groups()[:3]) else found.groups()[3:]
        causes = [reason(Exception(cause)) for cause in re.findall(r"^Caused by: (.*)", text, re.MULTILINE)]
        plain = [cause for cause in causes if not re.search(r"\w\.\w+\.\w", cause)]  # without Java's names
        why = hint or ("no footer" if path else (plain or ["unreadable content"])[-1])
        raise _unreadable(option, path or unquote(url), why) from None


def _unreadable(option: str, name: str, why: str) -> Mistake:
    """What to say of a file that can't be opened, or not be read to its end."""
    name = plain_path(name)
    if OTHERWISE_UNREADABLE.search(why):
        return Mistake(f"{option} {name} cannot be read: {why}")
    remedy = "keep what is before the damage with --salvage" if name.endswith(UNPACKED) else "leave it out"
    return Mistake(f"{option} {name} is truncated or damaged ({why}): fetch it again, or {remedy}")


def _table_rows(table: DataFrame, layout: Layout) -> DataFrame:
    """The columns that are read, numbered: mapInArrow fails on a name with a dot or a back-quote, an empty one, NUL."""
    text, *others = (F.col(quoted(name)) for name in layout.columns)
    columns = [column.alias(str(i)) for i, column in enumerate([_cut(text, "string", layout), *others])]
    columns += [F.col(name).alias(name[2:]) for name in PLACE if name in table.columns]
    return table.select(*columns, F.octet_length(text).cast("bigint").alias("size"))


def _cut(values: Column, kind: str, layout: Layout) -> Column:
    """Of what is too long to be a document the first bytes: neither Arrow nor the worker need hold more."""
    head = F.substring(values.cast("binary"), 1, KEPT_BYTES).cast(kind)
    return F.when(F.octet_length(values) > layout.longest, head).otherwise(values.cast(kind))


def _raw(spark: SparkSession, reader: DataFrameReader, found: Input, places: list[str], layout: Layout) -> DataFrame:
    """Lines that Spark reads (bytes, source, start, size), and files that are read whole.

    Of those Spark brings the bytes and the source, and no start; or the source alone, and the worker opens them.
    """
    fs, files, lines = found.fs, found.files, found.form in ("text", "jsonl")
    assert fs
    many = plain_path(fs.root) != fs.root and len(files) > MANY_FILES
    limit = min(SMALL_FILE, _sql_conf(spark).filesMaxPartitionBytes()) if many else -1
    whole = [file for file in files if not lines or file[0].endswith(found.decoded) or file[1] <= limit]
    start = [F.lit(None).cast("bigint").alias("start")] * lines
    parts = []
    if len(whole) < len(files):
        names = [name for name, size in files if not name.endswith(found.decoded) and size > limit] if whole else []
        text = reader.option("lineSep", "\n").text([literal(name) for name in names] or places)
        columns = [_cut(F.col("value"), "binary", layout).alias("bytes")]
        columns += [F.col("_metadata.file_path").alias("source"), F.col("_metadata.file_block_start").alias("start")]
        parts.append(text.select(*columns, F.octet_length("value").cast("bigint").alias("size")))
    if whole and many:
        parts.append(_named(spark, whole).select("bytes", "source", *start, "size"))
    elif whole:
        names = [name for name, _ in whole] if len(whole) < len(files) else []
        content = reader.format("binaryFile").load([literal(name) for name in names] or places)
        others = []
        if found.form == "files":  # Spark does not read empty ones, and large ones need not be read
            content = content.where(F.col("length") <= layout.longest)
            others = [(name, size) for name, size in files if not size or size > layout.longest]
        columns = [F.col("content").alias("bytes"), F.col("path").alias("source")]
        parts.append(content.select(*columns, *start, F.col("length").alias("size")))
        if others:
            rows = [(fs.head(name, KEPT_BYTES, decompress=False), name, size) for name, size in others]
            parts.append(spark.createDataFrame(rows, "bytes binary, source string, size bigint"))
    return reduce(DataFrame.union, parts)


def _named(spark: SparkSession, files: list[tuple[str, int]]) -> DataFrame:
    """Local files without their bytes, in partitions of about the same work, as Spark would pack them."""
    conf = _sql_conf(spark)
    cost = conf.filesOpenCostInBytes() if conf.contains(OPEN_COST_CONF) else OPEN_COST
    names, sizes = zip(*sorted(files), strict=True)
    work = np.cumsum(np.array(sizes, np.int64) + cost)
    most = min(conf.filesMaxPartitionBytes(), max(cost, work[-1] // spark.sparkContext.defaultParallelism))
    cuts = np.flatnonzero(np.diff((work - 1) // most)) + 1
    chunks = [([str(name) for name in chunk],) for chunk in np.split(np.array(names, object), cuts)]
    rows = spark.sparkContext.parallelize(chunks, len(chunks))
    named = spark.createDataFrame(rows, "source array<string>", verifySchema=False)
    none = [F.lit(None).cast(kind).alias(name) for name, kind in (("bytes", "binary"), ("size", "bigint"))]
    return named.select(F.explode("source").alias("source"), *none)


def _sql_conf(spark: SparkSession) -> Any:
    session: Any = spark
    return session._jsparkSession.sessionState().conf()


@contextmanager
def packed(spark: SparkSession, corpus: Corpus) -> Iterator[None]:
    """Have Spark put many small files into a partition: it takes opening one for 4 MB, unless that is configured."""
    if not corpus.files or _sql_conf(spark).contains(OPEN_COST_CONF):
        yield
        return
    spark.conf.set(OPEN_COST_CONF, min(4 << 20, max(OPEN_COST, corpus.size // corpus.files)))
    try:
        yield
    finally:
        spark.conf.unset(OPEN_COST_CONF)


def _hidden(path: str) -> bool:
    """Whether Spark leaves out a file at this path below the input."""
    parts = path.strip("/").split("/")
    return any(re.match(r"\.|_(?!.*=)", part) or part.endswith("._COPYING_") for part in parts)


def _format(names: list[str], path: str) -> str:
    """The format that all files' extensions name; raises Mistake if they name none or several."""
    forms: dict[str, str] = {}
    for name in names:
        base = name.rsplit("/", 1)[-1]
        for codec in CODECS:
            base = base.removesuffix(codec)
        forms[EXTENSIONS.get(f".{base.rpartition('.')[2].lower()}" if "." in base else "", "?")] = name
    if len(forms) == 1 and "?" not in forms:
        return next(iter(forms))
    if "?" in forms:
        what = f"does not show its format by the name {forms['?'].rsplit('/', 1)[-1]}"
    else:
        what = "mixes " + ", ".join(sorted(forms))
    raise Mistake(
        f"--input {path} {what}: give --format parquet, orc, jsonl, csv, text (a document a line) or "
        "files (a document a file)"
    )


def _columns(
    fields: list[StructField],
    text: str | None,
    id: str | None,
    label: str | None,
    path: str,
    split: Split | None = None,
) -> tuple[dict[str, str | None], DataType, str | None, list[StructField]]:
    """Which column is what; raises Mistake for a missing, mistyped or clashing one."""
    names = [field.name for field in fields]
    folded = [name.lower() for name in names]
    for name in names:
        if folded.count(name.lower()) > 1:
            same = ", ".join(other for other in names if other.lower() == name.lower())
            raise Mistake(f"--input {path} has columns {same}, which differ only in case: rename one")
    of: dict[str, StructField | None] = {}
    asked_for = {"text": text or "text", "id": id, "label": label}
    taken = [name.lower() for name in asked_for.values() if name]
    for name in taken:
        if taken.count(name) > 1:
            raise Mistake(f"column {name} is asked for twice: --text, --id and --label must differ")
    for role, asked in asked_for.items():
        if not asked and role != "text" and role in taken:
            of[role] = None
            continue
        wanted = asked or role
        match = next((field for field in fields if field.name.lower() == wanted.lower()), None)
        if match is None and (asked or role == "text"):
            found = ", ".join(names)[:300] or "none"
            raise Mistake(f"--input {path} has no column {wanted!r} (--{role}): it has {found}")
        of[role] = match
    text_field, id_field, label_field = of["text"], of["id"], of["label"]
    assert text_field is not None
    if not isinstance(text_field.dataType, StringType):
        raise Mistake(f"column {text_field.name} (--text) is {text_field.dataType.simpleString()}: it must be string")
    id_type: DataType = id_field.dataType if id_field else StringType()
    if not isinstance(id_type, (StringType, IntegralType)):
        raise Mistake(f"column {id_field.name} (--id) is {id_type.simpleString()}: it must be string or integer")  # type: ignore[union-attr]
    label_name = None
    if label_field:
        kind = label_field.dataType
        many = isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
        if not many and not isinstance(kind, (StringType, IntegralType, BooleanType)):
            raise Mistake(
                f"column {label_field.name} (--label) is {kind.simpleString()}: it must be string, integer, boolean "
                "or array<string>"
            )
        label_name = "labels" if many else "label"
    carried = [field for field in fields if field not in (text_field, id_field, label_field)]
    own = {"id", "text", "indices", "values", "label", "labels", "content", "group", "split"}
    if split and split.by == "column" and (split.column or "").lower() == "split":
        own.remove("split")  # the output's own says the same
    for field in carried:
        if field.name.lower() == "text":
            raise Mistake(
                f"column {field.name} of --input {path} can't be carried along beside --text {text_field.name}, which "
                "the job calls text: rename it in the input, or drop it there"
            )
        if field.name.lower() in own or field.name.startswith("__"):
            raise Mistake(
                f"column {field.name} of --input {path} would clash with the output's own: rename it in the input"
            )
        if any(isinstance(k, UserDefinedType) or NOT_CARRIED.search(k.typeName()) for k in _types_in(field.dataType)):
            raise Mistake(
                f"column {field.name} of --input {path} is {field.dataType.simpleString()}, which cannot be "
                "carried along: cast it in the input"
            )
    roles = {role: field.name if field else None for role, field in of.items()}
    return roles, LongType() if isinstance(id_type, IntegralType) else StringType(), label_name, carried


def _types_in(kind: DataType) -> Iterator[DataType]:
    """A type and all that it is made of."""
    yield kind
    parts: list[DataType] = []
    if isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        parts = [field.dataType for field in kind.fields]
    for part in parts:
        yield from _types_in(part)
