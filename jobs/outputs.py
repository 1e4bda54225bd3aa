"""Where a job's results go: staged beside the target, swapped in by renames; a failed job leaves the old untouched."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from jobs.access import keep_access
from jobs.lease import PREFIX, Lease
from jobs.package import digest
from jobs.session import ROOT, Mistake, TooManyRejects, hadoop, log, reason
from jobs.workers import MAGIC
from udfs.records import ZSTD_BLOCK, decoded_start, plain_path

# Schemes of stores where a folder is renamed by copying one file after the other.
OBJECT_STORES = {"s3", "s3a", "s3n", "gs", "oss", "cosn", "obs", "swift", "wasb", "wasbs"}
LISTED = 10_000  # as many files Java names in one answer
STATUS = re.compile(
    r"Status\{path=(.*?); isDirectory=(?:true|false)(?:; length=(\d+);[^{}]*?)?; modification_time=(\d+);", re.DOTALL
)


class FileSystem:
    """Hadoop's file system behind a path: HDFS, a local folder or whatever Spark is configured for."""

    def __init__(self, path: str) -> None:
        self._jvm, configuration = hadoop()
        if re.match(r"[^/:]+:[^/]", path):
            raise Mistake(f"{path} has a colon, so that it is taken for a URI: give the whole path, from / on")
        raw = self.path(path)
        self._fs: Any = raw.getFileSystem(configuration)
        self.root = self.qualified(path)

    def path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def qualified(self, path: str) -> str:
        """The path with scheme and host."""
        return str(self._fs.makeQualified(self.path(path)).toString())

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
            with suppress(Exception):  # another run has just put something there
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

    def files(self, path: str) -> Iterator[tuple[str, int, int]]:
        """All files at or below a path with their sizes in bytes and times of modification in ms."""
        folders = [path]
        for folder in folders:
            for name, size, modified in self._statuses(self._fs.listStatus(self.path(folder))):
                if size is None:
                    folders.append(name)
                else:
                    yield name, size, modified

    def glob(self, pattern: str) -> list[tuple[str, int | None, int]]:
        """What Hadoop's pattern matches: files with their sizes in bytes, folders with None; times in ms."""
        found = self._fs.globStatus(self.path(pattern))
        return [] if found is None else list(self._statuses(found))

    def _statuses(self, found: Any) -> Iterator[tuple[str, int | None, int]]:
        """Name, size (None: a folder) and time of each FileStatus, read from text: a call to Java takes 0.1 ms."""
        java, new_array = self._jvm.java, SparkContext._gateway.new_array  # type: ignore[union-attr]
        number = len(found)
        for begin in range(0, number, LISTED):
            part = new_array(java.lang.Object, min(LISTED, number - begin))
            java.lang.System.arraycopy(found, begin, part, 0, len(part))
            text = java.util.Arrays.toString(part)
            told = STATUS.findall(text)
            if len(told) == len(part) == text.count("; isDirectory="):
                yield from ((name, int(size) if size else None, int(modified)) for name, size, modified in told)
            else:  # a name that looks like such text
                for one in part:
                    size = None if one.isDirectory() else one.getLen()
                    yield one.getPath().toString(), size, one.getModificationTime()

    @property
    def java(self) -> Any:
        """Hadoop's own object."""
        return self._fs

    def status(self, path: str) -> Any:
        """Hadoop's FileStatus."""
        return self._fs.getFileStatus(self.path(path))

    def modified(self, path: str) -> int:
        """When a file or folder was modified, in ms, by the clock of the file system; a rename leaves it as it is."""
        return int(self._fs.getFileStatus(self.path(path)).getModificationTime())

    def modified_in(self, folder: str) -> list[tuple[str, int]]:
        """The names in a folder, and when each was modified, in ms."""
        found = self._fs.listStatus(self.path(folder))
        return [(status.getPath().getName(), status.getModificationTime()) for status in found]

    def set_modified(self, path: str, at: int) -> None:
        """Raises an error if there is no such file."""
        self._fs.setTimes(self.path(path), at, -1)

    def columns(self, path: str, form: str) -> str:
        """The columns in a Parquet or ORC file's footer, as text."""
        _, configuration = hadoop()
        if form == "orc":
            orc = self._jvm.org.apache.orc.OrcFile
            reader = orc.createReader(self.path(path), orc.readerOptions(configuration))
            try:
                return str(reader.getSchema().toString())
            finally:
                reader.close()
        without_rows = self._jvm.org.apache.parquet.format.converter.ParquetMetadataConverter.SKIP_ROW_GROUPS
        read = self._jvm.org.apache.parquet.hadoop.ParquetFileReader.readFooter
        return str(read(configuration, self.path(path), without_rows).getFileMetaData().getSchema().toString())

    def name_encoding(self) -> str:
        """The encoding in which Java opens local names."""
        return str(self._jvm.java.lang.System.getProperty("sun.jnu.encoding"))

    def reach(self, patience: float = 60) -> None:
        """Ask HDFS once whether it is there, and wait while it is in safe mode; raises Mistake if that takes longer."""
        uri = self._fs.getUri()
        if uri.getScheme() != "hdfs":
            return
        _, configuration = hadoop()
        once = self._jvm.org.apache.hadoop.conf.Configuration(configuration)
        once.set("dfs.client.retry.policy.enabled", "false")
        asked = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(uri, once)
        end = time.monotonic() + patience
        try:
            if asked.isInSafeMode():
                log.warning("%s is in safe mode: waiting for up to %d s until it has found its blocks", uri, patience)
            while asked.isInSafeMode():
                if time.monotonic() > end:
                    raise Mistake(
                        f"{uri} is in safe mode for more than {patience:.0f} s: wait until it has found its blocks "
                        "(hdfs dfsadmin -safemode wait), then run the job again"
                    )
                time.sleep(1)
        finally:
            asked.close()

    def read_unchecked(self) -> None:
        """Let this JVM read local files without the checksums that may lie beside them."""
        self._fs.setVerifyChecksum(False)

    def upload(self, local: Path, target: str) -> None:
        self._fs.copyFromLocalFile(False, True, self.path(f"file:{local}"), self.path(target))

    def download(self, source: str, local: Path) -> None:
        self._fs.copyToLocalFile(False, self.path(source), self.path(f"file:{local}"), True)

    def write(self, path: str, data: bytes) -> None:
        stream = self._fs.create(self.path(path), True)
        try:
            stream.write(data)
        finally:
            stream.close()

    def write_json(self, path: str, value: object) -> None:
        self.write(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())

    def read_json(self, path: str) -> Any:
        return json.loads(self.head(path, 1 << 20))

    def write_parquet(self, path: str, table: pa.Table) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            pq.write_table(table, Path(scratch) / "table.parquet")
            self.upload(Path(scratch) / "table.parquet", path)

    def head(self, path: str, size: int, decompress: bool = True) -> bytes:
        """The first bytes of a file, decompressed by its name's codec as Spark would, but zstd here."""
        configuration = self._fs.getConf()
        factory = self._jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(configuration)
        zstd = decompress and path.endswith(".zst")  # for which Hadoop may lack the library
        codec = factory.getCodec(self.path(path)) if decompress and not zstd else None
        stream = self._fs.open(self.path(path))
        if codec is not None:
            stream = codec.createInputStream(stream)
        try:
            found = bytes(
                self._jvm.org.apache.commons.io.IOUtils.toByteArray(
                    self._jvm.org.apache.commons.io.input.BoundedInputStream(stream, size + zstd * ZSTD_BLOCK)
                )
            )
        finally:
            stream.close()
        return decoded_start(path, found, size) if zstd else found


