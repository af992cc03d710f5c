"""One training engine for every network.

A run is a sequence of chunks of `eval_every` steps, each one call of one compiled
program, with an evaluation after each. All randomness is a function of the key and the
step, so a run that resumes from a checkpoint is the run that was not interrupted.
"""

import functools
import hashlib
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
from flax import nnx

from pns_models._batches import Batch, Batches, numpy_rng
from pns_models._checkpoints import RunCheckpoints
from pns_models._data import Counts, merge_counts, split_counts
from pns_models._errors import DivergedError, TooFewRowsError
from pns_models._loss import loss_by_index
from pns_models._model import FittedModel
from pns_models._noise import cell_directions, make_noise_table, noisy_cells
from pns_models._recipe import Recipe, TrainConfig
from pns_models._standardizer import Standardizer, make_standardizer

_EVAL_ROWS = 32_768


class History(NamedTuple):
    """Losses of a run, one entry per evaluation.

    Attributes:
      step: steps taken.
      training: mean loss of the steps since the last evaluation, with data noise.
      held_out: held-out loss; NaN if nothing was held out.
    """

    step: np.ndarray
    training: np.ndarray
    held_out: np.ndarray


class FitResult(NamedTuple):
    """What `fit` returns."""

    model: FittedModel
    history: History
    held_out: Counts  # what training did not see, to measure reliability


class _State(NamedTuple):
    params: Any
    optimizer: Any
    best_params: Any
    best_loss: jax.Array
    waited: jax.Array  # evaluations since the best one
    step: jax.Array


class _Data(NamedTuple):
    """What a compiled chunk reads; everything by row."""

    z: jax.Array
    cells: jax.Array  # [n, 8]
    quantiles: jax.Array | None = None
    which: jax.Array | None = None
    directions: jax.Array | None = None  # None: drawn for each batch


