"""Li models: the oracle against rational enumeration and against simulated units."""

import dataclasses
import itertools
from fractions import Fraction

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_dgp
import pytest
from pns_dgp import _li


def exact(value: float) -> Fraction:
    """Reads a printed number as the fraction it stands for."""
    return Fraction(str(round(value, 4)))


def f_y(total: Fraction | int) -> int:
    return int(0 < total < 1) + int(1 < total < 2)


def slow_truth(model: _li.LiModel, z) -> dict[tuple, Fraction]:
    """Enumerates hidden covariates and noise one by one, in rational numbers."""
    cells = {cell: Fraction(0) for cell in np.ndindex(2, 2, 2)}
    probs = [exact(p) for p in model.covariate_probs]
    alpha = [exact(a) for a in model.alpha]
    beta = [exact(b) for b in model.beta]
    noise_x, noise_y = exact(model.treatment_noise), exact(model.outcome_noise)
    for tail in itertools.product((0, 1), repeat=model.num_hidden + 2):
        hidden, e_x, e_y = tail[:-2], tail[-2], tail[-1]
        weight = noise_x if e_x else 1 - noise_x
        weight *= noise_y if e_y else 1 - noise_y
        for h, p in zip(hidden, probs[model.num_covariates :], strict=True):
            weight *= p if h else 1 - p
        full = [int(v) for v in z] + list(hidden)
        index_x = sum(a * v for a, v in zip(alpha, full, strict=True))
        index_y = sum(b * v for b, v in zip(beta, full, strict=True))
        x = int(index_x + e_x > Fraction(1, 2))
        y0 = f_y(index_y + e_y)
        y1 = f_y(exact(model.effect) + index_y + e_y)
        cells[x, y0, y1] += weight
    return cells


@pytest.mark.parametrize(
    "model",
    [
        pns_dgp.li_model_1(),
        pns_dgp.li_model_1(num_hidden=0),
        pns_dgp.random_li_model(7, num_covariates=9, num_hidden=7),
    ],
    ids=["model 1", "nothing hidden", "random"],
)
def test_the_oracle_is_the_rational_enumeration(model):
    z = np.random.default_rng(0).integers(0, 2, size=(12, model.num_covariates))
    truth = model.oracle(z)
    for row in range(len(z)):
        cells = slow_truth(model, z[row])
        joint, mu = np.zeros((2, 2)), np.zeros(2)
        for (x, y0, y1), weight in cells.items():
            joint[x, (y0, y1)[x]] += float(weight)
            mu += float(weight) * np.array([y0, y1])
        np.testing.assert_allclose(truth.atoms.joint[row], joint, atol=1e-14)
        np.testing.assert_allclose(truth.atoms.mu[row], mu, atol=1e-14)
        pns = cells[0, 0, 1] + cells[1, 0, 1]
        harm = cells[0, 1, 0] + cells[1, 1, 0]
        np.testing.assert_allclose(truth.pns[row], float(pns), atol=1e-14)
        np.testing.assert_allclose(truth.harm[row], float(harm), atol=1e-14)


def test_the_population_averages_of_model_1_by_exact_summation():
    model = pns_dgp.li_model_1()
    z, weights = model.support()
    assert z.shape == (2**15, 15)
    np.testing.assert_allclose(weights.sum(), 1, atol=1e-12)
    truth = model.oracle(z)
    averages = [
        weights @ truth.interval.width,
        weights @ truth.interval.lower,
        weights @ truth.interval.upper,
        weights @ truth.pns,
    ]
    assert [round(float(value), 3) for value in averages] == [
        0.188,
        0.207,
        0.395,
        0.258,
    ]


