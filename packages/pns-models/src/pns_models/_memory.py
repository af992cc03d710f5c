"""Memory that was freed, given back to the system."""

import ctypes
import sys


def give_back_memory() -> None:
    """Returns freed memory to the system, where the C library (glibc) can be asked to.

    Of the small blocks that threads free it keeps most: after boosted trees or a
    compilation, often more than the covariates take.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