def fit(
    key: jax.Array,
    counts: Counts,
    recipe: Recipe,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool = True,
    abort_on_nan: bool = True,
) -> FitResult:
    """Trains a network.

    Args:
      key: decides initialization, split, batches, indices and noise.
      counts: the data, from `counts_from_tables`.
      recipe: which network and how, perhaps one of `PRESETS`.
      checkpoint_dir: where to keep the state of the run; if it holds one of the same
        run, training continues from there, to the same result.
      checkpoint_seconds: least time between two checkpoints.
      progress: show a bar with loss and time left; never shown off a terminal.
      abort_on_nan: raise DivergedError, which names the step, when the loss is not
        finite.

    Returns:
      The fitted model, its history, and the held-out units.
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(
            f"recipe must be a Recipe, such as PRESETS['default'], got {recipe!r}."
        )
    _check_counts(counts)
    keys = dict(
        zip(
            ("network", "split", "batches", "index", "noise"),
            jax.random.split(key, 5),
            strict=True,
        )
    )
    config = recipe.training
    if config.merge is not False:
        counts = merge_counts(counts, only_if_halved=not config.merge)
    train, held_out = split_counts(
        numpy_rng(keys["split"]), counts, config.held_out_fraction
    )
    for name, part in (("training", train), ("held-out", held_out)):
        empty = min(part.observational.sum(), part.experimental.sum()) <= 0
        if empty and (name == "training" or config.held_out_fraction > 0):
            raise TooFewRowsError(
                f"the {name} part needs units of both sources, got "
                f"{part.observational.sum():g} observational and "
                f"{part.experimental.sum():g} experimental; give more data or another "
                "held_out_fraction.",
                part=name,
                observational=part.observational.sum(),
                experimental=part.experimental.sum(),
            )
    standardizer = make_standardizer(train)
    train = train._replace(z=standardizer(train.z))
    network = recipe.network.make(keys["network"], train.z.shape[1])
    run = _Run(network, recipe, train, held_out, standardizer, keys)
    label = {} if checkpoint_dir is None else run.fingerprint(key)
    checkpoints = RunCheckpoints(checkpoint_dir, label)
    history = run.train(checkpoints, checkpoint_seconds, progress, abort_on_nan)
    return FitResult(run.fitted(), history, held_out)


class _Run:
    """The moving parts of one call of `fit`."""

    def __init__(self, network, recipe, train, held_out, standardizer, keys):
        self.recipe, self.standardizer, self.keys = recipe, standardizer, keys
        config = recipe.training
        self.structure, params, self.fixed = nnx.split(network, nnx.Param, ...)
        num_rows = len(train.z)
        size = min(config.batch_size or num_rows, num_rows)
        visits = (config.epochs or 0) * num_rows
        self.num_steps = config.max_steps or -(-visits // size)
        # A batch stands for all rows, so totals are compared with its share of them.
        self.batch_totals = _totals(train) * (size / num_rows)
        cells = _flat_cells(train)
        full_batch = size == num_rows
        self.data = _make_data(network, train.z, cells, config, keys, full_batch)
        self.batches = None  # a batch of all rows needs no shuffling
        if not full_batch:
            may_merge = self.data.quantiles is None
            self.batches = Batches(keys["batches"], train.z, cells, size, may_merge)
        self.held_out = _make_blocks(held_out, standardizer)
        self.held_out_totals = _totals(held_out)
        self.tx = _make_optimizer(config, self.num_steps, params)
        self.state = _State(
            params=params,
            optimizer=self.tx.init(params),
            best_params=params,
            best_loss=jnp.asarray(jnp.inf),
            waited=jnp.asarray(0),
            step=jnp.asarray(0),
        )

    def fingerprint(self, key: jax.Array) -> dict[str, Any]:
        """Says which run this is, to refuse a checkpoint of another one."""
        return {
            "recipe": self.recipe.to_json(),
            "key": np.asarray(jax.random.key_data(key)).tolist(),
            "mean": np.asarray(self.standardizer.mean, np.float64).tolist(),
            "data": _digest(self.data.z, self.data.cells),
        }

    def train(self, checkpoints, seconds, progress, abort_on_nan) -> History:
        """Runs chunks until the end or until patience ends."""
        config = self.recipe.training
        self.state, history = checkpoints.restore(self.state)
        step = int(self.state.step)
        saved = time.monotonic()
        bar = tqdm.tqdm(
            total=self.num_steps,
            initial=step,
            disable=not (progress and sys.stderr.isatty()),
            unit="step",
        )
        with bar:
            while step < self.num_steps and not self._out_of_patience():
                size = min(config.eval_every, self.num_steps - step)
                self.state, losses = self._chunk(step, size)
                losses = np.asarray(losses)
                if abort_on_nan and not np.all(np.isfinite(losses)):
                    first = step + int(np.argmin(np.isfinite(losses))) + 1
                    raise DivergedError(
                        f"the loss is not finite at step {first} of {self.num_steps}; "
                        "try a smaller learning_rate."
                    )
                step += size
                held_out = self._evaluate()
                history.append((step, float(losses.mean()), held_out))
                self._remember(held_out)
                bar.update(size)
                bar.set_postfix(loss=f"{losses.mean():.4f}", held_out=f"{held_out:.4f}")
                if time.monotonic() - saved >= seconds:
                    checkpoints.save(step, self.state, history)
                    saved = time.monotonic()
        checkpoints.save(step, self.state, history)
        checkpoints.close()
        return History(*(np.array(column) for column in zip(*history, strict=True)))

    def fitted(self) -> FittedModel:
        """Returns the model: the best parameters if training may stop early."""
        stops = self.recipe.training.patience is not None
        params = self.state.best_params if stops else self.state.params
        network = nnx.merge(self.structure, params, self.fixed)
        return FittedModel(network, self.recipe, self.standardizer)

    def _out_of_patience(self) -> bool:
        patience = self.recipe.training.patience
        return patience is not None and int(self.state.waited) >= patience

    def _remember(self, held_out: float) -> None:
        if held_out < float(self.state.best_loss):
            self.state = self.state._replace(
                best_params=self.state.params,
                best_loss=jnp.asarray(held_out),
                waited=jnp.asarray(0),
            )
        else:
            self.state = self.state._replace(waited=self.state.waited + 1)

    def _chunk(self, step: int, size: int):
        return _train_chunk(
            self.structure,
            self.tx,
            size,
            self.recipe.training.num_indices,
            self.state,
            self.fixed,
            self.data,
            self.batch_totals,
            None if self.batches is None else self.batches(step, size),
            self.keys["index"],
            self.keys["noise"],
        )

    def _evaluate(self) -> float:
        if not self.held_out:
            return float("nan")
        key = jax.random.fold_in(self.keys["index"], 2**31 - 1)
        total = 0.0
        for z, cells in self.held_out:
            total += float(
                _evaluate_block(
                    self.structure,
                    self.recipe.training.num_indices,
                    self.state.params,
                    self.fixed,
                    z,
                    cells,
                    self.held_out_totals,
                    key,
                )
            )
        return total


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _train_chunk(
    structure,
    tx,
    size,
    num_indices,
    state,
    fixed,
    data,
    totals,
    batches,
    index_key,
    noise_key,
):
    """Takes `size` steps; batches are stacked, or None for all rows each time."""

    def step(carry: _State, batch: Batch | None):
        network = nnx.merge(structure, carry.params, fixed)
        key = jax.random.fold_in(index_key, carry.step)
        indices = network.training_indices(key, num_indices)
        z, cells, which, directions = data.z, data.cells, data.which, data.directions
        if batch is not None:
            z = z[batch.rows]
            cells = cells[batch.rows] if batch.cells is None else batch.cells
        if data.quantiles is not None:
            if batch is not None:
                which = which[batch.rows]
                directions = cell_directions(network, noise_key, batch.rows)
            cells = noisy_cells(data.quantiles, which, directions, indices)

        def loss(params):
            raw = nnx.merge(structure, params, fixed).raw(z, indices)
            return loss_by_index(raw, cells, totals, network.link, training=True).mean()

        value, gradient = jax.value_and_grad(loss)(carry.params)
        updates, optimizer = tx.update(gradient, carry.optimizer, carry.params)
        params = optax.apply_updates(carry.params, updates)
        carry = carry._replace(
            params=params,
            optimizer=optimizer,
            step=carry.step + 1,
        )
        return carry, value

    return jax.lax.scan(step, state, batches, length=size)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _evaluate_block(structure, num_indices, params, fixed, z, cells, totals, key):
    network = nnx.merge(structure, params, fixed)
    indices = network.training_indices(key, num_indices)
    raw = network.raw(z, indices)
    return loss_by_index(raw, cells, totals, network.link).mean()


def _make_data(network, z, cells, config, keys, full_batch) -> _Data:
    """Puts training rows, already standardized, on the device."""
    data = _Data(z=jnp.asarray(z), cells=jnp.asarray(cells))
    if config.data_noise == "none" or not network.is_epistemic:
        return data
    table = make_noise_table(cells)
    directions = None
    if full_batch:
        directions = cell_directions(network, keys["noise"], jnp.arange(len(cells)))
    return data._replace(
        quantiles=jnp.asarray(table.quantiles),
        which=jnp.asarray(table.which),
        directions=directions,
    )


def _make_blocks(counts: Counts, standardizer: Standardizer):
    """Cuts held-out rows into blocks of one shape; the last is filled with empty rows."""
    if not len(counts.z):
        return []
    z, cells = standardizer(counts.z), _flat_cells(counts)
    size = min(_EVAL_ROWS, len(z))
    missing = -len(z) % size
    z = np.concatenate([z, np.zeros((missing, z.shape[1]), z.dtype)])
    cells = np.concatenate([cells, np.zeros((missing, 8), cells.dtype)])
    return [
        (jnp.asarray(z[i : i + size]), jnp.asarray(cells[i : i + size]))
        for i in range(0, len(z), size)
    ]


def _make_optimizer(config: TrainConfig, num_steps: int, params):
    rate: Any = config.learning_rate
    if config.schedule == "cosine":
        rate = optax.cosine_decay_schedule(rate, num_steps)
    if config.weight_decay == 0:
        return optax.adam(rate)
    decayed = jax.tree_util.tree_map_with_path(_is_decayed, params)
    return optax.adamw(rate, weight_decay=config.weight_decay, mask=decayed)


def _is_decayed(path, _) -> bool:
    """Whether a parameter decays: a kernel of the networks that predict.

    Not biases; and not what makes draws differ, the kernel a hypermodel generates with
    and the head of an epinet, whose decay would make all draws equal.
    """
    names = [getattr(part, "key", None) for part in path]
    return "kernels" in names and "head" not in names


def _flat_cells(counts: Counts) -> np.ndarray:
    parts = [np.asarray(part, np.float32).reshape(-1, 4) for part in counts[1:]]
    return np.concatenate(parts, axis=1)


def _totals(counts: Counts) -> jax.Array:
    return jnp.array([np.asarray(part, np.float64).sum() for part in counts[1:]])


def _digest(*arrays: jax.Array) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.asarray(array).tobytes())
    return digest.hexdigest()


def _check_counts(counts: Counts) -> None:
    shapes = [np.shape(part) for part in counts]
    expected = [(shapes[0][0], 2, 2)] * 2
    if len(shapes[0]) != 2 or shapes[1:] != expected:
        raise ValueError(
            "counts must have z [n, d] and two tables of cells [n, 2, 2], got shapes "
            f"{shapes}; make them with counts_from_tables."
        )
    z = np.asarray(counts.z)
    bad = ~np.isfinite(z).all(axis=0)
    if bad.any():
        raise ValueError(
            "z has missing or infinite values in columns "
            f"{np.flatnonzero(bad).tolist()}."
        )
    for name, cells in zip(counts._fields[1:], counts[1:], strict=True):
        cells = np.asarray(cells)
        if not np.all(np.isfinite(cells) & (cells >= 0)):
            raise ValueError(f"{name} counts must be finite and not negative.")
    arms = np.asarray(counts.experimental, np.float64).sum(axis=(0, 2))
    if arms.sum() > 0 and arms.min() <= 0:
        raise ValueError(
            "the experiment needs units in both arms, got "
            f"{arms[0]:g} in control and {arms[1]:g} in treatment."
        )
