"""The local residual's likelihood by an urn; its settings from data of their own model."""

import math

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from pns_infer.calibration import residual_profile as _residual_profile
from residual_examples import MODEL, repeat


def urn_probability(shape, counts):
    """Log-probability of outcomes drawn one by one from an urn that adds what it gave."""
    shape, total = np.array(shape, float), 0.0
    for outcome, count in enumerate(counts):
        for _ in range(int(count)):
            total += np.log(shape[outcome] / shape.sum())
            shape[outcome] += 1
    return total


@pytest.mark.parametrize("scale", [0.3, 7.0, 900.0])
def test_dirichlet_multinomial_is_the_probability_of_an_urn(scale):
    rng = np.random.default_rng(0)
    shape = scale * rng.dirichlet(np.ones(4), 20)
    counts = rng.integers(0, 9, (20, 4)).astype(float)
    counts[0] = 0
    np.testing.assert_allclose(
        _residual_profile._dirichlet_multinomial(shape, counts),
        [urn_probability(*pair) for pair in zip(shape, counts, strict=True)],
        rtol=1e-9,
        atol=1e-9,
    )


def simulate(strength, num_cells, units, num_folds=2, seed=0):
    """Counts of cells whose laws vary about the model's by a Dirichlet.

    Returns:
      Atoms of the model at each row, both counts, and the cell of each row; a row is a
      cell and a fold.
    """
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(4, 6.0), num_cells)
    outcome = rng.dirichlet(np.full(2, 6.0), (num_cells, 2))
    model = pb.project_to_compatible(pb.Atoms(joint.reshape(-1, 2, 2), outcome[..., 1]))
    law, arms = joint, np.stack([1 - model.mu, model.mu], axis=-1)
    if np.isfinite(strength):
        law = np.stack([rng.dirichlet(strength * p) for p in law])
        ones = rng.beta(strength * arms[..., 1], strength * arms[..., 0])
        arms = np.stack([1 - ones, ones], axis=-1)
    cell = np.repeat(np.arange(num_cells), num_folds)
    observational = rng.multinomial(units, law[cell]).reshape(-1, 2, 2)
    experimental = rng.multinomial(units, arms[cell])
    rows = pb.Atoms(model.joint[cell], model.mu[cell])
    return rows, observational, experimental, cell


def profile_of(rows, observational, experimental, cell):
    rng = np.random.default_rng(1)
    draws = repeat(rows, 2)
    return pi.profile_residual(rng, draws, observational, experimental, cell)


def mean_log_strengths(profile):
    settings = profile.settings
    return [
        profile.weight @ np.log(strength)
        for strength in (
            settings.observational_strength,
            settings.experimental_strength,
        )
    ]


@pytest.fixture(scope="module")
def right():
    """Data of strength 256, a point of the grid, and their profile."""
    data = simulate(256, num_cells=400, units=80)
    return data, profile_of(*data)


def test_the_profile_finds_strength_and_that_all_counts_are_new(right):
    """Its log strength has Monte Carlo error 0.1 or so: half a step of the grid is 0.35."""
    profile = right[1]
    for value in mean_log_strengths(profile):
        np.testing.assert_allclose(value, np.log(256), atol=0.4)
    mean = profile.mean()
    assert mean.observational_share[0] > 0.85
    assert mean.experimental_share[0] > 0.75
    np.testing.assert_allclose(profile.weight.sum(), 1)
    assert np.all(profile.weight > 0)


def test_the_profile_is_the_urns_probability_of_each_fold_given_the_others(right):
    """Row by row with loops, at the best point; draws are equal."""
    (rows, observational, experimental, cell), profile = right
    best = int(np.argmax(profile.log_likelihood))
    setting = pi.ResidualSettings(*(field[best] for field in profile.settings))
    total = 0.0
    for i in range(len(cell)):
        others = np.flatnonzero((cell == cell[i]) & (np.arange(len(cell)) != i))
        strength = setting.observational_strength
        rest = observational[others].sum(axis=0)
        share = setting.observational_share
        shape = strength * rows.joint[i] + share * rest
        total += urn_probability(shape.ravel(), observational[i].ravel())
        for arm in range(2):
            law = np.array([1 - rows.mu[i, arm], rows.mu[i, arm]])
            rest = experimental[others, arm].sum(axis=0)
            share = setting.experimental_share
            strength = setting.experimental_strength + (1 - share) * rest.sum()
            total += urn_probability(
                strength * law + share * rest, experimental[i, arm]
            )
    gap = np.log(setting.observational_strength / setting.experimental_strength)
    pooling = -((gap / 0.5) ** 2) / 2
    np.testing.assert_allclose(
        profile.log_likelihood[best], total + pooling, rtol=1e-9, atol=1e-4
    )


