"""Ways to say how uncertain a fitted network is, behind one small class."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm

from pns_estimate._errors import UserError

Method = Literal[
    "epinet", "ensemble", "bootstrap_full", "bootstrap_last_layer", "plug_in"
]
METHODS = ("epinet", "ensemble", "bootstrap_full", "bootstrap_last_layer", "plug_in")

_RECIPES = {
    "epinet": "default_epinet",
    "ensemble": "default_ensemble",
    "bootstrap_full": "default",
    "bootstrap_last_layer": "default",
    "plug_in": "default",
}
_SOLVES = {"bootstrap_full": 200, "bootstrap_last_layer": 1000}
# More than tab:mb-hparams' 1e-4, at which conjugate gradients do not converge.
_DAMPING = {"bootstrap_full": 1e-3, "bootstrap_last_layer": 1e-4}


class Sampler(NamedTuple):
    """A fitted network with draws, on encoded covariates.

    Attributes:
      method: how uncertainty is represented.
      model: the network.
      shifts: of a bootstrap, what each draw adds to the parameters.
      scale: factor for the spread of the draws on the logit scale.
    """

    method: Method
    model: pm.FittedModel
    shifts: np.ndarray | None = None
    scale: float = 1.0

    @property
    def has_draws(self) -> bool:
        """Whether there is a spread to correct with."""
        return self.method != "plug_in"

    def draws(self, key: jax.Array, z: np.ndarray, num_draws: int) -> pb.Atoms:
        """Draws atoms [num_draws, n]; a bootstrap has as many as it solved for."""
        if self.shifts is None:
            drawn = self.model.draws(key, z, num_draws)
        else:
            drawn = _bootstrap_draws(self.method, self.model, self.shifts, z)
        return drawn if self.scale == 1 else pi.scale_draws(drawn, self.scale)


class Fitted(NamedTuple):
    """What `fit_method` returns."""

    sampler: Sampler
    history: pm.History
    validation: pm.Counts
    spread: pi.SpreadCalibration | None


def default_recipe(method: Method) -> pm.Recipe:
    """Returns the recipe of a method."""
    return pm.PRESETS[_RECIPES[method]]


def fit_method(
    key: jax.Array,
    counts: pm.Counts,
    method: Method,
    recipe: pm.Recipe,
    calibrate: bool,
    progress: bool,
) -> Fitted:
    """Trains a network and prepares its draws.

    Args:
      key: decides everything.
      counts: both tables.
      method: how uncertainty is represented.
      recipe: network and training.
      calibrate: whether to choose the scale of the spread on held-out people.
      progress: whether to show a bar.
    """
    train_key, solve_key, draw_key = jax.random.split(key, 3)
    fit = pm.fit(train_key, counts, recipe, progress=progress)
    sampler = Sampler(method, fit.model)
    if method in _SOLVES:
        shifts = _solve(solve_key, fit.model, counts, method)
        # The network saw the training part only.
        kept = 1 - recipe.training.validation_fraction
        sampler = sampler._replace(shifts=shifts / np.sqrt(kept))
    spread = None
    if calibrate and sampler.has_draws and len(fit.validation.z):
        scaler = fit.model.standardiser
        spread = judge_spread(draw_key, sampler, scaler, fit.validation)
        sampler = sampler._replace(scale=spread.interval[1])
    return Fitted(sampler, fit.history, fit.validation, spread)


def judge_spread(
    key: jax.Array,
    model: pm.FittedModel | Sampler,
    standardiser: Callable[[np.ndarray], np.ndarray],
    held_out: pm.Counts,
    num_draws: int = 400,
) -> pi.SpreadCalibration:
    """Profiles the spread of draws on held-out people, a few thousand rows at most.

    Args:
      key: decides the draws.
      model: draws atoms for people.
      standardiser: puts covariates on comparable scales, to find neighbours.
      held_out: people that training did not see.
      num_draws: of each person.
    """
    rng = np.random.default_rng(0)
    rows = np.arange(len(held_out.z))
    people = sum(float(np.sum(part)) for part in held_out[1:])
    groups = None
    if people < 2 * len(rows):  # continuous covariates: nobody has a twin
        groups = pi.neighbourhoods(standardiser(held_out.z), 8)
        chosen = rng.permutation(groups.max() + 1)[:1000]
        rows = np.flatnonzero(np.isin(groups, chosen))
        groups = groups[rows]
    elif len(rows) > 8000:
        rows = np.sort(rng.choice(rows, 8000, replace=False))
    z, observational, experimental = (np.asarray(part)[rows] for part in held_out)
    drawn = model.draws(key, z, num_draws)
    return pi.calibrate_spread(drawn, observational, experimental, groups)


def make_bootstrap(
    key: jax.Array,
    model: pm.FittedModel,
    counts: pm.Counts,
    scope: Literal["full", "last_layer"],
    **options: Any,
) -> pi.MultiplierBootstrap:
    """Prepares the multiplier bootstrap of an anchored network.

    Args:
      key: decides the multipliers.
      model: an anchored network; its draws are raw numbers for `pm.atoms_from_raw`.
      counts: the people whose scores are resampled, on the scale of the data.
      scope: 'full' or 'last_layer'.
      **options: of `pi.MultiplierBootstrap`: num_draws, damping, tolerance and the like.
    """
    plain = pm.plain_functions(model)
    cells = [np.reshape(part, (-1, 4)) for part in counts[1:]]
    return pi.MultiplierBootstrap(
        key,
        pi.TwoStage(plain.features, plain.head),
        lambda raw, counts: plain.frozen_nll(raw, raw, counts),
        plain.params,
        model.standardiser(counts.z),
        np.concatenate(cells, axis=1),
        frozen_nll=plain.frozen_nll,
        scope=scope,
        **options,
    )


def _solve(key, model: pm.FittedModel, counts: pm.Counts, method: Method) -> np.ndarray:
    return make_bootstrap(
        key,
        model,
        counts,
        "last_layer" if method == "bootstrap_last_layer" else "full",
        num_draws=_SOLVES[method],
        damping=_DAMPING[method],
        tolerance=0.1,
        max_iterations=100,
    ).shifts


class _Bootstrapped(NamedTuple):
    """The function that is bootstrapped, its parameters, and how to make its inputs."""

    function: Callable[[Any, jax.Array], jax.Array]
    params: Any
    inputs: Callable[[jax.Array], jax.Array]


@functools.lru_cache(4)  # one function for all calls: it is compiled once
def _bootstrapped(method: Method, model: pm.FittedModel) -> _Bootstrapped:
    plain = pm.plain_functions(model)
    body, head = plain.params
    if method == "bootstrap_last_layer":
        features = jax.jit(plain.features)
        return _Bootstrapped(plain.head, head, lambda z: features(body, z))

    def outputs(params: Any, z: jax.Array) -> jax.Array:
        return plain.head(params[1], plain.features(params[0], z))

    return _Bootstrapped(outputs, plain.params, lambda z: z)


def _bootstrap_draws(
    method: Method, model: pm.FittedModel, shifts: np.ndarray, z: np.ndarray
) -> pb.Atoms:
    """Draws raw numbers to first order and links them: every draw is a valid law."""
    function, params, inputs = _bootstrapped(method, model)
    scaled = model.standardiser(z)
    features = np.concatenate(
        [inputs(scaled[i : i + 8192]) for i in range(0, len(scaled), 8192)]
    )
    raw = pi.linear_draws(function, params, shifts, features)
    return jax.tree.map(np.asarray, pm.atoms_from_raw(jnp.asarray(raw), "anchored"))


def save_sampler(sampler: Sampler, folder: Path) -> None:
    """Writes network and shifts into an existing folder."""
    sampler.model.save(folder / "network")
    if sampler.shifts is not None:
        np.save(folder / "shifts.npy", sampler.shifts, allow_pickle=False)


def load_sampler(folder: Path, method: Method, scale: float) -> Sampler:
    """Reads what `save_sampler` wrote."""
    shifts = None
    try:
        model = pm.load(folder / "network")
        if method in _SOLVES:
            shifts = np.load(folder / "shifts.npy", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{folder} holds an incomplete model: {error}") from error
    return Sampler(method, model, shifts, scale)
