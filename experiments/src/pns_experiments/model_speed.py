"""Times pns-models; every figure is a ratio within the run, or a peak of memory."""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_dgp
import pns_models as pm
from flax import nnx

from pns_experiments.timing import peak_memory, timed


def oracle_loss(model: pns_dgp.StructuralModel, counts: pm.Counts) -> float:
    """Computes the held-out loss of the true probabilities."""
    atoms = model.oracle(counts.z).atoms
    outcome = np.stack([1 - atoms.mu, atoms.mu], axis=-1)
    loss = 0.0
    for cells, p in (
        (counts.observational, atoms.joint),
        (counts.experimental, outcome),
    ):
        seen = cells > 0
        loss -= float(np.sum(cells[seen] * np.log(p[seen])) / cells.sum())
    return loss


def expected_gap(model: pns_dgp.LiModel, fitted: pm.FittedModel) -> float:
    """Computes the expected excess of the loss over the oracle's, over all cells."""
    z, weights = model.support()
    truth, estimate = model.oracle(z).atoms, fitted.atoms(z)
    gap = 0.0
    for weight, p, q in (
        (weights, truth.joint.reshape(-1, 4), estimate.joint.reshape(-1, 4)),
        (weights / 2, truth.mu, estimate.mu),  # half of the units in each arm
        (weights / 2, 1 - truth.mu, 1 - estimate.mu),
    ):
        logs = np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(q, 1e-30))
        gap += float(weight @ np.sum(p * logs, axis=1))
    return gap


def row_wise(rate: float, decay: float, activation: str) -> pm.Recipe:
    """Makes a recipe with minibatches of 256 rows that may stop early."""
    backbone = dataclasses.replace(pm.Backbone(), activation=activation)
    return pm.Recipe(
        pm.AnchoredConfig(backbone),
        pm.TrainConfig(
            learning_rate=rate,
            weight_decay=decay,
            batch_size=256,
            merge=False,
            epochs=30,
            max_steps=None,
            eval_every=250,
            patience=20,
        ),
    )


def time_fits(num_seeds: int) -> None:
    """Prints, for each recipe and seed, the gap to the oracle and the time to it."""
    model = pns_dgp.li_model_1()
    key = jax.random.key(0)
    observational = model.sample(key, 100_000, "observational")
    experimental = model.sample(key, 50_000, "experimental")
    merged = pm.counts_from_tables(observational, experimental)
    rows = pm.counts_from_tables(observational, experimental, merge=False)
    others = {
        "rows, Adam 1e-3, ReLU": row_wise(1e-3, 0.0, "relu"),
        "rows, AdamW 1e-3, SiLU": row_wise(1e-3, 0.3, "silu"),
    }
    for seed in range(num_seeds):
        default, text = _follow_fit(model, merged, pm.PRESETS["default"], seed)
        print(f"seed {seed}  {'default':22} {text}", flush=True)
        for name, recipe in others.items():
            path, text = _follow_fit(model, rows, recipe, seed)
            print(f"seed {seed}  {name:22} {text}; {_compare(path, default)}")


class _Path(NamedTuple):
    """Gap to the oracle's held-out loss, and seconds, at each evaluation of a fit."""

    gaps: np.ndarray
    seconds: np.ndarray

    @property
    def best(self) -> int:
        return int(np.argmin(self.gaps))


def _follow_fit(
    model: pns_dgp.LiModel, counts: pm.Counts, recipe: pm.Recipe, seed: int
) -> tuple[_Path, str]:
    """Fits once to compile, and once to time."""
    short = dataclasses.replace(
        recipe.training, epochs=None, max_steps=recipe.training.eval_every
    )
    key = jax.random.key(seed)
    pm.fit(key, counts, dataclasses.replace(recipe, training=short))
    fit, took = timed(lambda: pm.fit(key, counts, recipe))
    path = _Path(
        fit.history.held_out - oracle_loss(model, fit.held_out),
        took * fit.history.step / fit.history.step[-1],
    )
    return path, (
        f"held-out gap {path.gaps[path.best]:.4f} nats (expected "
        f"{expected_gap(model, fit.model):.4f}) after {path.seconds[path.best]:5.1f} s"
    )


