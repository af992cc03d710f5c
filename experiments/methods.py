"""The methods of tab:results, the paper's and ours, behind one call.

Rows with `paper_` hold the paper's tables to the letter and are never retuned;
`stopped_epinet_low_dim` is one of them with early stopping. The plug-ins take our default
recipe. The others are the methods of pns-estimate, as people use them: default recipes,
adaptive selection, spread calibrated on held-out people.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_dgp
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm

Size = Literal["full", "smoke"]


class Answer(NamedTuple):
    """Intervals and estimated atoms at the test points."""

    interval: pb.Interval
    atoms: pb.Atoms


class Method(NamedTuple):
    """A row of tab:results.

    Attributes:
      recipe: network and training.
      run: maps key, tables, z, alpha and size to an Answer.
    """

    recipe: pm.Recipe
    run: Callable[..., Answer]


class Tables(NamedTuple):
    """One replicate's data."""

    observational: pns_dgp.Sample
    experimental: pns_dgp.Sample


def shrunk(recipe: pm.Recipe, size: Size) -> pm.Recipe:
    """For smoke runs: a network and a training that end in seconds."""
    if size == "full":
        return recipe
    network = dataclasses.replace(
        recipe.network,
        backbone=dataclasses.replace(recipe.network.backbone, width=16, depth=1),
        index_dim=5,
        hidden=(8,),
        prior_hidden=(8,),
        num_members=3,
    )
    training = dataclasses.replace(
        recipe.training, epochs=None, max_steps=40, eval_every=20
    )
    return pm.Recipe(network, training)


def _plug_in(recipe: pm.Recipe) -> Method:
    def run(key, tables: Tables, z, alpha, size: Size) -> Answer:
        del alpha
        counts = pm.counts_from_tables(*tables)
        model = pm.fit(key, counts, shrunk(recipe, size), progress=False).model
        atoms = model.atoms(z)
        return Answer(pb.pns_bounds(atoms, incompatible="allow"), atoms)

    return Method(recipe, run)


def _learner(kind: Any) -> pm.Recipe:
    default = pm.PRESETS["default"]
    return dataclasses.replace(
        default, network=dataclasses.replace(default.network, kind=kind)
    )


def _ours(method: Any) -> Method:
    """The front door, as people use it."""
    recipe = pe.PnsEstimator.default_recipe(method)

    def run(key, tables: Tables, z, alpha, size: Size) -> Answer:
        estimator = pe.PnsEstimator(
            method,
            seed=int(jax.random.randint(key, (), 0, 2**31 - 1)),
            recipe=shrunk(recipe, size),
            num_draws=2000 if size == "full" else 300,
            progress=False,
        )
        frames = [
            _frame(s.z).assign(x=np.asarray(s.x), y=np.asarray(s.y)) for s in tables
        ]
        estimator.fit(*frames, treatment="x", outcome="y")
        people = _frame(z)
        made = estimator.intervals(people, alpha)
        atoms = estimator.atoms(people)
        joint = atoms[["p00", "p01", "p10", "p11"]].to_numpy().reshape(-1, 2, 2)
        return Answer(
            pb.Interval(made["lower"].to_numpy(), made["upper"].to_numpy()),
            pb.Atoms(joint, atoms[["mu0", "mu1"]].to_numpy()),
        )

    return Method(recipe, run)


def _paper_epinet(recipe: pm.Recipe, num_draws: int) -> Method:
    """alg:pns_bounds: draws of the hypermodel, no selection, nothing calibrated."""

    def run(key, tables: Tables, z, alpha, size: Size) -> Answer:
        fit_key, draw_key = jax.random.split(key)
        counts = pm.counts_from_tables(*tables, merge=False)
        made = shrunk(recipe, size)
        model = pm.fit(fit_key, counts, made, progress=False).model
        count = num_draws if size == "full" else 200

        def blocks():
            for start in range(0, len(z), 256):
                yield model.draws(draw_key, z[start : start + 256], count)

        ends = pi.intervals_from_draws(blocks(), alpha, selection="none")
        return Answer(pb.Interval(ends.lower, ends.upper), model.atoms(z))

    return Method(recipe, run)


