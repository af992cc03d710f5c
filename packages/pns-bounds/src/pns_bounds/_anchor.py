"""The anchoring map: free numbers in, compatible interventional probabilities out.

For any joint law and any real delta, mu_x = p_x1 + P(X = 1 - x) sigmoid(delta_x) lies
between the two limits of eq:observational-constraints (paper, section 3.1). The map
is smooth and increasing in delta, and covers the whole open interval.
"""

from typing import Any, Literal

from pns_bounds._arguments import (
    Array,
    as_floating,
    check_joint,
    checked_pair,
    machine_epsilon,
    namespace,
    require_option,
    require_rows,
    require_same_rows,
    require_shape,
    rounding_tolerance,
    smallest_normal,
)
from pns_bounds._atoms import Atoms
from pns_bounds._compatibility import mu_limits, other_arm_mass
from pns_bounds._layout import BINARY


def anchor(joint: Any, delta: Any) -> Array:
    """Computes the interventional probabilities from anchors and free deltas.

    Takes `joint[..., x, y]` = P(X=x, Y=y | z) and delta [..., 2], a real number per arm.
    In every floating format the result satisfies `is_compatible` with no tolerance and
    stays in [0, 1], because each operation rounds monotonically. (Cells must lie in
    [0, 1]; XLA takes numbers below the smallest normal one for 0.)

    Example:
      >>> anchor([[0.2, 0.3], [0.1, 0.4]], [0.0, 0.0]).round(3).tolist()
      [0.55, 0.65]
    """
    joint, delta = _checked(joint, delta)
    check_joint(joint)
    xp = namespace(joint)
    # A compiler may fuse the product that made a cell (softmax multiplies by a
    # reciprocal) into the sums below and so skip the rounding of the cell, which would
    # put mu an ulp beyond its limit. A choice in between cannot be fused.
    joint = xp.where(joint > 1, xp.ones_like(joint), joint)
    least, other_arm = joint[..., :, 1], other_arm_mass(joint)
    # The four cells may add up to an ulp more than one; a probability may not.
    return xp.minimum(least + other_arm * _sigmoid(delta), 1)


def log_anchor(log_joint: Any, delta: Any) -> Array:
    """Computes `anchor` in log space, for losses without clipping constants.

    Takes logarithms of the joint law [..., 2, 2], say from `log_softmax`, and delta
    [..., 2]. Returns log P(Y=y | do(X=x), z) as [..., x, y], accurate however close mu
    comes to 0 or 1. The negative log-likelihood of experimental counts [..., x, y] is
    minus their inner product with this. Gradients are finite for finite logarithms;
    where a whole arm has probability exactly 0 (-inf) they are not.

    Example:
      >>> import numpy as np
      >>> np.exp(log_anchor(np.log([[0.2, 0.3], [0.1, 0.4]]), [0, 0]))[:, 1].round(3)
      array([0.55, 0.65])
    """
    log_joint, delta = _checked(log_joint, delta, "log_joint")
    xp = namespace(log_joint)
    check_joint(xp.exp(log_joint), "exp(log_joint)")
    log_other = xp.logaddexp(log_joint[..., ::-1, 0], log_joint[..., ::-1, 1])
    to_one = log_other - xp.logaddexp(xp.zeros_like(delta), -delta)
    to_zero = log_other - xp.logaddexp(xp.zeros_like(delta), delta)
    return xp.logaddexp(log_joint, xp.stack([to_zero, to_one], axis=-1))


def anchor_inverse(
    atoms: Atoms, boundary: Literal["infinite", "inside"] = "infinite"
) -> Array:
    """Recovers the deltas [..., 2] from which `anchor` makes these atoms' mu.

    Where mu lies at a limit of its interval, delta is 'infinite', or finite after moving
    mu 'inside' by a machine epsilon of the interval's length. Inside also forgives
    violations by rounding, and takes delta = 0 where P(X = 1 - x | z) = 0 leaves a
    single mu_x, for which 'infinite' raises.

    Example:
      >>> joint = [[0.2, 0.3], [0.1, 0.4]]
      >>> atoms = Atoms(joint=joint, mu=anchor(joint, [-1.0, 2.0]))
      >>> anchor_inverse(atoms).round(3).tolist()
      [-1.0, 2.0]
    """
    require_option("boundary", boundary, ("infinite", "inside"))
    joint, mu = checked_pair(*atoms)
    least, greatest = mu_limits(joint)
    above, below, length = mu - least, greatest - mu, greatest - least
    xp = namespace(mu)
    slop = 0.0 if boundary == "infinite" else rounding_tolerance(mu.dtype)
    ok = (above >= -slop) & (below >= -slop)
    asked = ""
    if boundary == "infinite":
        ok, asked = ok & (length > 0), ", and the limits must differ"
    require_rows(
        "atoms",
        xp.all(ok, axis=-1),
        xp.stack([least, mu, greatest], axis=-1),
        f"must ascend in each arm from the lower limit over mu to the upper limit{asked}",
        "Use project_to_compatible first, and leave out rows with a constant X.",
    )
    if boundary == "inside":
        part = length * machine_epsilon(mu.dtype)
        part = xp.maximum(part, smallest_normal(mu.dtype))
        above, below = xp.maximum(above, part), xp.maximum(below, part)

    def log(values: Array) -> Array:
        positive = values > 0  # no division warning from log(0), no NaN gradient
        return xp.where(positive, xp.log(xp.where(positive, values, 1)), -xp.inf)

    return log(above) - log(below)


def _sigmoid(values: Array) -> Array:
    """Computes 1 / (1 + exp(-values)): never above 1, never overflowing."""
    xp = namespace(values)
    positive = values >= 0
    # exp(-|values|), by `where` so that the derivative at 0 is that of one branch.
    decay = xp.exp(xp.where(positive, -values, values))
    return xp.where(positive, xp.ones_like(decay), decay) / (1 + decay)


def _checked(joint: Any, delta: Any, name: str = "joint") -> tuple[Array, Array]:
    joint, delta = as_floating(**{name: joint, "delta": delta})
    require_shape(name, joint, BINARY.joint_shape)
    require_shape("delta", delta, BINARY.mu_shape)
    require_same_rows(name, joint.shape[:-2], "delta", delta.shape[:-1])
    xp = namespace(delta)
    require_rows(
        "delta",
        xp.all(xp.isfinite(delta), axis=-1),
        delta,
        "must be finite",
        "Check the network that made it.",
    )
    return joint, delta