def _compare(path: _Path, default: _Path) -> str:
    """Says when a fit reaches the default's best loss, and the other way round."""
    reached = path.seconds[path.gaps <= default.gaps[default.best]]
    when = f"after {reached[0]:.1f} s" if len(reached) else "never"
    same = default.seconds[default.gaps <= path.gaps[path.best]]
    if not len(same):
        return f"reaches the default's {when}; the default never reaches this one's"
    return (
        f"reaches the default's {when}; the default took {same[0]:.1f} s to this one's: "
        f"{path.seconds[path.best] / same[0]:.0f} times faster"
    )


def matmul_rate(size: int) -> float:
    """Measures flops per second of a large float32 product; the best of ten."""
    product = jax.jit(jnp.matmul)
    a = jnp.ones((size, size))
    jax.block_until_ready(product(a, a))
    best = np.inf
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(product(a, a))
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def time_draws(num_draws: int, num_points: int, product_size: int) -> None:
    """Prints the flop rate of draws of the paper's hypermodel."""
    recipe = pm.PRESETS["paper_low_dim"]
    network = recipe.network.make(jax.random.key(0), 15)
    scale = pm.Standardizer(np.zeros(15), np.ones(15), np.zeros(15, bool))
    fitted = pm.FittedModel(network, recipe, scale)
    z = pns_dgp.li_model_1().sample_population(jax.random.key(1), num_points).z
    next(iter(fitted.stream_draws(jax.random.key(2), z, 64)))  # compiles
    before = peak_memory()
    plain = matmul_rate(product_size)
    start = time.perf_counter()
    count = 0
    for atoms in fitted.stream_draws(jax.random.key(2), z, num_draws):
        count += len(atoms.mu)
    took = time.perf_counter() - start
    config: Any = recipe.network
    base = pm.AnchoredConfig(config.backbone)
    num_parameters = sum(
        leaf.size
        for leaf in jax.tree.leaves(nnx.state(base.make(jax.random.key(0), 15)))
    )
    # Twice: the learned network and the prior; two flops per parameter and unit.
    rate = count * len(z) * num_parameters * 2 * 2 / took
    print(f"{count} draws x {len(z)} units: {took:.1f} s, {rate / 1e9:.0f} GFLOP/s")
    print(f"large product {plain / 1e9:.0f} GFLOP/s: ratio {rate / plain:.2f}")
    print(f"peak memory {peak_memory():.2f} GB, {before:.2f} GB before")


def time_epoch(rows: int) -> None:
    """Prints time and memory of one epoch of the high-dimensional preset."""
    model = pns_dgp.acic_model()
    key = jax.random.key(0)
    tables = (
        model.sample(key, rows, "observational"),
        model.sample(key, rows * 10 // 24, "experimental"),
    )
    print(f"tables drawn, peak memory {peak_memory():.2f} GB", flush=True)
    start = time.perf_counter()
    counts = pm.counts_from_tables(*tables)
    del tables
    print(
        f"counts in {time.perf_counter() - start:.1f} s, {len(counts.z)} rows, "
        f"peak memory {peak_memory():.2f} GB",
        flush=True,
    )
    preset = pm.PRESETS["paper_high_dim"]
    recipe = dataclasses.replace(
        preset, training=dataclasses.replace(preset.training, epochs=1, eval_every=100)
    )
    start = time.perf_counter()
    fit = pm.fit(key, counts, recipe)
    took = time.perf_counter() - start
    print(
        f"one epoch, {fit.history.step[-1]} steps: {took:.0f} s with set-up and "
        f"evaluation, peak memory {peak_memory():.2f} GB"
    )
    print(f"held-out loss {fit.history.held_out}")
