"""A cross-fitted bootstrap ensemble, with a local residual where covariates repeat."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Int

from pns_estimate._errors import UserError
from pns_estimate.methods.cells import (
    LEAST_CELL_SIZE,
    are_cells_shared,
    describe_residual,
    make_residual_sampler,
)
from pns_estimate.methods.members import MembersSampler, link
from pns_estimate.methods.protocol import (
    MethodFit,
    register_method,
    split_key,
)
from pns_estimate.methods.residual import ResidualSampler
from pns_estimate.methods.ridge import RidgeSampler
from pns_estimate.methods.scaled import ScaledSampler

Choice = pm.Recipe | pm.Learner


@dataclasses.dataclass(frozen=True)
class CrossFitRecipe:
    """Settings of the method.

    Attributes:
      portfolio: recipes of networks, or any other learners, see `pns_models.cross_fit`;
        the one with the least cross-fitted loss is used.
      num_folds: everybody is held out once.
      members_per_fold: how many networks see the same folds, each reweighted.
      least_cell_size: units from which on the counts of a cell are used, and kept in
        saved models; None uses no counts.
    """

    portfolio: tuple[Choice | tuple[Choice, ...], ...] = pm.PORTFOLIO
    num_folds: int = 5
    members_per_fold: int = 6
    least_cell_size: int | None = LEAST_CELL_SIZE

    def to_json(self) -> dict[str, Any]:
        """Returns nested plain values."""

        def plain(choice: Any) -> Any:
            if isinstance(choice, tuple | list):
                return [plain(each) for each in choice]
            return choice.to_json() if isinstance(choice, pm.Recipe) else repr(choice)

        return {**vars(self), "portfolio": plain(self.portfolio)}

    def learners(self) -> list[pm.Learner | list[pm.Learner]]:
        """Returns the portfolio as learners."""

        def learner(choice: Choice) -> pm.Learner:
            return (
                pm.NetworkLearner(choice) if isinstance(choice, pm.Recipe) else choice
            )

        return [
            [learner(each) for each in kind]
            if isinstance(kind, tuple | list)
            else learner(kind)
            for kind in self.portfolio
        ]


@dataclasses.dataclass(frozen=True)
class CrossFitMethod:
    """Trains the ensemble, and calibrates its draws on what each member did not see."""

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
        """Trains all members; the sampler needs no further calibration."""
        self._check(recipe)
        rng = _make_rng(jax.random.fold_in(split_key(key).calibrate, 1))
        folded, place = rows.folded()
        uses_cells = recipe.least_cell_size is not None and are_cells_shared(
            folded.cell_totals()
        )
        result = pm.cross_fit(
            split_key(key).train,
            folded,
            recipe.learners(),
            recipe.members_per_fold,
            progress,
            checkpoint_dir,
            # Counts of cells show the error of a mean that some members spoil.
            replaces_stuck=not uses_cells,
        )
        networks = _networks(result)
        corrected = _correct(rng, result, uses_cells)
        sampler = _make_sampler(rng, result, corrected, uses_cells, recipe)
        return MethodFit(
            sampler=sampler,
            held_out=folded.counts,
            standardizer=pm.make_standardizer(folded.counts),
            history=networks.history if networks is not None else None,
            held_out_atoms=corrected.held_out,
            held_out_place=place,
            is_calibrated=True,
            notes=_describe(recipe, result, corrected.sampler, sampler),
            profile=sampler.profile if isinstance(sampler, ResidualSampler) else None,
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


def _networks(result: pm.CrossFit) -> pm.NetworkMembers | None:
    """Returns the members if they are networks, which know directions and history."""
    return result.members if isinstance(result.members, pm.NetworkMembers) else None


class _Corrected(NamedTuple):
    """An ensemble, perhaps with ridge corrections."""

    sampler: MembersSampler | RidgeSampler  # of all members
    members: pb.Atoms  # atoms of each row by the members that did not see it
    held_out: pb.Atoms  # atoms of each row by the mean of these


def _correct(
    rng: np.random.Generator, result: pm.CrossFit, uses_cells: bool
) -> _Corrected:
    """Corrects the mean of all members, and the means of those that hold out a fold.

    Only where there are cells to judge what the corrections leave, and their own noise.
    """
    plain = _Corrected(
        MembersSampler(result.members),
        link(result.held_out),
        link(result.held_out.mean(axis=0)),
    )
    networks = _networks(result)
    if networks is None or not uses_cells:
        return plain
    subspaces = networks.subspaces(result.folded)
    if subspaces is None:
        return plain
    counts, fold, _ = result.folded
    means = result.fold_means
    ridges = pi.fit_ridges(
        rng,
        counts.z,
        counts.observational,
        counts.experimental,
        fold,
        link(np.concatenate([means, means.mean(axis=0, keepdims=True)])),
        subspaces,
    )
    if not ridges.correction.windows.any():
        return plain
    return _Corrected(
        RidgeSampler(plain.sampler, ridges.correction),
        pi.shift_draws(plain.members, plain.held_out, ridges.held_out),
        ridges.held_out,
    )


def _make_sampler(
    rng: np.random.Generator,
    result: pm.CrossFit,
    corrected: _Corrected,
    uses_cells: bool,
    recipe: CrossFitRecipe,
) -> ResidualSampler | ScaledSampler:
    """Calibrates the ensemble: by cells where covariates repeat, else by neighbors.

    The networks' differences count in full. Their mean varies less than one network;
    the rest is left to errors that they share. Where there are no cells to show these,
    the outcomes of neighbors do.
    """
    if not uses_cells:
        shared = _find_shared_error(result, corrected.held_out)
        return ScaledSampler(corrected.sampler, float(np.sqrt(1 + shared.least)))
    assert recipe.least_cell_size is not None
    return make_residual_sampler(
        rng,
        corrected.sampler,
        corrected.members,
        result.folded,
        recipe.least_cell_size,
        len(result.members.fold),
        draw_scale=1.0,
    )


def _find_shared_error(result: pm.CrossFit, held_out: pb.Atoms) -> pi.SharedError:
    counts, fold, _ = result.folded
    z, networks = np.asarray(counts.z), _networks(result)
    return pi.shared_error(
        lambda rows: link(result.members.raw(z[rows])),
        held_out,
        counts.observational,
        counts.experimental,
        fold,
        pm.make_standardizer(counts)(z)
        if networks is None
        else networks.coordinates(z),
    )


def _describe(
    recipe: CrossFitRecipe,
    result: pm.CrossFit,
    corrected: MembersSampler | RidgeSampler,
    sampler: ResidualSampler | ScaledSampler,
) -> dict[str, str]:
    """Says what was chosen, for people who read a report."""
    networks = _networks(result)
    chosen = f"{result.learner!r}" if networks is None else _describe_network(networks)
    notes = {
        "networks": f"{len(result.members.fold)}, each trained without one of "
        f"{recipe.num_folds} parts of the data" + _describe_stuck(result),
        "each network": f"{chosen}; the best of {len(result.losses)} recipes by the loss "
        "on data not seen",
        "loss on data not seen": f"{min(result.losses):.4f} nats (one network a part)",
    }
    if isinstance(corrected, RidgeSampler):
        notes |= _describe_ridges(corrected.correction)
    if isinstance(sampler, ResidualSampler):
        return notes | describe_residual(sampler.profile, "the networks'")
    scale = (
        f"{sampler.draw_scale:.2f}, since the outcomes of people with similar covariates "
        "show errors that all networks share"
    )
    if sampler.draw_scale == 1:
        scale = (
            "1, since the outcomes of people with similar covariates show no error that "
            "all networks share"
        )
    return notes | {"scale of the networks' differences": scale}


def _describe_network(networks: pm.NetworkMembers) -> str:
    recipe = networks.model.recipe
    assert isinstance(recipe.network, pm.EnsembleConfig)
    backbone = recipe.network.backbone
    inputs = "all covariates"
    if backbone.bottleneck is not None:
        inputs = f"{backbone.bottleneck} linear combinations of the covariates"
    return (
        f"{inputs}, {backbone.depth + 1} hidden layers of {backbone.width} "
        f"({backbone.activation}), weight decay {recipe.training.weight_decay:g}"
    )


def _describe_stuck(result: pm.CrossFit) -> str:
    if not result.num_stuck:
        return ""
    return (
        f"; {result.num_stuck} of them were stuck far from the best and are replaced by "
        "copies of others"
    )


def _describe_ridges(correction: pi.RidgeCorrection) -> dict[str, str]:
    """Says by which neighbors what the networks say was corrected, and how near."""
    notes = {}
    for source, windows in zip(("log", "trial"), correction.windows, strict=True):
        used = [
            f"{target} (within {window:g} standard deviations)"
            for target, window in zip(("outcome", "treatment"), windows, strict=True)
            if window
        ]
        notes[f"corrected of what the networks say of the {source}"] = (
            "by people with nearly the same value of the combination of covariates that "
            "best predicts the " + " and of the one that best predicts the ".join(used)
            if used
            else "nothing"
        )
    return notes


CROSSFIT = register_method(
    CrossFitMethod(
        "crossfit",
        "networks trained on reweighted parts of the data, each checked on the people it "
        "did not see",
        CrossFitRecipe(),
    )
)