def test_counts_that_the_model_follows_already_do_not_move_it_again(right):
    """It is moved toward the other folds' counts as strength 256 would; none is new."""
    (rows, observational, experimental, cell), clean = right
    moved = []
    for part, counts in zip(
        (rows.joint, np.stack([1 - rows.mu, rows.mu], axis=-1)),
        (observational, experimental),
        strict=True,
    ):
        rest = np.stack([counts[cell == c].sum(axis=0) for c in cell]) - counts
        axes = (-2, -1) if part is rows.joint else -1
        weighted = 256 * part + rest
        moved.append(weighted / weighted.sum(axis=axes, keepdims=True))
    model = pb.project_to_compatible(pb.Atoms(moved[0], moved[1][..., 1]))
    double = profile_of(model, observational, experimental, cell)
    for name in ("observational_share", "experimental_share"):
        before, after = (getattr(p.mean(), name)[0] for p in (clean, double))
        assert after < 0.25 and after < before - 0.5
    # Their precision is now the model's own: 256 units, and the 80 that moved it.
    for value in mean_log_strengths(double):
        np.testing.assert_allclose(value, np.log(256 + 80), atol=0.5)


def test_a_model_that_is_right_gets_the_greatest_strengths():
    profile = profile_of(*simulate(np.inf, num_cells=200, units=10_000))
    settings = profile.settings
    for strength in (settings.observational_strength, settings.experimental_strength):
        assert profile.weight @ (strength >= 32 * 2**10) > 0.9


def test_a_wrong_model_gets_less_strength_from_any_labels_of_cells(right):
    rows, observational, experimental, cell = right[0]
    names = 10**12 - 7 * cell  # labels need not count from 0
    same = profile_of(rows, observational, experimental, names)
    np.testing.assert_array_equal(same.log_likelihood, right[1].log_likelihood)
    uniform = pb.Atoms(0 * rows.joint + 0.25, 0 * rows.mu + 0.5)
    wrong = profile_of(uniform, observational, experimental, cell)
    for less, more in zip(
        mean_log_strengths(wrong), mean_log_strengths(right[1]), strict=True
    ):
        assert less < more - 1


def vary(rows, noise):
    """Moves one outcome of the log by noise [num_draws, n] on the scale of logarithms."""
    raw = np.log(rows.joint[None]) + np.zeros((len(noise), 1, 1, 1))
    raw[..., 1, 1] += noise
    joint = np.exp(raw) / np.exp(raw).sum(axis=(-2, -1), keepdims=True)
    return pb.project_to_compatible(pb.Atoms(joint, repeat(rows, len(noise)).mu))


def test_the_mean_over_all_draws_has_none_of_the_noise_of_a_few():
    """A model errs as its draws vary, scale 1; of 16 draws it is sqrt(1 - 1/16).

    The draws share one error at each row, drawn with their own standard deviation.
    """
    rows, observational, experimental, _ = simulate(np.inf, 150, 300)
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((16, 300))
    noise += rng.standard_normal(300) - noise.mean(axis=0)
    draws = vary(rows, 0.6 * (np.arange(300) % 2) * noise)
    profile = pi.profile_residual(
        rng, draws, observational, experimental, np.arange(300)
    )
    allowed = np.sqrt(np.maximum(np.array([0, 0.5, 1, 1.5]) ** 2 - 1 / 16, 0))
    scales = profile.settings.draw_scale
    assert np.all(np.isclose(scales[:, None], allowed).any(axis=1))
    np.testing.assert_allclose(profile.mean().draw_scale[0], 1, atol=0.3)


