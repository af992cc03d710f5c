"""What a run takes: measured, and by a model whose few constants were measured.

The model says how long the command takes on two cores before it is run, within a factor of
1.5 of what was measured. `speed` puts it beside what it measures.
"""

import dataclasses
import functools
import itertools
import resource
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import pns_models as pm

Result = TypeVar("Result")
_START = 9.0  # seconds: imports, the report and its figures
_COMPILE = 11.0  # seconds of one core, if nothing was compiled before
_VALUE = 0.35e-6  # seconds to read, check, encode and group one value of a table
_STEP = 70e-6  # seconds of a training step, beside what follows
_GATHER = 6e-9  # seconds to bring one value to a step
_FLOPS = 75e9  # floating point operations of a step, per second and core
_DISTINCT = 0.5e-3  # seconds per distinct row for corrections and calibration
_KIND = 60e-6  # seconds per kind of row for averages and subgroups
_PERSON = 0.25e-3  # seconds per person who is asked about and differs from the others
_OPERATIONS = 6  # per parameter and visit, forwards and backwards


def timed(function: Callable[[], Result]) -> tuple[Result, float]:
    """Calls a function; returns its result, once computed, and the seconds it took."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def peak_memory() -> float:
    """Returns the peak resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@dataclasses.dataclass(frozen=True)
class Problem:
    """What decides the time of a run.

    Attributes:
      rows: of both tables.
      covariates: columns, after encoding.
      people: who are asked about and differ from each other.
      distinct: rows that differ in their covariates; None if nearly all do, as with
        continuous covariates.
      kinds: rows that differ in covariates, table, fold, treatment or outcome.
      cores: that train networks, or devices.
      num_folds: of `crossfit`.
      members_per_fold: of `crossfit`.
      is_compiled: whether the same programs ran on this machine before.
    """

    rows: int
    covariates: int
    people: int = 0
    distinct: int | None = None
    kinds: int = 0
    cores: int = 2
    num_folds: int = 5
    members_per_fold: int = 6
    is_compiled: bool = True


def predict_seconds(
    problem: Problem,
    kinds: Sequence[Sequence[pm.Recipe]] = pm.PORTFOLIO,
    chosen: pm.Recipe | None = None,
) -> dict[str, float]:
    """Predicts the seconds of each part of a run of the command by `crossfit`.

    Args:
      problem: how large it is.
      kinds: sequences of recipes, as for `pns_models.cross_fit`.
      chosen: the recipe that the data will choose; if None, as long as the mean of those
        that come first.

    Example:
      >>> parts = predict_seconds(Problem(150_000, 15, 3000, distinct=6000, kinds=60_000))
      >>> 30 < sum(parts.values()) < 60
      True
    """
    seconds = functools.partial(_member_seconds, covariates=problem.covariates)
    tried = [seconds(kind[0]) for kind in kinds]
    each = sum(tried) / len(tried)
    if chosen is not None:
        each = seconds(chosen)
        kind = next(kind for kind in kinds if chosen in kind)
        # All up to the chosen one, and the next, which was no better.
        tried += [seconds(r) for r in kind[1 : kind.index(chosen) + 2]]
    others = problem.members_per_fold - 1
    training = problem.num_folds * (sum(tried) + others * each)
    return {
        "start": _START + (0 if problem.is_compiled else _COMPILE),
        "tables": _VALUE * problem.rows * (problem.covariates + 2),
        "training": training / problem.cores,
        "corrections": _DISTINCT * (problem.distinct or 0),
        "averages": _KIND * problem.kinds,
        "people": _PERSON * problem.people,
    }


def _member_seconds(recipe: pm.Recipe, covariates: int) -> float:
    """Predicts the seconds in which one core trains one network."""
    assert isinstance(recipe.network, pm.AnchoredConfig)
    config, backbone = recipe.training, recipe.network.backbone
    assert config.max_steps is not None and config.batch_size is not None
    hidden = [backbone.width] * (backbone.depth + 1)
    sizes = [covariates, *filter(None, [backbone.bottleneck]), *hidden, 6]
    parameters = sum(a * b for a, b in itertools.pairwise(sizes))
    visit = _GATHER * covariates + _OPERATIONS * parameters / _FLOPS
    return config.max_steps * (_STEP + config.batch_size * visit)
