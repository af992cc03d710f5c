"""Generates parameters from an index, starting as the ENN library's hypermodels do.

That library (Osband et al. 2023) is the one that the paper's authors used. Three things
differ from a generator that starts as an initialized network:

- Each array of the base network has an output layer of its own, kernel and bias drawn
  from a truncated normal whose variance is 1 over the average of fan in and fan out. The
  more numbers an array has, the smaller they start.
- Generated kernels are divided by the root of their fan in; biases are not.
- The body has no activation at its end, and its kernels are a normal of standard deviation
  1 / sqrt(fan in), cut at two of these and not scaled up again.

The kernels of the generated networks are thus near 0 and their biases are not: at the
start a network is constant in z, and differs from index to index by about half a logit.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from pns_models._flat_network import FlatNetwork
from pns_models._mlp import Frozen, Kernel, Mlp

# Standard deviation of N(0, 1) cut at -2 and 2: 1 - 4 phi(2) / (2 Phi(2) - 1), its root.
_CUT_SD = 0.87962566103423978


class EnnGenerator(nnx.Module):
    """Maps an index to the parameter vector of a base network."""

    def __init__(
        self, sizes: Sequence[int], base: FlatNetwork, is_frozen: bool, rngs: nnx.Rngs
    ):
        """Draws body and output layers."""
        variable = Frozen if is_frozen else nnx.Param
        self.body = Mlp(
            sizes,
            rngs,
            kernel=Frozen if is_frozen else Kernel,
            bias=variable,
            initializer=cut_normal,
        )
        shapes = base.call.shapes
        layers = [output_layer(rngs.params(), sizes[-1], shape) for shape in shapes]
        kernels, biases, scales = zip(*layers, strict=True)
        self.kernel = variable(jnp.concatenate(kernels, axis=1))
        self.bias = variable(jnp.concatenate(biases))
        self.scale = Frozen(jnp.concatenate(scales))

    def __call__(self, index: Float[Array, " i"]) -> Float[Array, " p"]:
        """Generates the parameters of one network."""
        raw = self.body(index) @ self.kernel[...] + self.bias[...]
        return raw * self.scale[...]


def cut_normal(key: PRNGKeyArray, shape: tuple[int, int]) -> Float[Array, "n m"]:
    """Draws from N(0, 1 / fan in), cut at two standard deviations: variance 0.77 of it."""
    return jax.random.truncated_normal(key, -2.0, 2.0, shape) / shape[0] ** 0.5


def output_layer(
    key: PRNGKeyArray, fan_in: int, shape: tuple[int, ...]
) -> tuple[Float[Array, "fan_in p"], Float[Array, " p"], Float[Array, " p"]]:
    """Draws the layer that generates one array of the base network.

    Returns:
      Kernel, bias, and the factor of what they generate.
    """
    size = math.prod(shape)
    kernel_key, bias_key = jax.random.split(key)
    kernel = fan_average_normal(kernel_key, (fan_in, size))
    bias = fan_average_normal(bias_key, (size,))
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return kernel, bias, jnp.full(size, scale)


def fan_average_normal(
    key: PRNGKeyArray, shape: tuple[int, ...]
) -> Float[Array, "*shape"]:
    """Draws from a truncated normal with variance 1 / average of the two fans.

    The fans of a kernel are its two axes; both fans of a bias are its length.
    """
    variance = 2 / (shape[0] + shape[-1])
    cut = jax.random.truncated_normal(key, -2.0, 2.0, shape)
    return cut * variance**0.5 / _CUT_SD