def file_system(path: str, option: str) -> FileSystem:
    """The file system behind an option's path; raises Mistake if there is none or it can't be reached."""
    try:
        fs = FileSystem(path)
        fs.reach()
        fs.exists(fs.root)
    except Mistake:
        raise
    except Exception as error:  # no such scheme, no such name node: Java's words for it
        raise Mistake(f"{option} {path}: {reason(error)}") from None
    return fs


class Target:
    """One output folder: what lies there, a stage beside it that outlives a killed run, and the swap.

    Of all runs with the same target, one at a time holds the lease on the stage. rows: the folder of the result.
    """

    catalogued = False  # whether a catalog knows the partitions, or only their folders' names tell them

    def __init__(self, path: str, option: str, overwrite: bool, given: str = "") -> None:
        """Raises Mistake if the folder exists and may not be replaced, is a file, or its parent can't be written.

        given: what the user gave, if that is not the path.
        """
        self.option, self.given, self.overwrite = option, given or path, overwrite
        _refuse_object_store(option, path)
        self.fs = file_system(path, option)
        self.path = self.rows = self.fs.root.rstrip("/")
        _refuse_object_store(option, self.path)
        self.parent, self.name = posixpath.split(self.path)
        if not self.name or not self.parent:
            raise Mistake(f"{option} {path} is no folder of its own: give a path below it")
        self.place = f"{self.parent}/.{self.name}.stage"
        if self.fs.exists(self.path) and not self.fs.is_dir(self.path):
            raise Mistake(f"{option} {path} is a file: give a folder")
        if os.path.islink(plain_path(self.path)) and not self.fs.exists(self.path):
            raise Mistake(f"{option} {path} is a link to what does not exist: remove it, or give another path")
        if os.path.ismount(plain_path(self.path)):
            raise Mistake(f"{option} {path} is a mount point, which can't be renamed: give a folder in it")
        if not self.fs.exists(self.place):  # else a run that was killed may have put there what lies in the target
            self._refuse_existing()

    @contextmanager
    def staged(self, key: str = "") -> Iterator[str]:
        """The stage: a folder whose finished steps a later run with the same key finds, if this one is killed or fails.

        It is removed at the end, and after a Mistake, too many rejects and Ctrl-C, with the folders made for it that
        are empty then; without a key always. Raises Mistake if another run has the target, or it can't be written.
        """
        made = [self.place]
        try:
            made += self.fs.missing(self.place)
            self.fs.mkdirs(self.place)
            self.lease = Lease(self.fs, self.place, self.option)
        except Exception as error:
            with suppress(Exception):
                self._delete_empty(made)
            if isinstance(error, Mistake):
                raise
            raise Mistake(f"{self.option}: cannot write beside {self.path} ({reason(error)})") from None
        self.stage = f"{self.place}/{key or self.lease.run}"
        keep = True
        try:
            self._restore()
            if not self.swapped():
                self._refuse_existing()
            if self._clean():
                log.info("%s: unfinished work of an earlier run is deleted", self.option)
            self.fs.mkdirs(self.stage)
            keep = False
            yield self.stage
        except (Mistake, TooManyRejects):
            raise
        except Exception:
            keep = bool(key)
            raise
        finally:
            self._leave(made, keep)

    @contextmanager
    def step(self, name: str) -> Iterator[str]:
        """A folder to be made and filled, which becomes `name` in the stage if the block ends well: never half."""
        folder = f"{self.lease.scratch}/{name}"
        yield folder
        self.lease.check()
        self.fs.delete(f"{self.stage}/{name}")
        self.fs.rename(folder, f"{self.stage}/{name}")

    def find(self, name: str) -> str | None:
        """Where the finished step `name` is: in the stage, or in the target's place already; None if nowhere."""
        staged = f"{self.stage}/{name}"
        return staged if self.fs.exists(staged) else self._in_place(name)

    def _in_place(self, name: str) -> str | None:
        return self.path if self.swapped() == name else None

    def swapped(self) -> str | None:
        """The step that lies in the target's place, if a run of this key put it there and nothing has changed it."""
        if not self.fs.exists(self.path):
            return None
        mark = f".swapped-{self.fs.modified(self.path)}"
        return next((name.removesuffix(mark) for name in self.fs.names(self.stage) if name.endswith(mark)), None)

    def swap(self, folder: str) -> None:
        """Put `folder`, a step in the stage, in the target's place: two renames, then the old one is deleted."""
        self.lease.check()
        if self.find(folder.rsplit("/", 1)[1]) == self.path:
            return
        if not self.overwrite and self.fs.exists(self.path):
            raise FileExistsError(f"{self.option} {self.given} was made by another program: give --overwrite")
        self.fs.mkdirs(f"{folder}.swapped-{self.fs.modified(folder)}")
        old = f"{self.parent}/.{self.name}.old-{self.lease.run}"
        replaces = self.fs.exists(self.path)
        if replaces:
            keep_access(self.fs, self.path, folder, self.option)
            self.fs.rename(self.path, old)
        try:
            self.fs.rename(folder, self.path)
        except BaseException:
            if replaces and not self.fs.exists(self.path):
                self.fs.rename(old, self.path)
            raise
        if replaces:
            self._discard(old)

    def _refuse_existing(self) -> None:
        if not self.overwrite and self.fs.exists(self.path):
            raise Mistake(f"{self.option} {self.given} exists: give --overwrite to replace it, or another path")

    def _restore(self) -> None:
        """What runs that were killed in a swap left: the old one goes back if the new one is not there, else away."""
        old = re.compile(rf"\.{re.escape(self.name)}\.old-[0-9a-f]{{12}}")
        for name in filter(old.fullmatch, self.fs.names(f"{self.parent}/")):
            if self.fs.exists(self.path):
                self._discard(f"{self.parent}/{name}")
            else:
                self.fs.rename(f"{self.parent}/{name}", self.path)

    def _discard(self, folder: str) -> None:
        """Delete a folder, out of sight first: half of it must never be taken for an output or a stage."""
        gone = f"{self.place}/gone-{self.lease.run}"
        self.fs.rename(folder, gone)
        self.fs.delete(gone)

    def _clean(self) -> list[str]:
        """Delete all beside the stage's finished steps but leases; returns what that was."""
        kept = self.stage.rsplit("/", 1)[1]
        names = [name for name in self.fs.names(self.place) if name != kept and not name.startswith(PREFIX)]
        for name in names:
            self.fs.delete(f"{self.place}/{name}")
        return names

    def _leave(self, made: list[str], keep: bool) -> None:
        """Give up the lease; of the stage stay the finished steps if they are to be kept, else nothing."""
        self.lease.stop()
        try:
            self.fs.delete(self.lease.scratch)
            if self.lease.held():
                if self.fs.exists(self.stage) and not (keep and self.fs.names(self.stage)):
                    self._discard(self.stage)
                self._clean()
                self.lease.release()
            self._delete_empty(made)
        except Exception as error:  # Java may be gone, or a disk broken: a later run cleans up
            log.warning("%s: the stage %s could not be removed: %s", self.option, self.place, reason(error))

    def _delete_empty(self, folders: list[str]) -> None:
        for folder in folders:
            self.fs.delete_empty(folder)


