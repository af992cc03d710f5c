"""Cross-fitting of several learners, and their stack.

Members of fold j see the other folds, so what they say of the units of fold j is held out,
and all units have held-out answers. Whatever fits the members is a `Learner`; nothing here
knows networks.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pns_bounds as pb
from jax.sharding import Mesh
from jaxtyping import Float, PRNGKeyArray

from pns_models._batches import numpy_rng
from pns_models._checkpoints import RunCheckpoints, digest
from pns_models._data import Counts, FoldedCounts, flat_weights
from pns_models._errors import LostProcessError, UnsuitableError
from pns_models._learner import Learner, Members, RunContext
from pns_models._learning_curve import SHARES, LearningCurve, learning_curve
from pns_models._memory import give_back_memory
from pns_models._resamples import Resamples
from pns_models._stack import (
    Linear,
    Stack,
    ask,
    frequencies,
    pool,
    pool_center,
    row_losses,
    size_error,
    source_losses,
    source_sizes,
    stack_weights,
)

_ROWS = 8192  # that members answer at a time
_FITS = (2, 8)  # to a share, at least and at most
_FITTED_UNITS = 24_000  # of their tables in all, while that is more than the least
_LEAST_WEIGHT = 0.02  # in either source; classes with less are left out of the stack


class ClassResult(NamedTuple):
    """What became of one learner.

    Attributes:
      name: what reports call it.
      losses: held-out loss of the log and of the trial; None if the fit failed.
      weights: in the stack, for the log and for the trial.
      problem: why it was left out, if it failed.
    """

    name: str
    losses: Float[np.ndarray, " sources"] | None
    weights: Float[np.ndarray, " sources"]
    problem: str = ""


class CrossFit(NamedTuple):
    """What `cross_fit` returns.

    Attributes:
      stack: members of all classes that have weight.
      folded: the data, with the fold of each row.
      held_out: the stack's answers for each row by members that did not see it.
      losses: of these answers, for the log and for the trial.
      curve: how the loss falls with the number of units.
      classes: what became of each learner.
    """

    stack: Stack
    folded: FoldedCounts
    held_out: Linear
    losses: Float[np.ndarray, " sources"]
    curve: LearningCurve
    classes: tuple[ClassResult, ...]


def cross_fit(
    key: PRNGKeyArray,
    folded: FoldedCounts,
    learners: Sequence[Learner],
    members_per_fold: int | None = None,
    progress: bool = True,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    mesh: Mesh | None = None,
) -> CrossFit:
    """Fits learners of several classes, and stacks them by their held-out loss.

    Each learner fits one member per fold, which sees everything outside it. Classes with
    weight in the stack are then fitted to a quarter and to a sixteenth of that, and what
    these fits lose says how large the error of the first is: see `LearningCurve`. A
    learner that fails, or answers with numbers that are not finite, is left out with a
    warning; one that is not made for such tables (`UnsuitableError`), without.

    Args:
      key: decides the members and what they see.
      folded: the data, from `Rows.folded`.
      learners: such as `LinearLearner`, `TreeLearner` and `NetworkLearner`.
      members_per_fold: how many fits to each share do not see a fold. None takes eight
        for small tables, whose losses are noisy and fits quick, and two for large ones.
      progress: show a bar; never shown off a terminal.
      checkpoint_dir: where to keep the state of the run, three folders for each learner;
        if it holds the same run, the fit continues from there, to the same result.
      checkpoint_seconds: least time between two checkpoints.
      mesh: the devices to train on, from `make_mesh`; None takes all. The result is the
        same up to rounding.

    Raises:
      Exception: that of the last learner, if all of them fail.
      InputError: if an argument cannot be used, or a checkpoint is of another run.
      LostProcessError: if another process of the run has ended.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> import pns_models as pm
      >>> log = np.array([[[400, 100], [400, 100]], [[400, 100], [100, 400]]])
      >>> trial = np.array([[[400, 100], [400, 100]], [[350, 150], [100, 400]]])
      >>> z = np.array([[0.0], [1.0]], np.float32)
      >>> twice = [np.concatenate([part, part]) for part in (z, log, trial)]
      >>> fold, cell = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
      >>> folded = pm.FoldedCounts(pm.Counts(*twice), fold, cell)
      >>> result = cross_fit(jax.random.key(0), folded, [pm.LinearLearner()])
      >>> mu = pm.atoms_from_raw(result.stack.answer(z).center, "free").mu
      >>> [[round(float(value), 1) for value in row] for row in mu]
      [[0.2, 0.2], [0.3, 0.8]]
    """
    _check_arguments(folded, learners, members_per_fold)
    context = RunContext(progress, checkpoint_seconds=checkpoint_seconds, mesh=mesh)
    run = _Run(key, folded, context, checkpoint_dir)
    full, problems = run.fit_all(dict(enumerate(learners)))
    losses = {i: source_losses(raw[0], folded.counts) for i, (_, raw) in full.items()}
    weights = run.weigh(full)
    pairs = zip(full, weights.max(axis=1), strict=True)
    full = {i: full[i] for i, weight in pairs if weight >= _LEAST_WEIGHT}
    weights = run.weigh(full)
    # A class that fails with so few units is missing there, as it would be missed.
    kept = {i: learners[i] for i in full}
    per_fold = members_per_fold or _num_fits(folded.counts)
    curve_losses = [run.row_losses(full)]
    for (
        share
    ) in SHARES:  # of the members of one, nothing is kept when the next are fitted
        fewer, _ = run.fit_all(kept, share, per_fold, warn=False)
        curve_losses.append(run.row_losses(fewer))
        del fewer
    curve = learning_curve(curve_losses, source_sizes(folded.counts))
    raw = [raw[0] for _, raw in full.values()]
    size = size_error(pool(raw, weights), folded.counts, curve.excess)
    held_out = pool(raw, weights, size)
    by_number = dict(zip(full, weights, strict=True))
    return CrossFit(
        stack=Stack(
            names=tuple(learners[number].name for number in full),
            members=tuple(members for members, _ in full.values()),
            weights=weights,
            size=size,
        ),
        folded=folded,
        held_out=held_out,
        curve=curve,
        losses=source_losses(held_out.center, folded.counts),
        classes=tuple(
            ClassResult(
                name=learner.name,
                losses=losses.get(number),
                weights=by_number.get(number, np.zeros(len(weights.T))),
                problem=problems.get(number, ""),
            )
            for number, learner in enumerate(learners)
        ),
    )


Fitted = tuple[Members, Float[np.ndarray, "per_fold n raw"]]


class _Run(NamedTuple):
    """What all fits of a run share."""

    key: PRNGKeyArray
    folded: FoldedCounts
    context: RunContext
    checkpoint_dir: str | Path | None

    def fit_all(
        self,
        learners: dict[int, Learner],
        share: float = 1.0,
        per_fold: int = 1,
        warn: bool = True,
    ) -> tuple[dict[int, Fitted], dict[int, str]]:
        """Fits members of several learners.

        Args:
          learners: by number.
          share: of the units outside its fold, those that a member sees.
          per_fold: how many members do not see each fold.
          warn: of learners that fail.

        Returns:
          By number, what `_fit` returns, or what the problem is.
        """
        found: dict[int, Fitted] = {}
        problems: dict[int, str] = {}
        for number, learner in learners.items():
            try:
                found[number] = self._fit(number, learner, share, per_fold)
            except (pb.InputError, LostProcessError):
                raise  # not the learner's failure
            except Exception as error:
                problems[number] = str(error)
                if len(problems) == len(learners) and warn:
                    raise
                if warn and not isinstance(error, UnsuitableError):
                    message = f"{learner.name} was left out: {error}"
                    warnings.warn(message, stacklevel=3)
        return found, problems

    def _fit(
        self, number: int, learner: Learner, share: float, per_fold: int
    ) -> Fitted:
        """Returns members, and what they say of the rows that they did not see."""
        level = (1.0, *SHARES).index(share)
        key = jax.random.fold_in(self.key, 3 * number + level)
        checkpoints = RunCheckpoints(None, {})
        if self.checkpoint_dir is not None:
            counts = self.folded.counts
            label = {
                "learner": repr(learner),
                "key": np.asarray(jax.random.key_data(key)).tolist(),
                "members_per_fold": per_fold,
                "data": digest(
                    np.asarray(counts.z), flat_weights(counts), self.folded.fold
                ),
            }
            folder = Path(self.checkpoint_dir) / f"learner_{number}_{level}"
            checkpoints = RunCheckpoints(folder, label)
        # All classes see the same shares, so that their differences are their own.
        seed = int(numpy_rng(self.key).integers(2**31)) + level
        resamples = Resamples(self.folded, per_fold, share, seed)
        members = learner.fit(
            key, resamples, self.context._replace(checkpoints=checkpoints)
        )
        return members, self._held_out(members, per_fold)

    def weigh(self, full: dict[int, Fitted]) -> Float[np.ndarray, "classes sources"]:
        """Finds the weights of classes."""
        return stack_weights([raw[0] for _, raw in full.values()], self.folded.counts)

    def row_losses(self, fitted: dict[int, Fitted]) -> Float[np.ndarray, "n sources"]:
        """Measures the loss of stacks of members, with weights of their own."""
        counts = self.folded.counts
        held_out = [raw for _, raw in fitted.values()]
        if not held_out:  # nothing can be fitted to so few: nothing is known
            held_out = [frequencies(counts)[None]]
        # Weights for one member alone, by rows that take turns.
        turn = np.arange(len(counts.z)) % len(held_out[0])
        single = [raw[turn, np.arange(len(turn))] for raw in held_out]
        weights = stack_weights(single, counts)
        stacks = [
            pool_center(list(members), weights)
            for members in zip(*held_out, strict=True)
        ]
        return np.mean([row_losses(raw, counts) for raw in stacks], axis=0)

    def _held_out(
        self, members: Members, per_fold: int
    ) -> Float[np.ndarray, "per_fold n raw"]:
        """Asks members for the rows that they did not see, once."""
        give_back_memory()  # what their fit has freed
        z, fold = np.asarray(self.folded.counts.z), self.folded.fold
        num_raw = pb.BINARY.num_cells + pb.BINARY.num_treatments
        result = np.empty((per_fold, len(z), num_raw), np.float32)
        for number in range(self.folded.num_folds):
            own = members.take(np.flatnonzero(members.fold == number))
            rows = np.flatnonzero(fold == number)
            for some in np.split(rows, range(_ROWS, len(rows), _ROWS)):
                result[:, some] = ask(own, z[some])
        if not np.isfinite(result).all():
            raise FloatingPointError("its answers are not finite.")
        return result


def _num_fits(counts: Counts) -> int:
    """Returns how many fits to each share there are unless a number is asked for."""
    return int(np.clip(_FITTED_UNITS / source_sizes(counts).sum(), *_FITS))


def _check_arguments(
    folded: FoldedCounts, learners: Sequence[Learner], members_per_fold: int | None
) -> None:
    """Raises if an argument cannot be used."""
    if not isinstance(folded, FoldedCounts):
        raise pb.InputError(
            "folded", f"must come from Rows.folded, got a {type(folded).__name__}."
        )
    if folded.num_folds < 2:
        raise pb.InputError(
            "folded", "must have at least 2 folds, got 1; see Rows.deal."
        )
    width, covariate = np.shape(folded.counts.z)[1], folded.covariate
    if covariate is not None and np.shape(covariate) != (width,):
        raise pb.InputError(
            "folded",
            f"must name the covariate of each of its {width} columns, got shape "
            f"{list(np.shape(covariate))}.",
        )
    if members_per_fold is not None and members_per_fold < 1:
        raise pb.InputError(
            "members_per_fold", f"must be at least 1, got {members_per_fold}."
        )
    if not isinstance(learners, Sequence) or isinstance(learners, str) or not learners:
        raise pb.InputError("learners", "must be a sequence of one Learner or more.")
    for learner in learners:
        if not isinstance(learner, Learner):
            raise pb.InputError(
                "learners", f"must hold Learners, got {learner!r}; see NetworkLearner."
            )
