"""Run HiveQL: spark-submit jobs/query.py sql/tfidf.sql --param name=value [--help]"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

if (Path(__file__).resolve().parents[1] / "udfs").is_dir():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.engines import HiveServer, Spark
from jobs.options import Parser, refuse_empty
from jobs.queries import Query, Value, as_table, read_query
from jobs.session import Mistake, exit_code, log, mistakes, stop_spark

ORDER = "ORDER"  # of a folder's queries, a name a line


Engine = Spark | HiveServer


def parser() -> argparse.ArgumentParser:
    """All options."""
    p = Parser("query.py", description="A query of sql/, or all of them, on Spark or Hive.", allow_abbrev=False)
    p.add_argument("query", metavar="FILE|DIR", help="a query, or a folder of queries with a file ORDER")
    p.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE",
        help="a parameter of the query; for one query of a folder: QUERY.NAME=VALUE",
    )  # fmt: skip
    p.add_argument(
        "--output", metavar="DIR", help="where the rows go: a folder; Hive: table:NAME, or database:NAME of all"
    )
    p.add_argument("--overwrite", action="store_true", help="replace --output if it exists")
    p.add_argument("--rows", type=int, default=20, metavar="N", help="rows to print (default: 20)")
    p.add_argument("--explain", action="store_true", help="only show how it would be run")
    p.add_argument("--engine", choices=("spark", "hive"), default="spark", help="default: spark")
    s = p.add_argument_group("Spark")
    s.add_argument(
        "--table", action="append", default=[], metavar="NAME=PATH", help="a Parquet or ORC folder to read as a table"
    )
    h = p.add_argument_group("Hive")
    h.add_argument("--url", metavar="URL", help="hive2://[USER@]HOST:PORT/DATABASE[;auth=NOSASL|NONE|LDAP|KERBEROS]")
    h.add_argument("--hive-conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Hive's session")
    h.add_argument("--resource", action="append", default=[], metavar="URI", help="an archive for TRANSFORM, on HDFS")
    return p


def check(options: argparse.Namespace) -> None:
    """Raise Mistake for options that exclude each other."""
    refuse_empty(options)
    hive = options.engine == "hive"
    for name in ("url", "hive_conf", "resource"):
        if getattr(options, name) and not hive:
            raise Mistake(f"--{name.replace('_', '-')} is for --engine hive: choose that, or leave it out")
    if options.table and hive:
        raise Mistake("--table is for Spark: Hive has its tables; name one with --param")
    if hive and not options.url:
        raise Mistake("--engine hive needs --url hive2://HOST:PORT/DATABASE, where HiveServer2 is")
    if options.explain and options.output:
        raise Mistake("--explain writes nothing: leave out --output")
    if not 1 <= options.rows <= 10_000:
        raise Mistake(f"--rows is {options.rows}: give a number from 1 to 10000, or --output for all rows")


def pairs(option: str, given: list[str]) -> dict[str, str]:
    """NAME=VALUE, each name once; raises Mistake for anything else."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals) or name in found:
            why = "is given twice" if name in found else "is not NAME=VALUE"
            raise Mistake(f"{option} {each[:80]} {why}: give each name once, with = and its value")
        found[name] = value
    return found


def main(arguments: list[str]) -> None:
    """Run the job; results go to stdout, everything else to stderr or the log."""
    options = parser().parse_args(arguments)
    check(options)
    given = pairs("--param", options.param)
    path = Path(options.query)
    queries = read_folder(path, options.engine) if path.is_dir() else [read(path)]
    values = values_of(queries, given) if path.is_dir() else {queries[0].name: checked(queries[0], given)}
    if path.is_dir() and not options.output and not options.explain:
        raise Mistake(f"{path} is a folder of queries that read each other's results: give --output, where these go")
    engine = open_engine(options, path.is_dir())
    if not path.is_dir():
        run_one(engine, queries[0], values[queries[0].name], options)
        return
    given_tables = set(pairs("--table", options.table))
    chosen = [(query, values[query.name]) for query in runnable(engine, queries, values, given_tables)]
    if options.explain:
        for query, own in chosen:
            print(f"-- {query.name}: reads {', '.join(query.tables(own))}")
        return
    for name, place, number in engine.write(chosen, named=True):
        print(f"{name:20} {number:>14,} rows  {place}")


