"""How far a frozen prior varies, over covariates and over indices."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from numpy.typing import ArrayLike

from pns_models._epinet import Epinet
from pns_models._hypermodel import Hypermodel


class PriorDeviation(NamedTuple):
    """Standard deviations of a frozen prior's six raw numbers.

    Attributes:
      over_z: between rows, averaged over indices.
      over_index: between indices, averaged over rows.
    """

    over_z: Float[np.ndarray, " raw"]
    over_index: Float[np.ndarray, " raw"]


def prior_sd(
    network: Hypermodel | Epinet,
    key: PRNGKeyArray,
    z: ArrayLike,
    num_indices: int = 100,
) -> PriorDeviation:
    """Measures a network's frozen prior on standardized covariates z [n, d].

    Example:
      >>> import jax
      >>> import numpy as np
      >>> import pns_models as pm
      >>> sizes = {"index_dim": 2, "hidden": (4,), "prior_hidden": (4,)}
      >>> z, keys = np.linspace(-1, 1, 5)[:, None], jax.random.split(jax.random.key(0))
      >>> small, large = (
      ...     pm.EpinetConfig(pm.Backbone(width=4, depth=0), prior_scale=scale, **sizes)
      ...     for scale in (0.5, 1.0)
      ... )
      >>> small, large = (config.make(keys[0], 1) for config in (small, large))
      >>> half, whole = (prior_sd(net, keys[1], z).over_index for net in (small, large))
      >>> (whole / half).round(3).tolist()
      [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
      >>> float(prior_sd(large, keys[1], z[:1]).over_z.max())  # one row alone
      0.0
    """
    if not hasattr(network, "prior_raw"):
        raise TypeError(
            f"only hypermodels and epinets have a prior, not {type(network).__name__}."
        )
    indices = network.draw_indices(key, num_indices)
    raw = np.asarray(network.prior_raw(jnp.asarray(z, jnp.float32), indices))
    return PriorDeviation(
        over_z=raw.std(axis=1).mean(axis=0), over_index=raw.std(axis=0).mean(axis=0)
    )
