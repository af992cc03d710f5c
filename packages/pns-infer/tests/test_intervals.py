"""Intervals from draws: Algorithm 1 by a plain loop, chunks, shapes, bad input, metrics."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from absl.testing import parameterized
from pns_infer.core.frequencies import term_covariance
from scipy import stats


def draw_atoms(num_draws=400, num_points=7, seed=0, noise=0.3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((num_points, 6)) + noise * rng.standard_normal(
        (num_draws, num_points, 6)
    )
    cells = np.exp(raw[..., :4])
    joint = (cells / cells.sum(-1, keepdims=True)).astype(dtype)
    joint = joint.reshape(num_draws, num_points, 2, 2)
    return pb.Atoms(joint, pb.anchor(joint, raw[..., 4:].astype(dtype)))


def algorithm_1(draws, alpha):
    """alg:pns_bounds with the appendix's sign, the floor 0, and one loop per point."""
    terms = pb.bound_terms(draws)
    ends = []
    num_draws = len(draws.mu)
    place = int(np.ceil((num_draws + 1) * (1 - alpha / 2) - 1e-9)) - 1
    for point in range(draws.mu.shape[1]):
        lower, upper = terms.lower[:, point, 1:], terms.upper[:, point]
        kappas = []
        for sign, values in ((1, lower), (-1, upper)):
            z = sign * (values - values.mean(0)) / values.std(0, ddof=1)
            kappas.append(np.sort(z.max(1))[place])
        low = np.max(lower.mean(0) - kappas[0] * lower.std(0, ddof=1))
        high = np.min(upper.mean(0) + kappas[1] * upper.std(0, ddof=1))
        ends.append((max(low, 0), min(high, 1), *kappas))
    return np.array(ends).T


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_without_selection_it_is_algorithm_1(alpha):
    draws = draw_atoms()
    intervals = pi.intervals_from_draws(draws, alpha, selection="none")
    lower, upper, kappa_lower, kappa_upper = algorithm_1(draws, alpha)
    np.testing.assert_allclose(intervals.lower, lower, atol=1e-12)
    np.testing.assert_allclose(intervals.upper, upper, atol=1e-12)
    np.testing.assert_allclose(intervals.kappa_lower, kappa_lower)
    np.testing.assert_allclose(intervals.kappa_upper, kappa_upper)
    # Four lower terms with the constant 0 are three terms and a floor.
    same = pi.intervals_from_draws(pb.bound_terms(draws), alpha, selection="none")
    np.testing.assert_allclose(same.lower, intervals.lower, atol=1e-15)
    np.testing.assert_allclose(same.kappa_lower, intervals.kappa_lower)


def test_the_sign_of_the_upper_side_matters_for_skewed_draws():
    """An upper term whose draws have a long right tail can be far too high, not low."""
    rng = np.random.default_rng(0)
    skewed = 0.5 + 0.05 * (rng.exponential(size=(5000, 1, 1)) - 1)
    intervals = pi.intervals_from_draws(
        pb.BoundTerms(np.zeros_like(skewed), skewed), selection="none"
    )
    # Exp(1) - 1 is never below -1: kappa is near 1, not the 2.7 of the other tail.
    np.testing.assert_allclose(intervals.kappa_upper, 1, atol=0.05)


def test_selection_narrows_and_never_widens():
    draws = draw_atoms(2000, 60, noise=0.1)
    none = pi.intervals_from_draws(draws, selection="none")
    adaptive = pi.intervals_from_draws(draws, sample_size=10_000)
    assert np.all(adaptive.kappa_lower <= none.kappa_lower + 1e-12)
    assert np.all(adaptive.lower >= none.lower - 1e-12)
    assert np.all(adaptive.upper <= none.upper + 1e-12)
    assert np.mean(adaptive.upper < none.upper - 1e-6) > 0.2


