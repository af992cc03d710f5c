"""The sizes that all networks share, and the layers made from them."""

import dataclasses
from typing import Literal

import pns_bounds as pb
from flax import nnx

from pns_models._mlp import ACTIVATIONS, Activation, Mlp


@dataclasses.dataclass(frozen=True)
class Backbone:
    """Sizes that all networks share (app:architecture).

    Networks ask it for their layers and read no sizes of their own.

    Attributes:
      width: of the hidden layers and of the features.
      depth: number of hidden layers, before the linear layer that gives the features.
      activation: after each hidden layer.
      bottleneck: how many linear combinations of the covariates the hidden layers see;
        None for all covariates.
      matmul_dtype: 'float32', or 'bfloat16' for the products alone.
    """

    width: int = 128
    depth: int = 3
    activation: Activation = "relu"
    matmul_dtype: Literal["float32", "bfloat16"] = "float32"
    bottleneck: int | None = None

    def __post_init__(self):
        """Checks what would only fail later."""
        if self.width < 1 or self.depth < 0:
            raise pb.InputError(
                "width",
                "must be at least 1 and depth not negative, got "
                f"{self.width} and {self.depth}.",
            )
        if self.bottleneck is not None and self.bottleneck < 1:
            raise pb.InputError(
                "bottleneck", f"must be None or at least 1, got {self.bottleneck}."
            )
        for name, value, known in (
            ("activation", self.activation, tuple(ACTIVATIONS)),
            ("matmul_dtype", self.matmul_dtype, ("float32", "bfloat16")),
        ):
            if value not in known:
                raise pb.InputError(name, f"must be one of {known}, got {value!r}.")

    def body(self, num_inputs: int, rngs: nnx.Rngs) -> Mlp:
        """Makes the layers from inputs to features."""
        return self._mlp(self._sizes(num_inputs), rngs, self._num_linear)

    def head(self, num_outputs: int, rngs: nnx.Rngs) -> Mlp:
        """Makes the linear layer from features to outputs."""
        return self._mlp([self.width, num_outputs], rngs)

    def mlp(self, num_inputs: int, num_outputs: int, rngs: nnx.Rngs) -> Mlp:
        """Makes one network from inputs to outputs, activation after the features."""
        sizes = [*self._sizes(num_inputs), num_outputs]
        return self._mlp(sizes, rngs, self._num_linear)

    @property
    def _num_linear(self) -> int:
        return 0 if self.bottleneck is None else 1

    def _sizes(self, num_inputs: int) -> list[int]:
        if num_inputs < 1:
            raise pb.InputError("z", "must have one covariate or more.")
        narrow = [] if self.bottleneck is None else [self.bottleneck]
        return [num_inputs, *narrow, *[self.width] * (self.depth + 1)]

    def _mlp(self, sizes: list[int], rngs: nnx.Rngs, num_linear: int = 0) -> Mlp:
        return Mlp(
            sizes, rngs, self.activation, self.matmul_dtype, num_linear=num_linear
        )
