"""Any input as raw records for udfs/records.py: list, check and lay out before a byte of text is read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    _parse_datatype_string,
)

from jobs.outputs import FileSystem
from jobs.session import Mistake, log
from udfs.records import Layout, csv_columns, field_types

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
WHOLE_FILE_LIMIT = 1 << 30  # bytes of a csv or files input, which is read whole
SAMPLE_BYTES = 1 << 20
NOT_CARRIED = re.compile(r"interval|variant|void|udt|geo")


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


def open_corpus(
    spark: SparkSession,
    path: str,
    form: str = "auto",
    text: str | None = None,
    id: str | None = None,
    label: str | None = None,
    max_document_bytes: int = 16 << 20,
) -> Corpus:
    """Find the files of a literal path, their format and columns.

    text, id and label name columns; None means the one of that name if there is one (text must exist).
    Raises Mistake for a path that does not exist, holds no data or can't be read, for missing or clashing columns.
    """
    try:
        fs = FileSystem(spark, path)
        if not fs.exists(fs.root):
            raise Mistake(f"--input {path} does not exist: give a file or a folder")
        found = list(fs.files(fs.root))
    except Mistake:
        raise
    except Exception as error:
        raise Mistake(f"--input {path} cannot be listed: {str(error).splitlines()[0]}") from None
    files = [(name, size) for name, size in found if not _hidden(name[len(fs.root) :])]
    if re.match(r"[._]", fs.root.rsplit("/", 1)[-1]):
        raise Mistake(
            f"--input {path} is hidden from Spark by its leading {fs.root.rsplit('/', 1)[-1][0]!r}: rename it"
        )
    if len(files) < len(found):
        log.warning(
            "input: %d hidden or unfinished files are left out (names with _ or . first, ._COPYING_ last)",
            len(found) - len(files),
        )
    size = sum(size for _, size in files)
    if not size:
        raise Mistake(f"--input {path} holds no data: {len(files)} files, 0 bytes")
    form = _format([name for name, _ in files], path) if form == "auto" else form
    if form in ("csv", "files"):
        for name, bytes_ in files:
            if bytes_ > WHOLE_FILE_LIMIT:
                raise Mistake(
                    f"{name} has {bytes_} bytes, above the limit of {WHOLE_FILE_LIMIT} for a {form} file: split it, "
                    "or convert it to jsonl or parquet"
                )
    biggest = max(files, key=lambda file: (file[1], file[0]))[0]
    reader = spark.read.option("recursiveFileLookup", form != "parquet")
    literal = re.sub(r"([\\[\]{}*?])", r"\\\1", fs.root)
    try:
        if form == "parquet":
            fields = list(reader.parquet(literal).schema.fields)
            types = {}
        elif form == "jsonl":
            sample = fs.head(biggest, SAMPLE_BYTES).split(b"\n")
            types = field_types(sample[:-1] or sample)
            fields = [StructField(name, _parse_datatype_string(kind)) for name, kind in types.items()]
        elif form == "csv":
            types = {}
            fields = [StructField(name, StringType()) for name in csv_columns(fs.head(biggest, SAMPLE_BYTES))]
        else:
            types = {}
            fields = [StructField("text", StringType())]
    except Mistake:
        raise
    except Exception as error:
        raise Mistake(f"--input {path} cannot be read as {form}: {_first_line(error)}") from None
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
    )
    return Corpus(_raw(reader, literal, form, layout), layout, id_type, label_name, carried, fs.root, len(files), size)


def _raw(reader, literal: str, form: str, layout: Layout) -> DataFrame:  # type: ignore[no-untyped-def]
    source = F.col("_metadata.file_path")
    if form == "parquet":
        names = [name for name in (layout.text, layout.id, layout.label, *layout.carried) if name]
        columns = [F.col(f"`{name}`") for name in names]
        return reader.parquet(literal).select(
            *columns, source.alias("__source"), F.col("_metadata.row_index").alias("__position")
        )
    if form in ("csv", "files"):
        files = reader.format("binaryFile").load(literal)
        return files.select(F.col("content").alias("bytes"), F.col("path").alias("source"))
    lines = reader.option("lineSep", "\n").text(literal)
    start = F.col("_metadata.file_block_start").alias("start")
    return lines.select(F.col("value").cast("binary").alias("bytes"), source.alias("source"), start)


def _hidden(path: str) -> bool:
    """Whether Spark leaves out a file at this path below the input."""
    parts = path.strip("/").split("/")
    return any(re.match(r"[._]", part) and "=" not in part for part in parts) or parts[-1].endswith("._COPYING_")


def _format(names: list[str], path: str) -> str:
    """The format that all files' extensions name; raises Mistake if they name none or several."""
    forms = set()
    for name in names:
        base = name.rsplit("/", 1)[-1]
        for codec in CODECS:
            base = base.removesuffix(codec)
        forms.add(EXTENSIONS.get("." + base.rsplit(".", 1)[-1] if "." in base else "", "?"))
    if len(forms) == 1 and "?" not in forms:
        return forms.pop()
    what = (
        "mixes " + ", ".join(sorted(forms - {"?"}))
        if len(forms - {"?"}) > 1
        else "does not show its format by its names"
    )
    raise Mistake(f"--input {path} {what}: give --format {'|'.join(FORMATS[1:])}")


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
    for role, asked in (("text", text), ("id", id), ("label", label)):
        wanted = asked or role
        match = next((field for field in fields if field.name.lower() == wanted.lower()), None)
        if match is None and (asked or role == "text"):
            raise Mistake(f"--input {path} has no column {wanted!r} (--{role}): it has {', '.join(names) or 'none'}")
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
    taken = {"id", "text", "indices", "values", "label", "labels"}
    for field in carried:
        if field.name.lower() in taken or field.name.startswith("__"):
            raise Mistake(
                f"column {field.name} of --input {path} would clash with the output's own: rename it in the input"
            )
        if NOT_CARRIED.search(field.dataType.simpleString()):
            raise Mistake(
                f"column {field.name} of --input {path} is {field.dataType.simpleString()}, which cannot be "
                "carried along: cast it in the input"
            )
    roles = {role: field.name if field else None for role, field in of.items()}
    return roles, LongType() if isinstance(id_type, IntegralType) else StringType(), label_name, carried


def _first_line(error: Exception) -> str:
    text = str(error.getMessage() if isinstance(error, PySparkException) else error)
    return text.strip().splitlines()[0][:300] if text.strip() else type(error).__name__
