"""Multiplier bootstraps of one network: of its last layer, or of all its parameters."""

import dataclasses
from pathlib import Path
from typing import Literal

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float, Int

from pns_estimate.methods.network import (
    NetworkRecipe,
    add_counts,
    as_network_recipe,
    deal_held_out,
    fit_network,
)
from pns_estimate.methods.protocol import MethodFit, Sampler, split_key
from pns_estimate.methods.registry import register_method
from pns_estimate.methods.residual import ResidualSampler

Scope = Literal["full", "last_layer"]
_DEFAULT = pi.SolveConfig()


def make_bootstrap(
    key: jax.Array,
    model: pm.FittedModel,
    counts: pm.Counts,
    scope: Scope,
    num_draws: int = 1000,
    config: pi.SolveConfig = _DEFAULT,
) -> pi.BootstrapResult:
    """Solves the multiplier bootstrap of an anchored network.

    Args:
      key: decides the multipliers.
      model: an anchored network; its draws are raw numbers for `pm.atoms_from_raw`.
      counts: the units whose scores are resampled, on the scale of the data.
      scope: 'full' or 'last_layer'.
      num_draws: of the bootstrap.
      config: curvature, damping, and when the solves stop.

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
      >>> recipe = pm.Recipe(  # a small network and all units, for the example
      ...     pm.AnchoredConfig(pm.Backbone(width=4, depth=0)),
      ...     pm.TrainConfig(
      ...         learning_rate=0.1,
      ...         weight_decay=0.0,
      ...         max_steps=100,
      ...         held_out_fraction=0.0,
      ...         patience=None,
      ...         eval_every=100,
      ...     ),
      ... )
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
        pm.plain_functions(model).params,
        model.standardizer(counts.z),
        np.concatenate(cells, axis=1),
        num_draws,
        config,
    )


def _make_problem(model: pm.FittedModel, scope: Scope) -> pi.BootstrapProblem:
    plain = pm.plain_functions(model)
    return pi.BootstrapProblem(
        pi.TwoStage(plain.features, plain.head),
        frozen_nll=plain.frozen_nll,
        scope=scope,
    )


@jax.jit
def _link(raw: Float[jax.Array, "num_draws n 6"]) -> pb.Atoms:
    return pm.atoms_from_raw(raw, "anchored")


@dataclasses.dataclass(frozen=True, eq=False)
class BootstrapSampler:
    """A network, and what each draw of a bootstrap adds to its parameters."""

    model: pm.FittedModel
    shifts: Float[np.ndarray, "num_draws num_parameters"]
    scope: Scope

    @property
    def has_draws(self) -> bool:
        """A bootstrap always has draws."""
        return True

    @property
    def is_posterior(self) -> bool:
        """Draws vary as the estimate does."""
        return False

    def atoms(self, z: Float[np.ndarray, "n d"]) -> pb.Atoms:
        """Estimates the atoms of each unit."""
        return self.model.atoms(z)

    def draws(
        self, key: jax.Array, z: Float[np.ndarray, "n d"], num_draws: int
    ) -> pb.Atoms:
        """Links raw numbers drawn to first order; all draws that were solved for."""
        del key, num_draws
        raw = pi.bootstrap_draws(
            _make_problem(self.model, self.scope),
            pm.plain_functions(self.model).params,
            self.shifts,
            self.model.standardizer(z),
        )
        return jax.tree.map(np.asarray, _link(raw))

    def save(self, folder: Path) -> None:
        """Writes network and shifts to a new folder."""
        folder.mkdir()
        self.model.save(folder / "network")
        np.save(folder / "shifts.npy", self.shifts, allow_pickle=False)


@dataclasses.dataclass(frozen=True)
class BootstrapMethod:
    """Trains one network, then bootstraps it.

    Attributes:
      name: of the method.
      sentence: what its draws stand for.
      recipe: of the network, which must be anchored.
      scope: which parameters move.
      num_draws: how many draws are solved for.
      config: of the solves.
    """

    name: str
    sentence: str
    recipe: pm.Recipe
    scope: Scope
    num_draws: int
    config: pi.SolveConfig

    def deal(
        self,
        key: jax.Array,
        part: Int[np.ndarray, " n"],
        groups: Int[np.ndarray, " n"] | None,
        recipe: pm.Recipe | NetworkRecipe,
    ) -> Int[np.ndarray, " n"]:
        """Marks the rows that are held out."""
        return deal_held_out(key, part, groups, recipe)

    def fit(
        self,
        key: jax.Array,
        rows: pm.Rows,
        recipe: pm.Recipe | NetworkRecipe,
        progress: bool = False,
        checkpoint_dir: Path | None = None,
    ) -> MethodFit:
        """Trains the network and does the solves; with cells, adds their counts."""
        recipe = as_network_recipe(recipe)
        keys = split_key(key)
        result = fit_network(keys.train, rows, recipe, progress, checkpoint_dir)
        merged = rows.counts(merge=None)
        solved = make_bootstrap(
            keys.solve, result.model, merged, self.scope, self.num_draws, self.config
        )
        # The network saw the training part only.
        kept = 1 - recipe.recipe.training.held_out_fraction
        inner = BootstrapSampler(
            result.model, solved.shifts / np.sqrt(kept), self.scope
        )
        return add_counts(keys.calibrate, inner, result, recipe.least_cell_size)

    def load(self, folder: Path) -> Sampler:
        """Reads a bootstrap, with or without a residual."""
        if (folder / "residual.npz").exists():
            return ResidualSampler.load(folder, self._load_bootstrap)
        return self._load_bootstrap(folder)

    def _load_bootstrap(self, folder: Path) -> BootstrapSampler:
        """Reads network and shifts."""
        shifts = np.load(folder / "shifts.npy", allow_pickle=False)
        return BootstrapSampler(pm.load(folder / "network"), shifts, self.scope)


# One member of the default method, with people held out: about 5,000 parameters, few enough
# to be solved for directly, and a smaller held-out loss on Li Model 1 than `default`.
_SMALL = pm.Recipe(
    pm.PORTFOLIO[0][0].network,
    dataclasses.replace(
        pm.PORTFOLIO[0][0].training, held_out_fraction=0.1, data_noise="none"
    ),
)
BOOTSTRAP_FULL = register_method(
    BootstrapMethod(
        "bootstrap_full",
        "a multiplier bootstrap of all parameters of one network",
        _SMALL,
        scope="full",
        num_draws=200,
        # Ten times the damping of tab:mb-hparams: iterative solves of a large network then
        # take 7 steps, not 17. We did not try less with the small one.
        config=pi.SolveConfig(damping=1e-3, max_iterations=100),
    )
)
BOOTSTRAP_LAST_LAYER = register_method(
    BootstrapMethod(
        "bootstrap_last_layer",
        "a multiplier bootstrap of the last layer of one network",
        pm.PRESETS["default"],
        scope="last_layer",
        num_draws=1000,
        config=pi.SolveConfig(damping=1e-4, tolerance=0.1, max_iterations=100),
    )
)
