"""Several processes, perhaps on several machines, that work on one fit.

Every process runs the same program on the same tables. Training is shared; what is left of
a fit every process does for itself, with the same result. Process 0 alone writes.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from pns_models._errors import LostProcessError

_SECONDS = 30  # without a sign of life after which a process counts as dead


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

    Example:
      >>> join_processes("10.0.0.1:8476", 2, process_id=1)  # doctest: +SKIP
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Process 0 hears of the end of another by an error; without it JAX aborts.
    jax.config.update("jax_enable_recoverability", True)
    jax.distributed.initialize(
        coordinator_address,
        num_processes,
        process_id,
        heartbeat_timeout_seconds=_SECONDS,
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

    If process 0 ends, JAX itself ends the others, with a message of its own.
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
