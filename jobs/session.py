"""The Spark session of a job: built, quiet, with the code at hand in every worker; and how a job ends."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import package
from jobs.logs import OPTION, error_line, start_log

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ARCHIVE = "textmill.zip"
INTERRUPTED = "interrupted; the old output is as it was"
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# A name node that starts anew, or is in safe mode, is asked again for two minutes.
PATIENCE = {
    "spark.hadoop.dfs.client.retry.policy.enabled": "true",
    "spark.hadoop.dfs.client.retry.policy.spec": "2000,5,10000,11",
}
log = logging.getLogger("textmill")
WorkerFunction = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


class Mistake(ValueError):
    """What the user can mend: one line with the value, the limit and the remedy; exit code 2."""


class TooManyRejects(Exception):
    """More records were rejected than --max-rejects allows; exit code 3."""


@cache
def app_folder() -> Path:
    """A private folder for files that Spark hands to executors at any time of the application; gone when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="textmill-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def code_root() -> Path:
    """The folder of the code; where it was imported from a zip, a private unpacked copy, put first on sys.path."""
    if package.ROOT.is_dir():
        return package.ROOT
    copy = package.unpack(package.ROOT, package.private_folder() or app_folder())
    sys.path.insert(0, str(copy))
    return copy


ROOT = code_root()  # before anything imports udfs or models: numba finds no cache in a zip


def archive() -> Path:
    """The zip of the code for the workers: the one it was imported from, or one made anew when the source changed."""
    if package.ROOT != ROOT:
        return package.ROOT
    try:
        return package.write_zip(ROOT / "build" / ARCHIVE)
    except OSError:  # a read-only install
        return package.write_zip((package.private_folder() or app_folder()) / package.digest(ROOT) / ARCHIVE)


@cache
def ship_code(spark: SparkSession) -> str:
    """Hand the code to all executors; returns the name, which holds its hash: a stale zip cannot be taken for it."""
    with zipfile.ZipFile(archive()) as file:
        copy = app_folder() / f"textmill-{file.comment.decode()[:16]}.zip"
    shutil.copyfile(archive(), copy)
    return ship(spark, copy)


def ship(spark: SparkSession, file: Path) -> str:
    """Hand a file to all executors, once each; returns the name by which a worker asks SparkFiles for it."""
    spark.sparkContext.addFile(str(file))
    return file.name


@contextmanager
def rows_per_batch(spark: SparkSession, rows: int) -> Iterator[None]:
    """Have Spark hand at most this many rows at a time to workers: for rows that are whole blocks."""
    before = spark.conf.get(BATCH_ROWS)
    spark.conf.set(BATCH_ROWS, rows)
    try:
        yield
    finally:
        spark.conf.set(BATCH_ROWS, before)  # type: ignore[arg-type]


@cache
def hadoop() -> tuple[Any, Any]:
    """Spark's Java, and Hadoop's configuration as a session will have it, which itself takes far longer to start.

    Raises Mistake where Spark or Java is missing or too old.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        import pyspark
        from pyspark import SparkConf, SparkContext
    except ImportError as error:
        raise Mistake(f"pyspark is missing ({error}): run `make install`, or submit with spark-submit") from None
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (3, 5):
        raise Mistake(f"Spark {pyspark.__version__} is too old: Textmill needs 3.5 or newer")
    from pyspark.errors import PySparkRuntimeError

    try:
        SparkContext._ensure_initialized()
    except PySparkRuntimeError as error:
        raise Mistake(f"Spark did not start ({error}): is Java 17 or newer found? `make install` brings one") from None
    jvm: Any = SparkContext._jvm
    conf = SparkConf()
    for name, value in PATIENCE.items():
        conf.setIfMissing(name, value)
    return jvm, jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf._jconf)


def in_cluster_mode() -> bool:
    """Whether the driver runs in YARN's application master, so that no one sees what it prints."""
    return "SPARK_YARN_STAGING_DIR" in os.environ


