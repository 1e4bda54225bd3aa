"""What runs a query: Spark's session, or a session of HiveServer2. Both keep results under names for later queries."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from jobs.outputs import Target, file_system, literal, read_parquet
from jobs.progress import progress
from jobs.queries import Query, Value, back_ticked, identifier
from jobs.session import Mistake, log, mistakes, no_task_left, reason, spark_session, uninterrupted
from jobs.tables import quoted
from udfs.spark import register

URL = re.compile(
    r"hive2://(?:(?P<user>[\w.-]+)@)?(?P<host>[\w.-]+):(?P<port>\d{1,5})(?:/(?P<database>\w*))?"
    r"(?:;auth=(?P<auth>NOSASL|NONE|LDAP|KERBEROS))?(?:;service=(?P<service>[\w.-]+))?",
    re.ASCII,
)
SETTING = re.compile(r"[a-z][\w.-]*", re.ASCII)
RESOURCE = re.compile(r"[\w./:@%+=-]+(?:#[\w.-]+)?", re.ASCII)
NOT_COMPILED = re.compile(r"Error while compiling statement: FAILED: (?:\w+ )?(?:\[Error \d+\]: )?(.*)", re.DOTALL)
Chosen = tuple[Query, dict[str, Value]]
Written = tuple[str, str, int]


class Spark:
    """The session that spark-submit configured; folders of Parquet or ORC files are tables of it."""

    def __init__(self, tables: dict[str, str], output: str | None, overwrite: bool) -> None:
        """tables: paths by the names of their tables. Raises Mistake."""
        with mistakes():
            names = {identifier("--table", name): path for name, path in tables.items()}
        self.target = Target(output, "--output", overwrite) if output else None
        found = {name: _folder(name, path) for name, path in names.items()}
        self.spark = spark_session("textmill query")
        register(self.spark)
        for name, (form, path) in found.items():
            try:
                self.spark.read.format(form).load(literal(path)).createOrReplaceTempView(quoted(name))
            except Exception as error:
                raise Mistake(f"--table {name}={path}: {reason(error)}") from None

    def has(self, table: str) -> bool:
        """Whether there is a table or view of this name."""
        return bool(self.spark.catalog.tableExists(back_ticked(table)))

    def explain(self, query: Query, values: dict[str, Value]) -> str:
        """Spark's plan; raises Mistake if it has none."""
        text, bound = query.for_spark(values)
        return str(self._run(query, f"EXPLAIN FORMATTED {text}", bound).collect()[0][0])

    def rows(self, query: Query, values: dict[str, Value], most: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns and the first rows, `most` at the most."""
        table = self._run(query, *query.for_spark(values))
        with no_task_left(self.spark), progress(self.spark, query.name):
            return table.columns, [tuple(row) for row in table.limit(most).collect()]

    def write(self, chosen: list[Chosen], named: bool) -> Iterator[Written]:
        """Write results as Parquet to the output's folder, or folders in it by the queries' names; all appear at once.

        Gives name, place and number of rows of each.
        """
        assert self.target
        written = []
        with self.target.staged() as stage, no_task_left(self.spark):
            for query, values in chosen:
                place = f"/{query.name}" if named else ""
                with progress(self.spark, query.name):
                    self._run(query, *query.for_spark(values)).write.parquet(f"{stage}/output{place}")
                rows = read_parquet(self.spark, f"{stage}/output{place}")
                rows.createOrReplaceTempView(quoted(query.name))
                written.append((query.name, f"{self.target.given}{place}", rows.count()))
            with uninterrupted():
                self.target.swap(f"{stage}/output")
        yield from written

    def _run(self, query: Query, text: str, bound: dict[str, Value]) -> Any:
        try:
            return self.spark.sql(text, bound)
        except Exception as error:  # of the analysis: a column that is missing, a type that does not fit
            raise Mistake(f"{query.name}: {re.sub(r'^.[A-Z_.]+. ', '', reason(error))}") from None


def _folder(name: str, path: str) -> tuple[str, str]:
    """The format and whole path of a table's folder; raises Mistake if it holds other files."""
    fs = file_system(path, "--table")
    if not fs.exists(fs.root):
        raise Mistake(f"--table {name}={path} does not exist")
    files = (file.rsplit("/", 1)[1] for file, _, _ in fs.files(fs.root))
    first = next((file for file in files if not file.startswith(("_", "."))), "")
    form = next((form for form in ("parquet", "orc") if first.endswith(f".{form}")), None)
    if form is None:
        held = f"holds {first}" if first else "holds no file"
        raise Mistake(f"--table {name}={path} {held}: give a folder of .parquet or .orc files")
    return form, fs.root


class HiveServer:
    """A session of HiveServer2."""

    def __init__(self, url: str, conf: dict[str, str], resources: list[str], output: str, overwrite: bool) -> None:
        """output: the table to write to, or the database of several. Raises Mistake."""
        found = URL.fullmatch(url)
        if not found:
            raise Mistake(f"--url {url}: give hive2://[USER@]HOST:PORT/DATABASE[;auth=NOSASL|NONE|LDAP|KERBEROS]")
        for name in conf:
            if not SETTING.fullmatch(name):
                raise Mistake(f"--hive-conf {name[:80]} is no name of a setting")
        for resource in resources:
            if not RESOURCE.fullmatch(resource):
                raise Mistake(f"--resource {resource[:80]} is no plain URI: leave out spaces, quotes and semicolons")
        with mistakes():
            self.output = identifier("--output", output) if output else ""
        self.overwrite = overwrite
        self._connection = _connect(found, conf)
        for resource in resources:
            try:
                self._execute(f"ADD ARCHIVE {resource}", "--resource")
            except RuntimeError as error:
                raise Mistake(f"--resource {resource}: {error}") from None

    def has(self, table: str) -> bool:
        """Whether there is a table or view of this name."""
        try:
            self._execute(f"DESCRIBE {back_ticked(table)}", table)
        except Mistake:
            return False
        return True

    def explain(self, query: Query, values: dict[str, Value]) -> str:
        """Hive's plan; raises Mistake if it has none."""
        return "\n".join(row[0] for row in self._execute(f"EXPLAIN {query.for_hive(values)}", query.name).fetchall())

    def rows(self, query: Query, values: dict[str, Value], most: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns and the first rows, `most` at the most."""
        cursor = self._execute(query.for_hive(values), query.name)
        names = [column[0] for column in cursor.description]
        return names, cursor.fetchmany(most)

    def write(self, chosen: list[Chosen], named: bool) -> Iterator[Written]:
        """Write results to the output's table, or to tables of the output's database by the queries' names.

        Gives name, place and number of rows of each. Each takes its place by two statements, so that a reader may find
        no table for a moment; those that are not done yet stay as they were.
        """
        places = {query.name: f"{self.output}.{query.name}" if named else self.output for query, _ in chosen}
        for place in places.values():
            if not self.overwrite and self.has(place):
                raise Mistake(f"--output {place} exists: give --overwrite to replace it, or another name")
        made: dict[str, str] = {}
        for query, values in chosen:
            place = places[query.name]
            own = {name: made.get(str(value), value) for name, value in values.items()}
            made[query.name] = place
            started = time.monotonic()
            target, new = back_ticked(place), back_ticked(f"{place}__new")
            self._execute(f"DROP TABLE IF EXISTS {new}", query.name)
            self._execute(f"CREATE TABLE {new} STORED AS PARQUET AS {query.for_hive(own)}", query.name)
            number = self._execute(f"SELECT count(*) FROM {new}", query.name).fetchone()[0]
            self._execute(f"DROP TABLE IF EXISTS {target}", query.name)
            self._execute(f"ALTER TABLE {new} RENAME TO {target}", query.name)
            log.info("%s: done in %.1f s", query.name, time.monotonic() - started)
            yield query.name, place, number

    def _execute(self, statement: str, name: str) -> Any:
        """The cursor of a statement that has been run; raises Mistake if Hive can't compile it."""
        from pyhive.exc import OperationalError
        from TCLIService.ttypes import TOperationState as State

        cursor = self._connection.cursor()
        try:
            cursor.execute(statement, async_=True)
            pause = 0.02
            while (state := cursor.poll()).operationState in (
                State.INITIALIZED_STATE,
                State.PENDING_STATE,
                State.RUNNING_STATE,
            ):
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
        except KeyboardInterrupt:
            with suppress(Exception):
                cursor.cancel()
            raise
        except OperationalError as error:
            status = getattr(error.args[0], "status", None)
            raise _failed(name, getattr(status, "errorMessage", None) or str(error)) from None
        if state.operationState != State.FINISHED_STATE:
            raise _failed(name, state.errorMessage or "Hive gave no reason")
        return cursor


def _failed(name: str, said: str) -> Exception:
    """Hive's words as a Mistake if it could not compile a statement, else as a failure of the job."""
    found = NOT_COMPILED.search(said)
    if found:
        return Mistake(f"{name}: {found[1].splitlines()[0][:300]}")
    return RuntimeError(f"Hive: {said.splitlines()[0][:300]}")


def _connect(url: re.Match[str], conf: dict[str, str]) -> Any:
    try:
        from pyhive import hive
    except ImportError as error:
        raise Mistake(f"--engine hive needs PyHive ({error}): install the packages of requirements.in") from None
    logging.getLogger("pyhive").setLevel(logging.WARNING)
    logging.getLogger("thrift").setLevel(logging.CRITICAL)  # what it logs, with a traceback, is raised, too
    auth = url["auth"] or "NONE"
    settings: dict[str, Any] = {"auth": auth, "username": url["user"] or os.environ.get("USER", "textmill")}
    if auth == "LDAP":
        settings["password"] = os.environ.get("HIVE_PASSWORD", "")
    if auth == "KERBEROS":
        settings = {"auth": auth, "kerberos_service_name": url["service"] or "hive"}
    try:
        return hive.connect(
            url["host"], int(url["port"]), database=url["database"] or "default",
            configuration={"hive.resultset.use.unique.column.names": "false", **conf}, **settings,
        )  # fmt: skip
    except Exception as error:  # nobody listens, another way to authenticate, no such database or setting
        said = getattr(getattr(error.args[0], "status", None), "errorMessage", None) if error.args else None
        why = str(said or error).splitlines()[0][:300]
        raise Mistake(f"--url {url[0]}: HiveServer2 does not let us in ({why})") from None
