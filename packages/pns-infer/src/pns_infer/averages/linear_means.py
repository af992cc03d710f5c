"""Means of linear forms of the atoms, estimated without the bias of the atoms' model.

A form is offset + matrix . eta, its coefficients chosen row by row. Its mean over a target
population has three parts: the mean of the held-out estimates over the target's rows, the
mean residual of the cells over observational rows, and of each arm over experimental rows,
weighted by the inverse probability of the arm and, where the sources' laws differ, by the
ratio of densities. The residuals remove the bias of the model. Coefficients must not
depend on the row's own outcome; those of held-out atoms do not.
"""

from typing import Literal, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Shaped

from pns_infer.averages.held_out import HeldOutUnits, TooFewUnitsError
from pns_infer.core.inputs import check_option, check_shape
from pns_infer.core.sums import sum_by

Source = Literal["both", "observational", "experimental"]
_PSEUDO = 2.0  # variance of a frequency from n units grows by 2 / n^2 (Agresti, Coull)


class LinearMeans(NamedTuple):
    """Estimates of k means, and how they vary together.

    Attributes:
      estimate: of each mean.
      influence: what each cluster adds to the error of each estimate; where a row stands
        for w units, the root of w times what each of them adds.
      copies: units that each row of the influence stands for.
      caution: what two further units would add to it, by entry of eta; see `covariance`.
      sample_size: effective number of units behind the estimates.
    """

    estimate: Float[np.ndarray, " k"]
    influence: Float[np.ndarray, "num_clusters k"]
    copies: Float[np.ndarray, " num_clusters"]
    caution: Float[np.ndarray, "k eta"]
    sample_size: float

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
        safe = np.where(power > 0, power, 1)
        # w units of influence d each: d = influence / sqrt(w), and w d^3 is needed.
        cubes = np.einsum("nk,n->k", self.influence**3, 1 / np.sqrt(self.copies))
        skewness = cubes / safe**1.5
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
    return LinearMeans(
        np.concatenate([part.estimate for part in parts]),
        np.concatenate([part.influence for part in parts], axis=1),
        parts[0].copies,
        np.concatenate([part.caution for part in parts]),
        max(part.sample_size for part in parts),
    )


def linear_means(
    units: HeldOutUnits,
    matrix: Float[np.ndarray, "n k eta"],
    offset: Float[np.ndarray, "n k"],
    member: Shaped[np.ndarray, " n"] | None = None,
    source: Source = "both",
) -> LinearMeans:
    """Estimates the means of k forms over a target population.

    Args:
      units: rows of both sources.
      matrix: coefficients of each row over eta = (mu1, mu0, p11, p10, p01, p00).
      offset: constants of each row.
      member: weight of each row in a subgroup; it may not depend on choice, arm or
        outcome, and must mean the same in both sources, as a function of covariates does.
      source: whose covariates the target has; 'both': of all rows together.
    """
    check_option("source", source, ("both", "observational", "experimental"))
    member = checked_member(units, member)
    eta = pb.pack_atoms(units.atoms)
    kind = "units" if source == "both" else f"{source} units"
    parts = [_normalize(member * target_weights(units, source), kind)]
    values = [offset + np.einsum("nkc,nc->nk", matrix, eta)]
    sizes = np.full(eta.shape[1], np.inf)
    weights = units.weights * member
    if units.ratio is not None:
        weights = weights * units.ratio
    num_arms = pb.BINARY.num_treatments  # mu comes first in eta, the last arm foremost
    if np.any(matrix[..., num_arms:]):
        parts.append(
            _normalize(weights * ~units.is_experimental, "observational units")
        )
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
    means = [share @ value for share, value in zip(parts, values, strict=True)]
    rows = np.zeros_like(values[0])
    for share, value, mean in zip(parts, values, means, strict=True):
        rows += share[:, None] * (value - mean)
    caution = np.sqrt(_PSEUDO) * np.einsum("n,nkc->kc", parts[0], matrix) / sizes
    size = sum(_effective(units, share) for share in parts[1:] or parts)
    influence, copies = _by_cluster(units, rows)
    return LinearMeans(np.sum(means, axis=0), influence, copies, caution, size)


def checked_member(
    units: HeldOutUnits, member: Shaped[np.ndarray, " n"] | None
) -> Float[np.ndarray, " n"]:
    """Returns the weights of a subgroup; raises unless they are usable."""
    if member is None:
        return np.ones(units.num_rows)
    member = np.asarray(member, float)
    check_shape("subgroup", member, (units.num_rows,), ", a weight for each row")
    if not np.all(np.isfinite(member) & (member >= 0)):
        raise pb.InputError("subgroup", "must have finite weights, none negative.")
    if not member.any():
        raise TooFewUnitsError("subgroup", "is empty: no row has a positive weight.")
    return member


def target_weights(units: HeldOutUnits, source: Source) -> Float[np.ndarray, " n"]:
    """Returns the weights of rows in the target population, 0 for other sources."""
    if source == "both":
        return units.weights
    return units.weights * (units.is_experimental == (source == "experimental"))


def _normalize(weights: Float[np.ndarray, " n"], what: str) -> Float[np.ndarray, " n"]:
    total = weights.sum()
    if not total > 0:
        raise TooFewUnitsError(
            "subgroup",
            f"has no {what}; its average needs observational units and both arms of the "
            "experiment.",
        )
    return weights / total


def _effective(units: HeldOutUnits, share: Float[np.ndarray, " n"]) -> float:
    """Returns the effective number of units behind a weighted mean."""
    return 1 / float(np.sum(share**2 / units.copies))


def _by_cluster(
    units: HeldOutUnits, rows: Float[np.ndarray, "n k"]
) -> tuple[Float[np.ndarray, "num_clusters k"], Float[np.ndarray, " num_clusters"]]:
    """Sums rows within clusters; returns the units of each row, too."""
    count = int(units.cluster.max()) + 1
    # The variance of w independent units of influence d / w is d^2 / w.
    rows = rows / np.sqrt(units.copies)[:, None]
    if count == len(rows):
        return rows, units.copies
    return sum_by(units.cluster, rows), np.ones(count)
