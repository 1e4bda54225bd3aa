"""Any input as raw records for udfs/records.py: list, check and lay out before a byte of text is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
    _parse_datatype_string,
)

from jobs.outputs import FileSystem, literal
from jobs.session import Mistake, log, reason
from udfs.records import (
    BOM,
    KEPT_BYTES,
    UNPACKED,
    WHOLE_FILE_LIMIT,
    Damaged,
    Layout,
    csv_columns,
    decompressed,
    field_types,
    plain_path,
)

EXTENSIONS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".txt": "text",
    ".text": "text",
}
FORMATS = ("auto", "parquet", "jsonl", "csv", "text", "files")
CODECS = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
SAMPLE_BYTES = 1 << 20  # of the largest file
SMALL_SAMPLE = 1 << 16  # of each of the next largest jsonl files
SAMPLED_FILES = 20
RAW_LOCAL = "org.apache.hadoop.fs.RawLocalFileSystem"
CHECKED_FILES = 1000  # as many, the largest ones, are opened before the job starts
NOT_UTF8 = (
    (re.compile(rb"\x1f\x8b"), "is compressed by gzip: name it .gz"),
    (re.compile(rb"BZh[1-9]1AY&SY"), "is compressed by bzip2: name it .bz2"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "is compressed by zstd: name it .zst"),
    (re.compile(rb"PK\x03\x04"), "is a zip: unpack it"),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "is UTF-16: convert it to UTF-8"),
)
NO_UTF8 = re.compile("[\ud800-\udfff]")  # as Python decodes names of files
NOT_CARRIED = re.compile("interval|variant|void|geo")
READ_FAILURE = re.compile(  # of a plain path, or of a URL and maybe with a hint
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file "
    r"(?:(.+)\. Could not read footer|(\S+)\. +(.*?) *SQLSTATE)"
)
OTHERWISE_UNREADABLE = re.compile(r"denied|library|not exist|mismatch|No such|URI")  # than by its content


@dataclass(frozen=True)
class Input:
    """The files of an input path as it was given, with their sizes, and their format.

    salvage: whether .gz, .bz2 and .zst are read by the workers, as far as they can be decoded, and not by Spark.
    """

    path: str
    fs: FileSystem
    files: list[tuple[str, int]]
    form: str
    salvage: bool = False

    @property
    def packed(self) -> list[str]:
        """The files that workers decompress."""
        return [name for name, _ in self.files if self.salvage and name.endswith(UNPACKED)]


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


def find_input(path: str, form: str = "auto", salvage: bool = False) -> Input:
    """Find the files of a literal path, and their format; needs no session.

    Raises Mistake for a path that does not exist, holds no data, can't be read, or is not of the format.
    """
    fs, files = _files(path)
    form = _format([name for name, _ in files], path) if form == "auto" else form
    if _with_colons(files):
        fs.read_unchecked()
    _check_files(fs, files, form, salvage)
    return Input(path, fs, files, form, salvage)


def open_corpus(
    spark: SparkSession,
    found: Input,
    text: str | None = None,
    id: str | None = None,
    label: str | None = None,
    max_document_bytes: int = 16 << 20,
) -> Corpus:
    """Find the columns of an input, and how to read its records.

    text, id and label name columns; None means the one of that name if there is one (text must exist).
    Raises Mistake for files that can't be read, for missing or clashing columns.
    """
    path, fs, files, form = found.path, found.fs, found.files, found.form
    size = sum(size for _, size in files)
    names = [name for name, _ in sorted(files, key=lambda file: (-file[1], file[0]))]
    reader = spark.read
    if _with_colons(files):
        reader = reader.option("fs.file.impl", RAW_LOCAL).option("fs.file.impl.disable.cache", True)  # for executors
    reader = reader.option("recursiveFileLookup", form != "parquet" or not _partitioned(files, fs.root))
    where = literal(fs.root)
    types: dict[str, str] = {}
    try:
        if form == "parquet":
            with reading():
                fields = list(reader.parquet(where).schema.fields)
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
    roles, id_type, label_name, carried = _columns(fields, text, id, label, path)
    layout = Layout(
        format="table" if form == "parquet" else form,
        text=roles["text"] or "text",
        id=roles["id"],
        label=roles["label"],
        carried=tuple(field.name for field in carried),
        types=types,
        root=fs.root if fs.is_dir(fs.root) else fs.root.rsplit("/", 1)[0],
        max_document_bytes=max_document_bytes,
        salvage=found.salvage,
    )
    raw = _raw(reader, where, form, layout, found)
    # Spark does not read empty files, and large ones need not be read
    others = [(name, size) for name, size in files if not size or size > layout.longest]
    if form == "files" and others:
        rows = [(fs.head(name, KEPT_BYTES, decompress=False), name, size) for name, size in others]
        raw = raw.union(spark.createDataFrame(rows, "bytes binary, source string, size bigint"))
    return Corpus(raw, layout, id_type, label_name, carried, path, len(files), size)


def _files(path: str) -> tuple[FileSystem, list[tuple[str, int]]]:
    """The files at or below a path that Spark would read, with their sizes; raises Mistake if there is nothing."""
    try:
        fs = FileSystem(path)
        exists = fs.exists(fs.root)
        local = plain_path(fs.root) != fs.root
        found = list(_local_files(fs.root) if local else fs.files(fs.root)) if exists else []
        folder = fs.is_dir(fs.root)
    except Exception as error:
        raise Mistake(f"--input {path} cannot be listed: {reason(error)}") from None
    encoding = fs.name_encoding()
    if local and encoding != "UTF-8" and not all(name.isascii() for name, _ in found):
        raise Mistake(
            f"--input {path} holds names beyond ASCII, which Java cannot open with the encoding {encoding}: "
            "set LC_ALL=C.UTF-8 where the job is started"
        )
    if not exists:
        raise Mistake(f"--input {path} does not exist: give a file or a folder")
    if not folder and _hidden(fs.root.rsplit("/", 1)[-1]):
        raise Mistake(f"--input {path} is hidden from Spark by its name (_ or . first, ._COPYING_ last): rename it")
    files = [(name, size) for name, size in found if not folder or not _hidden(name[len(fs.root) :])]
    left_out = f"{len(found) - len(files)} hidden or unfinished files are left out (_ or . first, ._COPYING_ last)"
    if not any(size for _, size in files):
        raise Mistake(f"--input {path} holds no data: {len(files)} files, 0 bytes; {left_out}")
    if len(files) < len(found):
        log.warning("input: %s", left_out)
    return fs, files


def _with_colons(files: list[tuple[str, int]]) -> bool:
    """Whether a name has a colon: Hadoop takes its local checksum, .a:b.crc, for a URI."""
    return any(":" in name.rsplit("/", 1)[-1] for name, _ in files)


def _local_files(root: str) -> Iterator[tuple[str, int]]:
    """The files at or below a local path, named as Hadoop does, with their sizes.

    Hadoop takes milliseconds a file, follows a link that leads back 40 times, and leaves out without a word what it
    can't open. Raises OSError for that, but not where it is hidden.
    """
    top = plain_path(root)
    if not os.path.isdir(top):
        yield root, os.path.getsize(top)
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
                    yield f"{base}/{name}", os.path.getsize(path)
            elif name in shown:
                raise OSError(f"the link {path} leads nowhere: mend it, or take it away")


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


def _check_files(fs: FileSystem, files: list[tuple[str, int]], form: str, salvage: bool) -> None:
    """Raise Mistake for files that are too large, can't be opened, or show by their first bytes what they are not."""
    for number, (name, size) in enumerate(sorted(files, key=lambda file: -file[1])):
        packed = salvage and name.endswith(UNPACKED)
        if packed and size > WHOLE_FILE_LIMIT:
            raise Mistake(
                f"{name} has {size} bytes, above the limit of {WHOLE_FILE_LIMIT} for --salvage: decompress what is "
                "left of it, or leave out --salvage if it is whole"
            )
        if form == "csv" and size > WHOLE_FILE_LIMIT:
            raise Mistake(
                f"{name} has {size} bytes, above the limit of {WHOLE_FILE_LIMIT} for a {form} file: split it, "
                "or convert it to jsonl or parquet"
            )
        codecs = {"text": CODECS, "jsonl": CODECS, "csv": (".gz", ".bz2")}.get(form, ())
        if name.endswith(CODECS) and not name.endswith(codecs):
            what = f"other than as {' or '.join(codecs)}" if codecs else f"which a {form} file may not be"
            raise Mistake(f"{name} is compressed, {what}: decompress it")
        if number < CHECKED_FILES and size and not packed:
            head = _head(fs, name, 16)
            if form == "parquet":
                if head[:4] not in (b"PAR1", b"PARE"):
                    raise Mistake(f"{name} is not a Parquet file: take it away, or give another --format")
                continue
            for magic, what in NOT_UTF8:
                if magic.match(head):
                    raise Mistake(f"{name} {what}")


