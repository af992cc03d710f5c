"""Draws that are linear in few numbers, on the scale where every number is allowed.

There a law is the logits of its four cells, then one delta for each arm: its position
between the limits of `pns_bounds.anchor`. Scaling draws about their mean and shifting them
are linear there as well, so a whole chain of such steps costs one product at its end.
"""

from typing import Any, NamedTuple

import numpy as np
import pns_bounds as pb
from jaxtyping import Float

from pns_infer.calibration.draw_scale import (
    center_shift,
    check_draw_scale,
    link_free_numbers,
    scale_about_mean,
)
from pns_infer.core.threads import run_threads

Array = Any  # NumPy or JAX

_POINTS = 32  # at a time: what is computed on the way stays in the processor's cache


class LinearDraws(NamedTuple):
    """Draws center + factors . coefficients of the six free numbers of each point.

    Attributes:
      center: logits of p00, p01, p10 and p11, then delta0 and delta1.
      factors: what each coefficient adds to them.
      coefficients: of each draw, the same for all points.

    Example:
      >>> import numpy as np
      >>> import pns_bounds as pb
      >>> joint = np.array([[[0.2, 0.3], [0.1, 0.4]]])
      >>> center = np.concatenate([np.log(joint).reshape(1, 4), np.zeros((1, 2))], axis=1)
      >>> factors = np.zeros((1, 6, 1))
      >>> factors[0, 5] = 1  # one number moves mu1
      >>> draws = LinearDraws(center, factors, np.array([[-1.0], [1.0]]))
      >>> draws.atoms().mu[:, 0].round(3).tolist()
      [[0.55, 0.534], [0.55, 0.766]]
      >>> draws.scale(0.0).atoms().mu[:, 0].round(3).tolist()
      [[0.55, 0.65], [0.55, 0.65]]
    """

    center: Float[np.ndarray, "n 6"]
    factors: Float[np.ndarray, "n 6 rank"]
    coefficients: Float[np.ndarray, "num_draws rank"]

    def scale(self, draw_scale: float | Float[Array, " num_draws"]) -> "LinearDraws":
        """Scales draws about their mean, as `scale_draws`; changes coefficients alone."""
        check_draw_scale(draw_scale, len(self.coefficients))
        return self._replace(
            coefficients=scale_about_mean(self.coefficients, draw_scale)
        )

    def shift(self, old: pb.Atoms, new: pb.Atoms) -> "LinearDraws":
        """Moves draws as far as a center moves, as `shift_draws`; changes the center."""
        logits, delta = center_shift(old, new)
        added = np.concatenate([logits.reshape(-1, 4), delta], axis=1)
        return self._replace(center=self.center + added)

    def atoms(self) -> pb.Atoms:
        """Computes compatible atoms [num_draws, n].

        The draws of a point lie side by side in memory, where whoever computes with
        them reads them fastest.
        """
        num_points, num_draws = len(self.center), len(self.coefficients)
        dtype = np.result_type(*self)
        joint = np.empty((num_points, 2, 2, num_draws), dtype)
        mu = np.empty((num_points, 2, num_draws), dtype)
        atoms = pb.Atoms(np.moveaxis(joint, -1, 0), np.moveaxis(mu, -1, 0))

        def fill(start: int) -> None:
            part = slice(start, start + _POINTS)
            free = self.factors[part] @ self.coefficients.T  # [points, 6, draws]
            free += self.center[part, :, None]
            cells = free[:, :4].reshape(-1, 2, 2, num_draws)
            linked = link_free_numbers(
                np.moveaxis(cells, -1, 0), np.moveaxis(free[:, 4:], -1, 0)
            )
            for whole, some in zip(atoms, linked, strict=True):
                whole[:, part] = some

        run_threads(fill, range(0, num_points, _POINTS))
        return atoms
