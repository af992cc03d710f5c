"""The model of cost: what grows with what."""

import dataclasses

import numpy as np
import pns_models as pm
from pns_experiments.cost import Problem, predict_seconds

LI = Problem(150_000, 15, people=3000, distinct=6000, kinds=50_000)


def test_training_depends_on_networks_and_columns_not_on_rows():
    parts = predict_seconds(LI)
    many = predict_seconds(dataclasses.replace(LI, rows=10**9))
    assert many["training"] == parts["training"]
    assert many["tables"] > 1000 * parts["tables"]
    wide = predict_seconds(dataclasses.replace(LI, covariates=200))
    assert 2 < wide["training"] / parts["training"] < 4  # measured: 2.3
    twice = predict_seconds(dataclasses.replace(LI, cores=4))
    assert twice["training"] == parts["training"] / 2


def test_more_members_train_longer_by_the_mean_of_the_recipes():
    one = ((pm.PORTFOLIO[0][0],),)
    few = predict_seconds(dataclasses.replace(LI, members_per_fold=2), one)
    more = predict_seconds(dataclasses.replace(LI, members_per_fold=6), one)
    assert more["training"] == 3 * few["training"]
    tried = predict_seconds(LI)["training"] / more["training"]
    assert 1 < tried < 4  # six recipes, of which five are dropped


def test_a_recipe_far_down_its_sequence_costs_those_before_and_the_one_behind():
    kind = pm.PORTFOLIO[-1]
    alone = [predict_seconds(LI, ((recipe,),))["training"] / 6 for recipe in kind]
    unknown = predict_seconds(LI, (kind,))["training"]
    np.testing.assert_allclose(unknown, 6 * alone[0])
    for place, chosen in enumerate(kind):
        found = predict_seconds(LI, (kind,), chosen)["training"]
        tried = sum(alone[: place + 2])
        np.testing.assert_allclose(found, tried + 5 * alone[place])
