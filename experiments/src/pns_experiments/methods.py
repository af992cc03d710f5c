"""The methods of Table 1 (tab:results), the paper's and ours, behind one call.

Rows with `paper_` hold the paper's tables to the letter and are never retuned;
`stopped_epinet_low_dim` is one of them with early stopping. `trial_alone` and `frequencies`
count people who share all covariates, `boosted_trees` and `logistic` refit a classifier to
bootstrap samples, and every method has to beat them. The plug-ins take our default recipe. The others are the methods of pns-estimate, as people use them: default recipes,
adaptive selection, draws calibrated on held-out units. `epinet`, `ensemble` and the bootstraps
leave out the counts of cells, as their results were made; `epinet_cells`, `ensemble_cells` and
`bootstrap_last_layer_cells` are the methods as they are now.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float, Int, Key

from pns_experiments.counting import (
    CountingRecipe,
    bound_by_counting,
    count_cells,
    estimate_by_counting,
    numpy_rng,
)
from pns_experiments.recipes import Size, resize
from pns_experiments.refits import RefitRecipe, draw_refits
from pns_experiments.replicates import Tables

Points = Float[np.ndarray, "num_test num_covariates"]


class Answer(NamedTuple):
    """Intervals and estimated atoms at the test points.

    Attributes:
      interval: of PNS.
      atoms: estimated.
      notes: numbers about the fit that go beside the scores.
    """

    interval: pb.Interval
    atoms: pb.Atoms
    notes: Mapping[str, float] = types.MappingProxyType({})


class Method(Protocol):
    """A row of Table 1: a recipe, and how intervals come of it."""

    @property
    def recipe(self) -> Any:
        """Network and training, or what else the method needs."""
        ...

    def answer(
        self,
        key: Key[jax.Array, ""],
        tables: Tables,
        z: Points,
        alpha: float,
        size: Size,
    ) -> Answer:
        """Fits both tables and bounds PNS at the test points."""
        ...


@dataclasses.dataclass(frozen=True)
class PlugIn:
    """Bounds of the estimated atoms, uncorrected."""

    recipe: pm.Recipe

    def answer(
        self,
        key: Key[jax.Array, ""],
        tables: Tables,
        z: Points,
        alpha: float,
        size: Size,
    ) -> Answer:
        """Bounds PNS; `alpha` does not enter."""
        del alpha
        counts = pm.rows_from_tables(*tables.both).counts(merge=None)
        model = pm.fit(key, counts, resize(self.recipe, size), progress=False).model
        atoms = model.atoms(z)
        return Answer(pb.pns_bounds(atoms, incompatible="allow"), atoms)


@dataclasses.dataclass(frozen=True)
class Counting:
    """The people who share all covariates, counted: no network.

    Attributes:
      source: 'trial' ignores the log.
      recipe: settings.
    """

    source: Literal["both", "trial"]
    recipe: CountingRecipe = dataclasses.field(default_factory=CountingRecipe)

    def answer(
        self,
        key: Key[jax.Array, ""],
        tables: Tables,
        z: Points,
        alpha: float,
        size: Size,
    ) -> Answer:
        """Bounds PNS of each point by the frequencies of its cell."""
        recipe = resize(self.recipe, size)
        cells, place = np.unique(z, axis=0, return_inverse=True)
        counts = count_cells(
            pm.rows_from_tables(*tables.both).counts(merge=None), cells
        )
        ends = bound_by_counting(numpy_rng(key), *counts, alpha, self.source, recipe)
        atoms = estimate_by_counting(*counts, recipe.prior)
        return Answer(
            pb.Interval(*(end[place] for end in ends)),
            pb.Atoms(*(part[place] for part in atoms)),
        )


@dataclasses.dataclass(frozen=True)
class Refits:
    """Bootstrap refits of a classifier, with projected plug-in bounds."""

    recipe: RefitRecipe

    def answer(
        self,
        key: Key[jax.Array, ""],
        tables: Tables,
        z: Points,
        alpha: float,
        size: Size,
    ) -> Answer:
        """Takes quantiles of the bounds over the refits."""
        atoms = draw_refits(key, tables.both, z, resize(self.recipe, size))
        bounds = pb.pns_bounds(atoms)
        ends = pb.Interval(
            np.quantile(bounds.lower, alpha / 2, axis=0),
            np.quantile(bounds.upper, 1 - alpha / 2, axis=0),
        )
        return Answer(ends, pb.Atoms(*(part.mean(axis=0) for part in atoms)))


@dataclasses.dataclass(frozen=True)
class FrontDoor:
    """A method of pns-estimate, as people use it.

    Attributes:
      method: its name there.
      uses_cells: False: a network's draws without the counts of cells, as it was before
        those came.
    """

    method: str
    uses_cells: bool = True

    @property
    def recipe(self) -> Any:
        """Returns the default of pns-estimate."""
        return pe.METHODS[self.method].recipe

    def predict(
        self, key: Key[jax.Array, ""], tables: Tables, z: Points, size: Size
    ) -> pe.Prediction:
        """Fits an estimator to data frames; the prediction answers for the points."""
        recipe = resize(self.recipe, size)
        estimator = pe.PnsEstimator(
            self.method,
            seed=int(jax.random.randint(key, (), 0, 2**31 - 1)),
            recipe=recipe if self.uses_cells else pe.NetworkRecipe(recipe, None),
            num_draws=2000 if size == "full" else 300,
            progress=False,
            unseen="unknown",  # labels of points that no row of small tables has
        )
        frames = [
            _frame(table.z, tables.covariate).assign(
                x=np.asarray(table.x), y=np.asarray(table.y)
            )
            for table in tables.both
        ]
        estimator.fit(*frames, treatment="x", outcome="y")
        return estimator.predict(_frame(z, tables.covariate))

    def answer(
        self,
        key: Key[jax.Array, ""],
        tables: Tables,
        z: Points,
        alpha: float,
        size: Size,
    ) -> Answer:
        """Bounds PNS of each point."""
        prediction = self.predict(key, tables, z, size)
        intervals, atoms = prediction.intervals(alpha), prediction.atoms()
        return Answer(
            pb.Interval(intervals["lower"].to_numpy(), intervals["upper"].to_numpy()),
            pb.unpack_atoms(atoms[list(pb.BINARY.eta_names)].to_numpy()),
        )


@dataclasses.dataclass(frozen=True)
class PaperEpinet:
    """Algorithm 1 (alg:pns_bounds): no selection, and draws that nothing calibrated."""

    recipe: pm.Recipe
    num_draws: int

    def answer(
        self,
        key: Key[jax.Array, ""],
        tables: Tables,
        z: Points,
        alpha: float,
        size: Size,
    ) -> Answer:
        """Corrects the bounds by draws of the hypermodel."""
        fit_key, draw_key = jax.random.split(key)
        counts = pm.rows_from_tables(*tables.both).counts(merge=False)
        recipe = resize(self.recipe, size)
        model, history, *_ = pm.fit(fit_key, counts, recipe, progress=False)
        num_draws = self.num_draws if size == "full" else 200
        # Points with equal covariates have equal intervals.
        cells, place = np.unique(z, axis=0, return_inverse=True)
        blocks = (
            model.draws(draw_key, cells[start : start + 256], num_draws)
            for start in range(0, len(cells), 256)
        )
        ends = pi.intervals_from_draws(blocks, alpha, selection="none")
        interval = pb.Interval(ends.lower[place], ends.upper[place])
        return Answer(interval, model.atoms(z), _note_end(recipe, history))


# Table 4 (tab:mb-hparams). The tolerance makes it all 50 steps; a warning says what is
# left of the residual.
_PAPER_SOLVES = pi.SolveConfig(
    damping=1e-4, max_iterations=50, tolerance=1e-6, preconditioner_rank=0
)


@dataclasses.dataclass(frozen=True)
class PaperBootstrap:
    """The multiplier bootstrap of Table 4 (tab:mb-hparams): B = 1,000.

    A last layer is solved directly. Scores of all units are resampled, also of those
    that training held out.
    """

    scope: Literal["full", "last_layer"]
    recipe: pm.Recipe

    def answer(
        self,
        key: Key[jax.Array, ""],
        tables: Tables,
        z: Points,
        alpha: float,
        size: Size,
    ) -> Answer:
        """Corrects the bounds by draws of the multiplier bootstrap."""
        fit_key, solve_key = jax.random.split(key)
        counts = pm.rows_from_tables(*tables.both).counts(merge=False)
        recipe = resize(self.recipe, size)
        model = pm.fit(fit_key, counts, recipe, progress=False).model
        bootstrap = pe.make_bootstrap(
            solve_key,
            model,
            counts.merged(only_if_halved=True),  # exact
            self.scope,
            num_draws=1000 if size == "full" else 50,
            config=_PAPER_SOLVES,
        )
        raw = bootstrap.draws(model.standardizer(z))
        atoms = jax.tree.map(np.asarray, pm.atoms_from_raw(raw, "anchored"))
        ends = pi.intervals_from_draws(atoms, alpha, selection="none")
        return Answer(pb.Interval(ends.lower, ends.upper), model.atoms(z))


def _note_end(recipe: pm.Recipe, history: pm.History) -> dict[str, float]:
    """Says which step's parameters were kept, and their held-out loss."""
    stops = recipe.training.patience is not None
    kept = int(np.argmin(history.held_out)) if stops else -1
    return {
        "steps": int(history.step[kept]),
        "held_out_loss": float(history.held_out[kept]),
    }