def test_a_flat_likelihood_leaves_a_uniform_variance(monkeypatch):
    """One unit of each source alone in its cell says nothing of the strength.

    On a grid whose variances fall by 2, those of a uniform law have weights that do so
    too.
    """
    monkeypatch.setattr(_residual_profile, "_NEGLIGIBLE", 0)
    counts = np.zeros((1, 2, 2))
    counts[0, 0, 0] = 1
    profile = pi.profile_residual(
        np.random.default_rng(0),
        *(repeat(repeat(MODEL, 1), 2), counts, counts, np.zeros(1, int)),
    )
    both = profile.settings.observational_strength == (
        profile.settings.experimental_strength
    )
    strengths = profile.settings.observational_strength[both]
    by_strength = [
        profile.weight[both][strengths == k].sum() for k in np.unique(strengths)
    ]
    ratio = np.array(by_strength[1:]) / by_strength[:-1]
    np.testing.assert_allclose(ratio, 0.5, rtol=1e-6)


def test_a_law_that_varies_is_averaged_over():
    """By draws: of the law from its own Beta, of the residual, and of the outcomes."""
    rng = np.random.default_rng(0)
    mean, variance, strength = 0.3, 0.02, 60.0
    size = 1 / variance - 1
    law = rng.beta(size * mean, size * (1 - mean), 400_000)
    drawn = rng.beta(strength * law, strength * (1 - law))
    own = np.array([11.0, 6.0])
    chances = drawn ** own[1] * (1 - drawn) ** own[0]
    found = _residual_profile._likelihoods(
        _residual_profile._Law(np.array([[[1 - mean, mean]]]), np.array([[variance]])),
        *(own[None, None], 0 * own[None, None], np.array([strength])),
    )
    error = chances.std() / np.sqrt(len(chances)) / chances.mean()
    # The shape of the sum of two Betas is not quite a Beta's: a thousandth.
    assert error < 0.004
    np.testing.assert_allclose(found[0, -1], np.log(chances.mean()), atol=0.02)
    ignored = urn_probability(strength * np.array([1 - mean, mean]), own)
    assert abs(ignored - found[0, -1]) > 0.05


def test_the_variance_is_in_units_of_one_outcomes():
    draws = vary(repeat(MODEL, 1), np.array([[0.3], [-0.1], [-0.2]]))
    log, trial = _residual_profile._laws(draws)
    chances = draws.joint.reshape(3, 4)
    unit = (log.mean[0, 0] * (1 - log.mean[0, 0])).sum()
    wanted = ((chances - chances.mean(axis=0)) ** 2).sum() / 2 / unit
    np.testing.assert_allclose(log.variance, [[wanted]], rtol=1e-6)
    np.testing.assert_allclose(log.mean.sum(), 1, rtol=1e-6)
    assert log.variance.shape == (1, 1) and trial.variance.shape == (1, 2)
    for arm, values in enumerate(draws.mu[:, 0].T):
        mean = trial.mean[0, arm, 1]
        wanted = values.var(ddof=1) / (mean * (1 - mean))
        np.testing.assert_allclose(
            trial.variance[0, arm], wanted, rtol=1e-5, atol=1e-12
        )


def test_rows_that_are_not_judged_lend_their_counts_and_no_more(right):
    """Urns by loops, over the judged rows; every cell has two rows, some have none judged."""
    (rows, observational, experimental, cell), _ = right
    judged = np.random.default_rng(0).random(len(cell)) < 0.3
    draws = repeat(pb.Atoms(rows.joint[judged], rows.mu[judged]), 2)
    profile = pi.profile_residual(
        np.random.default_rng(1),
        *(draws, observational, experimental, cell),
        judged=judged,
    )
    pooled = profile.settings.observational_strength == (
        profile.settings.experimental_strength
    )
    pooled &= profile.settings.observational_share == (
        profile.settings.experimental_share
    )
    pooled &= profile.settings.rare_factor == 1
    place = int(np.flatnonzero(pooled)[0])
    total = 0.0
    for i in np.flatnonzero(judged):
        rest = (cell == cell[i]) & (np.arange(len(cell)) != i)
        arms = np.stack([1 - rows.mu[i], rows.mu[i]], axis=-1)
        for law, counts in (
            (rows.joint[i].reshape(1, 4), observational.reshape(-1, 1, 4)),
            (arms, experimental),
        ):
            strength = profile.settings.observational_strength[place]
            share = profile.settings.observational_share[place]
            others = counts[rest].sum(axis=0)
            shape = strength * law + share * others
            total += sum(map(urn_probability, shape, counts[i]))
    np.testing.assert_allclose(profile.log_likelihood[place], total, rtol=1e-9)
    # Rare are cells that are small as a whole, whoever is judged.
    assert profile.rare_size == right[1].rare_size