def test_intervals_contain_their_estimates_and_name_the_binding_term():
    draws = draw_atoms(2000, 60)
    intervals = pi.intervals_from_draws(draws, sample_size=10_000)
    assert np.all(intervals.lower <= intervals.bound_lower)
    assert np.all(intervals.bound_upper <= intervals.upper)
    assert np.all((intervals.lower >= 0) & (intervals.upper <= 1))
    terms = pb.PNS.terms(draws)
    noise = terms.upper.std(0, ddof=1)
    ends = terms.upper.mean(0) + intervals.kappa_upper[:, None] * noise
    rows = np.flatnonzero(intervals.binding_upper >= 0)
    assert len(rows) > 50
    np.testing.assert_allclose(
        ends[rows, intervals.binding_upper[rows]], intervals.upper[rows]
    )
    floors = intervals.binding_lower == -1
    assert 0 < floors.sum() < 60 and np.all(intervals.lower[floors] == 0)
    assert np.all(intervals.lower[~floors] > 0)


def test_harm_is_pns_with_the_arms_exchanged():
    draws = draw_atoms()
    harm = pi.intervals_from_draws(draws, sample_size=500, estimand=pb.HARM)
    exchanged = pb.Atoms(draws.joint[..., ::-1, :], draws.mu[..., ::-1])
    other = pi.intervals_from_draws(exchanged, sample_size=500)
    chex.assert_trees_all_equal(harm, other)


@pytest.mark.parametrize(
    "estimand",
    [*pb.ESTIMANDS.values(), pb.benefit(3, 0, -1, -1), pb.benefit(0, 1, 2, -1)],
    ids=[*pb.ESTIMANDS, "rising benefit", "falling benefit"],
)
def test_atoms_that_are_known_give_the_sharp_bounds_of_every_estimand(estimand):
    """Draws that do not vary need no correction; moderate noise widens both ends."""
    draws = draw_atoms(200, 50, noise=0.05)
    known = pb.Atoms(*(np.repeat(part[:1], 200, axis=0) for part in draws))
    exact = pi.intervals_from_draws(known, sample_size=500, estimand=estimand)
    sharp = estimand.bounds(pb.Atoms(*(part[0] for part in draws)))
    chex.assert_trees_all_close((exact.lower, exact.upper), tuple(sharp), atol=1e-12)
    chex.assert_trees_all_equal(exact.kappa_lower, np.zeros(50))
    noisy = pi.intervals_from_draws(draws, sample_size=500, estimand=estimand)
    assert np.all(noisy.lower >= estimand.floor)
    assert np.all(noisy.upper <= estimand.ceiling)
    assert np.mean(noisy.upper - noisy.lower) > np.mean(sharp.width)


def test_a_linear_estimand_is_given_by_its_matrix():
    draws = draw_atoms()
    effect = pb.Estimand(
        name="effect",
        sentence="The average effect.",
        lower_labels=["mu1 - mu0"],
        lower_matrix=[[1, -1, 0, 0, 0, 0]],
        lower_offset=[0],
        upper_labels=["mu1 - mu0"],
        upper_matrix=[[1, -1, 0, 0, 0, 0]],
        upper_offset=[0],
        floor=-1.0,
    )
    intervals = pi.intervals_from_draws(draws, sample_size=500, estimand=effect)
    difference = draws.mu[..., 1] - draws.mu[..., 0]
    assert np.all(intervals.lower < difference.mean(0))
    assert np.all(intervals.upper > difference.mean(0))


def test_chunks_and_blocks_do_not_change_the_answer():
    draws = draw_atoms(300, 23)
    whole = pi.intervals_from_draws(draws, sample_size=500)
    chunked = pi.intervals_from_draws(draws, sample_size=500, points_per_chunk=5)
    blocks = (
        pb.Atoms(draws.joint[:, i : i + 4], draws.mu[:, i : i + 4])
        for i in range(0, 23, 4)
    )
    streamed = pi.intervals_from_draws(blocks, sample_size=500)
    chex.assert_trees_all_equal(whole, chunked)
    chex.assert_trees_all_equal(whole, streamed)


