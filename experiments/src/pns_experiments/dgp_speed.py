"""Times pns-dgp: rows of both models, and the oracles.

Each line gives seconds, and the ratio to drawing as many standard normal numbers with
NumPy on one core in the same run; the last gives the peak memory of the process.
"""

import jax
import numpy as np
import pns_dgp

from pns_experiments.timing import peak_memory, timed


def time_normals(rows: int, columns: int) -> float:
    """Times standard normal numbers, a block at a time as the models do."""
    rng = np.random.default_rng(0)
    size = 8192
    _, took = timed(lambda: [rng.standard_normal((size, columns)) for _ in range(10)])
    return took / (10 * size) * rows


def time_rows(name: str, model: pns_dgp.StructuralModel, rows: int) -> str:
    """Times a table; says how long it took beside normal numbers."""
    num_columns = {"Li Model 1": 20, "ACIC": 200}[name]
    _, took = timed(lambda: model.sample(jax.random.key(0), rows, "observational"))
    ratio = took / time_normals(rows, num_columns)
    return f"{f'{name}, {rows:,} x {num_columns}':30} {took:8.2f} s  {ratio:6.1f} x normals"


def time_oracle(name: str, model: pns_dgp.StructuralModel, points: int) -> str:
    """Times the truth at points."""
    z = model.sample_population(jax.random.key(0), points).z
    _, took = timed(lambda: model.oracle(np.asarray(z)).pns)
    return f"{f'{name} oracle, {points:,} points':30} {took:8.3f} s"


def time_models(li_rows: int, acic_rows: int, points: int) -> None:
    """Prints the table."""
    models = {"Li Model 1": pns_dgp.li_model_1(), "ACIC": pns_dgp.acic_model()}
    # Compiled and tabulated once, outside the clock.
    timed(
        lambda: models["Li Model 1"].sample(jax.random.key(0), li_rows, "observational")
    )
    models["ACIC"].sample_population(jax.random.key(0), 1)
    for (name, model), rows in zip(models.items(), (li_rows, acic_rows), strict=True):
        print(time_rows(name, model, rows), flush=True)
    for name, model in models.items():
        print(time_oracle(name, model, points))
    print(f"{'peak memory':30} {peak_memory():8.2f} GB")
