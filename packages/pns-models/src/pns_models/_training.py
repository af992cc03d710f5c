"""One training engine for every network.

A run is a sequence of chunks of `eval_every` steps, each one call of one compiled
program, with an evaluation after each, until the end or until patience ends. All
randomness is a function of the key and the step, so a run that resumes from a checkpoint
is the run that was not interrupted.
"""

import math
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jaxtyping import Float, Int, PRNGKeyArray

from pns_models._batches import numpy_rng
from pns_models._checkpoints import RunCheckpoints, digest
from pns_models._data import Counts, check_counts, split_counts
from pns_models._errors import DivergedError, TooFewRowsError
from pns_models._model import FittedModel
from pns_models._recipe import Recipe, TrainConfig
from pns_models._standardizer import Standardizer, make_standardizer
from pns_models._step import (
    Run,
    RunKeys,
    RunState,
    evaluate_block,
    make_run,
    train_chunk,
)


class History(NamedTuple):
    """Losses of a run, one entry per evaluation.

    Attributes:
      step: steps taken.
      training: mean loss of the steps since the last evaluation, with data noise.
      held_out: held-out loss; NaN if nothing was held out.
    """

    step: Int[np.ndarray, " num_evaluations"]
    training: Float[np.ndarray, " num_evaluations"]
    held_out: Float[np.ndarray, " num_evaluations"]


def train(
    run: Run,
    state: RunState,
    checkpoints: RunCheckpoints,
    checkpoint_seconds: float,
    progress: bool,
) -> tuple[RunState, History]:
    """Runs chunks until the end or until patience ends."""
    state, rows = checkpoints.restore(state)
    step, saved = int(state.step), time.monotonic()
    patience = run.config.patience or math.inf
    show = progress and sys.stderr.isatty()
    bar = tqdm.tqdm(total=run.num_steps, initial=step, disable=not show, unit="step")
    with bar:
        while step < run.num_steps and int(state.waited) < patience:
            size = min(run.config.eval_every, run.num_steps - step)
            state, losses = next_chunk(run, state, step, size)
            _check_finite(losses, step, run.num_steps)
            step += size
            held_out = evaluate(run, state)
            rows.append((step, float(losses.mean()), held_out))
            state = remember(state, held_out)
            bar.update(size)
            bar.set_postfix(loss=f"{losses.mean():.4f}", held_out=f"{held_out:.4f}")
            if time.monotonic() - saved >= checkpoint_seconds:
                checkpoints.save(step, state, rows)
                saved = time.monotonic()
    checkpoints.save(step, state, rows)
    checkpoints.close()
    return state, History(*(np.array(column) for column in zip(*rows, strict=True)))


def next_chunk(
    run: Run, state: RunState, step: int, size: int
) -> tuple[RunState, Float[np.ndarray, " size"]]:
    """Takes `size` steps after `step`; returns their losses, too."""
    batches = None if run.batches is None else run.batches(step, size)
    state, losses = train_chunk(
        run.program, size, state, run.fixed, run.data, run.keys, batches
    )
    return state, np.asarray(losses)


def evaluate(run: Run, state: RunState) -> float:
    """Computes the held-out loss; NaN if nothing is held out."""
    if not run.held_out:
        return float("nan")
    key = jax.random.fold_in(run.keys.indices, 2**31 - 1)
    fixed = run.program, state.params, run.fixed
    return sum(
        float(evaluate_block(*fixed, z, weights, run.held_out_totals, key))
        for z, weights in run.held_out
    )


def remember(state: RunState, held_out: float) -> RunState:
    """Keeps the parameters if they are the best so far, or waits once more."""
    if held_out < float(state.best_loss):
        return state._replace(
            best_params=state.params,
            best_loss=jnp.asarray(held_out, jnp.float32),
            waited=jnp.asarray(0, jnp.int32),
        )
    return state._replace(waited=state.waited + 1)


def _check_finite(losses: Float[np.ndarray, " n"], step: int, num_steps: int) -> None:
    if not np.all(np.isfinite(losses)):
        first = step + int(np.argmin(np.isfinite(losses))) + 1
        raise DivergedError(
            f"the loss is not finite at step {first} of {num_steps}; try a smaller "
            "learning_rate."
        )


class FitResult(NamedTuple):
    """What `fit` returns, see there."""

    model: FittedModel
    history: History
    held_out: Counts
    training: Counts


