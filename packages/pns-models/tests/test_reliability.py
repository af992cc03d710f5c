"""Reliability by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _reliability


def make_config(kind="anchored", backbone=None, **sizes):
    """Makes a config of any kind; sizes that it does not have are left out."""
    config_class = pm.NETWORKS[kind]
    names = [field.name for field in dataclasses.fields(config_class)]
    known = {name: size for name, size in sizes.items() if name in names}
    return config_class(backbone or pm.Backbone(), **known)


def test_reliability_and_its_error_by_hand():
    predicted = np.array([0.05, 0.06, 0.5, 1.0])
    events = np.array([1.0, 0, 3, 2])
    people = np.array([10.0, 10, 6, 4])
    result = _reliability._curve(predicted, events, people)
    assert result.units[0] == 20 and result.units[7] == 6 and result.units[14] == 4
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


def test_a_true_model_is_reliable_and_a_wrong_one_is_not():
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
    right = pm.measure_reliability(Fixed(pb.Atoms(joint, mu)), counts)
    plain = pm.measure_reliability(pb.Atoms(joint, mu), counts)
    np.testing.assert_array_equal(plain.mu[1].observed, right.mu[1].observed)
    with pytest.raises(ValueError, match="one for each row of counts"):
        pm.measure_reliability(pb.Atoms(joint[:3], mu[:3]), counts)
    assert right.ece_joint < 0.005 and right.ece_mu < 0.005
    assert len(right.joint) == 4 and len(right.mu) == 2
    wrong = pm.measure_reliability(
        Fixed(pb.Atoms(joint[:, ::-1], mu[:, ::-1])),
        counts,
    )
    assert wrong.ece_joint > 0.1 and wrong.ece_mu > 0.1


def test_deviations_over_rows_and_over_indices_are_told_apart():
    class VariesOverPeople:
        def draw_indices(self, key, num):
            return jnp.zeros((num, 1))

        def prior_raw(self, z, indices):
            return jnp.broadcast_to(
                jnp.arange(len(z))[None, :, None], (len(indices), len(z), 6)
            )

    deviation = pm.prior_sd(VariesOverPeople(), jax.random.key(0), np.zeros((5, 2)))
    np.testing.assert_allclose(deviation.over_z, np.sqrt(2))
    np.testing.assert_array_equal(deviation.over_index, 0)
    with pytest.raises(TypeError, match="only hypermodels and epinets have a prior"):
        pm.prior_sd(object(), jax.random.key(0), np.zeros((5, 2)))


def test_reliability_needs_units():
    nobody = pm.Counts(
        np.zeros((0, 3), np.float32), np.zeros((0, 2, 2)), np.zeros((0, 2, 2))
    )
    config = make_config("anchored", pm.Backbone(width=4, depth=0))
    scale = pm.Standardizer(
        np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(3, bool)
    )
    model = pm.FittedModel(config.make(jax.random.key(0), 3), pm.Recipe(config), scale)
    with pytest.raises(pm.TooFewRowsError, match="hold some out with held_out_frac"):
        pm.measure_reliability(model, nobody)
