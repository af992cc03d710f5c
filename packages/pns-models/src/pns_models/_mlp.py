"""Affine layers, and the kinds of variables they are made of."""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

Initializer = Callable[[PRNGKeyArray, tuple[int, int]], Array]
Activation = Literal["relu", "silu"]
ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu}
_HE = jax.nn.initializers.he_normal()
_LECUN = jax.nn.initializers.lecun_normal()


class Kernel(nnx.Param):
    """A parameter that learns and decays; a plain `nnx.Param` only learns."""


class Frozen(nnx.Variable):
    """A variable that is drawn once and never learns."""


class Mlp(nnx.Module):
    """Affine layers with an activation between them.

    Kernels before an activation start at He scale, the last at LeCun scale, so that
    outputs have the size of inputs.

    Attributes:
      kernels: [fan_in, fan_out] each.
      biases: [fan_out] each, zero at the start.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        rngs: nnx.Rngs,
        activation: Activation = "relu",
        matmul_dtype: str = "float32",
        kernel: type[nnx.Variable] = Kernel,
        bias: type[nnx.Variable] = nnx.Param,
        num_linear: int = 0,
        initializer: Initializer | None = None,
    ):
        """Draws the layers.

        Args:
          sizes: widths from input to output.
          rngs: source of the initial kernels.
          activation: between layers, not after the last.
          matmul_dtype: 'float32', or 'bfloat16' for the products alone.
          kernel: the type of variable of the kernels: `Kernel` learns and decays,
            `nnx.Param` learns, `Frozen` does neither.
          bias: that of the biases.
          num_linear: how many layers at the start have no activation after them.
          initializer: of all kernels; None for the scales above.
        """
        last = len(sizes) - 2
        self.kernels = nnx.List([])
        for i, shape in enumerate(itertools.pairwise(sizes)):
            ours = _LECUN if i == last or i < num_linear else _HE
            init = ours if initializer is None else initializer
            self.kernels.append(kernel(init(rngs.params(), shape)))
        self.biases = nnx.List([bias(jnp.zeros(size)) for size in sizes[1:]])
        self.activation = activation
        self.matmul_dtype = matmul_dtype
        self.num_linear = num_linear

    def __call__(
        self, inputs: Float[Array, "*batch fan_in"]
    ) -> Float[Array, "*batch fan_out"]:
        """Applies the layers one after the other.

        In between, rows lie along the last axis: on a CPU the layers with few numbers per
        row are much faster so, and the others no slower.
        """
        act = ACTIVATIONS[self.activation]
        last = len(self.kernels) - 1
        values = inputs.reshape(-1, inputs.shape[-1]).T
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            values = affine(values, kernel[...], bias[...], self.matmul_dtype)
            if self.num_linear <= i < last:
                values = act(values)
        return values.T.reshape(*inputs.shape[:-1], -1)


def affine(
    columns: Float[Array, "fan_in n"],
    kernel: Float[Array, "fan_in fan_out"],
    bias: Float[Array, " fan_out"],
    matmul_dtype: str = "float32",
) -> Float[Array, "fan_out n"]:
    """Applies one layer to rows that lie along the last axis."""
    product = jnp.matmul(
        kernel.T.astype(matmul_dtype),
        columns.astype(matmul_dtype),
        preferred_element_type=jnp.float32,
    )
    return product + bias[:, None]
