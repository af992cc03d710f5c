"""The loop: chunks of steps, an evaluation after each, until the end or patience ends."""

import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jaxtyping import Float, Int

from pns_models._checkpoints import RunCheckpoints
from pns_models._errors import DivergedError
from pns_models._prepare import Run
from pns_models._recipe import TrainConfig
from pns_models._step import RunState, evaluate_block, train_chunk


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
    abort_on_nan: bool,
) -> tuple[RunState, History]:
    """Runs chunks until the end or until patience ends."""
    state, rows = checkpoints.restore(state)
    step, saved = int(state.step), time.monotonic()
    show = progress and sys.stderr.isatty()
    bar = tqdm.tqdm(total=run.num_steps, initial=step, disable=not show, unit="step")
    with bar:
        while step < run.num_steps and not is_out_of_patience(run.config, state):
            size = min(run.config.eval_every, run.num_steps - step)
            state, losses = next_chunk(run, state, step, size)
            if abort_on_nan:
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
    if not run.held_out.blocks:
        return float("nan")
    key = jax.random.fold_in(run.keys.indices, 2**31 - 1)
    return sum(
        float(
            evaluate_block(
                run.program,
                state.params,
                run.fixed,
                z,
                weights,
                run.held_out.totals,
                key,
            )
        )
        for z, weights in run.held_out.blocks
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


def is_out_of_patience(config: TrainConfig, state: RunState) -> bool:
    """Says whether training has waited long enough for a better held-out loss."""
    return config.patience is not None and int(state.waited) >= config.patience


def _check_finite(losses: Float[np.ndarray, " n"], step: int, num_steps: int) -> None:
    if not np.all(np.isfinite(losses)):
        first = step + int(np.argmin(np.isfinite(losses))) + 1
        raise DivergedError(
            f"the loss is not finite at step {first} of {num_steps}; try a smaller "
            "learning_rate."
        )