def _partitioned(files: list[tuple[str, int]], root: str) -> bool:
    """Whether the files lie in key=value folders; raises Mistake where only some do: Spark would skip the others."""
    folders = [name[len(root) :].split("/")[:-1] for name, _ in files]
    keys = {tuple(part.split("=")[0] for part in parts if "=" in part) for parts in folders}
    if len(keys) > 1:
        found = ", ".join("/".join(f"{key}=…" for key in each) or "no such folder" for each in sorted(keys))
        raise Mistake(f"--input {root} mixes files in different key=value folders: {found}: read them one by one")
    return keys != {()}


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
        head = b""
        with suppress(Damaged):
            for piece in decompressed(name, fs.head(name, size, decompress=False)):
                head += piece
        return head[:size]
    except Exception as error:
        raise _unreadable(name, reason(error)) from None


@contextmanager
def reading() -> Iterator[None]:
    """Around what reads the input: a file at which Spark or a worker fails is a Mistake that names it."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if told := re.search(r"udfs\.records\.Unreadable: (.*)", text):
            raise Mistake(f"--input {told[1]}") from None
        if told := re.search(r"jobs\.workers\.SlowPattern: (.*)", text):
            raise Mistake(told[1]) from None
        found = READ_FAILURE.search(text)
        if not found:
            raise
        path, url, hint = found.groups()
        causes = [reason(Exception(cause)) for cause in re.findall(r"^Caused by: (.*)", text, re.MULTILINE)]
        plain = [cause for cause in causes if not re.search(r"\w\.\w+\.\w", cause)]  # without Java's names
        why = hint or ("no footer" if path else (plain or ["unreadable content"])[-1])
        raise _unreadable(path or unquote(url), why) from None


def _unreadable(name: str, why: str) -> Mistake:
    """What to say of a file that can't be opened, or not be read to its end."""
    name = plain_path(name)
    if OTHERWISE_UNREADABLE.search(why):
        return Mistake(f"--input {name} cannot be read: {why}")
    remedy = "keep what is before the damage with --salvage" if name.endswith(UNPACKED) else "leave it out"
    return Mistake(f"--input {name} is truncated or damaged ({why}): fetch it again, or {remedy}")


