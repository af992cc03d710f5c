"""Sharp intervals for probabilities of causation.

Every interval is the exact optimum of the linear program over the eight response-type
cells (X, Y_0, Y_1) that fit the atoms: no narrower interval is valid. For compatible
atoms in [0, 1] the interval of every probability here has 0 <= lower <= upper <= 1
exactly, in every floating format.
"""

from typing import Any, NamedTuple

import numpy as np

from pns_bounds._arguments import (
    Array,
    as_floating,
    check_joint,
    check_mu,
    namespace,
    require,
    require_rows,
)
from pns_bounds._atoms import Atoms
from pns_bounds._compatibility import Incompatible, resolve_incompatible
from pns_bounds._estimand import Interval, bounds_from
from pns_bounds._registry import ESTIMANDS, HARM, PN, PNS, PS, benefit_form, estimand_of

_EXPERIMENTAL_ONLY = estimand_of(
    "pns", PNS.sentence, lower=["mu1 - mu0"], upper=["mu1", "1 - mu0"]
)
_OBSERVATIONAL_ONLY = estimand_of("pns", PNS.sentence, lower=[], upper=["p11 + p00"])


class ResponseTypes(NamedTuple):
    """One interval for each way of responding to the treatment."""

    complier: Interval  # Y_1 = 1, Y_0 = 0: PNS
    always: Interval  # Y_1 = 1, Y_0 = 1
    never: Interval  # Y_1 = 0, Y_0 = 0
    defier: Interval  # Y_1 = 0, Y_0 = 1: harm


def pns_bounds(atoms: Atoms, incompatible: Incompatible = "raise") -> Interval:
    """Bounds PNS(z) = P(Y_1=1, Y_0=0 | z), the probability that treatment helps.

    Args:
      atoms: probabilities. Values are checked unless JAX is tracing (`jit`, `vmap`,
        `grad`), where no check is possible.
      incompatible: what to do with atoms that contradict each other: 'raise', 'project'
        onto compatible ones, or 'allow'. Allowed, and under tracing, their bounds may
        cross (lower > upper).

    Returns:
      The sharp interval [...] of eq:pns-lower-1 and eq:pns-upper-1.

    Example:
      >>> joint = [[0.2, 0.3], [0.1, 0.4]]  # P(X=x, Y=y)
      >>> interval = pns_bounds(Atoms(joint=joint, mu=[0.35, 0.8]))
      >>> [round(float(end), 3) for end in interval]
      [0.45, 0.6]
    """
    return PNS.bounds(atoms, incompatible)


def harm_bounds(atoms: Atoms, incompatible: Incompatible = "raise") -> Interval:
    """Bounds P(Y_1=0, Y_0=1 | z), the probability that treatment harms.

    Takes what `pns_bounds` takes, and returns the sharp interval [...].

    Example:
      >>> interval = harm_bounds(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8]))
      >>> [round(float(end), 3) for end in interval]
      [0.0, 0.15]
    """
    return HARM.bounds(atoms, incompatible)


def response_type_bounds(
    atoms: Atoms, incompatible: Incompatible = "raise"
) -> ResponseTypes:
    """Bounds the probability of each of the four response types.

    Takes what `pns_bounds` takes. Each interval [...] is sharp by itself; they move
    together, because a single free number per z decides all four.

    Example:
      >>> types = response_type_bounds(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8]))
      >>> [round(float(end), 3) for end in types.always]
      [0.2, 0.35]
    """
    atoms = resolve_incompatible(atoms, incompatible)
    types = (ESTIMANDS[name] for name in ("pns", "always", "never", "harm"))
    return ResponseTypes(*(each.bounds(atoms, "allow") for each in types))


def pn_bounds(atoms: Atoms, incompatible: Incompatible = "raise") -> Interval:
    """Bounds PN(z) = P(Y_0=0 | X=1, Y=1, z), the probability of necessity.

    Takes what `pns_bounds` takes, and returns the sharp interval [...]. Where p11 = 0
    (or less than the format's smallest normal number) no unit was treated and responded,
    the question has no meaning, and both ends are NaN (gradients there are 0).

    Example:
      >>> interval = pn_bounds(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8]))
      >>> [round(float(end), 3) for end in interval]
      [0.875, 1.0]
    """
    return PN.bounds(atoms, incompatible)


def ps_bounds(atoms: Atoms, incompatible: Incompatible = "raise") -> Interval:
    """Bounds PS(z) = P(Y_1=1 | X=0, Y=0, z), the probability of sufficiency.

    Takes what `pns_bounds` takes, and returns the sharp interval [...]; NaN where
    p00 = 0, as `pn_bounds` where p11 = 0.

    Example:
      >>> interval = ps_bounds(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8]))
      >>> [round(float(end), 3) for end in interval]
      [0.5, 1.0]
    """
    return PS.bounds(atoms, incompatible)


