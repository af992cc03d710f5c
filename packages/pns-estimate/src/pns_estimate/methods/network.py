"""Methods of one network: with an index of its own, bootstrapped, or neither.

Where covariates repeat, draws of the network are joined with the counts of people who
share them.
"""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float, Int

from pns_estimate.methods.cells import (
    LEAST_CELL_SIZE,
    are_cells_shared,
    describe_residual,
    make_residual_sampler,
)
from pns_estimate.methods.protocol import (
    SAMPLERS,
    Encoded,
    MethodFit,
    Sampler,
    register_method,
    split_key,
)

Scope = Literal["full", "last_layer"]
_DEFAULT = pi.SolveConfig()
_atoms_from_raw = jax.jit(pm.atoms_from_raw, static_argnums=1)
_NUM_JUDGED_DRAWS = 64  # of the network, to judge how they and counts are weighed


def make_bootstrap(
    key: jax.Array,
    model: pm.FittedModel,
    counts: pm.Counts,
    scope: Scope,
    num_draws: int = 1000,
    config: pi.SolveConfig = _DEFAULT,
) -> pi.BootstrapResult:
    """Solves the multiplier bootstrap of an anchored network.

    The key decides the multipliers of the units' scores. Draws are raw numbers for
    `pns_models.atoms_from_raw`, of all parameters or of the last layer alone.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> import pns_infer as pi
      >>> import pns_models as pm
      >>> counts = pm.Counts(
      ...     z=np.array([[0.0], [1.0]], np.float32),
      ...     observational=np.array([[[40, 10], [40, 10]], [[40, 10], [10, 40]]]),
      ...     experimental=np.array([[[40, 10], [40, 10]], [[35, 15], [10, 40]]]),
      ... )
      >>> network = pm.AnchoredConfig(pm.Backbone(width=4, depth=0))
      >>> quick = {"learning_rate": 0.1, "max_steps": 100, "weight_decay": 0.0}
      >>> all_units = {"held_out_fraction": 0.0, "patience": None, "eval_every": 100}
      >>> recipe = pm.Recipe(network, pm.TrainConfig(**quick, **all_units))
      >>> model = pm.fit(jax.random.key(0), counts, recipe).model
      >>> solved = make_bootstrap(jax.random.key(1), model, counts, "last_layer", 500)
      >>> z = model.standardizer(counts.z)
      >>> raw = pi.bootstrap_draws(solved.problem, solved.params, solved.shifts, z)
      >>> p11 = pm.atoms_from_raw(raw, "anchored").joint[:, 1, 1, 1]  # 40 of 100 units
      >>> round(float(p11.std()), 2), round((0.4 * 0.6 / 100) ** 0.5, 2)
      (0.05, 0.05)
    """
    cells = [np.reshape(part, (-1, 4)) for part in counts[1:]]
    return pi.solve_bootstrap(
        key,
        _make_problem(model, scope),
        model.plain_functions().params,
        model.standardizer(counts.z),
        np.concatenate(cells, axis=1),
        num_draws,
        config,
    )


def _make_problem(model: pm.FittedModel, scope: Scope) -> pi.BootstrapProblem:
    plain = model.plain_functions()
    parts = (plain.features, plain.head)
    return pi.BootstrapProblem(parts, frozen_nll=plain.frozen_nll, scope=scope)


@dataclasses.dataclass(frozen=True)
class Bootstrap:
    """How a trained network is bootstrapped."""

    scope: Scope  # which parameters move
    num_draws: int  # how many draws are solved for
    config: pi.SolveConfig  # of the solves


@SAMPLERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class BootstrapSampler:
    """A network, and what each draw of a bootstrap adds to its parameters."""

    kind: ClassVar[str] = "bootstrap"
    has_draws = True
    is_posterior = False  # draws vary as the estimate does
    model: pm.FittedModel
    shifts: Float[np.ndarray, "num_draws num_parameters"]
    scope: Scope

    def atoms(self, z: Encoded) -> pb.Atoms:
        """Estimates the atoms of each unit."""
        return self.model.atoms(z)

    def draws(self, key: jax.Array, z: Encoded, num_draws: int) -> pb.Atoms:
        """Links raw numbers drawn to first order; all draws that were solved for."""
        del key, num_draws
        raw = pi.bootstrap_draws(
            _make_problem(self.model, self.scope),
            self.model.plain_functions().params,
            self.shifts,
            self.model.standardizer(z),
        )
        return jax.tree.map(np.asarray, _atoms_from_raw(raw, "anchored"))

    def save(self, folder: Path) -> None:
        """Writes network, shifts and scope."""
        self.model.save(folder / "network")
        np.savez(folder / "shifts.npz", shifts=self.shifts, scope=self.scope)

    @classmethod
    def load(cls, folder: Path) -> "BootstrapSampler":
        """Reads what `save` wrote."""
        with np.load(folder / "shifts.npz", allow_pickle=False) as stored:
            shifts, scope = stored["shifts"], cast("Scope", str(stored["scope"]))
        return cls(pm.FittedModel.load(folder / "network"), shifts, scope)


@SAMPLERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class NetworkSampler:
    """A fitted network; an index that is drawn fixes one law for everybody."""

    kind: ClassVar[str] = "network"
    is_posterior = False  # draws vary as the estimate does
    model: pm.FittedModel

    @property
    def has_draws(self) -> bool:
        """Whether the network has an index."""
        return self.model.is_epistemic

    def atoms(self, z: Encoded) -> pb.Atoms:
        """Estimates the atoms of each unit."""
        return self.model.atoms(z)

    def draws(self, key: jax.Array, z: Encoded, num_draws: int) -> pb.Atoms:
        """Draws atoms [num_draws, n]."""
        linear = self.linear_draws(key, z, num_draws)
        return self.model.draws(key, z, num_draws) if linear is None else linear.atoms()

    def linear_draws(
        self, key: jax.Array, z: Encoded, num_draws: int
    ) -> pi.LinearDraws | None:
        """Draws the weights of members; None for a network that is no ensemble."""
        if not isinstance(self.model.recipe.network, pm.EnsembleConfig):
            return None
        factors = np.moveaxis(self.model.member_raw(z), 0, -1)
        return pi.LinearDraws(
            center=np.zeros(factors.shape[:2], factors.dtype),
            factors=factors,
            coefficients=self.model.draw_indices(key, num_draws),
        )

    def save(self, folder: Path) -> None:
        """Writes the network."""
        self.model.save(folder / "network")

    @classmethod
    def load(cls, folder: Path) -> "NetworkSampler":
        """Reads what `save` wrote."""
        return cls(pm.FittedModel.load(folder / "network"))


@dataclasses.dataclass(frozen=True)
class NetworkRecipe:
    """A recipe of a network, and what becomes of the counts of cells.

    Attributes:
      recipe: of the network.
      least_cell_size: units from which on the counts of a cell are used, and kept in
        saved models; None uses no counts.
    """

    recipe: pm.Recipe
    least_cell_size: int | None = LEAST_CELL_SIZE

    def to_json(self) -> dict[str, Any]:
        """Returns nested plain values."""
        return {**vars(self), "recipe": self.recipe.to_json()}