def _raw(reader: DataFrameReader, where: str, form: str, layout: Layout, found: Input) -> DataFrame:
    if form == "parquet":
        table = reader.parquet(where)
        metadata = table.metadataColumn("_metadata")  # also where the table has a column of that name
        text, *others = (F.col(f"`{name.replace('`', '``')}`") for name in layout.columns)
        # numbers: mapInArrow fails on a name with a dot or a back-quote, an empty one and NUL
        columns = [column.alias(str(i)) for i, column in enumerate([_cut(text, "string", layout), *others])]
        columns += [metadata["file_path"].alias("file"), metadata["row_index"].alias("position")]
        return table.select(*columns, F.octet_length(text).cast("long").alias("size"))
    if form in ("csv", "files"):
        files = reader.format("binaryFile").load(where)
        if form == "files":
            files = files.where(F.col("length") <= layout.longest)
        size = [F.col("length").alias("size")] * (form == "files")
        return files.select(F.col("content").alias("bytes"), F.col("path").alias("source"), *size)
    if not found.packed:
        return _lines(reader, where, layout)
    files = reader.format("binaryFile").load([literal(name) for name in found.packed])
    none = [F.lit(None).cast(kind) for kind in ("long", "long", "string")]
    packed = files.select(F.col("content").alias("bytes"), F.col("path").alias("source"), *none)
    plain = [literal(name) for name, _ in found.files if not name.endswith(UNPACKED)]
    names = ("bytes", "source", "start", "size", "damage")
    return (_lines(reader, plain, layout).select("*", none[-1]).union(packed) if plain else packed).toDF(*names)


def _lines(reader: DataFrameReader, where: str | list[str], layout: Layout) -> DataFrame:
    lines = reader.option("lineSep", "\n").text(where)
    return lines.select(
        _cut(F.col("value"), "binary", layout).alias("bytes"),
        F.col("_metadata.file_path").alias("source"),
        F.col("_metadata.file_block_start").alias("start"),
        F.octet_length("value").cast("long").alias("size"),
    )


def _cut(values: Column, kind: str, layout: Layout) -> Column:
    """Of what is too long to be a document the first bytes: neither Arrow nor the worker need hold more."""
    head = F.substring(values.cast("binary"), 1, KEPT_BYTES).cast(kind)
    return F.when(F.octet_length(values) > layout.longest, head).otherwise(values.cast(kind))


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
        f"--input {path} {what}: give --format parquet, jsonl, csv, text (a document a line) or "
        "files (a document a file)"
    )


def _columns(
    fields: list[StructField], text: str | None, id: str | None, label: str | None, path: str
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
    own = {"id", "text", "indices", "values", "label", "labels"}
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