def test_the_population_averages_of_model_1_by_sampling():
    model = pns_dgp.li_model_1()
    units = model.sample_population(jax.random.key(1), 400_000)
    truth = model.oracle(units.z)
    values = [truth.interval.width, truth.interval.lower, truth.interval.upper]
    # Four standard errors: the values' deviations are below 0.25, so 4 * 0.25 / 632.
    for value, known in zip(
        [*values, truth.pns], [0.188, 0.207, 0.395, 0.258], strict=True
    ):
        assert abs(value.mean() - known) < 0.0016 + 0.0005
    helped = (units.y1 == 1) & (units.y0 == 0)
    assert abs(float(jnp.mean(helped)) - 0.25845) < 4 * np.sqrt(0.25 * 0.75 / 400_000)


def test_every_identity_of_probability_holds_exactly():
    for model in (pns_dgp.li_model_1(), pns_dgp.random_li_model(3)):
        truth = model.oracle(model.support()[0])
        assert np.all(pb.compatibility_slack(truth.atoms) >= 0)
        assert np.all(truth.atoms.joint.sum((1, 2)) == 1)
        assert np.all(truth.interval.lower <= truth.pns)
        assert np.all(truth.pns <= truth.interval.upper)
        effect = truth.atoms.mu[:, 1] - truth.atoms.mu[:, 0]
        assert np.all(truth.pns - truth.harm == effect)
        harm = pb.harm_bounds(truth.atoms)
        assert np.all((harm.lower <= truth.harm) & (truth.harm <= harm.upper))


@pytest.fixture
def coarse_model() -> _li.LiModel:
    """Seven hidden covariates and three observed: eight z with many units each."""
    return pns_dgp.random_li_model(4, num_covariates=10, num_hidden=7)


def assert_frequency(hits, trials, probability, where):
    """Allows 4.5 standard errors; some hundred comparisons are made with fixed seeds."""
    error = np.sqrt(np.maximum(probability * (1 - probability), 1e-4) / trials)
    assert abs(hits / trials - probability) < 4.5 * error, where


def test_the_oracle_agrees_with_simulated_units(coarse_model):
    units = coarse_model.sample_population(jax.random.key(2), 1_000_000)
    units = jax.tree.map(np.asarray, units)
    z_all, _ = coarse_model.support()
    truth = coarse_model.oracle(z_all)
    for row, z in enumerate(z_all):
        here = np.all(units.z == z, axis=1)
        n = here.sum()
        if n < 1000:
            continue
        x, y0, y1 = units.x[here], units.y0[here], units.y1[here]
        y = np.where(x == 1, y1, y0)
        for a, b in np.ndindex(2, 2):
            p = truth.atoms.joint[row, a, b]
            assert_frequency(np.sum((x == a) & (y == b)), n, p, ("joint", z, a, b))
        assert_frequency(y0.sum(), n, truth.atoms.mu[row, 0], ("mu0", z))
        assert_frequency(y1.sum(), n, truth.atoms.mu[row, 1], ("mu1", z))
        assert_frequency(np.sum((y1 == 1) & (y0 == 0)), n, truth.pns[row], ("pns", z))
        assert_frequency(np.sum((y1 == 0) & (y0 == 1)), n, truth.harm[row], ("harm", z))


def test_both_sources_share_the_outcome_law(coarse_model):
    observed, trial = (
        jax.tree.map(np.asarray, coarse_model.sample(jax.random.key(3), 1_000_000, r))
        for r in pns_dgp.SOURCES
    )
    z_all, _ = coarse_model.support()
    truth = coarse_model.oracle(z_all)
    assert_frequency(trial.x.sum(), 1_000_000, 0.5, "coin")
    for row, z in enumerate(z_all):
        here = np.all(trial.z == z, axis=1)
        for arm in (0, 1):
            y = trial.y[here & (trial.x == arm)]
            if len(y) > 1000:
                assert_frequency(y.sum(), len(y), truth.atoms.mu[row, arm], (z, arm))
        there = np.all(observed.z == z, axis=1)
        if there.sum() > 1000:
            for a, b in np.ndindex(2, 2):
                hits = np.sum(there & (observed.x == a) & (observed.y == b))
                p = truth.atoms.joint[row, a, b]
                assert_frequency(hits, there.sum(), p, (z, a, b))