class TransformTest(chex.TestCase):
    """float32, on the host and compiled, against float64 on the host."""

    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters(
        {}, {"target": "parameter"}, {"selection": "none"}, {"estimand": pb.PN}
    )
    def test_intervals_are_those_of_the_host(self, **options):
        correct = functools.partial(pi.intervals_from_draws, sample_size=500, **options)
        expected = correct(draw_atoms(300, 23))
        single = draw_atoms(300, 23, dtype=np.float32)
        intervals = self.variant(correct)(single)
        for end in ("lower", "upper", "bound_lower", "bound_upper"):
            values = getattr(intervals, end)
            chex.assert_type(values, np.float32)
            np.testing.assert_allclose(values, getattr(expected, end), atol=2e-4)
        np.testing.assert_array_equal(intervals.is_empty, expected.is_empty)

    @chex.variants(with_jit=True)
    def test_a_batch_of_tables_is_mapped(self):
        draws = draw_atoms(300, 23, dtype=np.float32)
        stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]]), draws)
        correct = functools.partial(pi.intervals_from_draws, sample_size=500)
        mapped = self.variant(jax.vmap(correct))(stacked)
        chex.assert_tree_shape_prefix(mapped, (2, 23))
        np.testing.assert_allclose(mapped.lower[1], correct(draws).lower, atol=2e-4)


def test_precision_is_kept():
    for dtype in (np.float32, np.float64):
        intervals = pi.intervals_from_draws(draw_atoms(dtype=dtype), sample_size=500)
        assert intervals.lower.dtype == intervals.upper.dtype == dtype
    with jax.enable_x64(True):
        wide = jax.tree.map(jnp.asarray, draw_atoms())
        correct = jax.jit(functools.partial(pi.intervals_from_draws, sample_size=500))
        chex.assert_type(correct(wide).lower, jnp.float64)


def test_ends_that_cross_are_flagged_and_not_swapped():
    rng = np.random.default_rng(0)
    noise = 0.01 * rng.standard_normal((500, 1, 1))
    intervals = pi.intervals_from_draws(
        pb.BoundTerms(0.7 + noise, 0.3 + noise), selection="none"
    )
    assert intervals.is_empty.all() and intervals.lower > 0.6 and intervals.upper < 0.4


def test_known_terms_are_applied_without_correction():
    rng = np.random.default_rng(0)
    upper = np.concatenate(
        [0.6 + 0.1 * rng.standard_normal((500, 3, 1)), np.full((500, 3, 1), 0.55)],
        axis=-1,
    )
    lower = np.full((500, 3, 1), 0.1)
    intervals = pi.intervals_from_draws(pb.BoundTerms(lower, upper), sample_size=500)
    np.testing.assert_allclose(intervals.lower, 0.1)
    np.testing.assert_allclose(intervals.upper, 0.55)
    assert np.all(intervals.kappa_lower == 0)


def test_the_winners_curse_and_its_cure():
    """Three lower terms, two of them near-ties (fig:bias_illustration).

    The bias of the plug-in maximum has a closed form for two normal terms; a third far
    below adds nothing. 10,000 estimates: error of the mean 0.0005, of a fraction 0.0022.
    """
    truth, error = np.array([0.30, 0.28, 0.05]), 0.05
    rng = np.random.default_rng(4)
    estimates = truth + error * rng.standard_normal((10_000, 3))
    plug_in = estimates.max(axis=1)
    a = error * np.sqrt(2)
    d = truth[0] - truth[1]
    predicted = d * stats.norm.cdf(d / a) + a * stats.norm.pdf(d / a) - d
    bias = plug_in.mean() - truth.max()
    assert bias > 0
    np.testing.assert_allclose(bias, predicted, atol=4 * 0.0005)
    covariance = np.broadcast_to(error**2 * np.eye(3), (10_000, 3, 3))
    intervals = pi.intervals_from_estimates(
        jax.random.key(0),
        pb.BoundTerms(estimates, np.zeros((10_000, 0))),
        covariance,
        alpha=0.1,  # half of it for each end
        sample_size=1000,
        num_draws=2000,
    )
    below = np.mean(intervals.lower <= truth.max())
    assert 0.95 - 4 * np.hypot(0.0022, 0.005) < below < 0.985
    assert np.mean(intervals.bound_lower <= truth.max()) > 0.5 - 4 * 0.005
    assert np.mean(plug_in <= truth.max()) < 0.4


