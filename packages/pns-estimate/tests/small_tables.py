"""Small tables, and recipes that train in seconds."""

import numpy as np
import pandas as pd
import pns_models as pm


def draw_table(n, randomised, seed):
    """Age, region and a flag; taste is hidden and drives both choice and outcome."""
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "west"], n)
    member = rng.random(n) < 0.5
    age = rng.integers(20, 70, n)
    taste = rng.integers(0, 2, n)
    choice = rng.random(n) < 0.2 + 0.5 * taste
    x = np.where(randomised, rng.random(n) < 0.5, choice)
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
    network = pm.NetworkConfig(
        kind,
        pm.Backbone(width=16, depth=1, activation="silu"),
        index_dim=5,
        hidden=(8,),
        prior_hidden=(8,),
        prior_scale=0.3,
        num_members=3,
    )
    training = pm.TrainConfig(max_steps=60, eval_every=20, data_noise="exponential")
    return pm.Recipe(network, training)
