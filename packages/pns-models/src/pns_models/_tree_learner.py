"""Boosted trees as a learner, fitted by LightGBM.

Five functions of the covariates make one member: a logit of the treatment that units of
the log chose, logits of their outcomes given each treatment, and for each arm of the trial
the place of mu between the limits that the first three set. All are of the form

    P(label = 1 | z) = least + length sigmoid(start + F(z)),

F a sum of trees: least = 0 and length = 1 for the log, p_x1 and P(X != x) for an arm. How
many trees there are is chosen by the loss of held-out folds, once for each function.
"""

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray
from pns_bounds import BINARY
from scipy import optimize, special

from pns_models._batches import numpy_rng
from pns_models._data import row_blocks
from pns_models._learner import MEMBERS, RunContext
from pns_models._links import free_numbers
from pns_models._memory import give_back_memory
from pns_models._resamples import Resamples
from pns_models._tree_columns import is_category, tree_columns

Booster = Any  # LightGBM's, which is imported when it is needed: see `_lightgbm`
_BLOCK = 10  # trees between two looks at the held-out loss
_MAX_VALUES = 2**22  # of covariates that a function is fitted to
_PATIENCE = 3  # blocks without an improvement
_FEATURES = 0.7  # share of the covariates that a split chooses from
_DATASET = {
    "max_bin": 127,
    "bin_construct_sample_cnt": 20_000,  # rows that LightGBM copies to choose bins
    "feature_pre_filter": False,
    "verbosity": -1,
}
_COMMON = {
    "objective": "none",
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    # Levels of a category are split off like other rows, few at a time.
    "min_data_per_group": 1,
    "max_cat_threshold": 4,
    "cat_l2": 30,
    "verbosity": -1,
}


class Function(NamedTuple):
    """A start and the trees to add, as text that LightGBM reads."""

    start: float
    trees: str


@MEMBERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class TreeMembers:
    """Boosted trees; see the module's docstring for the functions of a member.

    Attributes:
      fold: the one that each member did not see.
      functions: of each member, those of the log and then those of the arms.
      num_trees: of each function.
      covariate: the one that each column of z belongs to, see `Rows`.
    """

    kind: ClassVar[str] = "trees"
    fold: Int[np.ndarray, " m"]
    functions: tuple[tuple[Function, ...], ...]
    num_trees: tuple[int, ...]
    covariate: Int[np.ndarray, " d"]

    @functools.cached_property
    def _boosters(self) -> list[list[Booster]]:
        return [list(map(_read, functions)) for functions in self.functions]

    def raw(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m n raw"]:
        """Computes every member's raw numbers of rows, on the scale of the data."""
        z, boosters = tree_columns(z, self.covariate), self._boosters
        z = np.ascontiguousarray(z, np.float64)

        def one(member: int) -> Float[np.ndarray, "n functions"]:
            pairs = zip(self.functions[member], boosters[member], strict=True)
            parts = [each.start + _predict(booster, z) for each, booster in pairs]
            return np.stack(parts, axis=-1)

        places = np.stack(_in_threads(one, range(len(self.fold))))
        log, arms = np.split(places, [1 + BINARY.num_treatments], axis=-1)
        return free_numbers(np.concatenate([_cell_logits(log), arms], axis=-1))

    def take(self, order: Int[np.ndarray, " some"]) -> "TreeMembers":
        """Picks members by number."""
        functions = tuple(self.functions[i] for i in order)
        return dataclasses.replace(self, fold=self.fold[order], functions=functions)

    def save(self, folder: Path) -> None:
        """Writes one text for each function, and the rest as arrays."""
        starts = [[each.start for each in functions] for functions in self.functions]
        np.savez(
            folder / "members.npz",
            fold=self.fold,
            start=np.array(starts),
            num_trees=np.array(self.num_trees),
            covariate=self.covariate,
        )
        for i, functions in enumerate(self.functions):
            for j, each in enumerate(functions):
                (folder / f"trees_{i}_{j}.txt").write_text(each.trees)

    @classmethod
    def load(cls, folder: Path) -> "TreeMembers":
        """Reads what `save` wrote."""
        with np.load(folder / "members.npz", allow_pickle=False) as stored:
            fold, start, num_trees, covariate = (stored[name] for name in stored.files)
        functions = tuple(
            tuple(
                Function(value, (folder / f"trees_{i}_{j}.txt").read_text())
                for j, value in enumerate(row)
            )
            for i, row in enumerate(start.tolist())
        )
        return cls(fold, functions, tuple(num_trees.tolist()), covariate)


@dataclasses.dataclass(frozen=True)
class TreeLearner:
    """Fits boosted trees.

    Attributes:
      random_cuts: a split compares one random cut of each covariate, not all of them. The
        trees vary less, and need more of them.
      learning_rate: of boosting.
      num_leaves: of a tree, at most.
      min_hessian: of a leaf, its units times the variance of their labels, at least.
      penalty: of squared leaves.
      max_trees: of a function.
    """

    random_cuts: bool = False
    learning_rate: float = 0.08
    num_leaves: int = 8
    min_hessian: float = 3.0
    penalty: float = 3.0
    max_trees: int = 800

    @property
    def name(self) -> str:
        """What reports call it."""
        return "boosted trees" + (" with random cuts" if self.random_cuts else "")

    def fit(
        self,
        key: PRNGKeyArray,
        resamples: Resamples,
        context: RunContext,
    ) -> TreeMembers:
        """Fits a member to each resample."""
        seed = int(numpy_rng(key).integers(2**31))
        log, arms = resamples.source == 0, range(BINARY.num_treatments)
        chose = [resamples.treatment == arm for arm in arms]
        subsets = [log, *(log & own for own in chose), *(~log & own for own in chose)]
        labels = [resamples.treatment, *[resamples.outcome] * (len(subsets) - 1)]
        members: list[list[Function]] = [[] for _ in resamples.member_fold]
        num_trees = []
        for number, (subset, label) in enumerate(zip(subsets, labels, strict=True)):
            arm, entries = number - len(arms) - 1, np.flatnonzero(subset)
            limits = [(np.zeros(1), np.ones(1))] * len(members)
            if arm >= 0:
                cells = resamples.cell[entries]
                z = tree_columns(resamples.z, resamples.covariate, cells)
                limits = _in_threads(functools.partial(_limits, z=z, arm=arm), members)
                del z  # no copy of it while trees grow
            task = _Task(resamples, entries, label[entries], limits)
            functions, size = self._fit_function(task, seed + number)
            num_trees.append(size)
            for member, function in zip(members, functions, strict=True):
                member.append(function)
        return TreeMembers(
            resamples.member_fold,
            tuple(map(tuple, members)),
            tuple(num_trees),
            resamples.covariate,
        )

    def _fit_function(self, task: "_Task", seed: int) -> tuple[list[Function], int]:
        """Fits one function of every member, and says how many trees it has.

        The first members, one for each fold, grow until the loss of their folds rises;
        where the sum of losses is least, all are cut.
        """
        give_back_memory()
        lightgbm = _lightgbm()
        data = lightgbm.Dataset(
            task.z(),
            task.label,
            params=_DATASET,
            categorical_feature=np.flatnonzero(task.is_category).tolist(),
        ).construct()

        def grow(member: int, num_trees: int | None = None) -> _Grown:
            parameters = _COMMON | {
                "learning_rate": self.learning_rate,
                "num_leaves": self.num_leaves,
                "min_sum_hessian_in_leaf": self.min_hessian,
                "lambda_l2": self.penalty,
                "extra_trees": self.random_cuts,
                "feature_fraction_bynode": 1.0 if self.random_cuts else _FEATURES,
                "seed": seed + member,
            }
            give_back_memory()  # of members before
            seen, loss = task.training(member)
            # LightGBM has one number of threads for all that run: a call that raises it
            # while another predicts would end the process.
            part = data.subset(seen, _DATASET | {"num_threads": 1})
            booster = lightgbm.Booster(parameters, part)
            start, losses = loss.best_constant(), []
            judge = task.judge(member) if num_trees is None else None
            for _ in range(0, num_trees or self.max_trees, _BLOCK):
                for _ in range(_BLOCK):
                    booster.update(fobj=lambda f, _: loss.derivatives(start + f))
                if judge is not None:
                    losses.append(judge(booster, start))
                    if np.argmin(losses) < len(losses) - _PATIENCE:
                        break
            # The text alone: a booster holds its part of the data.
            return _Grown(Function(start, booster.model_to_string()), losses)

        num_folds = task.resamples.folded.num_folds
        grown = _in_threads(grow, range(num_folds))
        shared = min(len(each.losses) for each in grown)
        total = np.sum([each.losses[:shared] for each in grown], axis=0)
        size = _BLOCK * (1 + int(np.argmin(total)))
        others = range(num_folds, len(task.limits))
        grown += _in_threads(lambda member: grow(member, size), others)
        return [_cut(each.function, size) for each in grown], size


class _Grown(NamedTuple):
    """A function, and its held-out loss after each block of trees."""

    function: Function
    losses: list[float]


class _Loss(NamedTuple):
    """Negative log-likelihood of labels, given sums of trees."""

    label: Int[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]
    least: Float[np.ndarray, " n"]
    length: Float[np.ndarray, " n"]

    def value(self, place: Float[np.ndarray, " n"]) -> float:
        """Sums the loss."""
        mu = self._mean(special.expit(place))
        logs = np.where(self.label == 1, np.log(mu), np.log1p(-mu))
        return -float((self.weight * logs).sum())

    def derivatives(
        self, place: Float[np.ndarray, " n"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Computes the gradient, and the expected second derivative."""
        share = special.expit(place)
        mu = self._mean(share)
        slope = self.length * share * (1 - share) / (mu * (1 - mu))
        gradient = self.weight * slope * (mu - self.label)
        return gradient, self.weight * slope**2 * mu * (1 - mu)

    def best_constant(self) -> float:
        """Finds the constant of least loss, with half a unit more of each label."""
        extra = _Loss(
            np.r_[self.label, 0, 1],
            np.r_[self.weight, 0.5, 0.5],
            np.r_[np.broadcast_to(self.least, self.label.shape), 0, 0],
            np.r_[np.broadcast_to(self.length, self.label.shape), 1, 1],
        )
        found = optimize.minimize_scalar(
            lambda place: extra.value(np.full(extra.label.shape, place)),
            bounds=(-15, 15),
        )
        return float(found.x)

    def _mean(self, share: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return np.clip(self.least + self.length * share, 1e-7, 1 - 1e-7)


class _Task(NamedTuple):
    """A function to fit: its entries, their labels, and each member's least and length."""

    resamples: Resamples
    entries: Int[np.ndarray, " n"]
    label: Int[np.ndarray, " n"]
    limits: list[tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]]

    @property
    def is_category(self) -> Bool[np.ndarray, " covariates"]:
        """Which covariates are categories."""
        return is_category(self.resamples.covariate)

    def z(self, some: slice | Int[np.ndarray, " m"] = slice(None)) -> np.ndarray:
        """Returns the covariates of entries, one column each."""
        cells = self.resamples.cell[self.entries[some]]
        return tree_columns(self.resamples.z, self.resamples.covariate, cells)

    def training(self, member: int) -> tuple[Int[np.ndarray, " m"], _Loss]:
        """Returns the entries that a member sees, and its loss there."""
        weight = self.resamples.weights(member)[self.entries]
        size = _MAX_VALUES // len(self.is_category)
        if np.count_nonzero(weight) > size:  # more would take long, and tell little
            rng = np.random.default_rng([self.resamples.seed, member])
            seen = np.flatnonzero(weight)
            weight[rng.choice(seen, len(seen) - size, replace=False)] = 0
        return self._loss(member, weight)

    def judge(self, member: int) -> Callable[[Booster, float], float]:
        """Returns the loss of the fold that a member does not see, as trees are added."""
        fold = int(self.resamples.member_fold[member])
        some, loss = self._loss(member, self.resamples.held_out(fold)[self.entries])
        place, num_added = np.zeros(len(some)), 0

        def judge(booster: Booster, start: float) -> float:
            nonlocal num_added
            # An update that finds no split adds no tree, so a block may have fewer.
            if booster.current_iteration() > num_added:
                for part in row_blocks(len(some), len(self.is_category)):
                    z = self.z(some[part])
                    place[part] += _predict(booster, z, start_iteration=num_added)
            num_added = booster.current_iteration()
            return loss.value(start + place)

        return judge

    def _loss(
        self, member: int, weight: Float[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " m"], _Loss]:
        some = np.flatnonzero(weight > 0)
        limits = [part[some] if len(part) > 1 else part for part in self.limits[member]]
        return some, _Loss(self.label[some], weight[some], *limits)


def _limits(
    functions: list[Function], z: Float[np.ndarray, "n d"], arm: int
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Computes the limits that the functions of the log set to mu of an arm."""
    places = [
        each.start + _predict(_read(each), z)
        for each in functions[: 1 + BINARY.num_treatments]
    ]
    law = special.softmax(_cell_logits(np.stack(places, axis=-1)), axis=-1)
    law = law.reshape(-1, *BINARY.joint_shape)
    return law[:, arm, 1], law.sum(axis=(1, 2)) - law[:, arm].sum(axis=1)


def _cell_logits(
    places: Float[np.ndarray, "... functions"],
) -> Float[np.ndarray, "... cells"]:
    """Turns logits of treatment and of outcomes given it into those of the cells."""
    treatment, *outcomes = np.moveaxis(places, -1, 0)
    chosen = [special.log_expit(-treatment), special.log_expit(treatment)]
    parts = [
        own + special.log_expit(sign * outcome)
        for own, outcome in zip(chosen, outcomes, strict=True)
        for sign in (-1, 1)
    ]
    return np.stack(parts, axis=-1)


def _lightgbm() -> Any:
    """Imports LightGBM: where that fails, other learners still work."""
    import lightgbm

    return lightgbm


def _read(function: Function) -> Booster:
    """Reads the trees of a function."""
    return _lightgbm().Booster(model_str=function.trees)


def _cut(function: Function, num_trees: int) -> Function:
    """Keeps the first trees of a function."""
    trees = _read(function).model_to_string(num_iteration=num_trees)
    return function._replace(trees=trees)


def _predict(booster: Booster, z: Float[np.ndarray, "n d"], **part: int) -> np.ndarray:
    return booster.predict(z, raw_score=True, num_threads=1, **part)


def _in_threads(function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """Maps over values, as many at a time as there are cores."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor:
        return list(executor.map(function, values))
