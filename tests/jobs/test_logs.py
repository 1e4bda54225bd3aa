"""The log as JSON: whatever is logged or warned of is one object a line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = r"""
import logging, warnings
from jobs.session import exit_code

def job(arguments):
    extra = {"stage": "count", "documents": 0}
    logging.getLogger("textmill").info("two\nlines, %s", "caf\u00e9 \U0001f600", extra=extra)
    warnings.warn("of a library")
    try:
        1 / 0
    except ZeroDivisionError:
        logging.exception("failed")
    logging.getLogger("elsewhere").debug("too much")
    raise RuntimeError("first line\nsecond line")

raise SystemExit(exit_code(job, ["--log-json"]))
"""


def test_every_line_is_an_object() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1
    info, warned, failed, last = [json.loads(line) for line in done.stderr.decode("ascii").splitlines()]
    assert (info["level"], info["message"]) == ("INFO", "two\nlines, caf\u00e9 \U0001f600")
    assert (info["stage"], info["documents"]) == ("count", 0)
    assert warned["level"] == "WARNING"
    assert "of a library" in warned["message"]
    assert (failed["level"], failed["message"]) == ("ERROR", "failed")
    assert failed["exception"].endswith("ZeroDivisionError: division by zero")
    assert (last["level"], last["exit_code"]) == ("ERROR", 1)
    assert last["message"].startswith("RuntimeError: second line (everything in ")
