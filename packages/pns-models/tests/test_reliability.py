"""Reliability by hand."""

import types

import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _reliability


def test_a_curve_and_its_error_by_hand():
    predicted = np.array([0.05, 0.06, 0.5, 1.0])
    events = np.array([1.0, 0, 3, 2])
    units = np.array([10.0, 10, 6, 4])
    curve = _reliability._curve(predicted, events, units)
    assert curve.units[0] == 20 and curve.units[7] == 6 and curve.units[14] == 4
    np.testing.assert_allclose(curve.predicted[0], 0.055)
    np.testing.assert_allclose(curve.observed[0], 0.05)
    gaps = 20 * 0.005 + 6 * 0.0 + 4 * 0.5
    np.testing.assert_allclose(curve.ece, gaps / 30)
    assert np.isnan(curve.predicted[3])


def draw_truth(num_cells=400, each=500):
    """Draws atoms and what happened to units that follow them."""
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(4), num_cells).reshape(-1, 2, 2)
    mu = rng.random((num_cells, 2))
    observational = np.array([rng.multinomial(each, p.ravel()) for p in joint])
    hits = rng.binomial(each, mu)
    return pb.Atoms(joint, mu), pm.Counts(
        np.zeros((num_cells, 1)),
        observational.reshape(-1, 2, 2),
        np.stack([each - hits, hits], axis=-1),
    )


def test_true_atoms_are_reliable_and_wrong_ones_are_not():
    atoms, counts = draw_truth()
    right = pm.measure_reliability(atoms, counts)
    assert right.ece_joint < 0.005 and right.ece_mu < 0.005
    assert len(right.joint) == 4 and len(right.mu) == 2
    swapped = pb.Atoms(atoms.joint[:, ::-1], atoms.mu[:, ::-1])
    wrong = pm.measure_reliability(swapped, counts)
    assert wrong.ece_joint > 0.1 and wrong.ece_mu > 0.1


def test_a_model_and_its_atoms_have_the_same_reliability():
    atoms, counts = draw_truth(50, 20)
    model = types.SimpleNamespace(atoms=lambda z: atoms)
    pair = pm.measure_reliability(model, counts), pm.measure_reliability(atoms, counts)
    for name in ("ece_joint", "ece_mu"):
        assert getattr(pair[0], name) == getattr(pair[1], name)
    with pytest.raises(ValueError, match="one for each row of counts"):
        pm.measure_reliability(pb.Atoms(atoms.joint[:3], atoms.mu[:3]), counts)


def test_reliability_needs_units_of_all_groups():
    atoms, counts = draw_truth(5, 20)
    one_arm = counts.experimental.copy()
    one_arm[:, 1] = 0
    for change in (
        {"observational": np.zeros((5, 2, 2))},
        {"experimental": one_arm},
    ):
        with pytest.raises(pm.TooFewRowsError, match="hold some out with") as raised:
            pm.measure_reliability(atoms, counts._replace(**change))
        assert raised.value.part == "held-out"
