"""Where a job's results go: staged beside the target, swapped in by renames; a failed job leaves the old untouched."""

from __future__ import annotations

import json
import os
import posixpath
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from jobs.session import Mistake, hadoop, reason
from jobs.workers import MAGIC
from udfs.records import plain_path


class FileSystem:
    """Hadoop's file system behind a path: HDFS, a local folder or whatever Spark is configured for."""

    def __init__(self, path: str) -> None:
        self._jvm, configuration = hadoop()
        if re.match(r"[^/:]+:[^/]", path):
            raise Mistake(f"{path} has a colon, so that it is taken for a URI: give the whole path, from / on")
        raw = self.path(path)
        self._fs: Any = raw.getFileSystem(configuration)
        self.root = self._fs.makeQualified(raw).toString()

    def path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self.path(path)))

    def is_dir(self, path: str) -> bool:
        return self.exists(path) and bool(self._fs.getFileStatus(self.path(path)).isDirectory())

    def delete(self, path: str) -> None:
        self._fs.delete(self.path(path), True)

    def missing(self, path: str) -> list[str]:
        """The folders above a path that do not exist, the deepest first."""
        found, folder = [], self.path(path).getParent()
        while folder is not None and not self._fs.exists(folder):
            found.append(folder.toString())
            folder = folder.getParent()
        return found

    def delete_empty(self, folder: str) -> None:
        if self.exists(folder) and not self.names(folder):
            self._fs.delete(self.path(folder), False)

    def mkdirs(self, path: str) -> None:
        if not self._fs.mkdirs(self.path(path)):
            raise OSError(f"cannot create the folder {path}")

    def rename(self, source: str, target: str) -> None:
        """Rename to a name that must be free (Hadoop would move a folder into an existing one)."""
        if self.exists(target) or not self._fs.rename(self.path(source), self.path(target)):
            raise OSError(f"cannot rename {source} to {target}")

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none if it does not exist."""
        if not self.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(self.path(folder)))

    def files(self, path: str) -> Iterator[tuple[str, int]]:
        """All files below a path with their sizes in bytes."""
        found = self._fs.listFiles(self.path(path), True)
        while found.hasNext():
            status = found.next()
            yield status.getPath().toString(), status.getLen()

    def name_encoding(self) -> str:
        """The encoding in which Java opens local names."""
        return str(self._jvm.java.lang.System.getProperty("sun.jnu.encoding"))

    def read_unchecked(self) -> None:
        """Let this JVM read local files without the checksums that may lie beside them."""
        self._fs.setVerifyChecksum(False)

    def upload(self, local: Path, target: str) -> None:
        self._fs.copyFromLocalFile(False, True, self.path(local.as_uri()), self.path(target))

    def download(self, source: str, local: Path) -> None:
        self._fs.copyToLocalFile(False, self.path(source), self.path(local.as_uri()), True)

    def write_json(self, path: str, value: object) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "value.json"
            file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
            self.upload(file, path)

    def write_parquet(self, path: str, table: pa.Table) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            pq.write_table(table, Path(scratch) / "table.parquet")
            self.upload(Path(scratch) / "table.parquet", path)

    def head(self, path: str, size: int, decompress: bool = True) -> bytes:
        """The first bytes of a file, decompressed by its name's codec as Spark would."""
        configuration = self._fs.getConf()
        factory = self._jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(configuration)
        codec = factory.getCodec(self.path(path)) if decompress else None
        stream = self._fs.open(self.path(path))
        if codec is not None:
            stream = codec.createInputStream(stream)
        try:
            return bytes(
                self._jvm.org.apache.commons.io.IOUtils.toByteArray(
                    self._jvm.org.apache.commons.io.input.BoundedInputStream(stream, size)
                )
            )
        finally:
            stream.close()


def file_system(path: str, option: str) -> FileSystem:
    """The file system behind an option's path; raises Mistake if there is none or it can't be reached."""
    try:
        fs = FileSystem(path)
        fs.exists(fs.root)
    except Mistake:
        raise
    except Exception as error:  # no such scheme, no such name node: Java's words for it
        raise Mistake(f"{option} {path}: {reason(error)}") from None
    return fs


