"""Credible intervals cover as they promise where the prior is the truth's."""

import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from test_intervals import draw_atoms

ALPHA, NUM_DRAWS, NUM_POINTS = 0.1, 399, 4000  # (399 + 1) 0.95 is a whole number
NOISE = 0.05


def normal_posterior(rng, prior_mean, num_points=NUM_POINTS):
    """Truths from a normal prior, and draws of their posterior given noisy data."""
    shape = (num_points, len(prior_mean))
    truth = prior_mean + NOISE * rng.standard_normal(shape)
    data = truth + NOISE * rng.standard_normal(shape)
    center = (data + prior_mean) / 2
    draws = center + NOISE / np.sqrt(2) * rng.standard_normal((NUM_DRAWS, *shape))
    return truth, draws


def assert_share(events, probability):
    """Checks a frequency over points within four Monte Carlo errors."""
    error = np.sqrt(probability * (1 - probability) / len(events))
    np.testing.assert_allclose(np.mean(events), probability, atol=4 * error)


@pytest.mark.parametrize(
    "lower_means", [[0.3, 0.3, 0.3], [0.3, 0.1, -0.2]], ids=["tied", "untied"]
)
def test_each_end_misses_with_half_of_alpha(lower_means):
    """Plug-in bounds of tied terms would be too narrow; a posterior's are not."""
    rng = np.random.default_rng(0)
    lower, lower_draws = normal_posterior(rng, np.array(lower_means))
    upper, upper_draws = normal_posterior(rng, np.array([0.7, 0.7, 0.75, 0.9]))
    result = pi.credible_intervals(pb.BoundTerms(lower_draws, upper_draws), ALPHA)
    assert_share(lower.max(axis=1) < result.lower, ALPHA / 2)
    assert_share(upper.min(axis=1) > result.upper, ALPHA / 2)
    # Medians are exceeded half of the time.
    assert_share(lower.max(axis=1) < result.bound_lower, 0.5)
    assert_share(upper.min(axis=1) > result.bound_upper, 0.5)
    assert not result.kappa_lower.any() and not result.is_empty.any()


def test_a_beta_posterior_of_pns_covers():
    """Batches and arms of a Dirichlet-multinomial model, whose bounds are not normal."""
    rng = np.random.default_rng(0)
    num_points, shape = 1500, np.full(4, 2.0)
    truth = rng.dirichlet(shape, num_points)
    counts = rng.multinomial(30, truth)
    gamma = rng.standard_gamma(counts + shape, (NUM_DRAWS, num_points, 4))
    joint = gamma / gamma.sum(axis=-1, keepdims=True)

    def make_atoms(cells, position):
        joint = cells.reshape(*cells.shape[:-1], 2, 2)
        return pb.Atoms(joint, pb.anchor(joint, np.log(position / (1 - position))))

    position = rng.beta(2, 2, (num_points, 2))
    ones = rng.binomial(30, position)
    drawn = rng.beta(2 + ones, 32 - ones, (NUM_DRAWS, num_points, 2))
    result = pi.credible_intervals(make_atoms(joint, drawn), ALPHA)
    bounds = pb.pns_bounds(make_atoms(truth, position))
    inside = bounds.lower > 0  # a known floor is not missed
    assert np.mean(bounds.lower < result.lower) <= ALPHA / 2 + 4 * np.sqrt(0.05 / 1500)
    assert inside.mean() > 0.5
    assert_share(bounds.upper > result.upper, ALPHA / 2)


@pytest.mark.parametrize("width", [0.0, 0.02, 0.05, 0.4])
def test_the_parameters_interval_covers_and_is_never_wider(width):
    """A wide set is missed by its end with alpha, a point by both ends together."""
    rng = np.random.default_rng(0)
    truth, draws = normal_posterior(rng, np.array([0.3]))
    terms = pb.BoundTerms(draws, draws + width)
    wide = pi.credible_intervals(terms, ALPHA)
    result = pi.credible_intervals(terms, ALPHA, target="parameter")
    assert np.all(result.lower >= wide.lower) and np.all(result.upper <= wide.upper)
    np.testing.assert_array_equal(result.bound_lower, wide.bound_lower)
    error = np.sqrt(ALPHA * (1 - ALPHA) / NUM_POINTS)
    for share in (0.0, 0.5, 1.0):
        value = truth[:, 0] + share * width
        missed = np.mean((value < result.lower) | (value > result.upper))
        assert missed <= ALPHA + 4 * error
        if width in (0.0, 0.4) and share != 0.5:
            np.testing.assert_allclose(missed, ALPHA, atol=4 * error)