@dataclasses.dataclass(frozen=True)
class NetworkMethod:
    """Trains one network; its own draws, or a bootstrap's, say how uncertain it is.

    Where covariates repeat, the counts of cells are added to the draws, weighed by the
    held-out rows: the network did not train on their outcomes. Those rows also chose the
    step at which training stopped, and so judge the network a little too kindly.
    """

    name: str  # of the method
    sentence: str  # what its draws stand for
    recipe: pm.Recipe  # of the network, which must be anchored to be bootstrapped
    # How it is bootstrapped; None takes the network's own draws, if any.
    bootstrap: Bootstrap | None = None

    def deal(
        self,
        key: jax.Array,
        part: Int[np.ndarray, " n"],
        groups: Int[np.ndarray, " n"] | None,
        recipe: pm.Recipe | NetworkRecipe,
    ) -> Int[np.ndarray, " n"]:
        """Marks the rows that are held out by 1."""
        seed = jax.random.key_data(jax.random.split(split_key(key).train, 5)[1])
        rng = np.random.default_rng(np.asarray(seed))
        fraction = _as_network_recipe(recipe).recipe.training.held_out_fraction
        return pm.deal_held_out(rng, len(part), fraction, groups)

    def fit(
        self,
        key: jax.Array,
        rows: pm.Rows,
        recipe: pm.Recipe | NetworkRecipe,
        progress: bool = False,
        checkpoint_dir: Path | None = None,
    ) -> MethodFit:
        """Trains the network; with a residual the sampler needs no calibration."""
        assert rows.fold is not None
        recipe, keys = _as_network_recipe(recipe), split_key(key)
        merge = recipe.recipe.training.merge
        seen, held_out = (rows.take(rows.fold == part) for part in (0, 1))
        result = pm.fit(
            keys.train,
            seen.counts(merge),
            recipe.recipe,
            progress=progress,
            checkpoint_dir=checkpoint_dir,
            held_out=held_out.counts(merge),
        )
        model, history, held_out, _ = result
        sampler = self._make_sampler(keys.solve, model, rows)
        plain = MethodFit(sampler, held_out, model.standardizer, history)
        return _add_counts(keys.calibrate, plain, rows, recipe.least_cell_size)

    def _make_sampler(
        self, key: jax.Array, model: pm.FittedModel, rows: pm.Rows
    ) -> Sampler:
        """Bootstraps the network, or takes it as it is."""
        if self.bootstrap is None:
            return NetworkSampler(model)
        settings, counts = self.bootstrap, rows.counts(merge=None)
        solved = make_bootstrap(key, model, counts, **vars(settings))
        # The network saw the training part only.
        kept = 1 - model.recipe.training.held_out_fraction
        return BootstrapSampler(model, solved.shifts / np.sqrt(kept), settings.scope)


def _as_network_recipe(recipe: pm.Recipe | NetworkRecipe) -> NetworkRecipe:
    return recipe if isinstance(recipe, NetworkRecipe) else NetworkRecipe(recipe)


def _add_counts(
    key: jax.Array, plain: MethodFit, rows: pm.Rows, least_cell_size: int | None
) -> MethodFit:
    """Adds the counts of cells to a fit of one network, if held-out rows can judge them."""
    inner = plain.sampler
    if least_cell_size is None or not inner.has_draws:
        return plain
    folded, _ = rows.folded()
    judged = folded.fold == 1
    if not judged.any() or not are_cells_shared(folded.cell_totals()):
        return plain
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    drawn = inner.draws(key, np.asarray(folded.counts.z)[judged], _NUM_JUDGED_DRAWS)
    sampler = make_residual_sampler(
        rng,
        inner,
        pb.Atoms(*(part[:_NUM_JUDGED_DRAWS] for part in drawn)),
        folded,
        least_cell_size,
        judged=judged,
    )
    return plain._replace(
        sampler=sampler,
        held_out_atoms=inner.atoms(np.asarray(plain.held_out.z)),
        is_calibrated=True,
        notes=describe_residual(sampler.profile, "the network's"),
        profile=sampler.profile,
    )


for _method in (
    NetworkMethod(
        "epinet",
        "one network with an epistemic index, trained on randomly reweighted data",
        pm.PRESETS["default_epinet"],
    ),
    NetworkMethod(
        "ensemble",
        "several networks, each trained on randomly reweighted data",
        pm.PRESETS["default_ensemble"],
    ),
    NetworkMethod(
        "bootstrap_full",
        "a multiplier bootstrap of all parameters of one network",
        # One member of the default method, with rows held out: about 5,000 parameters, few
        # enough to be solved for directly, and a smaller held-out loss on Li Model 1 than
        # `default`.
        pm.Recipe(
            pm.AnchoredConfig(pm.Backbone(64, 1, activation="relu", bottleneck=2)),
            dataclasses.replace(
                pm.make_member_training(1e-2, 0.3, 3000), held_out_fraction=0.2
            ),
        ),
        # Ten times the damping of tab:mb-hparams: iterative solves of a large network then
        # take 7 steps, not 17. We did not try less with the small one.
        Bootstrap("full", 200, pi.SolveConfig(damping=1e-3, max_iterations=100)),
    ),
    NetworkMethod(
        "bootstrap_last_layer",
        "a multiplier bootstrap of the last layer of one network",
        pm.PRESETS["default_bootstrap"],
        Bootstrap(
            "last_layer",
            1000,
            pi.SolveConfig(damping=1e-4, tolerance=0.1, max_iterations=100),
        ),
    ),
    NetworkMethod(
        "plug_in",
        "one network, whose estimates are taken as if they were known",
        pm.PRESETS["default"],
    ),
):
    register_method(_method)
