"""Times pns-dgp: rows of both models, and the oracles.

Each line gives seconds, and the ratio to drawing as many standard normal numbers with
NumPy on one core in the same run; the last gives the peak memory of the process.
"""

import resource
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np
import pns_dgp
from absl import app, flags

_LI_ROWS = flags.DEFINE_integer("li_rows", 1_000_000, "Rows drawn of Li Model 1.")
_ACIC_ROWS = flags.DEFINE_integer("acic_rows", 2_400_000, "Rows drawn of ACIC.")
_POINTS = flags.DEFINE_integer("points", 3_000, "Points given to each oracle.")


def seconds(function: Callable[[], object]) -> float:
    """Times one call, until its result is there."""
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def normal_seconds(rows: int, columns: int) -> float:
    """Times standard normal numbers, a block at a time as the models do."""
    rng = np.random.default_rng(0)
    size = 8192
    block = seconds(lambda: [rng.standard_normal((size, columns)) for _ in range(10)])
    return block / (10 * size) * rows


def main(argv: Sequence[str]) -> None:
    """Prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"dgp_speed takes flags only, got {argv[1:]}.")
    key = jax.random.key(0)
    li, acic = pns_dgp.li_model_1(), pns_dgp.acic_model()
    z_li = li.sample_population(key, _POINTS.value).z
    z_acic = acic.sample_population(key, _POINTS.value).z
    # Compiled and tabulated once, outside the clock.
    jax.block_until_ready(li.sample(key, _LI_ROWS.value, "observational"))
    li_rows, acic_rows = _LI_ROWS.value, _ACIC_ROWS.value
    lines = [
        (
            f"Li Model 1, {li_rows:,} x 20",
            seconds(lambda: li.sample(key, li_rows, "observational")),
            normal_seconds(li_rows, 20),
        ),
        (
            f"ACIC, {acic_rows:,} x 200",
            seconds(lambda: acic.sample(key, acic_rows, "observational").y),
            normal_seconds(acic_rows, 200),
        ),
    ]
    for name, took, normal in lines:
        print(f"{name:30} {took:8.2f} s  {took / normal:6.1f} x normals")
    for name, model, z in (("Li Model 1", li, z_li), ("ACIC", acic, z_acic)):
        took = seconds(lambda model=model, z=z: model.oracle(z).pns)
        print(f"{name + f' oracle, {len(z):,} points':30} {took:8.3f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{'peak memory':30} {peak:8.2f} GB")


if __name__ == "__main__":
    app.run(main)
