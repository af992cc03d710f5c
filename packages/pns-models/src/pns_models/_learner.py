"""Learners, and the members that they leave behind.

A learner turns units of both sources into members. A member answers for any covariates
with raw numbers: logits of the cells (x, y), then the logit of mu for each arm.
What cross-fits, stacks and saves members knows no more of them than this file says.
"""

from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int, PRNGKeyArray

from pns_models._checkpoints import RunCheckpoints
from pns_models._files import Kinds
from pns_models._resamples import Resamples


@runtime_checkable
class Members(Protocol):
    """Fitted models that answer side by side, each for the fold it did not see.

    Attributes:
      kind: the name by which saved members are read again, see `MEMBERS`.
    """

    kind: ClassVar[str]

    @property
    def fold(self) -> Int[np.ndarray, " m"]:
        """The fold that each member did not see."""
        ...

    def raw(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m n raw"]:
        """Computes every member's raw numbers of rows, on the scale of the data."""
        ...

    def take(self, order: Int[np.ndarray, " some"]) -> Self:
        """Picks members by number."""
        ...

    def save(self, folder: Path) -> None:
        """Writes files into a folder that exists; `MEMBERS.save` makes it."""
        ...

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        ...


class RunContext(NamedTuple):
    """How a fit runs; nothing of it changes what is found.

    Attributes:
      progress: whether to show a bar; never shown off a terminal.
      checkpoints: of this fit alone.
      checkpoint_seconds: least time between two checkpoints.
      mesh: the devices to train on, from `make_mesh`; None takes what there is.
    """

    progress: bool = False
    checkpoints: RunCheckpoints = RunCheckpoints(None, {})
    checkpoint_seconds: float = 60.0
    mesh: Mesh | None = None


@runtime_checkable
class Learner(Protocol):
    """Fits members; its `repr` says which learner it is, settings included."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def fit(
        self, key: PRNGKeyArray, resamples: Resamples, context: RunContext
    ) -> Members:
        """Fits a member to each resample.

        Args:
          key: decides everything but the resamples.
          resamples: entries of both sources, and what each member sees of them.
          context: how the fit runs.
        """
        ...


MEMBERS: Kinds[Members] = Kinds("members")
"""Every kind of members that can be saved and loaded; `MEMBERS.register` adds one."""
