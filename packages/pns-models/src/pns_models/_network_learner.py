"""Networks as a learner: one recipe, one member per resample, one program for all.

Training runs in chunks, with an evaluation after each. Weights, folds and keys of the
members follow from key and resamples, so a checkpoint keeps only what training changes.
"""

import dataclasses
import functools
import sys
import time
from typing import Any

import jax
import numpy as np
import pns_bounds as pb
import tqdm
from flax import nnx
from jaxtyping import Float, PRNGKeyArray

from pns_models._anchored import AnchoredConfig
from pns_models._checkpoints import Row
from pns_models._data import Counts, FoldedCounts
from pns_models._errors import DivergedError, UnsuitableError
from pns_models._learner import RunContext
from pns_models._members import (
    NO_DECAY,
    MemberProgram,
    MemberStates,
    make_cells,
    visit_weights,
)
from pns_models._network import NetworkConfig
from pns_models._network_members import NetworkMembers
from pns_models._placement import State, changing, place_members
from pns_models._recipe import Recipe
from pns_models._resamples import Resamples
from pns_models._stack import source_losses
from pns_models._standardizer import make_standardizer
from pns_models._step import make_optimizer
from pns_models._training import History

_CHUNKS = 10  # of training, with an evaluation after each
_EVAL_ROWS = 4096  # of an evaluation while training, at most
_UNITS_PER_STEP = 20  # with fewer units, training has fewer steps
_LEAST_STEPS = 300