def test_the_judged_row_has_a_probability_given_the_others(monkeypatch):
    """Over all 20 ways in which three units may fall, probabilities add up to 1."""
    monkeypatch.setattr(_residual_profile, "_NEGLIGIBLE", 0)
    atoms = pb.Atoms(np.repeat(MODEL.joint[None], 1, axis=0), MODEL.mu[None])
    cell, judged = np.array([5, 5, 8]), np.array([False, True, False])
    total = {}
    for outcome in np.ndindex(4, 4, 4, 4):
        if sum(outcome) != 3:
            continue
        observational = np.array([[4, 0, 1, 2], outcome, [900, 0, 0, 0]])
        profile = pi.profile_residual(
            np.random.default_rng(0),
            # With fewer draws, two scales of the grid would be 0 for the mean of all.
            *(repeat(atoms, 16), observational.reshape(-1, 2, 2)),
            *(np.zeros((3, 2, 2)), cell, judged),
        )
        ways = math.factorial(3) / math.prod(map(math.factorial, outcome))
        for i, value in enumerate(profile.log_likelihood):
            name = tuple(field[i] for field in profile.settings)
            total[name] = total.get(name, 0) + ways * np.exp(value)
    equal = [v for k, v in total.items() if k[1] == k[2]]
    assert len(equal) > 100
    np.testing.assert_allclose(equal, 1, rtol=1e-9)


def test_many_rows_are_judged_by_a_sample(monkeypatch):
    data = simulate(64, num_cells=30, units=20)
    everything = profile_of(*data)
    monkeypatch.setattr(_residual_profile, "_MAX_ROWS", 20)
    sample = profile_of(*data)
    assert len(sample.weight) > len(everything.weight)  # fewer rows know less
    np.testing.assert_array_equal(sample.weight, profile_of(*data).weight)


def test_settings_are_drawn_by_weight_and_averaged():
    fields = np.arange(12.0).reshape(6, 2) + 1
    profile = pi.ResidualProfile(
        pi.ResidualSettings(*fields), np.array([0.3, 0.7]), np.zeros(2), 0.0
    )
    drawn = profile.sample(np.random.default_rng(0), 10_000)
    error = np.sqrt(0.3 * 0.7 / 10_000)
    for field, values, mean in zip(drawn, fields, profile.mean(), strict=True):
        np.testing.assert_allclose(np.mean(field == values[1]), 0.7, atol=4 * error)
        np.testing.assert_allclose(mean, [0.3 * values[0] + 0.7 * values[1]])
    # All settings of a draw come from one point.
    np.testing.assert_array_equal(drawn.draw_scale + 2, drawn.observational_strength)


def test_an_average_of_equal_settings_is_that_setting():
    """Weights that sum to 1 up to rounding would give a share a little above 1."""
    weight = np.full(3, 1 / 3) + np.finfo(float).eps
    ones = pi.ResidualSettings(*np.ones((6, 3)))
    assert weight @ ones.rare_factor > 1
    for field in pi.ResidualProfile(ones, weight, np.zeros(3), 0.0).mean():
        np.testing.assert_array_equal(field, [1.0])


def make_profile():
    """Five points; strengths 32 and 128, 64 and 64 have the same geometric mean."""
    fields = np.array(
        [
            [0.0, 0.5, 0.0, 1.0, 0.5],
            [32.0, 64.0, 32.0, 512.0, 1024.0],
            [32.0, 64.0, 128.0, 512.0, 2048.0],
            [1.0, 1.3, 1.0, 1.0, 1.3],
            [1.0, 1.0, 1.3, 1.0, 1.3],
            [1.0, 0.5, 0.5, 1.0, 0.5],
        ]
    )
    log_likelihood = np.array([-12.0, -11.9, -12.5, -10.5, -10.0])
    weight = np.exp(log_likelihood) / np.exp(log_likelihood).sum()
    return pi.ResidualProfile(
        pi.ResidualSettings(*fields), weight, log_likelihood, rare_size=7.0
    )