def _refuse_object_store(option: str, path: str) -> None:
    if path.split(":")[0] in OBJECT_STORES:
        raise Mistake(
            f"{option} {path} is in an object store, where a folder can't be put in place at once: write to HDFS or a "
            "disk, then copy it, _manifest.json last"
        )


def run_key(options: dict[str, object], *parts: str) -> str:
    """A name for all that decides what a run writes: options, code, and what else is given."""
    settings = sorted((name, repr(value)) for name, value in options.items() if name not in ("overwrite", "log_json"))
    return hashlib.blake2b(repr((settings, digest(ROOT), parts)).encode(), digest_size=8).hexdigest()


def write_cells(cells: DataFrame, folder: str, append: bool = False) -> None:
    """Write the cells of workers.py as Parquet files: `folder`/kind=KIND/part-…, to a new folder unless `append`.

    Spark's text writer copies each cell's bytes and ends it by its line separator, which is Parquet's magic here; its
    commit makes a task's files appear together or not at all.
    """
    writer = cells.write.partitionBy("kind").option("lineSep", MAGIC.decode()).option("compression", "none")
    writer = writer.mode("append" if append else "error")
    writer.option("maxRecordsPerFile", 0).text(folder)  # a limit set for the session would cut files in pieces


def literal(path: str) -> str:
    """A path for Spark's readers, which take it for a glob, with what would be a wildcard escaped."""
    return re.sub(r"([\\[\]{}*?])", r"\\\1", path)


