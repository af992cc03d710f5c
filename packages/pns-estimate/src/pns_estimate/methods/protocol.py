"""What an uncertainty method is, and the methods that have a name.

A method fits two tables and leaves a *sampler* behind, the only thing that knows networks.
It has a point estimate of the atoms of any unit, and draws of them whose distribution
stands for the error of the estimate. What wraps a sampler, such as `ScaledSampler`, is a
sampler again.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float, Int

from pns_estimate._errors import require

Encoded = Float[np.ndarray, "n d"]
"""Covariates of units as numbers."""


class Sampler(Protocol):
    """Atoms of units with encoded covariates z.

    Attributes:
      kind: the name by which a saved sampler is read again, see `SAMPLERS`.
    """

    kind: ClassVar[str]

    @property
    def has_draws(self) -> bool:
        """Whether there are draws to correct with."""
        ...

    @property
    def is_posterior(self) -> bool:
        """Whether draws vary about the truth, given the data, or as the estimate does.

        Posterior draws give credible intervals; sampling draws, such as a bootstrap's,
        give corrected ones.
        """
        ...

    def atoms(self, z: Encoded) -> pb.Atoms:
        """Estimates the atoms of each unit, as NumPy arrays [n]."""
        ...

    def draws(self, key: jax.Array, z: Encoded, num_draws: int) -> pb.Atoms:
        """Draws atoms [num_draws, n]; a bootstrap gives as many as it solved for.

        A draw is one law for everybody: with the same key, draw number b of one block of
        units belongs to draw number b of another.
        """
        ...

    def save(self, folder: Path) -> None:
        """Writes files into a folder that exists; `SAMPLERS.save` makes it."""
        ...

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        ...


SAMPLERS: pm.Kinds[Sampler] = pm.Kinds("samplers")
"""Every kind of sampler that can be saved and loaded; `SAMPLERS.register` adds one."""


def linear_draws(
    sampler: Sampler, key: jax.Array, z: Encoded, num_draws: int
) -> pi.LinearDraws | None:
    """Returns the draws of a sampler before the link; None if they are not linear.

    A sampler may have a method `linear_draws`: what wraps it then scales factors, not
    draws.
    """
    own = getattr(sampler, "linear_draws", None)
    return None if own is None else own(key, z, num_draws)


def disagreement(sampler: Sampler, z: Encoded) -> Float[np.ndarray, " n"] | None:
    """Returns by how much learners differ about each unit; None without learners.

    A sampler of several learners has a method `disagreement`, see `pm.Stack`; it gives
    NaN if there is nothing to compare.
    """
    own = getattr(sampler, "disagreement", None)
    return None if own is None else own(z)


class MethodFit(NamedTuple):
    """What a method learned.

    Attributes:
      sampler: answers for any unit.
      held_out: units that training did not see; calibration and reliability use them.
      standardizer: maps covariates [n, d] to comparable scales, to find neighbors.
      history: losses by step, or None for a method that does not iterate.
      held_out_atoms: [n] of the held-out rows, if the sampler itself saw them.
      held_out_place: of each row of the fit, its place in `held_out`; None unless every
        row was held out once.
      is_calibrated: whether the draws need no scale from held-out units.
      notes: what people who read a report should know of the fit, by label.
      profile: the likelihood by which counts of cells were weighed, if they were.
    """

    sampler: Sampler
    held_out: pm.Counts
    standardizer: Any
    history: pm.History | None = None
    held_out_atoms: pb.Atoms | None = None
    held_out_place: Int[np.ndarray, " num_rows"] | None = None
    is_calibrated: bool = False
    notes: Mapping[str, str] = MappingProxyType({})
    profile: pi.ResidualProfile | None = None


class Method(Protocol):
    """A way to say how uncertain an estimate is."""

    @property
    def name(self) -> str:
        """How users ask for it."""
        ...

    @property
    def sentence(self) -> str:
        """What its draws stand for, for people who read a report."""
        ...

    @property
    def recipe(self) -> Any:
        """Its default settings, a `pm.Recipe` for networks."""
        ...

    def deal(
        self,
        key: jax.Array,
        part: Int[np.ndarray, " n"],
        groups: Int[np.ndarray, " n"] | None,
        recipe: Any,
    ) -> Int[np.ndarray, " n"]:
        """Deals the rows of the tables to folds; what is held out are whole rows.

        The part of a row is 0 in the log, and 1 or 2 in the arms of the trial. Rows with
        the same number of a group are held out together.
        """
        ...

    def fit(
        self,
        key: jax.Array,
        rows: pm.Rows,
        recipe: Any,
        progress: bool = False,
        checkpoint_dir: Path | None = None,
    ) -> MethodFit:
        """Learns from the rows of all tables, with the folds that `deal` gave them.

        The folder is of this fit alone: it keeps the state of training, to continue
        from.
        """
        ...


class Keys(NamedTuple):
    """The key of a fit, split by purpose."""

    train: jax.Array
    solve: jax.Array
    calibrate: jax.Array


def split_key(key: jax.Array) -> Keys:
    """Derives one key for each purpose of a fit."""
    return Keys(*jax.random.split(key, 3))


_Known = TypeVar("_Known", bound=Method)

_METHODS: dict[str, Method] = {}
METHODS: Mapping[str, Method] = MappingProxyType(_METHODS)
"""Every uncertainty method that has a name, by it; `register_method` adds one."""


def register_method(method: _Known) -> _Known:
    """Makes a method known by its name, to `PnsEstimator`, command and report.

    Its name must be new.

    Example:
      >>> import dataclasses
      >>> again = dataclasses.replace(METHODS["plug_in"], name="plug_in_2")
      >>> register_method(again) is METHODS["plug_in_2"]
      True
      >>> del _METHODS["plug_in_2"]  # this example leaves nothing behind
    """
    if method.name in _METHODS:
        raise ValueError(
            f"there is a method {method.name!r} already; known are {list(_METHODS)}."
        )
    _METHODS[method.name] = method
    return method


def get_method(name: str) -> Method:
    """Returns the method of this name; the error for another one is the user's."""
    require(name in _METHODS, "method", f"one of {', '.join(_METHODS)}", name)
    return _METHODS[name]