def test_the_binding_term_is_the_one_of_most_draws():
    """Counted draw by draw; a known limit that binds is -1, and wins ties."""
    rng = np.random.default_rng(0)
    center = rng.normal(0, 0.05, (30, 3))
    lower = center + rng.normal(0, 0.05, (NUM_DRAWS, 30, 3))
    upper = 1 + center[:, :2] + rng.normal(0, 0.05, (NUM_DRAWS, 30, 2))
    lower[:, 0] = [-0.5, -0.1, 0.0]  # 0 is the floor
    upper[:, 0] = [1.0, 1.2]  # 1 is the ceiling
    lower[:, 1], upper[:, 1] = [0.1, 0.3, 0.2], [0.8, 0.4]
    result = pi.credible_intervals(pb.BoundTerms(lower, upper))
    for i in range(30):
        for values, limit, pick, binding in (
            (lower[:, i], 0.0, np.argmax, result.binding_lower[i]),
            (upper[:, i], 1.0, np.argmin, result.binding_upper[i]),
        ):
            names = [pick([limit, *draw]) - 1 for draw in values]
            counts = {name: names.count(name) for name in set(names)}
            assert counts[binding] == max(counts.values())
    assert result.binding_lower[0] == result.binding_upper[0] == -1
    assert result.lower[0] == 0 and result.upper[0] == 1
    assert (result.binding_lower[1], result.binding_upper[1]) == (1, 1)
    assert set(result.binding_lower) == {-1, 0, 1, 2}


@pytest.mark.parametrize("target", ["set", "parameter"])
def test_blocks_give_the_same_as_one_piece(target):
    draws = draw_atoms(200, 23)
    terms = pb.bound_terms(draws)
    whole = pi.credible_intervals(draws, target=target)
    pieces = pi.credible_intervals(draws, target=target, points_per_chunk=5)
    parts = (pb.Atoms(*(a[:, i : i + 9] for a in draws)) for i in range(0, 23, 9))
    streamed = pi.credible_intervals(parts, target=target, points_per_chunk=4)
    for other in (pieces, streamed):
        for a, b in zip(whole, other, strict=True):
            np.testing.assert_array_equal(a, b)
    # By hand: quantiles of every draw's sharp bounds.
    if target == "set":
        lower = np.sort(np.maximum(terms.lower.max(axis=-1), 0), axis=0)
        upper = np.sort(np.minimum(terms.upper.min(axis=-1), 1), axis=0)
        # (200 + 1) 0.975 = 195.98: the 196th from either end.
        np.testing.assert_allclose(whole.lower, lower[-196], atol=1e-15)
        np.testing.assert_allclose(whole.upper, upper[195], atol=1e-15)


def test_jax_draws_and_other_estimands_are_taken():
    draws = draw_atoms(100, 4)
    single = pb.Atoms(*(jnp.asarray(part, jnp.float32) for part in draws))
    for estimand in (pb.PNS, pb.PN, pb.benefit(100, -20, -10, -50)):
        a = pi.credible_intervals(draws, estimand=estimand)
        b = pi.credible_intervals(single, estimand=estimand)
        np.testing.assert_allclose(a.lower, b.lower, atol=1e-3)
        np.testing.assert_allclose(a.upper, b.upper, atol=1e-3)
        assert np.all(a.lower <= a.bound_lower) and np.all(a.bound_upper <= a.upper)


def test_too_few_draws_and_wrong_options_are_told():
    draws = draw_atoms(38, 2)
    for target in ("set", "parameter"):
        with pytest.raises(pi.TooFewDrawsError) as info:
            pi.credible_intervals(draws, target=target)
        assert (info.value.num_draws, info.value.needed) == (38, 39)
    pi.credible_intervals(draw_atoms(39, 2))
    with pytest.raises(pb.InputError, match="alpha must lie in"):
        pi.credible_intervals(draws, 95)
    with pytest.raises(pb.InputError, match="target must be one of"):
        pi.credible_intervals(draws, target="both")
    with pytest.raises(pb.InputError, match="points_per_chunk must be at least 1"):
        pi.credible_intervals(draws, points_per_chunk=0)
    with pytest.raises(ValueError, match="draws must be finite"):
        pi.credible_intervals(pb.BoundTerms(draws.mu * np.nan, draws.mu))


