"""Times pns-models; every figure is a ratio within the run, or a peak of memory.

--part=fit    Li Model 1, 100k + 50k rows: the default fit against row-wise minibatches
              of 256, by the time to come as close to the oracle's held-out loss
--part=draws  8,000 draws for 3,000 people: flop rate beside a large matrix product.
--part=epoch  One epoch of paper_high_dim on 2.4M + 1M rows: time and peak memory.
"""

import dataclasses
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pns_dgp
import pns_models as pm
from absl import app, flags
from flax import nnx
from timing import peak_memory

_PART = flags.DEFINE_enum("part", "fit", ["fit", "draws", "epoch"], "What to time.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "Fits of each kind (part fit).")
_DRAWS = flags.DEFINE_integer("draws", 8000, "Draws (part draws).")
_ROWS = flags.DEFINE_integer("rows", 2_400_000, "Observational rows (part epoch).")


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
    for share, p, q in (
        (weights, truth.joint.reshape(-1, 4), estimate.joint.reshape(-1, 4)),
        (weights / 2, truth.mu, estimate.mu),  # half of the people in each arm
        (weights / 2, 1 - truth.mu, 1 - estimate.mu),
    ):
        logs = np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(q, 1e-30))
        gap += float(share @ np.sum(p * logs, axis=1))
    return gap


def row_wise(rate: float, decay: float, activation: str) -> pm.Recipe:
    """Makes a recipe with minibatches of 256 rows that may stop early."""
    backbone = dataclasses.replace(pm.Backbone(), activation=activation)
    return pm.Recipe(
        pm.NetworkConfig("anchored", backbone),
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


def time_fits() -> None:
    """Prints, for each recipe and seed, the gap to the oracle and the time to it."""
    model = pns_dgp.li_model_1()
    key = jax.random.key(0)
    observational = model.sample(key, 100_000, "observational")
    experimental = model.sample(key, 50_000, "experimental")
    recipes = {
        "default": (pm.PRESETS["default"], None),
        "rows, Adam 1e-3, ReLU": (row_wise(1e-3, 0.0, "relu"), False),
        "rows, AdamW 1e-3, SiLU": (row_wise(1e-3, 0.3, "silu"), False),
    }
    for seed in range(_SEEDS.value):
        goal = 0.0
        path = []  # the default's (gap, seconds) at each evaluation
        for name, (recipe, merge) in recipes.items():
            counts = pm.counts_from_tables(observational, experimental, merge=merge)
            short = dataclasses.replace(
                recipe.training, epochs=None, max_steps=recipe.training.eval_every
            )
            pm.fit(  # compiles
                jax.random.key(seed),
                counts,
                dataclasses.replace(recipe, training=short),
            )
            start = time.perf_counter()
            fit = pm.fit(jax.random.key(seed), counts, recipe)
            took = time.perf_counter() - start
            gaps = fit.history.validation - oracle_loss(model, fit.validation)
            seconds = took * fit.history.step / fit.history.step[-1]
            best = int(np.argmin(gaps))
            line = (
                f"seed {seed}  {name:22} held-out gap {gaps[best]:.4f} nats (expected "
                f"{expected_gap(model, fit.model):.4f}) after {seconds[best]:5.1f} s"
            )
            if name == "default":
                goal, path = gaps[best], list(zip(gaps, seconds, strict=True))
            else:
                reached = seconds[gaps <= goal]
                when = f"after {reached[0]:.1f} s" if len(reached) else "never"
                same = next(s for g, s in path if g <= gaps[best])
                line += (
                    f"; reaches the default's {when}; the default took {same:.1f} s to "
                    f"this one's: {seconds[best] / same:.0f} times faster"
                )
            print(line, flush=True)


def matmul_rate(size: int = 2048) -> float:
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


def time_draws() -> None:
    """Prints the flop rate of draws of the paper's hypermodel."""
    recipe = pm.PRESETS["paper_low_dim"]
    network = recipe.network.make(jax.random.key(0), 15)
    scale = pm.Standardiser(np.zeros(15), np.ones(15), np.zeros(15, bool))
    fitted = pm.FittedModel(network, recipe, scale)
    z = pns_dgp.li_model_1().sample_population(jax.random.key(1), 3000).z
    next(iter(fitted.stream_draws(jax.random.key(2), z, 64)))  # compiles
    before = peak_memory()
    plain = matmul_rate()
    start = time.perf_counter()
    count = 0
    for atoms in fitted.stream_draws(jax.random.key(2), z, _DRAWS.value):
        count += len(atoms.mu)
    took = time.perf_counter() - start
    base = pm.NetworkConfig("anchored", recipe.network.backbone)
    num_parameters = sum(
        leaf.size
        for leaf in jax.tree.leaves(nnx.state(base.make(jax.random.key(0), 15)))
    )
    # Twice: the learned network and the prior; two flops per parameter and person.
    rate = count * len(z) * num_parameters * 2 * 2 / took
    print(f"{count} draws x {len(z)} people: {took:.1f} s, {rate / 1e9:.0f} GFLOP/s")
    print(f"large product {plain / 1e9:.0f} GFLOP/s: ratio {rate / plain:.2f}")
    print(f"peak memory {peak_memory():.2f} GB, {before:.2f} GB before")


def time_epoch() -> None:
    """Prints time and memory of one epoch of the high-dimensional preset."""
    model = pns_dgp.acic_model()
    key = jax.random.key(0)
    rows = _ROWS.value
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
    print(f"held-out loss {fit.history.validation}")


def main(argv: Sequence[str]) -> None:
    """Runs the part that was asked for."""
    if len(argv) > 1:
        raise app.UsageError(f"model_speed takes flags only, got {argv[1:]}.")
    {"fit": time_fits, "draws": time_draws, "epoch": time_epoch}[_PART.value]()


if __name__ == "__main__":
    app.run(main)
