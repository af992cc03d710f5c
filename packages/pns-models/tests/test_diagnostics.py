"""Calibration by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _diagnostics


def test_reliability_and_its_error_by_hand():
    predicted = np.array([0.05, 0.06, 0.5, 1.0])
    events = np.array([1.0, 0, 3, 2])
    people = np.array([10.0, 10, 6, 4])
    result = _diagnostics._reliability(predicted, events, people)
    assert result.people[0] == 20 and result.people[7] == 6 and result.people[14] == 4
    np.testing.assert_allclose(result.predicted[0], 0.055)
    np.testing.assert_allclose(result.observed[0], 0.05)
    gaps = 20 * 0.005 + 6 * 0.0 + 4 * 0.5
    np.testing.assert_allclose(result.ece, gaps / 30)
    assert np.isnan(result.predicted[3])


class Fixed:
    """Stands for a model with known probabilities."""

    def __init__(self, atoms):
        self._atoms = atoms

    def atoms(self, z):
        return self._atoms


def test_a_true_model_is_calibrated_and_a_wrong_one_is_not():
    rng = np.random.default_rng(0)
    n, each = 400, 500
    joint = rng.dirichlet(np.ones(4), n).reshape(n, 2, 2)
    mu = rng.random((n, 2))
    observational = np.array([rng.multinomial(each, p.ravel()) for p in joint])
    hits = rng.binomial(each, mu)
    counts = pm.Counts(
        np.zeros((n, 1)),
        observational.reshape(n, 2, 2),
        np.stack([each - hits, hits], axis=-1),
    )
    right = pm.calibration(Fixed(pb.Atoms(joint, mu)), counts)
    assert right.ece_joint < 0.005 and right.ece_mu < 0.005
    assert len(right.joint) == 4 and len(right.mu) == 2
    wrong = pm.calibration(
        Fixed(pb.Atoms(joint[:, ::-1], mu[:, ::-1])),
        counts,
    )
    assert wrong.ece_joint > 0.1 and wrong.ece_mu > 0.1


def test_spread_over_people_and_over_indices_are_told_apart():
    class VariesOverPeople:
        def draw_indices(self, key, num):
            return jnp.zeros((num, 1))

        def prior_raw(self, z, indices):
            return jnp.broadcast_to(
                jnp.arange(len(z))[None, :, None], (len(indices), len(z), 6)
            )

    spread = pm.prior_spread(VariesOverPeople(), jax.random.key(0), np.zeros((5, 2)))
    np.testing.assert_allclose(spread.over_z, np.sqrt(2))
    np.testing.assert_array_equal(spread.over_index, 0)
    with pytest.raises(TypeError, match="only hypermodels and epinets have a prior"):
        pm.prior_spread(object(), jax.random.key(0), np.zeros((5, 2)))


def test_calibration_needs_people():
    nobody = pm.Counts(
        np.zeros((0, 3), np.float32), np.zeros((0, 2, 2)), np.zeros((0, 2, 2))
    )
    config = pm.NetworkConfig("anchored", pm.Backbone(width=4, depth=0))
    scale = pm.Standardiser(
        np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(3, bool)
    )
    model = pm.FittedModel(config.make(jax.random.key(0), 3), pm.Recipe(config), scale)
    with pytest.raises(ValueError, match="hold some out with validation_fraction"):
        pm.calibration(model, nobody)