def spark_session(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session that spark-submit configured, or a local one, with Textmill's code in its workers.

    settings: what a job adds, unless spark-submit says otherwise.
    """
    hadoop()
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for setting, value in {"spark.log.level": "WARN", **PATIENCE, **(settings or {})}.items():
        if not SparkConf().contains(setting):
            builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    log_to_file(spark)
    interrupt_in_python(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "8")  # kinds are told apart without a sort
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(64 << 20))
    if spark.version.startswith("3."):  # it bounds a batch by rows alone, and one of 2 GB fails
        rows = int(spark.conf.get(BATCH_ROWS) or 0)
        spark.conf.set(BATCH_ROWS, min(rows, 1000) if rows > 0 else 1000)
        for name in ("datetimeRebaseModeInRead", "int96RebaseModeInRead"):  # of old dates: as Spark 4 does
            if spark.conf.get(f"spark.sql.parquet.{name}") == "EXCEPTION":
                spark.conf.set(f"spark.sql.parquet.{name}", "CORRECTED")
    else:
        from pyspark.logger import PySparkLogger

        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)  # what they log is raised, too
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(package)
    return spark


def interrupt_in_python(spark: SparkSession) -> None:
    """Have Ctrl-C raise KeyboardInterrupt, once, and Java ignore it: cleaning up needs Java's file systems.

    Spark's own handler calls Java in the middle of another call, which fails.
    """

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
        jvm: Any = spark.sparkContext._jvm
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("INT"), jvm.sun.misc.SignalHandler.SIG_IGN)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C in the block: from there on the job is done, and its results belong together."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def no_task_left(spark: SparkSession, patience: float = 10) -> Iterator[None]:
    """If the block fails, cancel its jobs and wait for their tasks, which would write into what is deleted next."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # Java may be gone
            spark.sparkContext.cancelAllJobs()
            deadline = time.monotonic() + patience
            while _running_tasks(spark) and time.monotonic() < deadline:
                time.sleep(0.05)
        raise


def _running_tasks(spark: SparkSession) -> int:
    scheduler: Any = spark.sparkContext._jsc.sc().taskScheduler()
    tasks = scheduler.runningTasksByExecutors().valuesIterator()
    found = 0
    while tasks.hasNext():
        found += tasks.next()
    return found


def log_to_file(spark: SparkSession) -> None:
    """Send the driver's Java log and stderr to a file of this user where Spark would print both on the terminal.

    A worker in the driver's process prints there too: a traceback where its task is cancelled.
    """
    jvm: Any = spark.sparkContext._jvm
    location = str(
        jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration().getConfigurationSource()
    )
    if "org/apache/spark/log4j2-defaults.properties" not in location or in_cluster_mode():
        return  # the user's or the cluster's own configuration
    folder = package.private_folder() or Path(tempfile.mkdtemp(prefix="textmill-"))
    path = folder / f"spark-{os.getpid()}.log"
    settings = folder / "log4j2.properties"
    settings.write_text(
        "rootLogger.level=warn\nrootLogger.appenderRef.file.ref=file\nappender.file.type=File\nappender.file.name=file\n"
        "appender.file.fileName=${sys:textmill.log}\nappender.file.layout.type=PatternLayout\n"
        "appender.file.layout.pattern=%d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    jvm.java.lang.System.setProperty("textmill.log", str(path))
    jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure(jvm.java.net.URI(settings.as_uri()))
    stream = jvm.java.io.FileOutputStream(str(path), True)
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(stream, True))
    os.environ["TEXTMILL_LOG"] = str(path)


def on_workers(spark: SparkSession, function: str, *settings: Any, module: str = "jobs.workers") -> WorkerFunction:
    """`module.function(batches, partition, *settings)` for mapInArrow, run by the shipped code in the worker."""
    use, name = package.use, ship_code(spark)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib

        from pyspark import SparkFiles, TaskContext

        use(SparkFiles.get(name))
        partition = TaskContext.get().partitionId()  # type: ignore[union-attr]
        importlib.import_module("jobs.workers").keep_memory()
        yield from getattr(importlib.import_module(module), function)(batches, partition, *settings)

    return run


@contextmanager
def mistakes() -> Iterator[None]:
    """Around what checks the user's settings: its ValueError is a Mistake."""
    try:
        yield
    except ValueError as error:
        raise Mistake(str(error)) from None


def reason(error: Exception) -> str:
    """What an error says, in one line without Java's class names."""
    said = error.getMessage() if hasattr(error, "getMessage") else getattr(error, "desc", None)  # Spark 4; Spark 3.5
    text = said or getattr(error, "java_exception", None) or getattr(error, "_origin", None) or error
    line = next(iter(str(text).strip().splitlines()), type(error).__name__)
    line = line.replace("java.net.UnknownHostException: ", "unknown host ")
    line = re.sub(
        r"(?<!\S)[\w.$]+(?:Exception|Error)(?:\([\w.$]+\))?: |; For more details see: .*|\s*SQLSTATE: \w+$", "", line
    )
    return re.sub(r"(?<!\S)(?:\w+\.)*(\w+)(?:Exception|Error)\b", _in_words, line)[:300]


def _in_words(name: re.Match[str]) -> str:
    """UnsupportedOperationException as unsupported operation."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name[1]).lower()


def stop_spark() -> None:
    """End the application's session, if it has one: executors that only lose their driver are started again."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is not None:
        spark.stop()


def exit_code(job: Callable[[list[str]], None], arguments: list[str]) -> int:
    """Run a job; its failure is one line on stderr: 2 the user's mistake, 3 too many rejects, 1 anything else."""
    as_json = OPTION in arguments
    start_log(as_json)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    for handler in logging.root.handlers:
        handler.addFilter(_not_raised_too)
    try:
        job(arguments)
        return 0
    except Mistake as error:
        message, code = str(error), 2
    except TooManyRejects as error:
        message, code = str(error), 3
    except KeyboardInterrupt:
        message, code = INTERRUPTED, 130
    except Exception as error:  # whatever Spark or Java raise: the cause in a line, the rest in the log
        mistake = python_mistake(str(error))
        message, code = (mistake, 2) if mistake else (failure(error), 1)
        if _while_interrupted(error):
            message, code = INTERRUPTED, 130
    line = error_line(message, code, as_json)
    print(line, file=sys.stderr)
    with suppress(Exception):
        if in_cluster_mode():
            tell_yarn(line, code)
    return code


def tell_yarn(line: str, code: int, patience: float = 60) -> None:
    """Make a failed job's line YARN's diagnostics; of a mistake also its last word, since a second attempt is in vain.

    The application master is Spark's: it says `exited with status 2` if nothing else was said before it ends.
    """
    jvm: Any = spark_session("textmill").sparkContext._jvm  # which is when YARN comes to know the application
    status = jvm.org.apache.hadoop.yarn.api.records.FinalApplicationStatus.FAILED
    yarn, private = jvm.org.apache.spark.deploy.yarn, "org$apache$spark$deploy$yarn$ApplicationMaster$$master"
    master = getattr(getattr(getattr(yarn, "ApplicationMaster$"), "MODULE$"), private)()
    registered = master.getClass().getDeclaredField("registered")
    registered.setAccessible(True)
    deadline = time.monotonic() + patience
    while not registered.get(master) and time.monotonic() < deadline:
        time.sleep(0.1)
    if code in (2, 3):
        master.unregister(status, line)
    else:
        master.finish(status, code, line)


def _while_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C came first: what cleans up after it may find Java not answering."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _while_interrupted(error.__context__))


def _not_raised_too(record: logging.LogRecord) -> bool:
    """Whether this is no log record of py4j, which raises what it logs."""
    return record.module not in ("java_gateway", "clientserver")


def python_mistake(text: str) -> str | None:
    """What is wrong with the Python of Spark's workers, by what a failure of Spark says; None if nothing is known."""
    if found := re.search(r'Cannot run program "([^"]*)"', text):
        return f"PYSPARK_PYTHON {found[1]} cannot be started by Spark: name a Python that every node has at this path"
    in_worker = r"(?:org\.apache\.spark|the Python worker).*ModuleNotFoundError: No module named '(\w+)'"
    if found := re.search(in_worker, text, re.DOTALL):
        return (
            f"the Python of Spark's workers has no {found[1]}: install the packages of requirements.in there, or name "
            "another Python with PYSPARK_PYTHON"
        )
    return None


def failure(error: Exception) -> str:
    """The cause of an unexpected failure in one line, and where all of it was written."""
    import traceback

    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")] or [
        line for line in lines if re.search(r"(?:Error|Exception)(?:\([\w.$]+\))?:", line)
    ]
    of_spark = [line for line in lines if line.startswith("[")][:1]  # its error class, before the query and a caret
    cause = (causes or of_spark or lines or [type(error).__name__])[-1]
    if "java.lang.OutOfMemoryError" in text:
        cause = "Java ran out of memory: raise --driver-memory (local) or --executor-memory"
    if "Python worker exited unexpectedly" in text:
        cause = "a Python worker died, as when it is killed for its memory: raise spark.executor.memoryOverhead"
    if in_cluster_mode():
        traceback.print_exception(error)
        return f"{type(error).__name__}: {cause[:400]} (everything in `yarn logs -applicationId`)"
    path = os.environ.get("TEXTMILL_LOG")
    if path is None:
        folder = package.private_folder() or Path(tempfile.mkdtemp(prefix="textmill-"))
        path = str(folder / f"spark-{os.getpid()}.log")
    with open(path, "a") as file:
        traceback.print_exception(error, file=file)
    return f"{type(error).__name__}: {cause[:400]} (everything in {path})"