def run_one(engine: Engine, query: Query, values: dict[str, Value], options: argparse.Namespace) -> None:
    """Print a query's plan or rows, or write them."""
    for table in query.tables(values):
        if not engine.has(table):
            raise Mistake(f"{query.name} reads table {table}, which is not there: {table_remedy(options)}")
    if options.explain:
        print(engine.explain(query, values))
    elif options.output:
        for _, place, number in engine.write([(query, values)], named=False):
            print(f"{number:,} rows in {place}")
    else:
        columns, rows = engine.rows(query, values, options.rows + 1)
        print(as_table(columns, rows[: options.rows]))
        if len(rows) > options.rows:
            print(f"… and more rows: --output writes them all, --rows N prints more than {options.rows}")


def table_remedy(options: argparse.Namespace) -> str:
    """How to name a table."""
    return (
        "name another with --param"
        if options.engine == "hive"
        else "give it by --table NAME=PATH, or name another with --param"
    )


def read(path: Path) -> Query:
    """A query; raises Mistake if there is none."""
    try:
        with mistakes():
            return read_query(path)
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror}") from None


def read_folder(folder: Path, engine: str) -> list[Query]:
    """The queries that ORDER names, of the folder or of the engine's own folder in it; raises Mistake without ORDER."""
    if not (folder / ORDER).is_file():
        raise Mistake(f"{folder} has no file {ORDER}, the names of its queries, one a line: give a query file")
    names = (folder / ORDER).read_text("utf-8").split()
    own = [folder / engine / f"{name}.sql" for name in names]
    return [read(path if path.is_file() else folder / path.name) for path in own]


def checked(query: Query, given: dict[str, str]) -> dict[str, Value]:
    """The values of a query's parameters; raises Mistake."""
    with mistakes():
        return query.values(given)


def values_of(queries: list[Query], given: dict[str, str]) -> dict[str, dict[str, Value]]:
    """For each query the values of its parameters; one that lacks a value is left out, and that is said.

    Raises Mistake for a value that no query has a parameter for.
    """
    used: set[str] = set()
    values = {}
    for query in queries:
        names = [parameter.name for parameter in query.parameters]
        own = {name: given[name] for name in names if name in given}
        own |= {name: given[f"{query.name}.{name}"] for name in names if f"{query.name}.{name}" in given}
        used |= {*own, *(f"{query.name}.{name}" for name in names)}
        missing = [each.name for each in query.parameters if each.name not in own and each.default is None]
        if missing:
            log.warning("%s is left out: give --param %s.%s=…", query.name, query.name, missing[0])
        else:
            values[query.name] = checked(query, own)
    for name in given:
        if name not in used:
            raise Mistake(f"--param {name[:80]}: no query has such a parameter")
    return values


def runnable(engine: Engine, queries: list[Query], values: dict[str, dict[str, Value]], given: set[str]) -> list[Query]:
    """The queries whose tables are there or come of queries before; the others are left out, and that is said.

    given: names of tables that are there already in place of the queries' results.
    """
    made = set(given)
    chosen = []
    for query in queries:
        if query.name in given:
            log.info("%s is given", query.name)
            continue
        if query.name not in values:
            continue
        missing = [name for name in query.tables(values[query.name]) if name not in made and not engine.has(name)]
        if missing:
            log.warning("%s is left out: there is no table %s", query.name, missing[0])
        else:
            made.add(query.name)
            chosen.append(query)
    if not chosen:
        raise Mistake("no query has all of its tables: give the table documents, or name others with --param")
    return chosen


def open_engine(options: argparse.Namespace, named: bool) -> Engine:
    """Spark with the tables of --table, or a session of HiveServer2; raises Mistake."""
    if options.engine == "spark":
        return Spark(pairs("--table", options.table), options.output, options.overwrite)
    kind = "database:" if named else "table:"
    if options.output and not options.output.startswith(kind):
        raise Mistake(f"--output {options.output}: on Hive give {kind}NAME")
    output = (options.output or "").removeprefix(kind)
    conf = pairs("--hive-conf", options.hive_conf)
    return HiveServer(options.url, conf, options.resource, output, options.overwrite)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = exit_code(main, sys.argv[1:])
    stop_spark()
    sys.exit(code)