def test_marginals_add_up_the_weights_of_each_value():
    profile = make_profile()
    w = profile.weight
    for name, values, weight in (
        ("draw_scale", [0, 0.5, 1], [w[0] + w[2], w[1] + w[4], w[3]]),
        ("experimental_strength", [32, 64, 128, 512, 2048], w),
        ("observational_strength", [32, 64, 512, 1024], [w[0] + w[2], *w[[1, 3, 4]]]),
        ("rare_factor", [0.5, 1], [w[1] + w[2] + w[4], w[0] + w[3]]),
    ):
        found = profile.marginal(name)
        np.testing.assert_array_equal(found[0], values)
        np.testing.assert_allclose(found[1], weight, rtol=1e-12)


def test_a_model_that_is_worse_where_people_are_rare_is_worth_less_there():
    """Strength 512 in large cells; 64, an eighth of it, in the rarest fifth of units."""
    large, small = (
        simulate(512, num_cells=300, units=200),
        simulate(64, num_cells=1500, units=12, seed=1),
    )
    joined = [np.concatenate(parts) for parts in zip(large[1:], small[1:], strict=True)]
    joined[2][len(large[3]) :] += 300
    rows = pb.Atoms(*map(np.concatenate, zip(large[0], small[0], strict=True)))
    profile = profile_of(rows, *joined)
    mean = profile.mean()
    assert mean.rare_factor[0] < 0.3
    np.testing.assert_allclose(mean.observational_strength, 512, rtol=0.5)
    sizes = np.bincount(joined[2], joined[0].sum((1, 2)) + joined[1].sum((1, 2)))
    assert sizes[300] <= profile.rare_size < sizes[0]
    same = simulate(512, num_cells=600, units=30, seed=2)
    joined = [np.concatenate(parts) for parts in zip(large[1:], same[1:], strict=True)]
    joined[2][len(large[3]) :] += 300
    rows = pb.Atoms(*map(np.concatenate, zip(large[0], same[0], strict=True)))
    assert profile_of(rows, *joined).mean().rare_factor[0] > 0.6


def test_a_profile_says_what_does_not_fit():
    rng = np.random.default_rng(0)
    draws = repeat(repeat(MODEL, 3), 2)
    counts, cell = np.ones((3, 2, 2)), np.arange(3)
    with pytest.raises(pb.InputError, match=r"mu of draws must have shape \[num_draws"):
        pi.profile_residual(rng, repeat(MODEL, 3), counts, counts, cell)
    with pytest.raises(pb.InputError, match="draws must be 2 or more, got 1"):
        pi.profile_residual(
            rng, pb.Atoms(*(m[:1] for m in draws)), counts, counts, cell
        )
    with pytest.raises(pb.InputError, match=r"experimental must have shape \[3, 2"):
        pi.profile_residual(rng, draws, counts, counts[:2], cell)
    with pytest.raises(pb.InputError, match="observational must be counts: finite"):
        pi.profile_residual(rng, draws, -counts, counts, cell)
    with pytest.raises(pb.InputError, match=r"cell must have shape \[3\]"):
        pi.profile_residual(rng, draws, counts, counts, cell[:2])
    for judged in ([True, False, False], [1, 1, 0], [[True, True, False]]):
        with pytest.raises(pb.InputError, match="judged must be a list of booleans"):
            pi.profile_residual(
                rng, repeat(repeat(MODEL, 2), 2), counts, counts, cell, judged
            )
    with pytest.raises(pb.InputError, match="no units"):
        counts[0] = 0
        pi.profile_residual(
            rng, repeat(repeat(MODEL, 1), 2), counts, counts, cell, cell == 0
        )
    with pytest.raises(pb.InputError, match="no units"):
        pi.profile_residual(rng, draws, 0 * counts, 0 * counts, cell)
