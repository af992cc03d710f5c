"""Times pns-infer; every figure is a ratio within the run, or a peak of memory.

--part=clr         8,000 draws for 10,000 points: time and peak memory.
--part=last_layer  Bootstrap of a last layer, 1,000 draws, 10,000 points, against the
                   per-point algorithm.
--part=full        The same for all 52k parameters, 100k + 50k rows, 200 draws.
"""

import warnings
from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np
import pns_bounds as pb
import pns_dgp
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
from absl import app, flags
from timing import peak_memory, timed

_PART = flags.DEFINE_enum("part", "clr", ["clr", "last_layer", "full"], "What to time.")
_DRAWS = flags.DEFINE_integer("draws", None, "Draws; 8000, 1000 or 200 by part.")
_POINTS = flags.DEFINE_integer("points", 10_000, "Points.")
_REFERENCE = flags.DEFINE_integer(
    "reference_points", 2, "Points of the slow reference."
)


def time_clr() -> None:
    """Prints the time of intervals from streamed draws, and the peak of memory."""
    num_draws = _DRAWS.value or 8000

    def blocks(size: int = 500):
        rng = np.random.default_rng(0)
        for _ in range(0, _POINTS.value, size):
            raw = rng.standard_normal((1, size, 6), np.float32)
            raw = raw + 0.3 * rng.standard_normal((num_draws, size, 6), np.float32)
            cells = np.exp(raw[..., :4])
            joint = (cells / cells.sum(-1, keepdims=True)).reshape(*raw.shape[:2], 2, 2)
            yield pb.Atoms(joint, pb.anchor(joint, raw[..., 4:]))

    before = peak_memory()
    _, drawing = timed(lambda: sum(len(block.mu) for block in blocks()))
    after_drawing = peak_memory()
    _, took = timed(lambda: pi.intervals_from_draws(blocks(), num_rows=150_000))
    print(
        f"{num_draws} draws x {_POINTS.value} points: {took - drawing:.1f} s beside "
        f"{drawing:.1f} s to make them"
    )
    print(
        f"peak memory {peak_memory():.2f} GB; {after_drawing:.2f} GB to make them, "
        f"{before:.2f} GB before"
    )


def fit_network() -> tuple[pm.FittedModel, pm.Counts, np.ndarray]:
    """Trains the default network on Li Model 1; returns it, its data and points."""
    model = pns_dgp.li_model_1()
    key = jax.random.key(0)
    counts = pm.counts_from_tables(
        model.sample(key, 100_000, "observational"),
        model.sample(key, 50_000, "experimental"),
    )
    fit = pm.fit(jax.random.key(1), counts, pm.PRESETS["default"])
    points = model.sample_population(jax.random.key(2), _POINTS.value).z
    return fit.model, counts, fit.model.standardiser(points)


def time_bootstrap(scope: Literal["full", "last_layer"], num_draws: int) -> None:
    """Prints the time of shared solves beside that of the per-point algorithm."""
    model, counts, points = fit_network()
    warnings.simplefilter("ignore", pi.NotConvergedWarning)

    def build():
        return pe.make_bootstrap(
            jax.random.key(3), model, counts, scope, num_draws=num_draws, damping=1e-3
        )

    before = peak_memory()
    bootstrap, solving = timed(build)
    _, drawing = timed(lambda: bootstrap.draws(points))
    some = points[: _REFERENCE.value]
    pi.per_point_draws(bootstrap, some[:1])  # compiles
    _, slow = timed(lambda: pi.per_point_draws(bootstrap, some))
    slow /= len(some)
    print(
        f"{scope}: {len(counts.z)} rows for "
        f"{sum(part.sum() for part in counts[1:]):.0f} people, "
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


def main(argv: Sequence[str]) -> None:
    """Runs the part that was asked for."""
    if len(argv) > 1:
        raise app.UsageError(f"infer_speed takes flags only, got {argv[1:]}.")
    if _PART.value == "clr":
        time_clr()
    else:
        last = _PART.value == "last_layer"
        num_draws = _DRAWS.value or (1000 if last else 200)
        time_bootstrap("last_layer" if last else "full", num_draws)


if __name__ == "__main__":
    app.run(main)
