"""Both sources as trials: the log is one with the cells as outcomes, each arm another."""

from typing import Any

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Num

from pns_infer.core.inputs import check_shape

Array = Any  # NumPy or JAX
Trials = Float[np.ndarray, "*rows trials outcomes"]


def trial_laws(atoms: pb.Atoms) -> list[Trials]:
    """Returns the probabilities of the outcomes, of the log and of the trial."""
    joint, mu = (np.asarray(part, float) for part in atoms)
    log = joint.reshape(*mu.shape[:-1], 1, pb.BINARY.num_cells)
    return [log, np.stack([1 - mu, mu], axis=-1)]


def trial_counts(
    observational: Num[Array, "n treatments levels"],
    experimental: Num[Array, "n treatments levels"],
    num_rows: int,
) -> list[Trials]:
    """Returns the counts of the outcomes; raises unless they are counts of the rows."""
    tables = []
    names = ("observational", "experimental")
    for name, part in zip(names, (observational, experimental), strict=True):
        check_shape(name, part, (num_rows, *pb.BINARY.joint_shape))
        counts = np.asarray(part, float)
        if not np.all((counts >= 0) & (counts < np.inf)):
            raise pb.InputError(name, "must be counts: finite and not negative.")
        tables.append(counts)
    return [tables[0].reshape(num_rows, 1, pb.BINARY.num_cells), tables[1]]


def trial_atoms(
    log: Float[np.ndarray, "*rows 1 cells"],
    trial: Float[np.ndarray, "*rows treatments levels"],
    dtype: Any,
) -> pb.Atoms:
    """Returns compatible atoms: mu is moved to the nearest value that the log admits."""
    joint = log.reshape(*trial.shape[:-2], *pb.BINARY.joint_shape)
    atoms = pb.Atoms(joint.astype(dtype), trial[..., 1].astype(dtype))
    return pb.project_to_compatible(atoms)