def fit(
    key: PRNGKeyArray,
    counts: Counts,
    recipe: Recipe,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool = True,
    held_out: Counts | None = None,
) -> FitResult:
    """Trains a network.

    Args:
      key: decides initialization, split, batches, indices and noise.
      counts: the data, from `rows_from_tables(...).counts()`.
      recipe: which network and how, perhaps one of `PRESETS`.
      checkpoint_dir: where to keep the state of the run; if it holds one of the same
        run, training continues from there, to the same result.
      checkpoint_seconds: least time between two checkpoints.
      progress: show a bar with loss and time left; never shown off a terminal.
      held_out: units that are held out; counts are then those to train on. If None, each
        unit is held out with the recipe's probability.

    Returns:
      A record: `model`, the fitted network; `history`, its losses by step; `held_out`,
      units that training did not see, to measure reliability (if training may stop early
      they chose the step); `training`, the units that it saw.

    Raises:
      TooFewRowsError: if the training or the held-out part lacks units of a source.
      DivergedError: if the loss is not finite; it names the step.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> import pns_models as pm
      >>> counts = pm.Counts(
      ...     z=np.array([[0.0], [1.0]], np.float32),
      ...     observational=np.array([[[40, 10], [40, 10]], [[40, 10], [10, 40]]]),
      ...     experimental=np.array([[[40, 10], [40, 10]], [[35, 15], [10, 40]]]),
      ... )
      >>> recipe = pm.Recipe(  # a small network and all units, for the example
      ...     pm.AnchoredConfig(pm.Backbone(width=4, depth=0)),
      ...     pm.TrainConfig(
      ...         learning_rate=0.1,
      ...         weight_decay=0.0,
      ...         max_steps=100,
      ...         held_out_fraction=0.0,
      ...         patience=None,
      ...         eval_every=100,
      ...     ),
      ... )
      >>> result = fit(jax.random.key(0), counts, recipe)
      >>> mu = result.model.atoms([[0.0], [1.0]]).mu  # 10 / 50, 15 / 50 and 40 / 50
      >>> [[round(float(value), 1) for value in row] for row in mu]
      [[0.2, 0.2], [0.3, 0.8]]
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(
            f"recipe must be a Recipe, such as PRESETS['default'], got {recipe!r}."
        )
    check_counts(counts)
    keys = RunKeys(*jax.random.split(key, 5))
    training, held_out = _split(keys.split, counts, recipe.training, held_out)
    standardizer = make_standardizer(training)
    seen, hidden = (
        part._replace(z=standardizer(part.z)) for part in (training, held_out)
    )
    network = recipe.network.make(keys.network, seen.z.shape[1])
    run, state = make_run(network, recipe.training, seen, hidden, keys)
    label = {} if checkpoint_dir is None else _label(key, recipe, run, standardizer)
    checkpoints = RunCheckpoints(checkpoint_dir, label)
    state, history = train(run, state, checkpoints, checkpoint_seconds, progress)
    # The best parameters if training may stop early, otherwise the last.
    stops = recipe.training.patience is not None
    params = state.best_params if stops else state.params
    network = run.program.network(params, run.fixed)
    model = FittedModel(network, recipe, standardizer)
    return FitResult(model, history, held_out, training)


def _split(
    key: PRNGKeyArray, counts: Counts, config: TrainConfig, held_out: Counts | None
) -> tuple[Counts, Counts]:
    """Holds some units out; raises if a part lacks units of a source."""
    training, fraction = counts, config.held_out_fraction
    if held_out is None:
        if config.merge is not False:
            counts = counts.merged(only_if_halved=not config.merge)
        training, held_out = split_counts(numpy_rng(key), counts, fraction)
    for name, part in (("training", training), ("held-out", held_out)):
        sizes = [float(cells.sum()) for cells in part[1:]]
        if min(sizes) <= 0 and (name == "training" or fraction > 0):
            raise TooFewRowsError(
                f"the {name} part needs units of both sources, got {sizes[0]:g} "
                f"observational and {sizes[1]:g} experimental; give more data or "
                "another held_out_fraction.",
                part=name,
                observational=sizes[0],
                experimental=sizes[1],
            )
    return training, held_out


def _label(
    key: PRNGKeyArray, recipe: Recipe, run: Run, standardizer: Standardizer
) -> dict[str, Any]:
    """Says which run this is, to refuse a checkpoint of another one."""
    return {
        "recipe": recipe.to_json(),
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "mean": np.asarray(standardizer.mean, np.float64).tolist(),
        "data": digest(run.data.z, run.data.weights),
    }