@dataclasses.dataclass(frozen=True)
class NetworkLearner:
    """Trains anchored networks by one recipe, for `cross_fit`.

    Attributes:
      recipe: of every member: an anchored network, with training from
        `make_member_training`.
      name: what reports call it.
      min_units: of both sources, with fewer of which it is left out.
    """

    recipe: Recipe
    name: str = "networks"
    min_units: int = 0

    def __post_init__(self):
        """Checks what would only fail later."""
        if not isinstance(self.recipe, Recipe):
            raise pb.InputError("recipe", f"must be a Recipe, got {self.recipe!r}.")
        network, config = self.recipe.network, self.recipe.training
        if not isinstance(network, AnchoredConfig):
            raise pb.InputError(
                "recipe", f"must be of an anchored network here, got {network!r}."
            )
        if config.max_steps is None or (config.batch_size or 0) < 2:
            raise pb.InputError(
                "recipe",
                "needs max_steps and a batch_size of 2 or more here, got "
                f"{config.max_steps} and {config.batch_size}; see "
                "make_member_training.",
            )
        settings = (config.patience, config.held_out_fraction, config.data_noise)
        if settings != (None, 0, "none"):
            raise pb.InputError(
                "recipe",
                "must have no patience, a held_out_fraction of 0 and no data_noise "
                f"here, got {settings}; see make_member_training.",
            )

    def fit(
        self, key: PRNGKeyArray, resamples: Resamples, context: RunContext
    ) -> NetworkMembers:
        """Trains a network on each resample.

        Args:
          key: decides initialization and batches.
          resamples: entries of both sources, and what each member sees of them.
          context: how the fit runs.

        Raises:
          DivergedError: if a loss is not finite.
        """
        units = float(resamples.total.sum())
        if units < self.min_units:
            raise UnsuitableError(
                f"there are {units:,.0f} rows, and networks need {self.min_units:,}."
            )
        recipe = _shorten(self.recipe, units * resamples.share)
        config = recipe.training
        assert config.max_steps is not None and config.batch_size is not None
        standardizer = make_standardizer(resamples.folded.counts)
        program, states = make_states(key, resamples, recipe)
        cells = make_cells(resamples, standardizer, config.batch_size)
        some = _some_rows(resamples.folded)
        state, rows = context.checkpoints.restore(changing(states))
        state = jax.tree.map(np.asarray, state)  # cut into parts without compilation
        placed = place_members(context.mesh, program, _changed(states, state), cells)
        step, saved = int(state[2][0]), time.monotonic()
        show = context.progress and sys.stderr.isatty()
        bar = tqdm.tqdm(
            total=config.max_steps, initial=step, disable=not show, unit="step"
        )

        def members(history: History | None = None) -> NetworkMembers:
            return NetworkMembers.from_params(
                state[0], resamples.member_fold, recipe, standardizer, history
            )

        with bar:
            while step < config.max_steps:
                size = min(-(-config.max_steps // _CHUNKS), config.max_steps - step)
                losses = placed.train(size)
                step += size
                state = placed.state()
                _check_finite(step, losses, state[0])
                loss = float(losses.mean(dtype=np.float64))
                held_out = _held_out_loss(members(), some)
                rows.append((step, loss, held_out))
                bar.update(size)
                bar.set_postfix(loss=f"{loss:.4f}", held_out=f"{held_out:.4f}")
                if time.monotonic() - saved >= context.checkpoint_seconds:
                    context.checkpoints.save(step, state, rows)
                    saved = time.monotonic()
        context.checkpoints.save(step, state, rows)
        context.checkpoints.close()
        return members(_make_history(rows))


def _shorten(recipe: Recipe, units: float) -> Recipe:
    """Halves the steps of training while units are few for them."""
    steps = recipe.training.max_steps
    assert steps is not None
    while steps >= 2 * _LEAST_STEPS and steps * _UNITS_PER_STEP > units:
        steps //= 2
    training = dataclasses.replace(recipe.training, max_steps=steps)
    return dataclasses.replace(recipe, training=training)


def make_states(
    key: PRNGKeyArray, resamples: Resamples, recipe: Recipe
) -> tuple[MemberProgram, MemberStates]:
    """Draws initial networks, one for each resample, and computes their weights."""
    keys = jax.random.split(key)
    size, num_covariates = len(resamples.member_fold), resamples.z.shape[1]
    config = recipe.training
    assert config.max_steps is not None
    shapes = nnx.eval_shape(lambda: recipe.network.make(keys[0], num_covariates))
    optimizer = make_optimizer(config, config.max_steps)
    # The decay is no part of the program, which is then the same for all shares.
    program = dataclasses.replace(optimizer, decay_steps=None)
    states = [
        _first_params(recipe.network, num_covariates, key)
        for key in jax.random.split(keys[0], size)
    ]
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
    moments = program.transformation().init(states[0])
    return MemberProgram(nnx.split(shapes)[0], program), MemberStates(
        params=params,
        optimizer=jax.tree.map(lambda leaf: np.stack([leaf] * size), moments),
        step=np.zeros(size, np.int32),
        decay_steps=np.full(size, optimizer.decay_steps or NO_DECAY, np.int32),
        fold=np.asarray(resamples.member_fold, np.int32),
        key=jax.random.split(keys[1], size),
        weights=visit_weights(resamples),
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _first_params(
    network: NetworkConfig, num_covariates: int, key: PRNGKeyArray
) -> Any:
    """Draws the parameters of one member."""
    return nnx.split(network.make(key, num_covariates))[1]


def _changed(states: MemberStates, state: State) -> MemberStates:
    """Puts back what `changing` picked."""
    params, optimizer, step = state
    return states._replace(params=params, optimizer=optimizer, step=step)


def _check_finite(step: int, losses: Float[np.ndarray, " m"], params: Any) -> None:
    """Raises if training diverged; the last step shows in the parameters alone."""
    leaves = [losses, *jax.tree.leaves(params)]
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise DivergedError(
            f"the loss is not finite after {step} steps; try a smaller learning_rate."
        )


def _some_rows(folded: FoldedCounts) -> FoldedCounts:
    """Picks some rows of all folds, for evaluations while training."""
    some = slice(None, None, -(-len(folded.fold) // _EVAL_ROWS))
    counts = Counts(*(np.asarray(part)[some] for part in folded.counts))
    return FoldedCounts(counts, folded.fold[some], folded.cell[some])


def _held_out_loss(members: NetworkMembers, folded: FoldedCounts) -> float:
    """Computes the loss of units by the mean of the members that did not see them."""
    raw = members.raw(np.asarray(folded.counts.z))
    is_own = (members.fold[:, None] == folded.fold).astype(np.float32)
    held_out = np.einsum("mn,mnr->nr", is_own / is_own.sum(axis=0), raw)
    return float(source_losses(held_out, folded.counts).sum())


def _make_history(rows: list[Row]) -> History:
    return History(*(np.array(column) for column in zip(*rows, strict=True)))