def test_estimates_and_covariance_agree_with_gaussian_draws():
    rng = np.random.default_rng(5)
    root = 0.05 * rng.standard_normal((3, 5, 5))
    covariance = root @ np.swapaxes(root, 1, 2)
    terms = pb.BoundTerms(
        0.2 + 0.1 * rng.random((3, 2)), 0.5 + 0.1 * rng.random((3, 3))
    )
    intervals = pi.intervals_from_estimates(
        jax.random.key(1), terms, covariance, sample_size=400, num_draws=40_000
    )
    middle = np.concatenate(terms, axis=1)
    noise = np.einsum("pij,dpj->dpi", root, rng.standard_normal((40_000, 3, 5)))
    drawn = middle + noise
    other = pi.intervals_from_draws(
        pb.BoundTerms(drawn[..., :2], drawn[..., 2:]), sample_size=400, center=terms
    )
    np.testing.assert_allclose(intervals.lower, other.lower, atol=0.004)
    np.testing.assert_allclose(intervals.upper, other.upper, atol=0.004)


def test_frequencies_have_the_covariance_of_simulated_tables():
    """20,000 tables: a standard deviation is known to 0.5%, a correlation to 0.007."""
    rng = np.random.default_rng(6)
    joint = np.array([0.1, 0.2, 0.3, 0.4])
    observational = rng.multinomial(300, joint, 20_000).reshape(-1, 2, 2)
    treated = rng.binomial(80, 0.7, 20_000)
    control = rng.binomial(50, 0.4, 20_000)
    experimental = np.stack(
        [np.stack([50 - control, control], -1), np.stack([80 - treated, treated], -1)],
        1,
    )
    atoms = pb.atoms_from_counts(observational, experimental)
    simulated = np.cov(pb.pack_atoms(atoms).T)
    expected = pi.frequency_covariance([[[30, 60], [90, 120]]], [[[30, 20], [24, 56]]])[
        0
    ]
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(simulated / scale, expected / scale, atol=0.03)
    point = pb.atoms_from_counts([[[30, 60], [90, 120]]], [[[30, 20], [24, 56]]])
    for estimand in (pb.PNS, pb.PN):
        _, covariance = term_covariance(point, expected[None], estimand)
        drawn = np.concatenate(estimand.terms(atoms), axis=-1)
        errors = np.sqrt(np.diagonal(covariance[0]))
        np.testing.assert_allclose(drawn.std(0) / errors, 1, atol=0.04)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, r"alpha must lie in \(0, 1\)"),
        ({"alpha": 1.0}, r"alpha must lie in \(0, 1\)"),
        ({"alpha": float("nan")}, r"alpha must lie in \(0, 1\)"),
        ({"target": "point"}, "target must be one of"),
        ({"selection": "all"}, "selection must be one of"),
        ({"sample_size": None}, "sample_size is needed"),
        ({"sample_size": 1}, "sample_size must be at least 2"),
    ],
)
def test_options_that_make_no_sense_are_told(options, message):
    with pytest.raises(pb.InputError, match=message):
        pi.intervals_from_draws(draw_atoms(), **{"sample_size": 500, **options})


