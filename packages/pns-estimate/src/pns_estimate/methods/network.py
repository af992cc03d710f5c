"""Draws from a network that has an index of its own: epinet and ensemble.

Where covariates repeat, draws of one network, these or a bootstrap's, are joined with the
counts of people who share them.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float, Int

from pns_estimate.methods.cells import (
    LEAST_CELL_SIZE,
    are_cells_shared,
    describe_residual,
    make_residual_sampler,
)
from pns_estimate.methods.protocol import MethodFit, Sampler, split_key
from pns_estimate.methods.residual import ResidualSampler

_NUM_JUDGED_DRAWS = 64  # of the network, to judge how they and counts are weighed


@dataclasses.dataclass(frozen=True)
class NetworkSampler:
    """A fitted network; an index that is drawn fixes one law for everybody."""

    model: pm.FittedModel

    @property
    def has_draws(self) -> bool:
        """Whether the network has an index."""
        return self.model.is_epistemic

    @property
    def is_posterior(self) -> bool:
        """Draws vary as the estimate does."""
        return False

    def atoms(self, z: Float[np.ndarray, "n d"]) -> pb.Atoms:
        """Estimates the atoms of each unit."""
        return self.model.atoms(z)

    def draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pb.Atoms:
        """Draws atoms [num_draws, n]."""
        linear = self.linear_draws(key, z, num_draws)
        return self.model.draws(key, z, num_draws) if linear is None else linear.atoms()

    def linear_draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pi.LinearDraws | None:
        """Draws the weights of members; None for a network that is no ensemble."""
        if not isinstance(self.model.recipe.network, pm.EnsembleConfig):
            return None
        factors = np.moveaxis(self.model.member_raw(z), 0, -1)
        return pi.LinearDraws(
            center=np.zeros(factors.shape[:2], factors.dtype),
            factors=factors,
            coefficients=self.model.draw_indices(key, num_draws),
        )

    def save(self, folder: Path) -> None:
        """Writes the network to a new folder."""
        self.model.save(folder)


def load_network(folder: Path) -> NetworkSampler:
    """Reads what `NetworkSampler.save` wrote."""
    return NetworkSampler(pm.load(folder))


@dataclasses.dataclass(frozen=True)
class NetworkRecipe:
    """A recipe of a network, and what becomes of the counts of cells.

    Attributes:
      recipe: of the network.
      least_cell_size: units from which on the counts of a cell are used, and kept in
        saved models; None uses no counts.
    """

    recipe: pm.Recipe
    least_cell_size: int | None = LEAST_CELL_SIZE

    def to_json(self) -> dict[str, Any]:
        """Returns nested plain values."""
        return {**vars(self), "recipe": self.recipe.to_json()}


@dataclasses.dataclass(frozen=True)
class NetworkMethod:
    """Trains a network whose own draws, if it has any, say how uncertain it is.

    Where covariates repeat, the counts of cells are added to the draws, weighed by the
    held-out rows: the network did not train on their outcomes. Those rows also chose the
    step at which training stopped, and so judge the network a little too kindly; and they
    are few, a tenth. So the network's word is given the least weight that they allow.
    """

    name: str
    sentence: str
    recipe: pm.Recipe

    def deal(
        self,
        key: jax.Array,
        part: Int[np.ndarray, " n"],
        groups: Int[np.ndarray, " n"] | None,
        recipe: pm.Recipe | NetworkRecipe,
    ) -> Int[np.ndarray, " n"]:
        """Marks the rows that are held out."""
        return deal_held_out(key, part, groups, recipe)

    def fit(
        self,
        key: jax.Array,
        rows: pm.Rows,
        recipe: pm.Recipe | NetworkRecipe,
        progress: bool = False,
        checkpoint_dir: Path | None = None,
    ) -> MethodFit:
        """Trains the network; with a residual the sampler needs no calibration."""
        recipe = as_network_recipe(recipe)
        keys = split_key(key)
        result = fit_network(keys.train, rows, recipe, progress, checkpoint_dir)
        inner = NetworkSampler(result.model)
        return add_counts(keys.calibrate, inner, result, recipe.least_cell_size)

    def load(self, folder: Path) -> Sampler:
        """Reads a network, with or without a residual."""
        if (folder / "residual.npz").exists():
            return ResidualSampler.load(folder, load_network)
        return load_network(folder)


def as_network_recipe(recipe: pm.Recipe | NetworkRecipe) -> NetworkRecipe:
    """Returns a recipe that says what becomes of the counts of cells."""
    return recipe if isinstance(recipe, NetworkRecipe) else NetworkRecipe(recipe)


def deal_held_out(
    key: jax.Array,
    part: Int[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"] | None,
    recipe: pm.Recipe | NetworkRecipe,
) -> Int[np.ndarray, " n"]:
    """Marks rows that are held out by 1; see `Method.deal`."""
    seed = np.asarray(jax.random.key_data(jax.random.split(split_key(key).train, 5)[1]))
    fraction = as_network_recipe(recipe).recipe.training.held_out_fraction
    return pm.deal_held_out(np.random.default_rng(seed), len(part), fraction, groups)


def fit_network(
    key: jax.Array,
    rows: pm.Rows,
    recipe: NetworkRecipe,
    progress: bool,
    checkpoint_dir: Path | None,
) -> pm.FitResult:
    """Trains a network on the rows that are not held out."""
    assert rows.fold is not None
    merge = recipe.recipe.training.merge
    seen, held_out = (rows.take(rows.fold == part) for part in (0, 1))
    return pm.fit(
        key,
        seen.counts(merge),
        recipe.recipe,
        progress=progress,
        checkpoint_dir=checkpoint_dir,
        held_out=held_out.counts(merge),
    )


def add_counts(
    key: jax.Array,
    inner: Sampler,
    result: pm.FitResult,
    least_cell_size: int | None,
) -> MethodFit:
    """Adds the counts of cells to a sampler of one network, judged by held-out rows.

    Args:
      key: decides draws, and which rows are judged if there are many.
      inner: of the network.
      result: of its training.
      least_cell_size: units from which on the counts of a cell are used; None for none.

    Returns:
      The fit with a residual, calibrated; or without, if there are no counts to add.
    """
    model, history, held_out, _ = result
    plain = MethodFit(inner, held_out, model.standardizer, history)
    judged = _judge_counts(key, inner, result, least_cell_size)
    if judged is None:
        return plain
    sampler = dataclasses.replace(judged, profile=judged.profile.cautious())
    return plain._replace(
        sampler=sampler,
        held_out_atoms=inner.atoms(np.asarray(held_out.z)),
        is_calibrated=True,
        notes=describe_residual(sampler.profile, "the network's")
        | {"of the weights that are likely": "the least is used: few were not seen"},
        profile=judged.profile,
    )


def _judge_counts(
    key: jax.Array,
    inner: Sampler,
    result: pm.FitResult,
    least_cell_size: int | None,
) -> ResidualSampler | None:
    """Adds the counts of cells; None if there is nothing to add or to judge it by.

    Draws of the network take the place of members that did not see the held-out rows.
    The network predicts by its mean over all draws, of which theirs is an estimate.
    """
    held_out = result.held_out
    if least_cell_size is None or not inner.has_draws or not len(held_out.z):
        return None
    parts = zip(result.training, held_out, strict=True)
    everybody = pm.Counts(*map(np.concatenate, parts))
    is_held_out = np.repeat([0, 1], [len(result.training.z), len(held_out.z)])
    folded, _ = pm.fold_counts(everybody, is_held_out)
    if not are_cells_shared(folded.cell_totals()):
        return None
    judged = folded.fold == 1
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    drawn = inner.draws(key, np.asarray(folded.counts.z)[judged], _NUM_JUDGED_DRAWS)
    return make_residual_sampler(
        rng,
        inner,
        pb.Atoms(*(part[:_NUM_JUDGED_DRAWS] for part in drawn)),
        folded,
        least_cell_size,
        num_members=np.inf,
        judged=judged,
    )
