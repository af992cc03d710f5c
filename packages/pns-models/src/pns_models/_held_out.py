"""What members say of the rows that they did not see."""

import jax
import numpy as np
from jaxtyping import Float, Int
from pns_bounds import BINARY

from pns_models._data import Counts, flat_weights
from pns_models._links import log_probabilities

_log_probabilities = jax.jit(log_probabilities, static_argnums=1)


def members_by_fold(
    member_fold: Int[np.ndarray, " m"],
) -> Int[np.ndarray, "num_folds members_per_fold"]:
    """Lists the members that did not see each fold."""
    folds = range(int(member_fold.max()) + 1)
    return np.stack([np.flatnonzero(member_fold == fold) for fold in folds])


def pick_held_out(
    raw: Float[np.ndarray, "m n raw"],
    by_fold: Int[np.ndarray, "num_folds members_per_fold"],
    fold: Int[np.ndarray, " n"],
) -> Float[np.ndarray, "members_per_fold n raw"]:
    """Picks each row's raw numbers by the members that did not see its fold."""
    return raw[by_fold[fold].T, np.arange(len(fold))]


def mean_loss(raw: Float[np.ndarray, "n raw"], counts: Counts) -> float:
    """Computes L_obs + L_exp of all units by raw numbers of their rows."""
    weights, logs = flat_weights(counts).astype(np.float64), flat_logs(raw)
    total = 0.0
    for start in range(0, BINARY.num_counts, BINARY.num_cells):
        part = slice(start, start + BINARY.num_cells)
        units = float(weights[:, part].sum()) or 1.0  # some rows may lack a source
        total -= float((weights[:, part] * logs[:, part]).sum()) / units
    return total


def flat_logs(
    raw: Float[np.ndarray, "*batch raw"],
) -> Float[np.ndarray, "*batch counts"]:
    """Computes the log-probability of what each count counts, in float64."""
    parts = _log_probabilities(raw, "anchored")
    shape = (*raw.shape[:-1], BINARY.num_cells)
    return np.concatenate(
        [np.asarray(part, np.float64).reshape(shape) for part in parts], axis=-1
    )
