"""Atoms as raw numbers, all of which are allowed: logits of the cells, then anchors.

The anchor of an arm is the logit of the position of mu between the limits that the joint
law sets, see `pns_bounds.anchor`. So whatever is done to raw numbers, they stand for a
compatible law.
"""

from typing import Any

import numpy as np
import pns_bounds as pb
from jaxtyping import Float
from scipy import special

Array = Any  # NumPy or JAX
_OUTERMOST = float(special.logit(0.999))  # anchor that a center at its limit moves to


def to_raw(atoms: pb.Atoms) -> Float[Array, "*points raw"]:
    """Computes the raw numbers of compatible atoms."""
    joint, mu = atoms
    xp = mu.__array_namespace__()
    tiny = float(np.finfo(mu.dtype).tiny)  # what underflowed is moved just inside
    logits = xp.log(xp.maximum(joint, tiny))
    logits = logits.reshape(*joint.shape[:-2], pb.BINARY.num_cells)
    return xp.concatenate(
        [logits, pb.anchor_inverse(atoms, boundary="inside")], axis=-1
    )


def from_raw(raw: Float[Array, "*points raw"]) -> pb.Atoms:
    """Computes the compatible atoms that raw numbers stand for."""
    xp, num_cells = raw.__array_namespace__(), pb.BINARY.num_cells
    logits = raw[..., :num_cells]
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    joint = weights / xp.sum(weights, axis=-1, keepdims=True)
    joint = joint.reshape(*raw.shape[:-1], *pb.BINARY.joint_shape)
    return pb.Atoms(joint, pb.anchor(joint, raw[..., num_cells:]))


def raw_shift(old: pb.Atoms, new: pb.Atoms) -> Float[Array, "*points raw"]:
    """Computes how far a center moves; see `shift_draws` for one at a limit."""
    before, after = to_raw(old), to_raw(new)
    xp, num_cells = after.__array_namespace__(), pb.BINARY.num_cells
    most = xp.maximum(xp.abs(before[..., num_cells:]), _OUTERMOST)
    anchors = xp.clip(after[..., num_cells:], -most, most)
    return xp.concatenate([after[..., :num_cells], anchors], axis=-1) - before


def scale_about_mean(
    values: Float[Array, "num_draws ..."],
    draw_scale: float | Float[Array, " num_draws"],
) -> Float[Array, "num_draws ..."]:
    """Scales the deviations of draws from their mean."""
    shape, num_draws = np.shape(draw_scale), len(values)
    if shape not in ((), (num_draws,)):
        raise pb.InputError(
            "draw_scale",
            f"must be one number, or one for each of the {num_draws} draws, got shape "
            f"{list(shape)}.",
        )
    xp = values.__array_namespace__()
    mean = xp.mean(values, axis=0, keepdims=True)
    scale = xp.asarray(draw_scale, dtype=values.dtype)
    return mean + scale.reshape(-1, *[1] * (values.ndim - 1)) * (values - mean)
