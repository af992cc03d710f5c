"""Units with atoms from a model that did not see them, and means without its bias.

What is averaged is a linear form of the atoms, offset + matrix . eta, its coefficients
chosen row by row. Its mean over a target population has three parts: the mean of the
held-out estimates over the target's rows, the mean residual of the cells over observational
rows, and of each arm over experimental rows, weighted by the inverse probability of the arm
and, where the sources' laws differ, by the ratio of densities. The residuals remove the
bias of the model. Coefficients must not depend on the row's own outcome; those of held-out
atoms do not.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Bool, Float, Int, Num, Shaped

from pns_infer.core.inputs import check_option, check_shape, checked_atoms, sum_by

Array = Any  # whatever NumPy reads
PerRow = Float[np.ndarray, " n"]
IntPerRow = Int[np.ndarray, " n"]
BoolPerRow = Bool[np.ndarray, " n"]
Member = Shaped[np.ndarray, " n"] | None  # weights of rows in a subgroup
WeightsAre = Literal["sampling", "frequency"]


class HeldOutUnits(NamedTuple):
    """Rows of both sources; make it with `make_held_out_units`, which checks it.

    The ratio is the density of the target's covariates over that of the row's own
    source, up to a factor; None where the sources have one law. Copies are independent
    units that a row stands for: its weight if weights are frequencies, else 1.
    """

    atoms: pb.Atoms  # [n] by models that did not see the row, or its group
    is_experimental: BoolPerRow
    x: IntPerRow  # the treatment chosen, or the arm assigned
    y: IntPerRow
    weights: PerRow  # a unit of weight w counts as w units
    assignment: PerRow  # probability of arm 1; read in experimental rows alone
    ratio: PerRow | None
    cluster: IntPerRow  # 0, 1, ...; rows of one cluster may depend on each other
    copies: PerRow

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.x)

    def without_atoms(self) -> "HeldOutUnits":
        """Leaves frequencies alone: atoms of 0, and one law of covariates."""
        nothing = pb.Atoms(*map(np.zeros_like, self.atoms))
        return self._replace(atoms=nothing, ratio=None)

    def in_arm(self, arm: int) -> tuple[BoolPerRow, PerRow]:
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
    atoms = checked_atoms("atoms", atoms, (count,))
    atoms = pb.Atoms(*(np.asarray(part, float) for part in atoms))
    if not all(np.isfinite(part).all() for part in atoms):
        raise pb.InputError("atoms", "must be finite.")
    for name, values in (("x", x), ("y", y)):
        check_shape(name, values, (count,))
        if not np.isin(values, (0, 1)).all():
            raise pb.InputError(name, "must be 0 or 1 in every row.")
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


def _positive(name: str, values: Array, count: int) -> PerRow:
    if values is None:
        return np.ones(count)
    check_shape(name, values, (count,))
    numbers = np.asarray(values, float)
    if not np.all(np.isfinite(numbers) & (numbers > 0)):
        raise pb.InputError(name, "must be positive and finite.")
    return numbers


def read_assignment(assignment: Any, is_experimental: BoolPerRow) -> PerRow:
    """Returns the probability of arm 1 in each row; one half in observational rows."""
    try:
        probability = np.asarray(assignment, float)
    except (TypeError, ValueError) as error:
        problem = "must be a number, or one for each row."
        raise pb.InputError("assignment", problem) from error
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
    atoms = pb.Atoms(*(np.repeat(part, counts[0].size, axis=0) for part in strata))
    options = {"weights": counts.ravel(), "weights_are": "frequency"}
    return make_held_out_units(atoms, source == 1, x, y, assignment=0.5, **options)


Source = Literal["both", "observational", "experimental"]
_PSEUDO = 2.0  # variance of a frequency from n units grows by 2 / n^2 (Agresti, Coull)


class LinearMeans(NamedTuple):
    """Estimates of k means, and how they vary together."""

    estimate: Float[np.ndarray, " k"]
    # What each cluster adds to the errors; of a row that stands for w units, the root of
    # w times what each of them adds.
    influence: Float[np.ndarray, "num_clusters k"]
    copies: Float[np.ndarray, " num_clusters"]  # units behind a row of the influence
    caution: Float[np.ndarray, "k eta"]  # what two further units would add to it
    sample_size: float  # effective number of units behind the estimates

    @property
    def covariance(self) -> Float[np.ndarray, "k k"]:
        """Covariance of the estimates: robust, by clusters, and never quite zero.

        A frequency of 0 among n units has no empirical variance; each entry of eta gets
        2 / n^2 more, as in Agresti and Coull's interval.
        """
        count = self.copies.sum()
        robust = self.influence.T @ self.influence * (count / max(count - 1, 1))
        return robust + self.caution @ self.caution.T

    @property
    def standard_error(self) -> Float[np.ndarray, " k"]:
        """Standard error of each estimate."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0))

    def skew_margin(
        self, sign: float | Float[np.ndarray, " k"], z: float
    ) -> Float[np.ndarray, " k"]:
        """Returns what an end at z standard errors lacks if the estimate is skewed.

        A studentized mean of skewed values is skewed the other way: an upper end above a
        rare frequency misses too often. To second order (Hall 1992, section 2.6) an end
        needs skewness * (2 z^2 + 1) / 6 standard errors more; ends that need less are
        left as they are. The sign is 1 for upper ends and -1 for lower ones.
        """
        power = np.sum(self.influence**2, axis=0)
        # w units of influence d each: d = influence / sqrt(w), and w d^3 is needed.
        cubes = np.einsum("nk,n->k", self.influence**3, 1 / np.sqrt(self.copies))
        skewness = cubes / np.where(power > 0, power, 1) ** 1.5
        factor = np.maximum(sign * skewness, 0) * (2 * z**2 + 1) / 6
        return factor * self.standard_error

    def combine(self, matrix: Float[np.ndarray, "m k"]) -> "LinearMeans":
        """Returns linear combinations of the means."""
        return self._replace(
            estimate=matrix @ self.estimate,
            influence=self.influence @ matrix.T,
            caution=matrix @ self.caution,
        )

    def divide(self, denominator: int) -> "LinearMeans":
        """Divides every mean by one of them, by the delta method."""
        below = self.estimate[denominator]
        ratio = self.estimate / below
        matrix = np.eye(len(ratio))
        matrix[:, denominator] -= ratio
        return self.combine(matrix / below)._replace(estimate=ratio)


