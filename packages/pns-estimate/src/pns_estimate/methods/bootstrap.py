"""Multiplier bootstraps of one network: of its last layer, or of all its parameters."""

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal, cast

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Float

from pns_estimate.methods.members import link
from pns_estimate.methods.protocol import SAMPLERS

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
        model.plain_functions().params,
        model.standardizer(counts.z),
        np.concatenate(cells, axis=1),
        num_draws,
        config,
    )


def _make_problem(model: pm.FittedModel, scope: Scope) -> pi.BootstrapProblem:
    plain = model.plain_functions()
    return pi.BootstrapProblem(
        (plain.features, plain.head),
        frozen_nll=plain.frozen_nll,
        scope=scope,
    )


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
            self.model.plain_functions().params,
            self.shifts,
            self.model.standardizer(z),
        )
        return link(raw)

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
