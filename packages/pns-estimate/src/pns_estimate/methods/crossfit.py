"""The default: learners of several classes, cross-fitted and stacked.

Where covariates repeat, the counts of cells correct the stack.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pns_models as pm
from jaxtyping import Int

from pns_estimate._errors import UserError
from pns_estimate._progress import begin
from pns_estimate.methods.cells import (
    LEAST_CELL_SIZE,
    are_cells_shared,
    describe_residual,
    make_residual_sampler,
)
from pns_estimate.methods.protocol import MethodFit, register_method, split_key
from pns_estimate.methods.residual import ResidualSampler
from pns_estimate.methods.stack import StackSampler, draw, link

_NUM_JUDGED_DRAWS = 32  # of the stack, to judge how its draws and counts are weighed
_LEAST_SCALE = 0.5  # of the stack's deviations, where counts of cells are used

# Every learner then estimates frequencies, and this one is the quickest.
_WITHOUT_COVARIATES = (pm.LEARNERS["ridge"],)


@dataclasses.dataclass(frozen=True)
class CrossFitRecipe:
    """Settings of the method.

    Attributes:
      learners: of the stack, see `pns_models.cross_fit`.
      num_folds: everybody is held out once.
      members_per_fold: how many fits to a share of the units show the learning curve;
        None: eight for small tables, two for large ones.
      least_cell_size: units from which on the counts of a cell are used, and kept in
        saved models; None uses no counts.
    """

    learners: tuple[pm.Learner, ...] = tuple(pm.LEARNERS.values())
    num_folds: int = 5
    members_per_fold: int | None = None
    least_cell_size: int | None = LEAST_CELL_SIZE

    def to_json(self) -> dict[str, Any]:
        """Returns nested plain values."""
        return {**vars(self), "learners": [repr(each) for each in self.learners]}


def name_step(learner: pm.Learner) -> str:
    """Names the step of a run in which a learner is fitted."""
    return f"fitting {learner.name}"


class _Watched:
    """A learner that says when it is fitted."""

    def __init__(self, learner: pm.Learner):
        """Wraps a learner; in checkpoints it is the same one."""
        self._learner, self.name = learner, learner.name

    def __repr__(self) -> str:
        """Says which learner it is."""
        return repr(self._learner)

    def fit(self, key: jax.Array, resamples: pm.Resamples, context: Any) -> pm.Members:
        """Fits members."""
        begin(name_step(self._learner))
        return self._learner.fit(key, resamples, context)


@dataclasses.dataclass(frozen=True)
class CrossFitMethod:
    """Fits the stack, and judges it by what its members did not see."""

    name: str
    sentence: str
    recipe: CrossFitRecipe

    def deal(
        self,
        key: jax.Array,
        part: Int[np.ndarray, " n"],
        groups: Int[np.ndarray, " n"] | None,
        recipe: CrossFitRecipe,
    ) -> Int[np.ndarray, " n"]:
        """Deals rows to folds, each of which is held out once."""
        self._check(recipe)
        rng = _make_rng(split_key(key).calibrate)
        return pm.deal_folds(rng, part, recipe.num_folds, groups)

    def fit(
        self,
        key: jax.Array,
        rows: pm.Rows,
        recipe: CrossFitRecipe,
        progress: bool = False,
        checkpoint_dir: Path | None = None,
    ) -> MethodFit:
        """Fits all classes; the sampler needs no further calibration."""
        self._check(recipe)
        keys = split_key(key)
        folded, place = rows.folded()
        varies = len(folded.counts.z) and np.ptp(folded.counts.z, axis=0).any()
        result = pm.cross_fit(
            keys.train,
            folded,
            [*map(_Watched, recipe.learners if varies else _WITHOUT_COVARIATES)],
            recipe.members_per_fold,
            progress,
            checkpoint_dir,
        )
        sampler = StackSampler(result.stack)
        least = recipe.least_cell_size
        if least is not None and are_cells_shared(folded.cell_totals()):
            sampler = _add_counts(keys.calibrate, sampler, result, least)
        networks = [
            each for each in result.stack.members if isinstance(each, pm.NetworkMembers)
        ]
        has_counts = isinstance(sampler, ResidualSampler)
        return MethodFit(
            sampler=sampler,
            held_out=folded.counts,
            standardizer=pm.make_standardizer(folded.counts),
            history=networks[0].history if networks else None,
            held_out_atoms=link(result.held_out.center),
            held_out_place=place,
            is_calibrated=True,
            notes=_describe(result)
            | (describe_residual(sampler.profile, "the stack's") if has_counts else {}),
            profile=sampler.profile if has_counts else None,
        )

    def _check(self, recipe: CrossFitRecipe) -> None:
        if not isinstance(recipe, CrossFitRecipe):
            raise UserError(
                f"the recipe of method {self.name!r} must be a CrossFitRecipe, got "
                f"{type(recipe).__name__}; for one network take another method, such as "
                "'epinet'."
            )


def _make_rng(key: jax.Array) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _add_counts(
    key: jax.Array, sampler: StackSampler, result: pm.CrossFit, least_cell_size: int
) -> ResidualSampler:
    """Adds the counts of cells, weighed by what held-out units say."""
    drawn = draw(key, result.held_out, _NUM_JUDGED_DRAWS).atoms()
    rng = _make_rng(jax.random.fold_in(key, 1))
    found = make_residual_sampler(rng, sampler, drawn, result.folded, least_cell_size)
    # The few counts of a cell say too little to call the stack's error negligible.
    settings = found.profile.settings
    scale = np.maximum(settings.draw_scale, _LEAST_SCALE)
    profile = found.profile._replace(settings=settings._replace(draw_scale=scale))
    return dataclasses.replace(found, profile=profile)


def _describe(result: pm.CrossFit) -> dict[str, str]:
    """Says what was fitted and how it is weighed, for people who read a report."""
    notes: dict[str, str] = {}
    for number, each in enumerate(result.classes, start=1):
        name = each.name if each.name not in notes else f"{each.name} ({number})"
        if each.losses is None:
            notes[name] = f"left out: {each.problem}"
            continue
        log, trial = (f"{weight:.0%}" for weight in each.weights)
        losses = " and ".join(f"{loss:.4f}" for loss in each.losses)
        weight = f"weight {log} (log) and {trial} (trial)"
        if not each.weights.any():
            weight = "no weight"
        notes[name] = f"{weight}; loss on data not seen {losses} nats"
    best = min(each.losses.sum() for each in result.classes if each.losses is not None)
    notes["the stack of these"] = (
        f"loss on data not seen {' and '.join(f'{loss:.4f}' for loss in result.losses)} "
        f"nats, {best - result.losses.sum():.4f} less than the best of them"
    )
    return notes


CROSSFIT = register_method(
    CrossFitMethod(
        "crossfit",
        "learners of several classes, each checked on the people it did not see, and "
        "weighed by how well it predicts them",
        CrossFitRecipe(),
    )
)
