"""The curved model against loops over its formulas and simulated units."""

import itertools
import math

import jax
import numpy as np
import pns_bounds as pb
import pns_dgp
import pytest
from pns_dgp import _curved


def sigmoid(t: float) -> float:
    return 1 / (1 + math.exp(-t))


def slow_cells(model: _curved.CurvedModel, z):
    """Loops over curves and hidden values: the law of (X, Y_0, Y_1)."""
    cells = np.zeros((2, 2, 2))
    index = []
    for k in range(3):
        index.append(model.intercept[k])
        for v, c, w in zip(model.direction, model.offset, model.weight[k], strict=True):
            index[k] += w * math.tanh(sum(v * z) + c)
    for h in itertools.product((0, 1), repeat=len(model.hidden_probs)):
        weight, shift = 1.0, [0.0, 0.0, 0.0]
        for j, (value, pi) in enumerate(zip(h, model.hidden_probs, strict=True)):
            weight *= pi if value else 1 - pi
            effects = (model.hidden_choice[j], *model.hidden_outcome[:, j])
            shift = [s + e * (value - pi) for s, e in zip(shift, effects, strict=True)]
        chance = sigmoid(index[0] + shift[0])
        p_x = model.epsilon + (1 - 2 * model.epsilon) * chance
        p_y = [sigmoid(index[k] + shift[k]) for k in (1, 2)]
        points = sorted([0.0, *p_y, 1.0])
        for low, high in itertools.pairwise(points):
            eta = (low + high) / 2
            y0, y1 = int(eta <= p_y[0]), int(eta <= p_y[1])
            cells[1, y0, y1] += weight * p_x * (high - low)
            cells[0, y0, y1] += weight * (1 - p_x) * (high - low)
    return cells


@pytest.mark.parametrize("num_hidden", [0, 3])
def test_the_oracle_is_the_sum_over_hidden_values(num_hidden):
    model = pns_dgp.random_curved_model(3, num_hidden=num_hidden)
    z = np.random.default_rng(1).normal(size=(10, 8))
    truth = model.oracle(z)
    cells = np.stack([slow_cells(model, row) for row in z])
    expected = pns_dgp.truth_from_cells(cells)
    for have, want in zip(
        jax.tree.leaves(truth), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(have, want, atol=1e-13)


def test_simulated_units_follow_the_oracle():
    """Over all units; with all covariates coins there are four kinds, each compared."""
    model = pns_dgp.random_curved_model(5, num_covariates=2, num_binary=2)
    units = model.sample_population(jax.random.key(0), 200_000)
    tables = [
        model.sample(jax.random.key(1), 200_000, source) for source in pns_dgp.SOURCES
    ]
    kinds = np.unique(units.z, axis=0)
    assert kinds.tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    truth = model.oracle(kinds)
    for row, z in enumerate(kinds):
        here = [np.all(part.z == z, axis=1) for part in (units, *tables)]
        y0, y1 = units.y0[here[0]], units.y1[here[0]]
        log, trial = (
            table.x[rows] + 1j * table.y[rows]  # x and y in one number
            for table, rows in zip(tables, here[1:], strict=True)
        )
        for hits, p in (
            ((y1 == 1) & (y0 == 0), truth.pns[row]),
            ((y1 == 0) & (y0 == 1), truth.harm[row]),
            (log == 1 + 1j, truth.atoms.joint[row, 1, 1]),
            (log == 1j, truth.atoms.joint[row, 0, 1]),
            (trial.real == 1, 0.5),
            (trial[trial.real == 1].imag, truth.atoms.mu[row, 1]),
            (trial[trial.real == 0].imag, truth.atoms.mu[row, 0]),
        ):
            error = math.sqrt(p * (1 - p) / len(hits))
            assert abs(hits.mean() - p) <= 4.5 * error  # 28 comparisons, seeds fixed


def test_rows_do_not_depend_on_their_number():
    model = pns_dgp.random_curved_model(1)
    few = model.sample(jax.random.key(0), 10, "observational")
    many = model.sample(jax.random.key(0), 9000, "observational")
    np.testing.assert_array_equal(few.z, many.z[:10])
    np.testing.assert_array_equal(few.y, many.y[:10])


def test_covariates_are_normal_numbers_and_coins():
    z = pns_dgp.random_curved_model(1).sample_population(jax.random.key(0), 40_000).z
    assert set(np.unique(z[:, 5:])) == {-1, 1}
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=4.5 / 200)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=4.5 / 200)
    assert np.ptp(z[:, :5], axis=0).min() > 6


def test_no_two_or_three_combinations_decide_everything():
    """The gradients of the effect need more than three directions."""
    model = pns_dgp.random_curved_model(1)
    z = np.random.default_rng(0).normal(size=(2000, 8))

    def effect(z):
        mu = model.oracle(z).atoms.mu
        return mu[:, 1] - mu[:, 0]

    step = 1e-4 * np.eye(8)
    slopes = np.stack([effect(z + e) - effect(z - e) for e in step], axis=1) / 2e-4
    values = np.linalg.eigvalsh(slopes.T @ slopes)[::-1]  # the greatest first
    assert values[3] > 0.05 * values.sum()


def test_confounding_needs_hidden_variables():
    z = np.random.default_rng(0).normal(size=(500, 8))
    gaps = []
    for strength in (0.0, 1.5):
        model = pns_dgp.random_curved_model(2, hidden_strength=strength)
        atoms = model.oracle(z).atoms
        naive = pb.identify_under_exogeneity(atoms.joint)
        gaps.append(np.abs(naive - atoms.mu).mean())
    assert gaps[0] < 1e-12 and gaps[1] > 0.02


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_binary": 9}, "between 0 and 8"),
        ({"epsilon": 0.5}, r"epsilon must lie in \[0, 0.5\)"),
        ({"offset": np.zeros(3)}, "offset must be finite numbers of shape"),
        ({"hidden_probs": np.array([0.5, 1.0, 0.5])}, "inside"),
    ],
)
def test_parameters_that_make_no_sense_are_told(change, message):
    parameters = pns_dgp.random_curved_model(1).parameters()
    with pytest.raises(pb.InputError, match=message):
        _curved.CurvedModel(**{**parameters, **change})


def test_a_pair_of_covariates_is_the_least():
    with pytest.raises(pb.InputError, match="2 or more"):
        pns_dgp.random_curved_model(0, num_covariates=1, num_binary=0)


def test_it_survives_json(tmp_path):
    model = pns_dgp.random_curved_model(4)
    pns_dgp.save_model(model, tmp_path / "model.json")
    loaded = pns_dgp.load_model(tmp_path / "model.json")
    assert loaded.parameters() == model.parameters()
    z = np.random.default_rng(0).normal(size=(20, 8))
    np.testing.assert_array_equal(loaded.oracle(z).pns, model.oracle(z).pns)