def _stopped(recipe: pm.Recipe) -> pm.Recipe:
    """Ends training when the loss of its held-out people rises."""
    training = dataclasses.replace(recipe.training, eval_every=50, patience=5)
    return dataclasses.replace(recipe, training=training)


def _paper_bootstrap(scope: Literal["full", "last_layer"]) -> Method:
    """tab:mb-hparams: B = 1,000, damping 1e-4, 50 steps of conjugate gradients.

    A last layer is solved directly. Scores of all people are resampled, also of those
    whom training held out.
    """
    recipe = pm.PRESETS["paper_bootstrap"]

    def run(key, tables: Tables, z, alpha, size: Size) -> Answer:
        fit_key, solve_key = jax.random.split(key)
        counts = pm.counts_from_tables(*tables, merge=False)
        made = shrunk(recipe, size)
        model = pm.fit(fit_key, counts, made, progress=False).model
        bootstrap = pe.make_bootstrap(
            solve_key,
            model,
            pm.merge_counts(counts, only_if_halved=True),  # exact
            scope,
            num_draws=1000 if size == "full" else 60,
            damping=1e-4,
            max_iterations=50,
            tolerance=1e-6,  # all 50 steps, as in the paper; what is left is warned of
        )
        points = model.standardiser(z)
        raw = bootstrap.draws(points)
        atoms = jax.tree.map(np.asarray, pm.atoms_from_raw(raw, "anchored"))
        ends = pi.intervals_from_draws(atoms, alpha, selection="none")
        return Answer(pb.Interval(ends.lower, ends.upper), model.atoms(z))

    return Method(recipe, run)


METHODS: dict[str, Method] = {
    "s_learner": _plug_in(_learner("s_learner")),
    "t_learner": _plug_in(_learner("t_learner")),
    "anchored": _plug_in(pm.PRESETS["default"]),
    "bootstrap_full": _ours("bootstrap_full"),
    "bootstrap_last_layer": _ours("bootstrap_last_layer"),
    "epinet": _ours("epinet"),
    "ensemble": _ours("ensemble"),
    "paper_bootstrap_full": _paper_bootstrap("full"),
    "paper_bootstrap_last_layer": _paper_bootstrap("last_layer"),
    "paper_epinet_low_dim": _paper_epinet(pm.PRESETS["paper_low_dim"], 8000),
    "paper_epinet_high_dim": _paper_epinet(pm.PRESETS["paper_high_dim"], 5000),
    # What early stopping, which the paper does not have, makes of the same recipe.
    "stopped_epinet_low_dim": _paper_epinet(
        _stopped(pm.PRESETS["paper_low_dim"]), 8000
    ),
}


def make_model(name: str) -> pns_dgp.StructuralModel:
    """Makes 'li_1', 'li:<seed>' of the random family, or 'acic'."""
    if name == "li_1":
        return pns_dgp.li_model_1()
    if name == "acic":
        return pns_dgp.acic_model()
    kind, _, seed = name.partition(":")
    if kind != "li":
        raise ValueError(f"model must be 'li_1', 'li:<seed>' or 'acic', got {name!r}.")
    return pns_dgp.random_li_model(int(seed))


def score_method(
    method: str,
    model_name: str,
    num_observational: int,
    num_experimental: int,
    num_test: int,
    replicate: int,
    seed: int,
    alpha: float = 0.05,
    size: Size = "full",
) -> dict[str, float]:
    """Draws one replicate, runs a method on it, and scores it against the truth.

    Methods see the same tables and test points in the same replicate.
    """
    model = make_model(model_name)
    key = jax.random.fold_in(jax.random.key(seed), replicate)
    data_key, test_key, method_key = jax.random.split(key, 3)
    tables = Tables(
        model.sample(data_key, num_observational, "observational"),
        model.sample(data_key, num_experimental, "experimental"),
    )
    z = np.asarray(model.sample_population(test_key, num_test).z, np.float32)
    answer = METHODS[method].run(method_key, tables, z, alpha, size)
    truth = model.oracle(z)
    scores = pi.score_intervals(
        answer.interval, truth.pns, truth.interval, alpha, answer.atoms
    )
    return scores._asdict()


def _frame(z: Any) -> pd.DataFrame:
    return pd.DataFrame(np.asarray(z, np.float32)).add_prefix("z")
