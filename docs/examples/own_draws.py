# %% [markdown]
# # Your own draws, your own network
#
# You may have a model of your own that you trust: a regression, a forest, a Bayesian model. This page
# shows two ways to use it here.
#
# - If your model gives **draws**, such as a bootstrap, hand them to `pns_infer`. You need neither our
#   networks nor our tables.
# - If your model is a **network**, register it, and the estimator trains it, saves it and reports on
#   it.
#
# ## Two tables to try
#
# Customers have an age and may be members. A hidden taste drives both what they choose and what they
# buy.

# %%
import dataclasses
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
from flax import nnx

rng = np.random.default_rng(0)


def draw_table(n, randomized):
    member, age, taste = rng.random(n) < 0.5, rng.uniform(-1, 1, n), rng.random(n) < 0.5
    x = rng.random(n) < np.where(randomized, 0.5, 0.2 + 0.6 * taste)
    y = rng.random(n) < 0.15 + 0.1 * age + 0.2 * taste + 0.4 * x * member
    return pd.DataFrame({"member": member, "age": age, "x": x, "y": y}).astype(float)


log, trial = draw_table(4000, False), draw_table(3000, True)
people = pd.DataFrame({"member": [1.0, 0.0], "age": [0.5, 0.5]}, index=["Ann", "Bo"])

# %% [markdown]
# ## Your own draws
#
# Our model here is a set of five logistic regressions: one for the choice in the log, one for the
# outcome of each choice, and one for each arm of the trial. A draw is a fit with random weights on the
# rows, which is a bootstrap.


# %%
def fit_logistic(design, y, weights, steps=6):
    """Newton's method for a weighted logistic regression."""
    beta = np.zeros(design.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-design @ beta))
        slope = design.T @ (weights * (y - p))
        curvature = (design * (weights * p * (1 - p))[:, None]).T @ design
        beta += np.linalg.solve(curvature + 1e-6 * np.eye(len(beta)), slope)
    return beta


def add_constant(table):
    values = table[["member", "age"]].to_numpy()
    return np.column_stack([np.ones(len(table)), values])


def predict(table, y, weights):
    """Fits one regression and returns the probabilities of our people."""
    beta = fit_logistic(add_constant(table), y, weights)
    return 1 / (1 + np.exp(-add_constant(people) @ beta))


def fit_atoms(log_weights, trial_weights):
    """Estimates joint [person, x, y] and mu [person, x]."""
    joint, mu = np.empty((len(people), 2, 2)), np.empty((len(people), 2))
    treated = predict(log, log["x"].to_numpy(), log_weights)
    for x, chosen in ((0, 1 - treated), (1, treated)):
        part, arm = (log["x"] == x).to_numpy(), (trial["x"] == x).to_numpy()
        p = predict(log[part], log["y"][part].to_numpy(), log_weights[part])
        joint[:, x, 1], joint[:, x, 0] = chosen * p, chosen * (1 - p)
        mu[:, x] = predict(trial[arm], trial["y"][arm].to_numpy(), trial_weights[arm])
    return pb.project_to_compatible(pb.Atoms(joint, mu))


draws = [
    fit_atoms(rng.exponential(size=len(log)), rng.exponential(size=len(trial)))
    for _ in range(200)
]
draws = pb.Atoms(*map(np.stack, zip(*draws)))
print("draws of", draws.joint.shape, "and", draws.mu.shape)

# %% [markdown]
# The two regressions of a person may contradict each other; `project_to_compatible` moves `mu` to the
# nearest value that the log admits. The first axis counts the draws, the second the people. That is
# all `pns_infer` needs to know:

# %%
found = pi.intervals_from_draws(draws, sample_size=len(log) + len(trial))
for name, lower, upper in zip(people.index, found.lower, found.upper):
    print(f"{name}: {lower:.2f} to {upper:.2f}")

# %% [markdown]
# The same draws answer other questions, such as harm, or how the interval would look if you only
# wanted to cover the true value:

# %%
harm = pi.intervals_from_draws(draws, estimand=pb.HARM, sample_size=7000)
narrow = pi.intervals_from_draws(draws, target="parameter", sample_size=7000)
print(f"harm of Ann: {harm.lower[0]:.2f} to {harm.upper[0]:.2f}")
print(
    f"benefit of Ann, true value only: {narrow.lower[0]:.2f} to {narrow.upper[0]:.2f}"
)

# %% [markdown]
# Draws of a *posterior* are another thing: they vary about what is known of the truth, and
# `pi.credible_intervals` is made for them. Do not hand bootstrap draws to it.
#
# ## Your own network
#
# A network turns covariates into six numbers. Everything else, such as turning them into
# probabilities that agree with each other, is done for you. This one is linear with one product of
# covariates.


# %%
@pm.register_network
@dataclasses.dataclass(frozen=True)
class ProductConfig:
    kind: ClassVar[str] = "product"

    def make(self, key, num_covariates):
        return ProductNet(num_covariates, nnx.Rngs(params=key))


class ProductNet(pm.Network):
    def __init__(self, num_covariates, rngs):
        self.layer = nnx.Linear(num_covariates + 1, 6, rngs=rngs)

    def encode(self, z):
        product = z[..., :1] * z[..., 1:2]
        return self.layer(jnp.concatenate([z, product], axis=-1))


recipe = pm.Recipe(ProductConfig(), pm.TrainConfig(learning_rate=0.05, max_steps=200))
estimator = pe.PnsEstimator("plug_in", recipe=recipe, progress=False)
estimator.fit(log, trial, treatment="x", outcome="y")
atoms = estimator.atoms(people)
print(atoms[["mu0", "mu1"]].round(2))

# %% [markdown]
# The method `plug_in` trains one network and corrects nothing, so its intervals promise no coverage.
# For intervals that cover you need draws: fit your network many times with random weights, as above,
# or let it depend on a random index, as the networks of `pns_models.EpinetConfig` do.
# [How to add a method](../extend.md) shows the rest.