def stack_means(parts: list[LinearMeans]) -> LinearMeans:
    """Puts means of the same units side by side."""
    estimate, influence, copies, caution, size = zip(*parts, strict=True)
    joined = (np.concatenate(estimate), np.concatenate(influence, axis=1), copies[0])
    return LinearMeans(*joined, np.concatenate(caution), max(size))


def linear_means(
    units: HeldOutUnits,
    matrix: Float[np.ndarray, "n k eta"],
    offset: Float[np.ndarray, "n k"],
    member: Member = None,
    source: Source = "both",
) -> LinearMeans:
    """Estimates the means of k forms offset + matrix . eta over a target population.

    Members are weights of the rows in a subgroup; they may not depend on choice, arm or
    outcome, and must mean the same in both sources, as a function of covariates does. The
    source says whose covariates the target has; 'both': those of all rows together.
    """
    check_option("source", source, ("both", "observational", "experimental"))
    member = checked_member(units, member)
    eta = pb.pack_atoms(units.atoms)
    kind = "units" if source == "both" else f"{source} units"
    parts = [_normalize(member * target_weights(units, source), kind)]
    values = [offset + np.einsum("nkc,nc->nk", matrix, eta)]
    sizes = np.full(eta.shape[1], np.inf)
    weights = units.weights * member * (1.0 if units.ratio is None else units.ratio)
    num_arms = pb.BINARY.num_treatments  # mu comes first in eta, the last arm foremost
    if np.any(matrix[..., num_arms:]):
        chosen = weights * ~units.is_experimental
        parts.append(_normalize(chosen, "observational units"))
        cell = units.x * pb.BINARY.num_levels + units.y
        seen = cell[:, None] == np.arange(pb.BINARY.num_cells)[::-1]
        gap = seen - eta[:, num_arms:]
        values.append(np.einsum("nkc,nc->nk", matrix[..., num_arms:], gap))
        sizes[num_arms:] = _effective(units, parts[-1])
    for place, arm in enumerate(reversed(range(num_arms))):
        if np.any(matrix[..., place]):
            inside, chance = units.in_arm(arm)
            parts.append(_normalize(weights * inside / chance, f"units in arm {arm}"))
            values.append(matrix[..., place] * (units.y - eta[:, place])[:, None])
            sizes[place] = _effective(units, parts[-1])
    means, rows = [], np.zeros_like(values[0])
    for share, value in zip(parts, values, strict=True):
        means.append(share @ value)
        rows += share[:, None] * (value - means[-1])
    caution = np.sqrt(_PSEUDO) * np.einsum("n,nkc->kc", parts[0], matrix) / sizes
    size = sum(_effective(units, share) for share in parts[1:] or parts)
    # The variance of w independent units of influence d / w is d^2 / w.
    rows, copies = rows / np.sqrt(units.copies)[:, None], units.copies
    count = int(units.cluster.max()) + 1
    if count < len(rows):
        rows, copies = sum_by(units.cluster, rows), np.ones(count)
    return LinearMeans(np.sum(means, axis=0), rows, copies, caution, size)


def checked_member(units: HeldOutUnits, member: Member) -> PerRow:
    """Returns the weights of a subgroup; raises unless they are usable."""
    if member is None:
        return np.ones(units.num_rows)
    member = np.asarray(member, float)
    check_shape("subgroup", member, (units.num_rows,), ", a weight for each row")
    if not np.all(np.isfinite(member) & (member >= 0)):
        raise pb.InputError("subgroup", "must have finite weights, none negative.")
    if not member.any():
        raise pb.InputError("subgroup", "is empty: no row has a positive weight.")
    return member


def target_weights(units: HeldOutUnits, source: Source) -> PerRow:
    """Returns the weights of rows in the target population, 0 for other sources."""
    if source == "both":
        return units.weights
    return units.weights * (units.is_experimental == (source == "experimental"))


def _normalize(weights: PerRow, what: str) -> PerRow:
    total = weights.sum()
    if not total > 0:
        raise pb.InputError(
            "subgroup",
            f"has no {what}; its average needs observational units and both arms of the "
            "experiment.",
        )
    return weights / total


def _effective(units: HeldOutUnits, share: PerRow) -> float:
    """Returns the effective number of units behind a weighted mean."""
    return 1 / float(np.sum(share**2 / units.copies))