def test_the_inequalities_of_the_outcome_are_strict():
    """A total of exactly 0, 1 or 2 is no response; close by there is one."""
    for beta, expected in ((0.0, (0, 0)), (1.0, (0, 0)), (0.0001, (1, 1))):
        model = _li.LiModel((0.5,), 0.5, 0.5, (0.0,), (beta,), 0.0, 0)
        # At z = 1 the total is beta + e_Y: beta = 1 meets both 1 and 2.
        truth = model.oracle([[1]])
        assert (truth.atoms.mu[0, 0], truth.atoms.mu[0, 1]) == expected
        units = model.sample_population(jax.random.key(0), 1000)
        assert np.all(units.y0[units.z[:, 0] == 1] == expected[0])


def test_a_treatment_index_of_exactly_one_half_is_no_treatment():
    model = _li.LiModel((0.5,), 0.25, 0.5, (0.5,), (0.0,), 0.0, 0)
    assert model.oracle([[1]]).atoms.joint[0, 1].sum() == 0.25  # only if e_X = 1
    units = model.sample_population(jax.random.key(0), 20_000)
    treated = np.asarray(units.x)[np.asarray(units.z)[:, 0] == 1].mean()
    assert abs(treated - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 9_000)


def test_a_probability_next_to_one_does_not_wrap_around():
    model = _li.LiModel((1 - 1e-11,), 0.5, 0.5, (0.0,), (0.0,), 0.0, 0)
    assert np.all(model.sample_population(jax.random.key(0), 100).z == 1)


def test_replicates_reproduce_alone_and_rows_do_not_depend_on_their_number():
    model = pns_dgp.li_model_1()
    keys = jax.vmap(lambda k: jax.random.fold_in(jax.random.key(5), k))(jnp.arange(4))
    together = jax.vmap(lambda key: model.sample(key, 500, "observational"))(keys)
    alone = model.sample(keys[3], 500, "observational")
    chex.assert_trees_all_equal(jax.tree.map(lambda whole: whole[3], together), alone)
    for source in pns_dgp.SOURCES:
        few, many = (model.sample(keys[0], n, source) for n in (100, 5001))
        chex.assert_trees_all_equal(jax.tree.map(lambda long: long[:100], many), few)


def test_tables_have_the_shapes_and_types_that_are_promised():
    model, key = pns_dgp.li_model_1(), jax.random.key(0)
    table, units = model.sample(key, 7, "experimental"), model.sample_population(key, 7)
    chex.assert_shape([table.z, units.z], (7, 15))
    chex.assert_shape([*table[1:], *units[1:]], (7,))
    chex.assert_type([table.z, units.z], jnp.float32)
    chex.assert_type([*table[1:], *units[1:]], jnp.int32)


class SamplerTest(chex.TestCase):
    """Sampling is one function, compiled by the caller or not."""

    @chex.variants(with_jit=True, without_jit=True, with_device=True)
    def test_rows_do_not_depend_on_who_compiles(self):
        model, key = pns_dgp.li_model_1(), jax.random.key(9)
        draw = self.variant(lambda key: model.sample(key, 300, "experimental"))
        chex.assert_trees_all_equal(draw(key), model.sample(key, 300, "experimental"))


def test_members_of_one_size_share_a_compiled_sampler(monkeypatch):
    counted = chex.assert_max_traces(_li._sample.__wrapped__, n=1)
    jitted = jax.jit(counted, static_argnums=(2, 3, 4))
    monkeypatch.setattr(_li, "_sample", jitted)
    tables = [
        pns_dgp.random_li_model(seed).sample(jax.random.key(0), 50, "observational")
        for seed in range(3)
    ]
    assert not np.array_equal(tables[0].z, tables[1].z)  # models do differ


