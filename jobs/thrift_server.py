"""Spark's Thrift Server with the text functions: spark-submit jobs/thrift_server.py [--port N] [--host ADDRESS]"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import time
from pathlib import Path

if (Path(__file__).resolve().parents[1] / "udfs").is_dir():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.options import Parser
from jobs.session import Mistake, exit_code, spark_session, stop_spark
from udfs.spark import register

PORT = 10000
# Functions belong to a session; without this each connection has a new one.
SETTINGS = {"spark.sql.hive.thriftServer.singleSession": "true"}


def parser() -> argparse.ArgumentParser:
    """All options."""
    p = Parser("thrift_server.py", description="Spark's Thrift Server with the text functions.", allow_abbrev=False)
    p.add_argument("--port", type=int, default=PORT, metavar="N", help=f"where it listens (default: {PORT})")
    p.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="on which address (default: 127.0.0.1, this machine only)",
    )
    return p


def main(arguments: list[str]) -> None:
    """Serve until Ctrl-C, which ends the process with 130."""
    options = parser().parse_args(arguments)
    refuse_taken(options.host, options.port)
    try:
        serve(options.host, options.port)
    except KeyboardInterrupt:
        stop_spark()
        sys.exit(130)


def refuse_taken(host: str, port: int) -> None:
    """Raise Mistake if one can't listen there: the server itself would end with its reason in the log."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).split(" (")[0]
        raise Mistake(f"--host {host} --port {port}: {reason}; choose another port or address") from None


def serve(host: str, port: int) -> None:
    """Start the server in a session with the functions, and wait; RuntimeError when Spark stops."""
    spark = spark_session("textmill thrift server", SETTINGS)
    register(spark)
    context = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    hadoop.set("hive.server2.thrift.bind.host", host)
    for transport in ("thrift", "thrift.http"):
        hadoop.set(f"hive.server2.{transport}.port", str(port))
    server = context._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2  # type: ignore[union-attr]
    server.startWithContext(spark._jsparkSession.sqlContext())
    print(f"listening on {host}:{port}; Ctrl-C ends it", flush=True)
    while not context._jsc.sc().isStopped():
        time.sleep(1)
    raise RuntimeError("Spark has stopped")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = exit_code(main, sys.argv[1:])
    stop_spark()
    sys.exit(code)
