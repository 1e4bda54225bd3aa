"""Progress: a live line on a terminal, one log line a stage elsewhere."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jobs.logs import JsonLines
from jobs.progress import duration, progress


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (42, "42 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (60, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.5, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (90061, "25 h 1 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_without_a_terminal_a_stage_is_one_quiet_log_line(
    spark: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "textmill"), progress(spark, "count", 3):
        spark.range(3).count()
        time.sleep(0.7)
    assert [re.sub(r"\d+ s", "N s", record.message) for record in caplog.records] == ["count: done in N s"]
    said = capsys.readouterr()
    assert "\r" not in said.err
    assert said.out == ""


@contextmanager
def terminal() -> Iterator[list[str]]:
    """A terminal as stderr; the list holds what was written to it once the block has ended."""
    ours, theirs = pty.openpty()
    read: list[bytes] = []

    def follow() -> None:
        try:
            while part := os.read(ours, 4096):
                read.append(part)
        except OSError:  # the other end was closed
            return

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    said: list[str] = []
    before = sys.stderr
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as sys.stderr:
            yield said
    finally:
        sys.stderr = before
        reader.join(10)
        os.close(ours)
        said.append(b"".join(read).decode())


def test_on_a_terminal_a_line_shows_documents_rate_and_time_left(spark: Any) -> None:
    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for batch in batches:
            time.sleep(1.2)
            yield batch

    with terminal() as said, progress(spark, "transform", 4000):
        spark.range(0, 40, 1, 4).mapInArrow(slowly, "id long").collect()  # two rounds of two tasks
    lines = [re.sub(r"\x1b\[K", "", line).strip() for line in said[0].split("\r")]
    shown = [line for line in lines if line.startswith("transform")]
    assert any(re.search(r"[\d,]+ documents  [\d,]+/s", line) for line in shown), said
    half = [line for line in shown if "task 2 of 4" in line]
    assert half, shown
    assert all("2,000 documents" in line and re.search(r"\d+ s left", line) for line in half), half
    assert said[0].rstrip("\n").endswith("\r\x1b[K")  # the line is cleared at the end


def test_a_log_in_json_shows_no_live_line_but_says_how_many_and_how_long(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    written = logging.StreamHandler(stream := io.StringIO())
    written.setFormatter(JsonLines())
    logging.root.addHandler(written)
    try:
        with terminal() as said, caplog.at_level(logging.INFO, "textmill"), progress(spark, "count") as done:
            time.sleep(0.7)
            done["documents"] = 3
    finally:
        logging.root.removeHandler(written)
    assert said == [""]
    found = json.loads(stream.getvalue())
    assert (found["level"], found["stage"], found["documents"]) == ("INFO", "count", 3)
    assert 0.7 <= found["seconds"] < 60


def fail_after(seconds: float) -> None:
    time.sleep(seconds)
    raise RuntimeError("the job's own")


def test_a_failing_job_ends_its_progress_and_keeps_its_error(spark: Any) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with terminal() as said, pytest.raises(RuntimeError, match="the job's own"), progress(spark, "count"):
        fail_after(0.7)
    assert {thread.name for thread in threading.enumerate()} == before
    assert said[0].endswith("\r\x1b[K")
