"""Kernels' caches on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEAF = """
from udfs.compiled import kernel

@kernel
def leaf(x):
    return x + {}
"""
MIDDLE = """
from leaf import leaf
from udfs.compiled import kernel

@kernel
def middle(x):
    return leaf(x)
"""
TOP = """
from middle import middle
from udfs.compiled import kernel

@kernel
def top(x):
    return middle(x)

print(top(1), sum(top.stats.cache_hits.values()))
"""


def test_a_kernel_is_compiled_anew_when_one_that_it_calls_has_changed(tmp_path: Path) -> None:
    """numba itself looks at the kernel's own file only, and went on with the code of the old one."""
    (tmp_path / "middle.py").write_text(MIDDLE)
    (tmp_path / "top.py").write_text(TOP)

    def run(added: int) -> list[str]:
        (tmp_path / "leaf.py").write_text(LEAF.format(added))
        path = os.pathsep.join([str(tmp_path), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, str(tmp_path / "top.py")]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()

    assert run(1) == ["2", "0"]
    assert run(1) == ["2", "1"]
    assert run(20) == ["21", "0"]
    assert run(1) == ["2", "0"]