def _stopped(recipe: pm.Recipe) -> pm.Recipe:
    """Ends training when the loss of its held-out units rises."""
    training = dataclasses.replace(recipe.training, eval_every=50, patience=5)
    return dataclasses.replace(recipe, training=training)


class EnnVariant(NamedTuple):
    """What the paper does not print, or prints twice, of its recipe.

    Attributes:
      num_indices: per step.
      learning_rate: 3e-4 in Table 3 (tab:enn-hparams), 3e-3 in the text (app:training).
      num_steps: 11,719 are 800 epochs; None stops by held-out loss.
      batch_size: 8,192 units, or None for full batches of merged units.
    """

    num_indices: int
    learning_rate: float
    num_steps: int | None
    batch_size: int | None = 8192

    @property
    def name(self) -> str:
        """Says all four."""
        steps = "stopped" if self.num_steps is None else f"{self.num_steps}_steps"
        batch = "full" if self.batch_size is None else "mini"
        return (
            f"enn_{self.num_indices}_indices_{self.learning_rate:.0e}_{batch}_{steps}"
        )

    def method(self) -> PaperEpinet:
        """Makes the paper's recipe with the ENN library's initialization."""
        recipe = pm.PRESETS["paper_low_dim_enn"]
        training = dataclasses.replace(
            recipe.training,
            num_indices=self.num_indices,
            learning_rate=self.learning_rate,
            epochs=None,
            max_steps=self.num_steps or 11_719,
            batch_size=self.batch_size,
            merge=self.batch_size is None,
        )
        recipe = dataclasses.replace(recipe, training=training)
        if self.num_steps is None:
            recipe = _stopped(recipe)
        # Table 3 has 8,000 draws, the text (app:inference) 20. Quantiles of 2,000 differ
        # little from those of 8,000; 20 have no order statistic at 97.5%.
        return PaperEpinet(recipe, 2000)


