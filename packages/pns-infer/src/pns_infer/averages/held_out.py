"""Units of both sources, each with atoms from a model that did not see it."""

from typing import Any, Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int

from pns_infer.core.inputs import check_option

Array = Any  # whatever NumPy reads
WeightsAre = Literal["sampling", "frequency"]


class HeldOutUnits(NamedTuple):
    """Rows of both sources; make it with `make_held_out_units`, which checks it.

    Attributes:
      atoms: estimates [n] by models that did not see the row, or its group.
      is_experimental: which source.
      x: the treatment chosen, or the arm assigned.
      y: the outcome.
      weights: a unit of weight w counts as w units.
      assignment: probability of arm 1; read in experimental rows alone.
      ratio: density of the target's covariates over that of the row's own source, up to
        a factor; None where the sources have one law.
      cluster: 0, 1, ...; rows of one cluster may depend on each other.
      copies: independent units that a row stands for: its weight if weights are
        frequencies, else 1.
    """

    atoms: pb.Atoms
    is_experimental: Bool[np.ndarray, " n"]
    x: Int[np.ndarray, " n"]
    y: Int[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]
    assignment: Float[np.ndarray, " n"]
    ratio: Float[np.ndarray, " n"] | None
    cluster: Int[np.ndarray, " n"]
    copies: Float[np.ndarray, " n"]

    @property
    def sample_size(self) -> int:
        """Number of rows."""
        return len(self.x)


def make_held_out_units(
    atoms: pb.Atoms,
    is_experimental: Bool[Array, " n"],
    x: Int[Array, " n"],
    y: Int[Array, " n"],
    *,
    assignment: float | Float[Array, " n"],
    weights: Float[Array, " n"] | None = None,
    ratio: Float[Array, " n"] | None = None,
    groups: Any = None,
    weights_are: WeightsAre = "sampling",
) -> HeldOutUnits:
    """Checks arrays and puts them together.

    Args:
      atoms: held-out estimates [n]; they need not be compatible.
      is_experimental: which rows are experimental.
      x: 0 or 1.
      y: 0 or 1.
      assignment: probability of arm 1, a number or one for each row.
      weights: positive; 1 if None.
      ratio: not negative; see `target_ratio`.
      groups: [n] labels of clusters; every row is its own if None.
      weights_are: 'sampling': a row is one unit that stands for w. 'frequency': it is w
        independent units with the same values; within groups nothing is independent.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> x, y = np.tile([[0, 0], [0, 1], [1, 1], [1, 1]], (100, 1)).T
      >>> atoms = pb.Atoms(np.full((400, 2, 2), 0.25), np.full((400, 2), 0.5))
      >>> units = make_held_out_units(atoms, x >= 0, x, y, assignment=0.5)
      >>> len(units.y)
      400
    """
    check_option("weights_are", weights_are, ("sampling", "frequency"))
    is_experimental = np.asarray(is_experimental)
    count = len(is_experimental)
    atoms = pb.Atoms(*(np.asarray(part, float) for part in atoms))
    if is_experimental.dtype != bool or is_experimental.shape != (count,):
        raise ValueError("is_experimental must be booleans, one for each row.")
    if atoms.joint.shape != (count, 2, 2) or atoms.mu.shape != (count, 2):
        raise ValueError(
            f"atoms must be held-out estimates of all {count} rows, got shapes "
            f"{list(atoms.joint.shape)} and {list(atoms.mu.shape)}."
        )
    if not all(np.isfinite(part).all() for part in atoms):
        raise ValueError("atoms must be finite numbers.")
    for name, values in (("x", x), ("y", y)):
        if np.shape(values) != (count,) or not np.isin(values, (0, 1)).all():
            raise ValueError(f"{name} must be 0 or 1, one for each of {count} rows.")
    cluster = np.arange(count)
    if groups is not None:
        labels = np.asarray(groups)
        if labels.shape != (count,):
            raise ValueError(f"groups must be {count} labels, one for each row.")
        cluster = np.unique(labels, return_inverse=True)[1]
    weights = _positive("weights", weights, count)
    is_counted = weights_are == "frequency" and groups is None
    return HeldOutUnits(
        atoms=atoms,
        is_experimental=is_experimental,
        x=np.asarray(x, int),
        y=np.asarray(y, int),
        weights=weights,
        assignment=_checked_assignment(assignment, is_experimental),
        ratio=None if ratio is None else _positive("ratio", ratio, count),
        cluster=cluster,
        copies=weights if is_counted else np.ones(count),
    )


def _positive(name: str, values: Array, count: int) -> Float[np.ndarray, " n"]:
    if values is None:
        return np.ones(count)
    numbers = np.asarray(values, float)
    good = numbers.shape == (count,) and np.all(np.isfinite(numbers) & (numbers > 0))
    if not good:
        raise ValueError(f"{name} must be {count} positive numbers, one for each row.")
    return numbers


def _checked_assignment(
    assignment: Array, is_experimental: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    count = len(is_experimental)
    probability = np.asarray(assignment, float)
    if probability.shape not in ((), (count,)):
        raise ValueError(
            f"assignment must be a number or {count} of them, one for each row."
        )
    probability = np.broadcast_to(probability, (count,))
    inside = (probability > 0) & (probability < 1)
    if not inside[is_experimental].all():
        raise ValueError(
            "the assignment probability of every experimental row must lie strictly "
            "between 0 and 1."
        )
    return np.where(is_experimental, probability, 0.5)
