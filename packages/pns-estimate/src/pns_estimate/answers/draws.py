"""Draws for a table of units: made once, in blocks, in bounded memory."""

import functools
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import IO

import jax
import numpy as np
import pns_bounds as pb
from jaxtyping import Float

from pns_estimate.methods import Sampler

BLOCK = 512  # units whose draws are made at a time
_MEMORY = 2**30  # bytes of draws kept in memory; the rest goes to a temporary file


class Draws:
    """Makes each block of draws when it is first asked for, and keeps it.

    Blocks share a key, so draw number b is one law for all units. Beyond `memory` bytes
    blocks are kept in a temporary file, which goes with the object.
    """

    def __init__(
        self,
        sampler: Sampler,
        key: jax.Array,
        z: Float[np.ndarray, "n d"],
        num_draws: int,
        memory: int = _MEMORY,
    ):
        """Draws nothing yet."""
        self._make = functools.partial(sampler.draws, key, num_draws=num_draws)
        self._z = z
        self._room = memory
        self._kept: list[Callable[[], pb.Atoms]] = []
        self._file: IO[bytes] | None = None

    def __iter__(self) -> Iterator[pb.Atoms]:
        """Yields Atoms [num_draws, at most BLOCK units]."""
        for number, start in enumerate(range(0, len(self._z), BLOCK)):
            if number == len(self._kept):
                block = self._make(self._z[start : start + BLOCK])
                self._kept.append(self._keep(block))
            yield self._kept[number]()

    def _keep(self, block: pb.Atoms) -> Callable[[], pb.Atoms]:
        self._room -= sum(part.nbytes for part in block)
        if self._room >= 0:
            return lambda: block
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115, closed with us
            weakref.finalize(self, self._file.close)
        return functools.partial(pb.Atoms, *map(self._write, block))

    def _write(self, part: np.ndarray) -> np.ndarray:
        """Moves an array to the file; returns a view of it there."""
        assert self._file is not None
        offset = self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(part).data)
        self._file.flush()
        return np.memmap(self._file, part.dtype, "r", offset, part.shape)