def test_one_key_gives_independent_tables():
    model = pns_dgp.li_model_1()
    observed, trial = (
        model.sample(jax.random.key(6), 20_000, r) for r in pns_dgp.SOURCES
    )
    agreement = np.mean(np.all(np.asarray(observed.z) == np.asarray(trial.z), axis=1))
    assert agreement < 0.01  # two independent units agree with probability 0.001


def test_random_members_are_named_by_their_seed():
    first, again = (pns_dgp.random_li_model(11) for _ in range(2))
    assert first == again
    assert first != pns_dgp.random_li_model(12)
    assert (first.alpha[0], first.effect) == (0.6513, -0.6461)  # the same anywhere
    assert pns_dgp.random_li_model(1, 40, 12).num_covariates == 28


@pytest.mark.slow
def test_the_panel_passes_the_filter_and_a_constant_treatment_does_not():
    models = [pns_dgp.random_li_model(seed) for seed in pns_dgp.LI_PANEL_SEEDS]
    assert len(set(models)) == 20
    assert not any(pns_dgp.is_near_degenerate(model) for model in models)
    always_treated = dataclasses.replace(models[0], alpha=(0.9,) * 20)
    assert pns_dgp.is_near_degenerate(always_treated)
    # With beta = 0, Y_0 = 0 always (totals 0 and 1 are ties), Y_1 = 1 (0.5 and 1.5).
    constant = dataclasses.replace(models[0], beta=(0.0,) * 20, effect=0.5)
    assert pns_dgp.is_near_degenerate(constant)
    # A share of 0.12 passes at the default margin of 0.1, and fails at 0.15.
    rare = _li.LiModel((0.12,), 0.5, 0.5, (-0.6,), (0.0005,), 0.0, 0)
    rare = dataclasses.replace(rare, alpha=(0.0,))
    assert not pns_dgp.is_near_degenerate(rare)
    assert pns_dgp.is_near_degenerate(rare, margin=0.15)
    skipped = set(range(100, 110)) - set(pns_dgp.LI_PANEL_SEEDS)
    assert all(pns_dgp.is_near_degenerate(pns_dgp.random_li_model(s)) for s in skipped)


def test_wrong_arguments_raise():
    model = pns_dgp.li_model_1()
    key = jax.random.key(0)
    with pytest.raises(pb.InputError, match="source must be in .* got 'survey'"):
        model.sample(key, 10, "survey")
    for n in (0, -3, 2.5, True):
        with pytest.raises(
            pb.InputError, match="n must be a whole number of at least 1"
        ):
            model.sample(key, n, "observational")
    with pytest.raises(
        pb.InputError, match=r"z must have shape \[n, 15\].*got \[2, 20\]"
    ):
        model.oracle(np.zeros((2, 20)))
    z = np.zeros((3, 15))
    z[1, 4] = 0.5
    with pytest.raises(
        pb.InputError, match="1 entries do not, .* row 1, column 4: 0.5"
    ):
        model.oracle(z)
    with pytest.raises(pb.InputError, match="multiples of 0.0001, got 5e-05"):
        dataclasses.replace(model, effect=0.00005)
    for value in (np.nan, np.inf, 1e6):
        with pytest.raises(pb.InputError, match="must lie in"):
            dataclasses.replace(model, effect=value)
    with pytest.raises(pb.InputError, match="num_hidden must be at most 20, got 30"):
        pns_dgp.random_li_model(0, 35, 30).oracle(np.zeros((1, 5)))
    with pytest.raises(pb.InputError, match="num_hidden must leave"):
        pns_dgp.li_model_1(num_hidden=20)
    with pytest.raises(
        pb.InputError,
        match="alpha must have 20 entries, got 2",
    ):
        dataclasses.replace(model, alpha=(0.1, 0.2))
    with pytest.raises(pb.InputError, match="inside"):
        dataclasses.replace(model, treatment_noise=1.0)


def test_no_rows_have_an_empty_truth():
    assert pns_dgp.li_model_1().oracle(np.zeros((0, 15))).pns.shape == (0,)
