"""Networks as members: joined, picked, saved, and the directions that they agree on."""

import chex
import jax
import numpy as np
import pns_models as pm
import pytest
from pns_models._learner import RunContext

BACKBONE = pm.Backbone(4, 1, bottleneck=2)
TRAINING = pm.make_member_training(2e-2, max_steps=10, batch_size=64)


@pytest.fixture(scope="module")
def folded(small):
    rows = pm.rows_from_tables(*small.tables())
    return rows.deal(np.random.default_rng(0), 2).folded()[0]


def fit(folded, backbone=BACKBONE):
    learner = pm.NetworkLearner(pm.Recipe(pm.AnchoredConfig(backbone), TRAINING))
    resamples = pm.Resamples(np.random.default_rng(0), folded, np.array([0, 1, 0, 1]))
    return learner.fit(jax.random.key(0), resamples, RunContext())


@pytest.fixture(scope="module")
def members(folded):
    return fit(folded)


def test_raw_numbers_are_those_of_each_network_on_standardized_rows(folded, members):
    z = np.asarray(folded.counts.z)
    raw = members.raw(z)
    chex.assert_shape(raw, (4, len(z), 6))
    expected = members.model.network.encode(members.model.standardizer(z))
    np.testing.assert_allclose(raw, expected, atol=1e-5)


def test_joined_and_picked_members_keep_their_folds(folded, members):
    z = np.asarray(folded.counts.z)
    both = members.join(members.take(np.array([1, 1])))
    assert both.fold.tolist() == [0, 1, 0, 1, 1, 1]
    raw = members.raw(z)
    np.testing.assert_allclose(both.raw(z), raw[[0, 1, 2, 3, 1, 1]], atol=1e-6)
    assert not np.allclose(raw[0], raw[2])


def test_saved_members_say_what_they_are(folded, members, tmp_path):
    pm.MEMBERS.save(members, tmp_path / "members")
    again = pm.MEMBERS.load(tmp_path / "members")
    assert isinstance(again, pm.NetworkMembers)
    assert again.model.recipe.network == pm.EnsembleConfig(BACKBONE, 4)
    assert again.fold.tolist() == [0, 1, 0, 1]
    z = np.asarray(folded.counts.z)
    np.testing.assert_array_equal(again.raw(z), members.raw(z))


def test_subspaces_hold_uncorrelated_combinations_that_members_use(folded, members):
    """For each fold and for all members; none without a bottleneck."""
    counts = folded.counts
    z, units = counts.z, sum(part.sum(axis=(1, 2)) for part in counts[1:])
    covariance = np.cov(z, rowvar=False, aweights=units)
    subspaces = members.subspaces(folded)
    assert subspaces.shape == (3, z.shape[1], 2)
    for subspace in subspaces:
        product = subspace.T @ covariance @ subspace
        np.testing.assert_allclose(product, np.eye(2), atol=1e-5)
    assert fit(folded, pm.Backbone(4, 1)).subspaces(folded) is None


def test_coordinates_are_orthogonal_combinations_of_standardized_covariates(
    folded, members
):
    z = members.model.standardizer(folded.counts.z)
    coordinates = members.coordinates(np.asarray(folded.counts.z))
    directions = np.linalg.lstsq(z, coordinates, rcond=None)[0]
    np.testing.assert_allclose(z @ directions, coordinates, atol=1e-4)
    products = directions.T @ directions
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-4)
