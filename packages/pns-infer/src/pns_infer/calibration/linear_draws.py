"""Draws that are linear in few numbers, on the scale of raw numbers.

Scaling draws about their mean and shifting them are linear there as well, so a whole chain
of such steps costs one product at its end.
"""

from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float

from pns_infer.calibration.raw_numbers import from_raw, raw_shift, scale_about_mean
from pns_infer.core.threads import run_threads

Array = Any  # NumPy or JAX

_POINTS = 32  # at a time: what is computed on the way stays in the processor's cache


class LinearDraws(NamedTuple):
    """Draws center + factors . coefficients of the raw numbers of each point.

    Attributes:
      center: logits of p00, p01, p10 and p11, then the anchors of mu0 and mu1.
      factors: what each coefficient adds to them.
      coefficients: of each draw, the same for all points.

    Example:
      >>> import numpy as np
      >>> logits = np.log([[0.2, 0.3, 0.1, 0.4]])
      >>> center = np.concatenate([logits, np.zeros((1, 2))], axis=1)
      >>> factors = np.eye(6)[None, :, 5:]  # one number moves mu1
      >>> draws = LinearDraws(center, factors, np.array([[-1.0], [1.0]]))
      >>> draws.atoms().mu[:, 0].round(3).tolist()
      [[0.55, 0.534], [0.55, 0.766]]
      >>> draws.scale(0.0).atoms().mu[:, 0].round(3).tolist()
      [[0.55, 0.65], [0.55, 0.65]]
    """

    center: Float[np.ndarray, "n raw"]
    factors: Float[np.ndarray, "n raw rank"]
    coefficients: Float[np.ndarray, "num_draws rank"]

    def scale(self, draw_scale: float | Float[Array, " num_draws"]) -> "LinearDraws":
        """Scales draws about their mean, as `scale_draws`; changes coefficients alone."""
        return self._replace(
            coefficients=scale_about_mean(self.coefficients, draw_scale)
        )

    def shift(self, old: pb.Atoms, new: pb.Atoms) -> "LinearDraws":
        """Moves draws as far as a center moves, as `shift_draws`; changes the center."""
        return self._replace(center=self.center + raw_shift(old, new))

    def atoms(self) -> pb.Atoms:
        """Computes compatible atoms [num_draws, n].

        The draws of a point are contiguous in memory, which is the fastest layout for
        what is computed from them.
        """
        num_points, num_draws = len(self.center), len(self.coefficients)
        dtype = np.result_type(*self)
        joint = np.empty((num_points, *pb.BINARY.joint_shape, num_draws), dtype)
        mu = np.empty((num_points, *pb.BINARY.mu_shape, num_draws), dtype)
        atoms = pb.Atoms(np.moveaxis(joint, -1, 0), np.moveaxis(mu, -1, 0))

        def fill(start: int) -> None:
            part = slice(start, start + _POINTS)
            raw = self.factors[part] @ self.coefficients.T  # [points, raw, draws]
            raw += self.center[part, :, None]
            for whole, some in zip(
                atoms, from_raw(np.moveaxis(raw, -1, 0)), strict=True
            ):
                whole[:, part] = some

        run_threads(fill, range(0, num_points, _POINTS))
        return atoms
