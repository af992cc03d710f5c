"""What people do without this project: a classifier, bootstrap refits, plug-in bounds.

Each refit takes a bootstrap sample of both tables and fits three classifiers: of the pair
of treatment and outcome in the log, and of the outcome in each arm of the trial. Their
probabilities are projected to be compatible, and the bounds are plugged in. An interval
runs from a quantile of the lower bounds to one of the upper bounds.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import jax
import numpy as np
import pns_bounds as pb
from jaxtyping import Float, Int, Key
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from pns_experiments.counting import numpy_rng

Kind = Literal["boosted_trees", "logistic"]


class Table(Protocol):
    """Rows of one source."""

    @property
    def z(self) -> Any:
        """Covariates."""
        ...

    @property
    def x(self) -> Any:
        """Treatments."""
        ...

    @property
    def y(self) -> Any:
        """Outcomes."""
        ...


@dataclasses.dataclass(frozen=True)
class RefitRecipe:
    """Settings of the refits.

    Attributes:
      kind: of classifier, with the defaults of scikit-learn.
      num_refits: bootstrap samples.
    """

    kind: Kind
    num_refits: int = 20

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return dict(vars(self))


def draw_refits(
    key: Key[jax.Array, ""],
    tables: Sequence[Table],
    z: Float[np.ndarray, "n d"],
    recipe: RefitRecipe,
) -> pb.Atoms:
    """Computes compatible atoms [num_refits, n] of bootstrap refits.

    Args:
      key: decides the bootstrap samples.
      tables: the log and the trial.
      z: points.
      recipe: settings.
    """
    rng = numpy_rng(key)
    with threadpool_limits(1):  # threads of several processes would wait for each other
        drawn = [_refit(rng, tables, z, recipe.kind) for _ in range(recipe.num_refits)]
    return pb.Atoms(*(np.stack(parts) for parts in zip(*drawn, strict=True)))


def _refit(
    rng: np.random.Generator,
    tables: Sequence[Table],
    z: Float[np.ndarray, "n d"],
    kind: Kind,
) -> pb.Atoms:
    samples = []
    for table in tables:
        rows = rng.integers(0, len(table.x), len(table.x))
        samples.append([np.asarray(part)[rows] for part in (table.z, table.x, table.y)])
    (log_z, log_x, log_y), (trial_z, trial_x, trial_y) = samples
    joint = _probabilities(kind, log_z, 2 * log_x + log_y, z, pb.BINARY.num_cells)
    arms = [trial_x == arm for arm in range(pb.BINARY.num_treatments)]
    mu = [
        _probabilities(kind, trial_z[own], trial_y[own], z, pb.BINARY.num_levels)[:, 1]
        for own in arms
    ]
    joint = joint.reshape(-1, *pb.BINARY.joint_shape)
    return pb.project_to_compatible(pb.Atoms(joint, np.stack(mu, axis=1)))


def _probabilities(
    kind: Kind,
    z: Float[np.ndarray, "m d"],
    label: Int[np.ndarray, " m"],
    points: Float[np.ndarray, "n d"],
    num_labels: int,
) -> Float[np.ndarray, "n labels"]:
    """Fits a classifier; a label that does not occur has probability 0."""
    result = np.zeros((len(points), num_labels))
    seen = np.unique(label)
    if len(seen) == 1:
        result[:, seen[0]] = 1.0
        return result
    if kind == "boosted_trees":
        model = HistGradientBoostingClassifier(random_state=0)
    else:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    result[:, seen] = model.fit(z, label).predict_proba(points)
    return result / result.sum(axis=1, keepdims=True)
