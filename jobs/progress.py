"""Progress of a running job: a live line on a terminal, one log line a stage elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TextIO

from pyspark.sql import SparkSession

from jobs.logs import is_json
from jobs.session import log


def duration(seconds: float) -> str:
    """Seconds as 42 s, 3 min 20 s or 2 h 5 min."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


@contextmanager
def progress(
    spark: SparkSession, name: str, documents: int | None = None, told: Callable[[float], str] | None = None
) -> Iterator[dict[str, int | None]]:
    """Show how far Spark's active stages are while the block runs: documents, their rate, the time left.

    `documents` is their number where it is known; else records read so far stand in for them, and the block may put
    the number into what it is given, for the log. Time left is by tasks and, within them, by records.
    told: gives another line, for the seconds so far.
    """
    done = {"documents": documents}
    started = time.monotonic()
    line = told or (lambda elapsed: _line(spark, name, documents, elapsed))
    stop = threading.Event()
    with terminal() as screen:
        watcher = threading.Thread(target=_watch, args=(line, started, stop, screen), daemon=True)
        if screen:
            watcher.start()
        try:
            yield done
        finally:
            stop.set()
            if screen:
                watcher.join()
                screen.write("\r\x1b[K")
    seconds = time.monotonic() - started
    log.info("%s: done in %s", name, duration(seconds), extra={"stage": name, "seconds": round(seconds, 3), **done})


@contextmanager
def terminal() -> Iterator[TextIO | None]:
    """The terminal that shows this job's stderr, or None, also where the log is JSON.

    spark-submit puts a pipe in place of the driver's stderr: then it is the terminal whose foreground the job is in.
    """
    if is_json():
        yield None
        return
    if sys.stderr.isatty():
        yield sys.stderr
        return
    with ExitStack() as opened:
        screen = None
        if "PYSPARK_GATEWAY_PORT" in os.environ:  # set by spark-submit
            with suppress(OSError):  # no terminal: cron, CI, a cluster's container
                tty = opened.enter_context(open("/dev/tty", "w"))
                screen = tty if os.tcgetpgrp(tty.fileno()) == os.getpgrp() else None
        yield screen


def _watch(line: Callable[[float], str], started: float, stop: threading.Event, screen: TextIO) -> None:
    while not stop.wait(0.5):
        try:
            shown = line(time.monotonic() - started)
        except Exception:  # the session may be ending: progress must never end a job
            continue
        screen.write(f"\r\x1b[K{shown}")
        screen.flush()


def _line(spark: SparkSession, name: str, documents: int | None, elapsed: float) -> str:
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    active = store.activeStages()
    stages = [active.apply(i) for i in range(active.size())]
    tasks = sum(stage.numTasks() for stage in stages)
    done = sum(stage.numCompleteTasks() for stage in stages)
    records = sum(stage.inputRecords() for stage in stages)
    share = done / tasks if tasks else 0.0
    seen = int(share * documents) if documents is not None else records
    parts = [name, f"{seen:,} documents", f"{seen / elapsed:,.0f}/s"]
    if tasks:
        parts.append(f"task {done} of {tasks}")
    if 0 < share < 1:
        parts.append(f"{duration(elapsed / share * (1 - share))} left")
    return "  ".join(parts)
