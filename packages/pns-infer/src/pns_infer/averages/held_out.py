"""Units of both sources, each with atoms from a model that did not see it."""

from typing import Any, Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int, Num

from pns_infer.core.inputs import check_option, check_shape, checked_atoms

Array = Any  # whatever NumPy reads
WeightsAre = Literal["sampling", "frequency"]


class TooFewUnitsError(pb.InputError):
    """A mean cannot be estimated, because a source or an arm has too few units."""


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
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.x)

    def in_arm(
        self, arm: int
    ) -> tuple[Bool[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Returns which rows were assigned an arm, and its probability at each row."""
        probability = self.assignment if arm else 1 - self.assignment
        return self.is_experimental & (self.x == arm), probability


def make_held_out_units(
    atoms: pb.Atoms,
    is_experimental: Bool[Array, " n"],
    x: Int[Array, " n"],
    y: Int[Array, " n"],
    *,
    assignment: float | Float[Array, " n"],
    weights: Num[Array, " n"] | None = None,
    ratio: Float[Array, " n"] | None = None,
    groups: Any = None,
    weights_are: WeightsAre = "sampling",
) -> HeldOutUnits:
    """Checks arrays and puts them together; see `HeldOutUnits`.

    Atoms need not be compatible. The assignment is a number, or one for each row;
    groups are labels of clusters, where every row is its own if None. With
    weights_are='sampling' a row of weight w is one unit that stands for w; with
    'frequency' it is w independent units with the same values, but within groups
    nothing is independent.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> x, y = np.tile([[0, 0], [0, 1], [1, 1], [1, 1]], (100, 1)).T
      >>> atoms = pb.Atoms(np.full((400, 2, 2), 0.25), np.full((400, 2), 0.5))
      >>> units = make_held_out_units(atoms, x >= 0, x, y, assignment=0.5)
      >>> units.num_rows
      400
    """
    check_option("weights_are", weights_are, ("sampling", "frequency"))
    is_experimental = np.asarray(is_experimental)
    count = len(is_experimental)
    if is_experimental.dtype != bool or is_experimental.ndim != 1:
        raise pb.InputError("is_experimental", "must be booleans, one for each row.")
    treatments, levels = pb.BINARY.joint_shape
    atoms = checked_atoms("atoms", atoms, (count,))
    atoms = pb.Atoms(*(np.asarray(part, float) for part in atoms))
    if not all(np.isfinite(part).all() for part in atoms):
        raise pb.InputError("atoms", "must be finite.")
    for name, values, size in (("x", x, treatments), ("y", y, levels)):
        check_shape(name, values, (count,))
        if not np.isin(values, range(size)).all():
            allowed = " or ".join(map(str, range(size)))
            raise pb.InputError(name, f"must be {allowed} in every row.")
    cluster = np.arange(count)
    if groups is not None:
        check_shape("groups", groups, (count,))
        cluster = np.unique(np.asarray(groups), return_inverse=True)[1]
    weights = _positive("weights", weights, count)
    is_counted = weights_are == "frequency" and groups is None
    return HeldOutUnits(
        atoms=atoms,
        is_experimental=is_experimental,
        x=np.asarray(x, int),
        y=np.asarray(y, int),
        weights=weights,
        assignment=read_assignment(assignment, is_experimental),
        ratio=None if ratio is None else _positive("ratio", ratio, count),
        cluster=cluster,
        copies=weights if is_counted else np.ones(count),
    )


def _positive(name: str, values: Array, count: int) -> Float[np.ndarray, " n"]:
    if values is None:
        return np.ones(count)
    check_shape(name, values, (count,))
    numbers = np.asarray(values, float)
    if not np.all(np.isfinite(numbers) & (numbers > 0)):
        raise pb.InputError(name, "must be positive and finite.")
    return numbers


def read_assignment(
    assignment: Any, is_experimental: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Returns the probability of arm 1 in each row; one half in observational rows."""
    try:
        probability = np.asarray(assignment, float)
    except (TypeError, ValueError) as error:
        raise pb.InputError(
            "assignment", "must be a number, or one for each row."
        ) from error
    if probability.ndim:
        what = ", one for each row, or be a number"
        check_shape("assignment", probability, is_experimental.shape, what)
    probability = np.where(is_experimental, probability, 0.5)
    if not np.all((probability > 0) & (probability < 1)):
        raise pb.InputError(
            "assignment",
            "must lie strictly between 0 and 1: the probability of the treated arm.",
        )
    return probability


def example_units() -> HeldOutUnits:
    """Makes two strata of 100 units in the log and 200 in the trial, for examples.

    The effect mu1 - mu0 is 0.45 in the first eight rows and -0.05 in the others. The
    held-out atoms are the frequencies of their stratum.
    """
    log, trials = [[20, 30], [10, 40]], [[[65, 35], [20, 80]], [[45, 55], [50, 50]]]
    counts = np.array([[log, trial] for trial in trials])  # [stratum, source, x, y]
    _, source, x, y = (place.ravel() for place in np.indices(counts.shape))
    strata = pb.atoms_from_counts(counts[:, 0], counts[:, 1])
    return make_held_out_units(
        pb.Atoms(*(np.repeat(part, counts[0].size, axis=0) for part in strata)),
        source == 1,
        x,
        y,
        assignment=0.5,
        weights=counts.ravel(),
        weights_are="frequency",
    )