class Target:
    """One output folder: what lies there, a stage beside it, and the swap."""

    def __init__(self, path: str, option: str, overwrite: bool) -> None:
        """Raises Mistake if the folder exists and may not be replaced, is a file, or its parent can't be written."""
        self.option = option
        self.fs = file_system(path, option)
        self.path = self.fs.root.rstrip("/")
        self.parent, self.name = posixpath.split(self.path)
        if not self.name or not self.parent:
            raise Mistake(f"{option} {path} is no folder of its own: give a path below it")
        if self.fs.exists(self.path):
            if not self.fs.is_dir(self.path):
                raise Mistake(f"{option} {path} is a file: give a folder")
            if not overwrite:
                raise Mistake(f"{option} {path} exists: give --overwrite to replace it, or another path")
        self.stage = f"{self.parent}/.{self.name}.stage-{uuid.uuid4().hex[:12]}"

    @contextmanager
    def staged(self) -> Iterator[str]:
        """The stage folder, removed at the end whatever happens, with the folders made for it that are empty then."""
        made: list[str] = []
        try:
            made = self.fs.missing(self.stage)
            self.fs.mkdirs(self.stage)
        except Exception as error:
            with suppress(Exception):
                self._remove(made)
            raise Mistake(f"{self.option}: cannot write beside {self.path} ({reason(error)})") from None
        try:
            yield self.stage
        finally:
            self._remove(made)

    def _remove(self, made: list[str]) -> None:
        self.fs.delete(self.stage)
        for folder in made:
            self.fs.delete_empty(folder)

    def swap(self, folder: str) -> None:
        """Put `folder`, in the stage, in the target's place: two renames, then the old one is deleted."""
        old = f"{self.parent}/.{self.name}.old-{self.stage.rsplit('-', 1)[1]}"
        replaces = self.fs.exists(self.path)
        if replaces:
            self.fs.rename(self.path, old)
        try:
            self.fs.rename(folder, self.path)
        except BaseException:
            if replaces:
                self.fs.rename(old, self.path)
            raise
        if replaces:
            self.fs.delete(old)


def write_cells(cells: DataFrame, folder: str) -> None:
    """Write the cells of workers.py as Parquet files: `folder`/kind=KIND/part-….

    Spark's text writer copies each cell's bytes and ends it by its line separator, which is Parquet's magic here; its
    commit makes a task's files appear together or not at all.
    """
    writer = cells.write.partitionBy("kind").option("lineSep", MAGIC.decode()).option("compression", "none")
    writer.option("maxRecordsPerFile", 0).text(folder)  # a limit set for the session would cut files in pieces


def literal(path: str) -> str:
    """A path for Spark's readers, which take it for a glob, with what would be a wildcard escaped."""
    return re.sub(r"([\\[\]{}*?])", r"\\\1", path)


def read_parquet(spark: SparkSession, folder: str, columns: str | None = None) -> DataFrame:
    """The Parquet files in a folder, whatever its name; `columns` (DDL) spares a job that looks for them."""
    reader = spark.read.schema(columns) if columns else spark.read
    return reader.parquet(literal(folder))


def add_up(spark: SparkSession, folder: str, names: tuple[str, ...]) -> dict[str, int]:
    """The sums of the named counters over all tasks that were committed to `folder`; 0 where none was."""
    columns = ", ".join(f"{name} bigint" for name in names)
    rows = read_parquet(spark, f"{folder}/kind=stats", columns).collect()
    return {name: sum(row[name] for row in rows) for name in names}


def refuse_overlap(paths: dict[str, str | None]) -> None:
    """Raise Mistake if one of the folders is another one or lies in it."""
    given = [(option, _real(path)) for option, path in paths.items() if path]
    for option, path in given:
        for other, outer in given:
            if option != other and f"{path}/".startswith(f"{outer}/"):
                raise Mistake(f"{option} {path} lies in {other} {outer}: give a folder of its own")


def _real(path: str) -> str:
    """A path that Hadoop qualified, with the symbolic links in it followed if it is local."""
    local = plain_path(path)
    return os.path.realpath(local) if local != path else path.rstrip("/")


def move_parquet(fs: FileSystem, source: str, target: str) -> int:
    """Move the files of one kind to a folder, now named .parquet; returns how many there were."""
    fs.mkdirs(target)
    parts = [name for name in fs.names(source) if not name.startswith((".", "_"))]
    for name in parts:
        fs.rename(f"{source}/{name}", f"{target}/{name.removesuffix('.txt')}.parquet")
    return len(parts)
