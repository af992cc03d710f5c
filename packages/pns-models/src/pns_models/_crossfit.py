"""Cross-fitting: every unit is held out by some members of one ensemble.

Members of fold j see the other folds, each with its own bootstrap weights. The predictor
is the mean over all members. What the members of fold j say of the units of fold j are
held-out answers, so all units have them. Whatever fits the members is a `Learner`;
nothing here knows networks.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import jax
import numpy as np
import pns_bounds as pb
from jax.sharding import Mesh
from jaxtyping import Float, Int, PRNGKeyArray

from pns_models._batches import numpy_rng
from pns_models._checkpoints import RunCheckpoints, digest
from pns_models._data import Counts, FoldedCounts, flat_weights
from pns_models._held_out import mean_loss, members_by_fold, pick_held_out
from pns_models._learner import CanRepeat, Learner, Learners, Members, RunContext
from pns_models._resamples import Resamples
from pns_models._stuck import find_stuck, replacements

_ROWS = 8192  # that members answer at a time
_COMPARED_ROWS = 32_768  # on which members are compared to find stuck ones, at most


class CrossFit(NamedTuple):
    """What `cross_fit` returns.

    Attributes:
      learner: the one that was chosen.
      members: all of its members; the point estimate is their mean.
      folded: the data, with the fold of each row.
      held_out: raw numbers of each row by the members that did not see it.
      fold_means: mean raw numbers of every row by the members that did not see a fold.
      losses: cross-fitted loss of each learner that was tried, in the order of trial.
      num_stuck: members that were replaced by copies of others.
    """

    learner: Learner
    members: Members
    folded: FoldedCounts
    held_out: Float[np.ndarray, "members_per_fold n raw"]
    fold_means: Float[np.ndarray, "num_folds n raw"]
    losses: tuple[float, ...]
    num_stuck: int = 0


class _Trial(NamedTuple):
    """One member per fold, what they say of all rows, and their cross-fitted loss."""

    learner: Learner
    members: Members
    raw: Float[np.ndarray, "num_folds n raw"]
    loss: float


def cross_fit(
    key: PRNGKeyArray,
    folded: FoldedCounts,
    learners: Learners,
    members_per_fold: int = 6,
    progress: bool = True,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    mesh: Mesh | None = None,
    replaces_stuck: bool = False,
) -> CrossFit:
    """Chooses a learner by its cross-fitted loss, and fits an ensemble with it.

    Each learner fits one member per fold; the learner whose members predict the fold they
    did not see best fits the other members. Learners may be given in sequences: the next
    of a sequence is tried only if the one before is the best of all so far. After its
    fit, every member answers for all rows once.

    Args:
      key: decides the members and their bootstrap weights.
      folded: the data, from `Rows.folded`.
      learners: to choose from, such as `NetworkLearner`s.
      members_per_fold: at least 2.
      progress: show a bar; never shown off a terminal.
      checkpoint_dir: where to keep the state of the run, a folder for each learner and
        one for the other members; if it holds the same run, the fit continues from
        there, to the same result.
      checkpoint_seconds: least time between two checkpoints.
      mesh: the devices to train on, from `make_mesh`; None takes all. The result is the
        same up to rounding.
      replaces_stuck: put copies of other members of the same fold in the place of those
        whose training ended far from the best, judged by what they saw.

    Raises:
      DivergedError: if a loss is not finite.

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
      >>> recipe = pm.Recipe(  # a small network and few steps, for the example
      ...     pm.AnchoredConfig(pm.Backbone(width=4, depth=0)),
      ...     pm.make_member_training(0.1, 0.0, max_steps=100, batch_size=8),
      ... )
      >>> learner = pm.NetworkLearner(recipe)
      >>> result = cross_fit(jax.random.key(0), folded, [learner], members_per_fold=2)
      >>> mean = result.members.raw(z).mean(axis=0)
      >>> mu = pm.atoms_from_raw(mean, "anchored").mu  # 100/500, 150/500 and 400/500
      >>> [[round(float(value), 1) for value in row] for row in mu]
      [[0.2, 0.2], [0.3, 0.8]]
      >>> result.members.fold.tolist()  # what each member did not see
      [0, 1, 0, 1]
    """
    sequences = _check_arguments(folded, learners, members_per_fold)
    z = np.asarray(folded.counts.z)

    def fit(number: int, learner: Learner, size: int, name: str) -> Members:
        own_key = jax.random.fold_in(key, number)
        checkpoints = RunCheckpoints(None, {})
        if checkpoint_dir is not None:
            label = {
                "learner": repr(learner),
                "key": np.asarray(jax.random.key_data(own_key)).tolist(),
                "members_per_fold": size,
                "data": digest(z, flat_weights(folded.counts), folded.fold),
            }
            checkpoints = RunCheckpoints(Path(checkpoint_dir) / name, label)
        context = RunContext(progress, checkpoints, checkpoint_seconds, mesh)
        # The learner makes its own keys of this one; the last of three is not among them.
        rng = numpy_rng(jax.random.split(own_key, 3)[2])
        member_fold = np.tile(np.arange(folded.num_folds), size)
        return learner.fit(own_key, Resamples(rng, folded, member_fold), context)

    def try_learner(number: int, learner: Learner) -> _Trial:
        members = fit(number, learner, 1, f"recipe_{number}")
        rows = _blocks(np.arange(len(z)), _ROWS)
        raw = np.concatenate([members.raw(z[some]) for some in rows], axis=1)
        by_fold = members_by_fold(members.fold)
        held_out = pick_held_out(raw, by_fold, folded.fold)[0]
        return _Trial(learner, members, raw, mean_loss(held_out, folded.counts))

    best, losses = _choose(sequences, try_learner)
    number = sum(map(len, sequences))
    rest = fit(number, best.learner, members_per_fold - 1, "others")
    members = best.members.join(rest)
    replaces_stuck = replaces_stuck and isinstance(members, CanRepeat)
    held_out, fold_means, order = _answer(
        folded, best.raw, rest, members.fold, replaces_stuck
    )
    is_stuck = order != np.arange(len(order))
    if is_stuck.any() and isinstance(members, CanRepeat):
        members = members.take(order)
    return CrossFit(
        learner=best.learner,
        members=members,
        folded=folded,
        held_out=held_out,
        fold_means=fold_means,
        losses=tuple(losses),
        num_stuck=int(is_stuck.sum()),
    )


def _answer(
    folded: FoldedCounts,
    first: Float[np.ndarray, "num_folds n raw"],
    rest: Members,
    member_fold: Int[np.ndarray, " m"],
    replaces_stuck: bool,
) -> tuple[
    Float[np.ndarray, "members_per_fold n raw"],
    Float[np.ndarray, "num_folds n raw"],
    Int[np.ndarray, " m"],
]:
    """Asks the other members for all rows, once, and collects what is used of it.

    What the first member of each fold said is in `first`.

    Returns:
      Held-out answers, means by fold, and the member that stands at each place.
    """
    by_fold = members_by_fold(member_fold)
    order = np.arange(len(member_fold))
    num_rows, num_raw = first.shape[1:]
    held_out = np.empty((by_fold.shape[1], num_rows, num_raw), np.float32)
    means = np.empty((len(by_fold), num_rows, num_raw), np.float32)
    z = np.asarray(folded.counts.z)
    # Rows on which members are compared come first, so that their answers are used twice.
    compared = np.zeros(num_rows, bool)
    compared[:: -(-num_rows // _COMPARED_ROWS)] = replaces_stuck
    for rows in itertools.chain(
        _blocks(np.flatnonzero(compared), _COMPARED_ROWS),
        _blocks(np.flatnonzero(~compared), _ROWS),
    ):
        raw = np.concatenate([first[:, rows], rest.raw(z[rows])])
        fold = folded.fold[rows]
        if compared[rows[0]]:
            counts = Counts(*(np.asarray(part)[rows] for part in folded.counts))
            order = replacements(find_stuck(raw, counts, fold, by_fold), by_fold)
        raw = raw[order]
        held_out[:, rows] = pick_held_out(raw, by_fold, fold)
        means[:, rows] = raw[by_fold].mean(axis=1)
    return held_out, means, order


def _blocks(
    rows: Int[np.ndarray, " n"], size: int
) -> Iterator[Int[np.ndarray, " some"]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _check_arguments(
    folded: FoldedCounts, learners: Learners, members_per_fold: int
) -> list[tuple[Learner, ...]]:
    """Returns the learners as sequences; raises if an argument cannot be used."""
    if not isinstance(folded, FoldedCounts):
        raise pb.InputError(
            "folded", f"must come from Rows.folded, got a {type(folded).__name__}."
        )
    if members_per_fold < 2:
        raise pb.InputError(
            "members_per_fold", f"must be at least 2, got {members_per_fold}."
        )
    is_sequence = isinstance(learners, Sequence) and not isinstance(learners, str)
    sequences = [
        tuple(each) if isinstance(each, (list, tuple)) else (cast("Learner", each),)
        for each in (learners if is_sequence else ())
    ]
    every = list(itertools.chain(*sequences))
    if not every or not all(map(len, sequences)):
        raise pb.InputError("learners", "must be a sequence of one Learner or more.")
    for learner in every:
        if not isinstance(learner, Learner):
            raise pb.InputError(
                "learners", f"must hold Learners, got {learner!r}; see NetworkLearner."
            )
    return sequences


def _choose(
    sequences: Sequence[Sequence[Learner]],
    try_learner: Callable[[int, Learner], _Trial],
) -> tuple[_Trial, list[float]]:
    """Tries the first of every sequence, then what follows the best while it is better.

    Returns:
      The trial with the least loss, and the losses of all that were tried.
    """
    starts = [0, *itertools.accumulate(map(len, sequences))]
    pending, losses = [(row, 0) for row in range(len(sequences))], []
    best, following = None, None
    while pending:
        row, place = pending.pop(0)
        trial = try_learner(starts[row] + place, sequences[row][place])
        losses.append(trial.loss)
        if losses[-1] == min(losses):
            best, following = trial, (row, place + 1)
        if not pending and following is not None:
            row, place = following
            pending = [following] if place < len(sequences[row]) else []
            following = None
    assert best is not None
    return best, losses