def test_draws_that_make_no_sense_are_told():
    draws = draw_atoms()
    with pytest.raises(pb.InputError, match="mu of draws must have shape"):
        pi.intervals_from_draws(pb.Atoms(draws.joint, draws.mu[0]), sample_size=9)
    with pytest.raises(pb.InputError, match=r"joint of draws must have shape"):
        pi.intervals_from_draws(pb.Atoms(draws.joint[1:], draws.mu), sample_size=9)
    with pytest.raises(pb.InputError, match="Atoms or BoundTerms"):
        pi.intervals_from_draws([draws.mu], sample_size=9)
    with pytest.raises(pb.InputError, match="no draws"):
        pi.intervals_from_draws(iter([]), sample_size=9)
    with pytest.raises(
        pi.TooFewDrawsError, match="num_draws must be at least 2 .* got 1"
    ):
        pi.intervals_from_draws(
            pb.Atoms(draws.joint[:1], draws.mu[:1]), selection="none"
        )
    terms = pb.bound_terms(draws)
    terms.upper[3, 5, 1] = np.nan
    with pytest.raises(pb.InputError, match="those of 1 points .* at index 5"):
        pi.intervals_from_draws(terms, sample_size=9)
    middle = pb.Atoms(draws.joint[0], draws.mu[0])
    with pytest.raises(pb.InputError, match="center must be BoundTerms"):
        pi.intervals_from_draws(pb.bound_terms(draws), sample_size=9, center=middle)
    missing = pb.Atoms(middle.joint, middle.mu * np.nan)
    with pytest.raises(pb.InputError, match="center must be finite|mu must"):
        pi.intervals_from_draws(draws, sample_size=9, center=missing)
    with pytest.raises(pb.InputError, match="points_per_chunk must be at least 1"):
        pi.intervals_from_draws(draws, sample_size=9, points_per_chunk=0)
    with pytest.raises(pb.InputError, match="of center must have shape"):
        pi.intervals_from_draws(draws, sample_size=9, center=draws)


def test_covariances_that_make_no_sense_are_told():
    terms = pb.BoundTerms(np.zeros((2, 1)), np.ones((2, 1)))
    key = jax.random.key(0)
    with pytest.raises(pb.InputError, match="covariance must have shape"):
        pi.intervals_from_estimates(key, terms, np.eye(2), sample_size=9)
    with pytest.raises(pi.TooFewDrawsError, match="covariance of 2 terms, got 2"):
        pi.intervals_from_estimates(
            key, terms, np.tile(np.eye(2), (2, 1, 1)), num_draws=2, sample_size=9
        )
    bad = np.broadcast_to([[1.0, 2.0], [2.0, 1.0]], (2, 2, 2))
    with pytest.raises(pb.InputError, match="negative eigenvalues"):
        pi.intervals_from_estimates(key, terms, bad, sample_size=9)
    with pytest.raises(pb.InputError, match="unit in each arm"):
        pi.frequency_covariance([[[1, 1], [1, 1]]], [[[0, 0], [1, 1]]])


def test_scores_by_hand():
    interval = pb.Interval(np.array([0.1, 0.3, 0.5]), np.array([0.4, 0.5, 0.4]))
    truth = pb.Interval(np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.4, 0.45]))
    scores = pi.score_intervals(interval, [0.2, 0.25, 0.45], truth, alpha=0.1)
    np.testing.assert_allclose(scores.point_coverage, 1 / 3)
    np.testing.assert_allclose(scores.set_coverage, 1 / 3)
    np.testing.assert_allclose(scores.width, (0.3 + 0.2 + 0) / 3)
    # Second: 0.05 below its interval. Third: crossed by 0.1, and off on both sides.
    penalties = 20 * 0.05 + 20 * (0.05 + 0.05)
    np.testing.assert_allclose(scores.score, (0.3 + 0.2 - 0.1 + penalties) / 3)
    np.testing.assert_allclose(scores.oracle_width, 0.55 / 3)
    np.testing.assert_allclose(scores.empty, 1 / 3)
    assert np.isnan(scores.valid)
    atoms = pb.Atoms(np.full((2, 2, 2), 0.25), np.array([[0.5, 0.5], [0.9, 0.5]]))
    two = pb.Interval(*(part[:2] for part in interval))
    scores = pi.score_intervals(
        two, [0.2, 0.3], pb.Interval(*(p[:2] for p in truth)), atoms=atoms
    )
    assert scores.valid == 0.5 and scores.point_coverage == 1


def test_what_cannot_be_scored_is_told():
    interval = pb.Interval(np.zeros(3), np.ones(3))
    with pytest.raises(pb.InputError, match=r"value must have shape \[3\]"):
        pi.score_intervals(interval, np.zeros(2), interval)
    with pytest.raises(pb.InputError, match="must be finite"):
        pi.score_intervals(interval, [0.1, np.nan, 0.2], interval)
