"""The one way Textmill compiles a kernel: ahead of the data, for a generic CPU, cached beside the source."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import numba

# A cache built here must load on any executor, and the same input must give the same bits on any machine: both ask
# for the architecture's baseline rather than for this host's own instructions.
numba.config.CPU_NAME = "generic"
numba.config.CPU_FEATURES = ""

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile `function` with numba (nopython, GIL released), cached on disk where there is a writable place.

    numba looks for its cache beside the source, then under HOME; where neither can be written (a read-only install
    run by a user without a home) it raises, and the kernel is compiled anew in each process instead.
    """
    try:
        compiled = numba.njit(function, cache=True, nogil=True, error_model="numpy")
        # numba takes a cache for fresh while the kernel's own file is as it was, but other files' code is in it too.
        compiled._cache._cache_file._source_stamp = compiled.stamp = _stamp(function)
        return compiled
    except (RuntimeError, AttributeError):
        return numba.njit(function, nogil=True, error_model="numpy")


def _stamp(function: Callable[..., object]) -> str:
    """A hash of the source of the function's module and of those whose kernels or intrinsics it calls."""
    state = hashlib.sha256(_source(function.__module__))
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if stamp := getattr(called, "stamp", None):
            state.update(stamp.encode())
        elif isinstance(called, numba.core.extending._Intrinsic):
            state.update(_source(called.__module__))
    return state.hexdigest()


@cache
def _source(module: str) -> bytes:
    return inspect.getsource(sys.modules[module]).encode()
