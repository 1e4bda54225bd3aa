"""The one way Textmill compiles a kernel: ahead of the data, for a generic CPU, cached beside the source."""

from __future__ import annotations

from collections.abc import Callable
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
        return numba.njit(function, cache=True, nogil=True, error_model="numpy")
    except RuntimeError:
        return numba.njit(function, nogil=True, error_model="numpy")
