"""The steps of a run, and about how long each takes.

Seconds were measured on two cores beside other jobs, on tables of 1,500 to 30,000 rows
with three to 50 columns; they are right within a factor of two or three. They decide how
far the bar is, and nothing else.
"""

from typing import Any

import pns_models as pm

from pns_estimate._progress import Step
from pns_estimate.methods import METHODS
from pns_estimate.methods.crossfit import CrossFitRecipe, name_step
from pns_estimate.methods.network import NetworkMethod

TEST, INTERVALS, REPORT, AUDIT = (
    "testing whether the tables fit together",
    "intervals",
    "report",
    "audit",
)
_SHARES = (1 / 4, 1 / 16)  # of the rows, for the learning curve
_IN_CURVE = 0.5  # of the learners; the others have no weight, and are not fitted again


def fit_steps(
    method: str, recipe: Any, num_rows: int, num_columns: int, *, audit: bool = False
) -> list[Step]:
    """Lists the steps of a fit to distinct rows with encoded columns."""
    recipe = METHODS[method].recipe if recipe is None else recipe
    if isinstance(recipe, CrossFitRecipe):
        full = [
            Step(name_step(learner), _seconds(learner, num_rows, num_columns))
            for learner in recipe.learners
        ]
        num_fits = recipe.members_per_fold or min(max(24_000 // num_rows, 2), 8)
        steps = full + [
            Step(name, _IN_CURVE * seconds * max(0.3, share * num_fits))
            for share in _SHARES
            for name, seconds in full
        ]
    else:
        is_network = isinstance(METHODS[method], NetworkMethod)
        seconds = 20 + 5e-4 * num_rows if is_network else 1.0
        steps = [Step(f"fitting {method}", seconds)]
    steps = [*steps, Step(TEST, 2.0 + 2e-5 * num_rows)]
    return [*steps, Step(AUDIT, 1.0), *steps] if audit else steps


def answer_steps(num_people: int) -> list[Step]:
    """Lists the steps from a fit to its files."""
    return [Step(INTERVALS, 2.0 + 5e-4 * min(num_people, 10**6)), Step(REPORT, 6.0)]


def _seconds(learner: pm.Learner, num_rows: int, num_columns: int) -> float:
    """Estimates how long the first fits of a learner take, one for each of five folds."""
    if isinstance(learner, pm.LinearLearner):
        features = learner.num_landmarks or (1 + learner.num_knots) * num_columns
        wide = (min(features, 1000) / 50) ** 0.5
        return 2 + 5e-4 * min(num_rows, 100_000) * wide
    if isinstance(learner, pm.TreeLearner):
        return 1 + 1e-5 * num_rows * num_columns
    if isinstance(learner, pm.NetworkLearner):
        return 0.1 if num_rows < learner.min_units else 5 + 1e-4 * min(num_rows, 10**5)
    return 10.0
