"""Small tables, recipes that train in seconds, and a method that does not train."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pns_estimate as pe
import pns_models as pm
from pns_estimate.methods.crossfit import CrossFitRecipe


def draw_table(n, randomized, seed):
    """Age, region and a flag; taste is hidden and drives both choice and outcome."""
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "west"], n)
    member = rng.random(n) < 0.5
    age = rng.integers(20, 70, n)
    taste = rng.integers(0, 2, n)
    choice = rng.random(n) < 0.2 + 0.5 * taste
    x = np.where(randomized, rng.random(n) < 0.5, choice)
    lift = 0.4 * member + 0.1 * (region == "south")
    y = rng.random(n) < 0.1 + 0.3 * taste + lift * x
    return pd.DataFrame(
        {
            "age": age,
            "region": region,
            "member": member,
            "x": x.astype(int),
            "y": y.astype(int),
        }
    )


def small_recipe(kind="epinet"):
    """Settings of this kind that train in seconds."""
    backbone = pm.Backbone(width=16, depth=1, activation="silu")
    network = {
        "epinet": pm.EpinetConfig(
            backbone, index_dim=5, hidden=(8,), prior_hidden=(8,), prior_scale=0.3
        ),
        "ensemble": pm.EnsembleConfig(backbone, num_members=3),
        "anchored": pm.AnchoredConfig(backbone),
    }.get(kind)
    if kind == "crossfit":
        learners = (pm.LEARNERS["ridge"],)
        return CrossFitRecipe(learners, num_folds=3, members_per_fold=2)
    training = pm.TrainConfig(max_steps=60, eval_every=20, data_noise="exponential")
    return pm.Recipe(network, training)


def small_networks(name="small networks", max_steps=60):
    """A learner of networks that train in seconds."""
    backbone = pm.Backbone(width=16, depth=1, activation="silu", bottleneck=2)
    training = pm.make_member_training(max_steps=max_steps)
    return pm.NetworkLearner(pm.Recipe(pm.AnchoredConfig(backbone), training), name)


@pe.SAMPLERS.register
@dataclasses.dataclass
class LinearSampler:
    """Raw numbers linear in the covariates, with drawn coefficients; counts its draws."""

    coefficients: np.ndarray
    standardizer: pm.Standardizer
    num_drawn: int = 0
    kind = "linear"
    has_draws = True
    is_posterior = False

    def atoms(self, z):
        raw = self.standardizer(z) @ self.coefficients
        return jax.tree.map(np.asarray, pm.atoms_from_raw(raw, "anchored"))

    def draws(self, key, z, num_draws):
        self.num_drawn += len(z)
        noise = jax.random.normal(key, (num_draws, *self.coefficients.shape))
        raw = self.standardizer(z) @ (self.coefficients + 0.1 * np.asarray(noise))
        return jax.tree.map(np.asarray, pm.atoms_from_raw(raw, "anchored"))

    def save(self, folder):
        parts = self.standardizer._asdict()
        np.savez(folder / "linear.npz", coefficients=self.coefficients, **parts)

    @classmethod
    def load(cls, folder):
        with np.load(folder / "linear.npz") as stored:
            parts = {name: stored[name] for name in stored.files}
        return cls(parts.pop("coefficients"), pm.Standardizer(**parts))


class LinearMethod:
    """Draws its coefficients instead of learning them: fits in no time."""

    name = "linear"
    sentence = "coefficients that were drawn"
    recipe = None

    def deal(self, key, part, groups, recipe):
        return np.ones(len(part), int)

    def fit(self, key, rows, recipe, progress=False, checkpoint_dir=None):
        counts = rows.counts()
        standardizer = pm.make_standardizer(counts)
        shape = (counts.z.shape[1], 6)
        coefficients = 0.3 * np.asarray(jax.random.normal(key, shape))
        return pe.MethodFit(
            LinearSampler(coefficients, standardizer), counts, standardizer
        )


class FoldedMethod(LinearMethod):
    """Says of each row what it says anyway, as if it had been held out in turn."""

    name = "folded"

    def deal(self, key, part, groups, recipe):
        return (np.arange(len(part)) if groups is None else groups) % 3

    def fit(self, key, rows, recipe, progress=False, checkpoint_dir=None):
        fit = super().fit(key, rows, recipe)
        folded, place = rows.folded()
        return fit._replace(
            held_out=folded.counts,
            held_out_atoms=fit.sampler.atoms(np.asarray(folded.counts.z)),
            held_out_place=place,
            is_calibrated=True,
        )


pe.register_method(LinearMethod())
pe.register_method(FoldedMethod())


def fit(observational, experimental, method="linear", **options):
    """Fits with settings of the estimator and of `fit` mixed."""
    keys = ("missing", "unseen", "seed", "num_draws", "calibrate", "recipe")
    keys += ("checkpoint_dir",)
    own = {k: options.pop(k) for k in keys if k in options}
    defaults = {"num_draws": 300, "calibrate": method not in ("linear", "folded")}
    estimator = pe.PnsEstimator(method, **{**defaults, **own})
    settings = {"treatment": "x", "outcome": "y", **options}
    return estimator.fit(observational, experimental, **settings)


def deal_rows(method, tables, recipe, columns=("age", "member"), groups=None, key=0):
    """Makes the rows of both tables, with the folds of a method."""
    ones = np.ones(sum(map(len, tables)))
    source = np.repeat([0, 1], [len(table) for table in tables])
    z, x, y = (
        np.concatenate([table[name].to_numpy(np.float32) for table in tables])
        for name in (list(columns), "x", "y")
    )
    part = np.where(source == 0, 0, 1 + x).astype(int)
    fold = method.deal(jax.random.key(key), part, groups, recipe)
    rows = pm.Rows(
        z, source, x.astype(int), y.astype(int), ones, ones, source, fold, groups
    )
    return rows.merged()[0]