@pytest.mark.parametrize("estimand", [pb.PN, pb.PS], ids=["pn", "ps"])
def test_a_draw_in_which_nobody_is_asked_about_counts_as_the_whole_range(estimand):
    """The ends are order statistics of the other draws' bounds and of 0 and 1."""
    draws = pb.Atoms(*(np.array(part) for part in draw_atoms()))
    cell = (1, 1) if estimand is pb.PN else (0, 0)
    draws.joint[7, 3, 1 - cell[0], cell[1]] += draws.joint[7, 3][cell]
    draws.joint[7, 3][cell] = 0.0
    result = pi.credible_intervals(draws, 0.1, estimand=estimand)
    bounds = estimand.bounds(draws, incompatible="allow")
    assert np.isnan(bounds.lower[7, 3])
    lower, upper = (
        np.nan_to_num(bounds.lower, nan=0),
        np.nan_to_num(bounds.upper, nan=1),
    )
    np.testing.assert_allclose(result.bound_lower, np.median(lower, axis=0), atol=1e-12)
    np.testing.assert_allclose(result.bound_upper, np.median(upper, axis=0), atol=1e-12)
    others = np.arange(draws.mu.shape[1]) != 3
    alone = pi.credible_intervals(
        pb.Atoms(draws.joint[:, others], draws.mu[:, others]), 0.1, estimand=estimand
    )
    np.testing.assert_array_equal(result.lower[others], alone.lower)
    for call in (pi.intervals_from_draws, pi.average_interval, pi.uniform_band):
        options = {} if call is pi.uniform_band else {"sample_size": 1000}
        answer = call(draws, 0.1, estimand=estimand, **options)
        assert np.isfinite(answer.lower).all() and np.isfinite(answer.upper).all()


def test_a_bound_at_its_limit_is_covered():
    """Outcomes that never happen: every quantile of a Beta exceeds 0, the end does not.

    The lower bound is a proportion that is 0 in half of the points and 0.1 in the others,
    of which 200 cases were looked at. The upper one is its mirror image.
    """
    rng = np.random.default_rng(0)
    truth = np.where(np.arange(2000) % 2 == 0, 0.0, 0.1)
    cases = rng.binomial(200, truth)
    draws = rng.beta(cases + 0.5, 200 - cases + 0.5, (NUM_DRAWS, 2000))[..., None]
    assert np.quantile(draws[:, 0], 0.025) > 0
    found = pi.credible_intervals(pb.BoundTerms(draws, 1 - draws), 0.05)
    zero = truth == 0
    np.testing.assert_array_equal(found.lower[zero], 0)
    np.testing.assert_array_equal(found.upper[zero], 1)
    # Where a tenth of the cases are seen the ends are quantiles as everywhere.
    np.testing.assert_allclose(
        found.lower[~zero],
        np.sort(draws[:, ~zero, 0], axis=0)[9],
        atol=2e-3,
    )
    assert_share(found.lower[~zero] > 0.1, 0.025)


@pytest.mark.parametrize("target", ["set", "parameter"])
def test_blocks_threads_and_memory_layout_do_not_matter(target):
    draws = draw_atoms(101, 130)
    found = pi.credible_intervals(draws, 0.1, target=target, points_per_chunk=17)
    turned = pb.Atoms(*(np.asarray(part, order="F") for part in draws))
    other = pi.credible_intervals(turned, 0.1, target=target)
    for one, same in zip(found, other, strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-12)


def test_ends_are_order_statistics_and_the_binding_term_is_the_most_frequent():
    """Draw by draw in plain Python."""
    draws = draw_atoms(101, 40)
    found = pi.credible_intervals(draws, 0.1)
    for point, terms in enumerate(
        np.moveaxis(pb.PNS.terms(draws).lower, 1, 0).tolist()
    ):
        bounds = sorted(max(0.0, *row) for row in terms)
        names = [
            -1 if max(row) <= 0 else len(row) - 1 - row[::-1].index(max(row))
            for row in terms
        ]
        most = max(names.count(name) for name in names)
        assert names.count(found.binding_lower[point]) == most
        # (101 + 1) 0.95 = 96.9, so 96 of 101 draws lie above the end.
        assert found.lower[point] in (0.0, bounds[4])
        assert found.bound_lower[point] == bounds[50]
    assert np.count_nonzero(found.lower) > 20
