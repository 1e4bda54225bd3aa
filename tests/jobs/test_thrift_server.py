"""The Thrift Server as its clients see it, from another process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.test_featurize import ROOT, submission, submit

hive = pytest.importorskip("pyhive.hive", reason="the packages for Spark 3.5 have no PyHive")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
SCRIPT = ROOT / "jobs/thrift_server.py"
NOSASL = ("--conf", "spark.hadoop.hive.server2.authentication=NOSASL")  # PyHive needs packages for anything else


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server that listens, and its port."""
    folder = tmp_path_factory.mktemp("thrift")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    command, settings = submission(*NOSASL, SCRIPT, "--port", port, master="local[2]")
    process = subprocess.Popen(
        command, env=settings, cwd=folder, start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=(folder / "err").open("w"),
    )  # fmt: skip
    try:
        line = process.stdout.readline()  # type: ignore[union-attr]
        assert line == f"listening on 127.0.0.1:{port}; Ctrl-C ends it\n", (folder / "err").read_text()
        yield port, process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def asked(port: int, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement, in a connection of its own."""
    with hive.connect("127.0.0.1", port, auth="NOSASL") as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


def test_a_client_calls_the_functions(server: tuple[int, subprocess.Popen[str]]) -> None:
    port, _ = server
    tokens = asked(port, "SELECT t.token FROM (SELECT explode(tokenize('The cat. 数据！')) AS t)")
    assert tokens == [("the",), ("cat",), ("数",), ("据",)]
    rows = asked(
        port,
        "CREATE TABLE texts (id INT, text STRING) USING parquet",
        "INSERT INTO texts VALUES (1, 'A b.\tC\n d'), (2, NULL), (3, 'é')",
        "SELECT id, term, hash_term(term, 1000) FROM texts LATERAL VIEW explode(ngrams(text, 1, 2)) AS term "
        "ORDER BY id, term",
    )
    assert [row[:2] for row in rows] == [(1, "a"), (1, "a b"), (1, "b"), (1, "c"), (1, "c d"), (1, "d"), (3, "é")]
    assert rows[0][2] == 467
    assert asked(port, "SELECT minhash(array('a'), 2), normalize('İ')") == [("[2958535695,652303338]", "i̇")]


def test_a_port_that_is_taken_is_told_in_a_line(server: tuple[int, subprocess.Popen[str]], tmp_path: Path) -> None:
    port, _ = server
    done = submit(SCRIPT, "--port", port, cwd=tmp_path, master="local[1]")
    assert done.returncode == 2
    said = done.stdout + done.stderr
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert line == f"error: --host 127.0.0.1 --port {port}: Address already in use; choose another port or address"
    assert "Traceback" not in said


def test_ctrl_c_ends_it_quietly(server: tuple[int, subprocess.Popen[str]]) -> None:
    _, process = server  # the last test that needs it
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=120) == 130
    assert process.stdout.read() == ""  # type: ignore[union-attr]