def read_parquet(spark: SparkSession, folder: str, columns: str | None = None) -> DataFrame:
    """The Parquet files in a folder, whatever its name; with `columns` (DDL) it may be missing: no rows."""
    if columns and not FileSystem(folder).exists(folder):
        return spark.createDataFrame([], columns)
    reader = spark.read.schema(columns) if columns else spark.read
    return reader.parquet(literal(folder))


def add_up(spark: SparkSession, folder: str, names: tuple[str, ...]) -> dict[str, int]:
    """The sums of the named counters over all tasks that were committed to `folder`; 0 where none was."""
    columns = ", ".join(f"{name} bigint" for name in names)
    rows = read_parquet(spark, f"{folder}/kind=stats", columns).collect()
    return {name: sum(row[name] or 0 for row in rows) for name in names}


def refuse_overlap(paths: dict[str, str | None], inputs: Iterable[str] = ()) -> None:
    """Raise Mistake if one of the folders is another one, or of the inputs, or lies in it, or an input in it."""
    given = [(option, _real(path)) for option, path in paths.items() if path]
    read = [("--input", _real(path)) for path in inputs]
    for option, path in given + read:
        for other, outer in given:
            if option != other and f"{path}/".startswith(f"{outer}/"):
                raise Mistake(f"{option} {path} lies in {other} {outer}: give a folder of its own")
    for option, path in given:
        for _, outer in read:
            if f"{path}/".startswith(f"{outer}/"):
                raise Mistake(f"{option} {path} lies in --input {outer}: give a folder of its own")


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
