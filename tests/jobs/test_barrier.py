"""A barrier stage's ranks: their rows, their talk with the driver, their end."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs.barrier import CELL, Message, deal, receive, run_ranks, send, threads_of
from jobs.session import Mistake
from jobs.workers import to_bytes

ROWS = 1000


@pytest.fixture
def cells(spark: SparkSession) -> DataFrame:
    """Rows 0 to 999 in ten cells, by turns for each of two ranks."""
    keys = deal(2)
    parts = [pa.table({"x": pa.array(range(begin, begin + 100))}) for begin in range(0, ROWS, 100)]
    rows = [(keys[number % 2], bytearray(to_bytes(part))) for number, part in enumerate(parts)]
    return spark.createDataFrame(rows, CELL)


def sums(messages: list[Message]) -> Message:
    """Adds up."""
    assert len(messages) == 2
    names = [name for name in ("sum", "rows") if name in messages[0].values]
    return Message("sum", {name: sum(m.values[name] for m in messages) for name in names}, [b"a", b"", b"bc"])


def run(spark: SparkSession, cells: DataFrame, function: str, *settings: str, ranks: int = 2, **more: Any) -> list[Any]:
    """Run a function of ranks.py; what its ranks told."""
    told: list[Message] = []
    answers = {"sum": sums, "again": sums}
    run_ranks(spark, cells, ranks, ("tests.jobs.ranks", function), settings, answers, told.append, **more)
    return sorted(told, key=lambda message: message.values["rank"] if message.name == "total" else -1)


def test_all_ranks_hold_all_rows_once_and_get_the_same_answer(spark: SparkSession, cells: DataFrame) -> None:
    told = run(spark, cells, "total")
    expected = {"sum": sum(range(ROWS)), "rows": ROWS, "hosts": 2}
    assert [message.values for message in told] == [{"rank": 0, **expected}, {"rank": 1, **expected}]
    assert [list(message.parts) for message in told] == [[b"a", b"", b"bc"]] * 2


def test_a_rank_without_rows_takes_part(spark: SparkSession, cells: DataFrame) -> None:
    told = run(spark, cells.where(f"rank = {deal(2)[0]}"), "total")
    assert [message.values["rows"] for message in told] == [ROWS // 2] * 2


def test_what_a_rank_refuses_is_the_users_mistake_and_told_once(spark: SparkSession, cells: DataFrame) -> None:
    with pytest.raises(Mistake, match=r"^row 3 holds nan$"):
        run(spark, cells, "refuse")


def test_an_error_in_the_driver_ends_the_ranks_and_is_raised(spark: SparkSession, cells: DataFrame) -> None:
    def full(messages: list[Message]) -> Message:
        raise OSError("quota exceeded")

    with pytest.raises(OSError, match="quota exceeded"):
        run_ranks(spark, cells, 2, ("tests.jobs.ranks", "total"), (), {"sum": full}, print)
    assert len(run(spark, cells, "total")) == 2


def test_a_killed_rank_has_all_start_again(spark: SparkSession, cells: DataFrame, tmp_path: Path) -> None:
    told = run(spark, cells, "die_once", str(tmp_path / "death"))
    assert [(m.name, m.values.get("death")) for m in told] == [
        ("checkpoint", False), ("checkpoint", True), ("total", 2), ("total", 2),
    ]  # fmt: skip


def test_who_has_no_token_gets_no_answer(spark: SparkSession, cells: DataFrame) -> None:
    assert [message.values["rows"] for message in run(spark, cells, "intrude")] == [ROWS] * 2


def test_more_ranks_than_slots_are_refused_at_once(spark: SparkSession, cells: DataFrame) -> None:
    with pytest.raises(Mistake, match=r"--workers 3 is more than the 2 tasks that can run at once here"):
        run(spark, cells, "total", ranks=3)
    assert [threads_of(spark, ranks) for ranks in (1, 2)] == [2, 1]


def test_a_taken_port_is_named(spark: SparkSession, cells: DataFrame) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Mistake, match=f"--port {port}: 127.0.0.1 can't listen there"):
            run(spark, cells, "total", port=port)


def test_a_message_comes_as_it_was_sent() -> None:
    here, there = socket.socketpair()
    with here, there:
        message = Message("中", {"a": [1, None, "\n"]}, [b"", b"x" * 70_000])
        send(here, message._replace(parts=[b"", b"x" * 1000]))
        assert receive(there) == message._replace(parts=[b"", b"x" * 1000])
        with pytest.raises(ValueError, match="a header of"):
            send(here, Message("long", {"x": "x" * (1 << 20)}))
        here.sendall(b"\xff" * 8)
        with pytest.raises(ValueError, match="a header of 4294967295 bytes"):
            receive(there)
        here.close()
        assert there.recv(8) == b"\xff" * 4
        with pytest.raises(ConnectionError, match="closed"):
            receive(there)
