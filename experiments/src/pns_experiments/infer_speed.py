"""Times pns-infer; every figure is a ratio within the run, or a peak of memory."""

import warnings
from collections.abc import Iterator

import jax
import numpy as np
import pns_bounds as pb
import pns_dgp
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm

from pns_experiments.timing import peak_memory, timed


def time_intervals(num_draws: int, num_points: int) -> None:
    """Prints the time of intervals from streamed draws, and the peak of memory."""
    before = peak_memory()
    _, drawing = timed(lambda: sum(len(b.mu) for b in _blocks(num_draws, num_points)))
    after_drawing = peak_memory()
    _, took = timed(
        lambda: pi.intervals_from_draws(
            _blocks(num_draws, num_points), sample_size=150_000
        )
    )
    print(
        f"{num_draws} draws x {num_points} points: {took - drawing:.1f} s beside "
        f"{drawing:.1f} s to make them"
    )
    print(
        f"peak memory {peak_memory():.2f} GB; {after_drawing:.2f} GB to make them, "
        f"{before:.2f} GB before"
    )


def _blocks(num_draws: int, num_points: int, size: int = 500) -> Iterator[pb.Atoms]:
    rng = np.random.default_rng(0)
    for _ in range(0, num_points, size):
        raw = rng.standard_normal((1, size, 6), np.float32)
        raw = raw + 0.3 * rng.standard_normal((num_draws, size, 6), np.float32)
        cells = np.exp(raw[..., :4])
        joint = (cells / cells.sum(-1, keepdims=True)).reshape(*raw.shape[:2], 2, 2)
        yield pb.Atoms(joint, pb.anchor(joint, raw[..., 4:]))


def time_bootstrap(
    part: str, num_draws: int, num_points: int, num_reference: int
) -> None:
    """Prints the time of shared solves beside that of the per-point algorithm.

    Args:
      part: 'last_layer', 'full' (the network of `bootstrap_full`), or 'full_large'.
      num_draws: of the bootstrap.
      num_points: where it is evaluated.
      num_reference: points of the per-point algorithm.
    """
    small = pe.get_method("bootstrap_full").recipe
    recipe = small if part == "full" else pm.PRESETS["default"]
    scope = "last_layer" if part == "last_layer" else "full"
    model, counts, points = _fit_network(recipe, num_points)
    warnings.simplefilter("ignore", pi.NotConvergedWarning)
    before = peak_memory()
    bootstrap, solving = timed(
        lambda: pe.make_bootstrap(
            jax.random.key(3),
            model,
            counts,
            scope,
            num_draws,
            pi.SolveConfig(damping=1e-3),
        )
    )
    _, drawing = timed(lambda: bootstrap.draws(points))
    pi.per_point_draws(bootstrap, points[:1])  # compiles
    _, one = timed(lambda: pi.per_point_draws(bootstrap, points[:1]))
    some = points[: num_reference + 1]  # the first pays for what all share
    _, slow = timed(lambda: pi.per_point_draws(bootstrap, some))
    slow = (slow - one) / num_reference
    sample_size = sum(part.sum() for part in counts[1:])
    print(
        f"{part}: {len(counts.z)} rows for {sample_size:.0f} units, "
        f"{bootstrap.shifts.shape[1]} parameters, {num_draws} draws"
    )
    print(
        f"solves {solving:.1f} s with compilation, residuals up to "
        f"{bootstrap.residuals.max():.2g}; {len(points)} points {drawing:.1f} s; "
        f"reference {slow:.2f} s per point (six outputs)"
    )
    for count in (1000, 10_000):
        shared = solving + drawing * count / len(points)
        print(
            f"{count} points: {slow * count / shared:.0f} times faster with set-up, "
            f"{slow * len(points) / drawing:.0f} times per point"
        )
    print(f"peak memory {peak_memory():.2f} GB, {before:.2f} GB before")


def _fit_network(
    recipe: pm.Recipe, num_points: int
) -> tuple[pm.FittedModel, pm.Counts, np.ndarray]:
    """Trains a network on Li Model 1; returns it, its data and points."""
    model = pns_dgp.li_model_1()
    key = jax.random.key(0)
    counts = pm.counts_from_tables(
        model.sample(key, 100_000, "observational"),
        model.sample(key, 50_000, "experimental"),
    )
    fit = pm.fit(jax.random.key(1), counts, recipe)
    points = model.sample_population(jax.random.key(2), num_points).z
    return fit.model, counts, fit.model.standardizer(points)