ENN_VARIANTS = (
    EnnVariant(1, 3e-4, 800),
    EnnVariant(1, 3e-3, 800),
    EnnVariant(8, 3e-3, 800),
    EnnVariant(8, 3e-3, 1600),
    EnnVariant(8, 3e-3, None, batch_size=None),
    EnnVariant(8, 3e-3, 1200),
    EnnVariant(1, 3e-4, 11_719),
)


def _frame(z: Any, covariate: Int[np.ndarray, " d"] | None) -> pd.DataFrame:
    """Makes a data frame; the indicators of a category become a column of text."""
    z = np.asarray(z, np.float32)
    if covariate is None:
        return pd.DataFrame(z).add_prefix("z")
    parts = [z[:, covariate == number] for number in np.unique(covariate)]
    columns = [
        part[:, 0] if part.shape[1] == 1 else part.argmax(axis=1).astype(str)
        for part in parts
    ]
    return pd.DataFrame(dict(enumerate(columns))).add_prefix("z")


_DEFAULT = pm.PRESETS["default"]
_NETWORK: Any = _DEFAULT.network  # anchored; the learners get its backbone

METHODS: dict[str, Method] = {
    "trial_alone": Counting("trial"),
    "frequencies": Counting("both"),
    "boosted_trees": Refits(RefitRecipe("boosted_trees")),
    "logistic": Refits(RefitRecipe("logistic")),
    "s_learner": PlugIn(
        dataclasses.replace(_DEFAULT, network=pm.SLearnerConfig(_NETWORK.backbone))
    ),
    "t_learner": PlugIn(
        dataclasses.replace(_DEFAULT, network=pm.TLearnerConfig(_NETWORK.backbone))
    ),
    "anchored": PlugIn(_DEFAULT),
    "bootstrap_full": FrontDoor("bootstrap_full", uses_cells=False),
    "bootstrap_last_layer": FrontDoor("bootstrap_last_layer", uses_cells=False),
    "bootstrap_last_layer_cells": FrontDoor("bootstrap_last_layer"),
    "crossfit": FrontDoor("crossfit"),
    "epinet": FrontDoor("epinet", uses_cells=False),
    "epinet_cells": FrontDoor("epinet"),
    "ensemble": FrontDoor("ensemble", uses_cells=False),
    "ensemble_cells": FrontDoor("ensemble"),
    "paper_bootstrap_full": PaperBootstrap("full", pm.PRESETS["paper_bootstrap"]),
    "paper_bootstrap_last_layer": PaperBootstrap(
        "last_layer", pm.PRESETS["paper_bootstrap"]
    ),
    "paper_epinet_low_dim": PaperEpinet(pm.PRESETS["paper_low_dim"], 8000),
    "paper_epinet_high_dim": PaperEpinet(pm.PRESETS["paper_high_dim"], 5000),
    # What early stopping, which the paper does not have, does to the same recipe.
    "stopped_epinet_low_dim": PaperEpinet(_stopped(pm.PRESETS["paper_low_dim"]), 8000),
    "paper_enn_low_dim": PaperEpinet(pm.PRESETS["paper_low_dim_enn"], 8000),
    **{variant.name: variant.method() for variant in ENN_VARIANTS},
}
