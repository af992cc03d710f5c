"""Several processes, perhaps on several machines, that work on one fit.

Every process runs the same program on the same tables. Training is shared; what is left of
a fit every process does for itself, with the same result. Process 0 alone writes.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pns_bounds as pb
from jax.experimental import multihost_utils

from pns_models._errors import LostProcessError, require

_SILENCE = 30  # seconds without a sign of life after which a process counts as dead
_PATIENCE = 7 * 24 * 3600  # seconds that processes wait for each other at the end


def join_processes(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Joins the other processes of a run; to be called before anything is computed.

    What is None JAX finds out by itself under SLURM, Open MPI and Kubernetes and on TPU
    slices. On CPUs every process has one device unless `jax_num_cpu_devices` says more.

    Args:
      coordinator_address: host and port of process 0, "10.0.0.1:8476" for example.
      num_processes: how many there are.
      process_id: the number of this one, from 0.

    Raises:
      InputError: if some of them are given and others are not, or one makes no sense.

    Example:
      >>> join_processes("10.0.0.1:8476", num_processes=1, process_id=0)  # alone
      >>> is_writer()
      True
    """
    _check_names(coordinator_address, num_processes, process_id)
    if num_processes == 1:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address,
        num_processes,
        process_id,
        heartbeat_timeout_seconds=_SILENCE,
        shutdown_timeout_seconds=_PATIENCE,
    )


def _check_names(address: str | None, size: int | None, number: int | None) -> None:
    """Raises unless all three are None, or all make sense."""
    if address is None and size is None and number is None:
        return
    if address is None or size is None or number is None:
        raise pb.InputError(
            "process_id",
            "belongs together with the coordinator's address and the number of processes; "
            "give all three, or none where JAX finds them by itself.",
        )
    require(
        re.fullmatch(r".+:\d+", address),
        "coordinator_address",
        f"must be host and port, 10.0.0.1:8476 for example, got {address!r}.",
    )
    require(
        0 <= number < size,
        "process_id",
        f"counts from 0 and must be below the number of processes, {size}, got {number}.",
    )


def is_writer() -> bool:
    """Whether this process writes files: process 0, or the only one.

    Example:
      >>> is_writer()
      True
    """
    return jax.process_index() == 0


def from_writer(tree: Any) -> Any:
    """Returns the arrays that process 0 has, in every process; shapes must agree."""
    if jax.process_count() == 1:
        return tree
    with telling_of_lost_processes():
        return multihost_utils.broadcast_one_to_all(jax.tree.map(np.asarray, tree))


@contextlib.contextmanager
def telling_of_lost_processes() -> Iterator[None]:
    """Says in one sentence that another process has ended, and what to do.

    JAX itself then ends this process, too, within half a minute and with a message of
    its own; if process 0 has ended, at once.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        raise LostProcessError(
            "another process of this run has ended; see what it said, then start all of "
            "them again: training goes on from its last checkpoint."
        ) from error