def unit_selection_bounds(
    atoms: Atoms,
    complier: Any,
    always: Any,
    never: Any,
    defier: Any,
    incompatible: Incompatible = "raise",
) -> Interval:
    """Bounds the mean benefit of treating units like z (Li and Pearl's criterion).

    Benefits are those of treating a unit of each response type, as in `ResponseTypes`:
    numbers, or arrays that broadcast against the rows [...]. Takes atoms as `pns_bounds`
    does, and returns the sharp interval [...], on the scale of the benefits.

    Example:
      >>> atoms = Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8])
      >>> interval = unit_selection_bounds(atoms, 100, -5, -5, -100)
      >>> [round(float(end), 3) for end in interval]
      [42.25, 43.75]
    """
    atoms = resolve_incompatible(atoms, incompatible)
    lower, upper = PNS.bounds(atoms, "allow")
    mu0, mu1 = atoms.mu[..., 0], atoms.mu[..., 1]
    named = {"complier": complier, "always": always, "never": never, "defier": defier}
    xp = namespace(lower, *named.values())
    benefits = []
    for name, benefit in zip(named, as_floating(**named), strict=True):
        require(
            np.broadcast_shapes(benefit.shape, lower.shape) == lower.shape,
            name,
            f"must be a number or one per row {list(lower.shape)}, got shape "
            f"{list(benefit.shape)}.",
        )
        require_rows(
            name,
            xp.isfinite(xp.asarray(benefit)),
            benefit,
            "must be finite",
            "Give a number for each response type.",
        )
        # The atoms decide the precision.
        benefits.append(xp.asarray(benefit).astype(lower.dtype))
    slope, per_mu1, per_mu0, offset = benefit_form(*benefits)
    fixed = per_mu1 * mu1 + per_mu0 * mu0 + offset
    rising = slope >= 0
    return Interval(
        lower=fixed + slope * xp.where(rising, lower, upper),
        upper=fixed + slope * xp.where(rising, upper, lower),
    )


def experimental_only_bounds(mu: Any) -> Interval:
    """Bounds PNS from an experiment alone: max(0, mu1 - mu0) and min(mu1, 1 - mu0).

    Takes mu [..., 2], and returns the interval [...] that is sharp if there are no
    observational data.

    Example:
      >>> [round(float(end), 3) for end in experimental_only_bounds([0.35, 0.8])]
      [0.45, 0.65]
    """
    (mu,) = as_floating(mu=mu)
    check_mu(mu)
    return bounds_from(_EXPERIMENTAL_ONLY, Atoms(None, mu))


def observational_only_bounds(joint: Any) -> Interval:
    """Bounds PNS from observational data alone: 0 and p11 + p00.

    Takes joint [..., 2, 2], and returns the interval [...] that is sharp if there is no
    experiment.

    Example:
      >>> interval = observational_only_bounds([[0.2, 0.3], [0.1, 0.4]])
      >>> [round(float(end), 3) for end in interval]
      [0.0, 0.6]
    """
    (joint,) = as_floating(joint=joint)
    check_joint(joint)
    return bounds_from(_OBSERVATIONAL_ONLY, Atoms(joint, None))


def average_bounds(interval: Interval, weights: Any = None) -> Interval:
    """Bounds the population mean: E_Z of the lower and of the upper ends.

    Sharp for the marginal probability given the atoms at every z, and at least as narrow
    as the bounds of averaged atoms. Ends [..., num_points] are averaged over the last
    axis. Weights [num_points] or [..., num_points] are not negative, on any scale, and
    equal if None; those of a subgroup are 0 elsewhere.

    Example:
      >>> interval = Interval(lower=[0.0, 0.4], upper=[0.2, 1.0])
      >>> [round(float(end), 3) for end in average_bounds(interval, weights=[3, 1])]
      [0.1, 0.4]
    """
    lower, upper = as_floating(**interval._asdict())
    require(
        lower.shape == upper.shape and lower.ndim and lower.shape[-1],
        "interval",
        "must have ends of one shape [..., num_points] with at least one point, got "
        f"{list(lower.shape)} and {list(upper.shape)}.",
    )
    xp = namespace(lower, weights)
    weights = xp.ones_like(lower) if weights is None else weights
    (weights,) = as_floating(weights=weights)
    require(
        weights.shape in (lower.shape, lower.shape[-1:]),
        "weights",
        f"must have shape {list(lower.shape[-1:])} or {list(lower.shape)}, got "
        f"{list(weights.shape)}.",
    )
    weights = xp.asarray(weights).astype(lower.dtype)
    require_rows(
        "interval",
        xp.isfinite(lower) & xp.isfinite(upper),
        xp.stack([lower, upper], axis=-1),
        "must be finite in every row to be averaged",
        "Leave out rows where the probability is undefined.",
    )
    total = xp.sum(weights, axis=-1)
    require_rows(
        "weights",
        xp.all(weights >= 0, axis=-1) & xp.isfinite(total) & (total > 0),
        xp.stack([xp.min(weights, axis=-1), xp.max(weights, axis=-1)], axis=-1),
        "must not be negative, and their sum must be finite and positive",
        "Shown are the least and the greatest; give one weight per point, in a format "
        "that holds their sum.",
    )
    portions = weights / total[..., None]

    def mean(values: Array) -> Array:
        # A mean lies within its values; the rounded sum may not.
        sums = xp.sum(values * portions, axis=-1)
        return xp.clip(sums, xp.min(values, axis=-1), xp.max(values, axis=-1))

    return Interval(lower=mean(lower), upper=mean(upper))
