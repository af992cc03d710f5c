"""Calibration finds the factor by which draws were shrunk; linear draws link at the end."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from scipy import special
from test_intervals import draw_atoms


def test_scaling_acts_on_logits_and_keeps_laws_compatible():
    draws = draw_atoms(300, 5, noise=1.0)
    same = pi.scale_draws(draws, 1.0)
    np.testing.assert_allclose(same.joint, draws.joint, atol=1e-12)
    np.testing.assert_allclose(same.mu, draws.mu, atol=1e-9)
    logits = np.log(draws.joint.reshape(300, 5, 4))
    contrast = logits[..., 1:] - logits[..., :1]
    for scale in (0.0, 0.5, 3.0):
        scaled = pi.scale_draws(draws, scale)
        assert np.all(pb.is_compatible(scaled))
        logits = np.log(scaled.joint.reshape(300, 5, 4))
        np.testing.assert_allclose(
            (logits[..., 1:] - logits[..., :1]).std(0),
            scale * contrast.std(0),
            atol=1e-9,
        )
    single = pb.Atoms(*(part.astype(np.float32) for part in draws))
    assert pi.scale_draws(single, 2.0).mu.dtype == np.float32
    traced = jax.jit(lambda d: pi.scale_draws(d, 2.0))(
        pb.Atoms(*(jnp.asarray(part) for part in single))
    )
    np.testing.assert_allclose(traced.mu, pi.scale_draws(draws, 2.0).mu, atol=1e-4)


def test_the_boundary_is_moved_inside_and_contradictions_are_told():
    joint = np.tile([[0.5, 0.0], [0.0, 0.5]], (4, 3, 1, 1))
    mu = np.tile([0.5, 0.5], (4, 3, 1))
    scaled = pi.scale_draws(pb.Atoms(joint, mu), 2.0)
    assert np.all(np.isfinite(scaled.mu)) and np.all(pb.is_compatible(scaled))
    even = np.full((4, 3, 2, 2), 0.25)
    with pytest.raises(pb.InputError, match="atoms must ascend in each arm"):
        pi.scale_draws(pb.Atoms(even, mu * 0 + 0.1), 1.0)


def simulate(shrink, num_cells=400, units=60, groups=False, num_draws=300):
    """Draws whose deviations about the truth are right, then shrunk about their mean."""
    rng = np.random.default_rng(0)
    raw = rng.standard_normal((num_cells, 6))
    center = raw + 0.4 * rng.standard_normal((num_cells, 6))  # estimate = truth + error
    moved = center + 0.4 * shrink * rng.standard_normal((num_draws, num_cells, 6))

    def atoms(raw):
        cells = np.exp(raw[..., :4])
        joint = (cells / cells.sum(-1, keepdims=True)).reshape(*raw.shape[:-1], 2, 2)
        return pb.Atoms(joint, pb.anchor(joint, raw[..., 4:]))

    truth = atoms(raw)
    if groups:  # each cell is many rows of one unit
        rows = np.repeat(np.arange(num_cells), units)
        per_row = 1
    else:
        rows, per_row = np.arange(num_cells), units
    observational = np.stack(
        [
            rng.multinomial(per_row, truth.joint[row].ravel()).reshape(2, 2)
            for row in rows
        ]
    )
    ones = rng.binomial(per_row, truth.mu[rows])
    experimental = np.stack([per_row - ones, ones], axis=-1)
    drawn = atoms(moved)
    return (
        pb.Atoms(*(part[:, rows] for part in drawn)),
        observational,
        experimental,
        rows,
    )


@pytest.mark.slow
@pytest.mark.parametrize("shrink", [0.5, 1.0, 2.0])
def test_the_scale_that_was_lost_is_found(shrink):
    """400 independent cells: the profile is sharp to about ten per cent."""
    calibration = pi.calibrate_draws(*simulate(shrink)[:3])
    np.testing.assert_allclose(calibration.draw_scale * shrink, 1, atol=0.25)
    assert calibration.interval[0] <= calibration.draw_scale <= calibration.interval[1]
    assert 1.02 < calibration.interval[1] / calibration.interval[0] < 1.5
    assert calibration.log_likelihood.shape == calibration.draw_scales.shape
    best = np.argmax(calibration.log_likelihood)
    np.testing.assert_allclose(
        np.log(calibration.draw_scale / calibration.draw_scales[best]), 0, atol=0.15
    )


def test_both_tables_are_judged():
    draws, observational, experimental, _ = simulate(1.0, num_cells=40)
    both = pi.calibrate_draws(draws, observational, experimental)
    for part in ((observational, 0 * experimental), (0 * observational, experimental)):
        alone = pi.calibrate_draws(draws, *part)
        assert not np.allclose(alone.log_likelihood, both.log_likelihood)


@pytest.mark.slow
def test_rows_of_single_units_are_judged_by_group():
    """Each cell is twenty rows of one unit, which share the error of their cell."""
    draws, observational, experimental, rows = simulate(
        0.5, num_cells=150, units=20, groups=True
    )
    joint = pi.calibrate_draws(draws, observational, experimental, rows)
    np.testing.assert_allclose(joint.draw_scale, 2, rtol=0.4)


def test_neighborhoods_are_near_and_of_the_size_asked_for():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((1000, 2)) * [5.0, 1.0]
    labels = pi.neighborhoods(z, 50)
    sizes = np.bincount(labels)
    assert sizes.min() >= 50 and sizes.max() < 100 and sizes.sum() == 1000
    within = np.mean([z[labels == g].var(axis=0) for g in range(len(sizes))], axis=0)
    assert within[0] < 0.1 * z[:, 0].var() and within[1] < 0.7 * z[:, 1].var()
    assert pi.neighborhoods(z, 2000).max() == 0
    with pytest.raises(pb.InputError, match="size must be at least 1"):
        pi.neighborhoods(z, 0)


def test_scale_and_order_are_those_of_rows_that_were_scaled_and_shuffled():
    rng = np.random.default_rng(1)
    z = np.round(rng.standard_normal((400, 3)) * [9.0, 1.0, 3.0])  # with ties
    scale, order = z.std(axis=0) * [1.0, 1.1, 1.2], rng.permutation(400)
    wanted = np.empty(400, int)
    wanted[order] = pi.neighborhoods((z / scale)[order], 30)
    np.testing.assert_array_equal(pi.neighborhoods(z, 30, scale, order), wanted)
    assert not np.array_equal(pi.neighborhoods(z, 30, None, order), wanted)


def choice_by_hand(z, observational, experimental):
    """The rule written a second time: the choice must stay the same for a seed."""
    rng = np.random.default_rng(0)
    rows = np.arange(len(z))
    units = float(np.sum(observational)) + float(np.sum(experimental))
    if units < 2 * len(rows):
        labels = pi.neighborhoods(z, 8)
        chosen = rng.permutation(labels.max() + 1)[:1000]
        rows = np.flatnonzero(np.isin(labels, chosen))
        return rows, labels[rows]
    return np.sort(rng.choice(rows, 8000, replace=False)), None


def test_rows_to_calibrate_by_are_grouped_only_where_nobody_has_a_twin():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((20_000, 3))
    single = np.zeros((20_000, 2, 2), int)
    single[:, 0, 0] = 1
    nothing = np.zeros_like(single)
    rows, groups = pi.choose_calibration_rows(z, single, nothing)
    chex.assert_trees_all_equal((rows, groups), choice_by_hand(z, single, nothing))
    assert np.all(np.diff(rows) > 0) and groups.shape == rows.shape
    assert len(np.unique(groups)) == 1000 and np.bincount(groups).max() < 16
    twins = pi.choose_calibration_rows(z, single, single)
    chex.assert_trees_all_equal(twins, choice_by_hand(z, single, single))
    assert twins[1] is None and len(twins[0]) == 8000
    few, none = pi.choose_calibration_rows(z[:100], single[:100], single[:100])
    np.testing.assert_array_equal(few, np.arange(100))
    assert none is None


def test_held_out_units_that_do_not_fit_are_told():
    draws = draw_atoms(20, 3)
    cells = np.ones((3, 2, 2))
    with pytest.raises(pb.InputError, match=r"experimental must have shape \[3"):
        pi.calibrate_draws(draws, cells, cells[:2])
    with pytest.raises(pb.InputError, match="no units to calibrate"):
        pi.calibrate_draws(draws, 0 * cells, 0 * cells)
    with pytest.raises(pb.InputError, match="groups must have shape"):
        pi.calibrate_draws(draws, cells, cells, groups=[0])


def test_one_scale_for_each_draw_is_a_loop_over_scalars():
    draws = draw_atoms(30, 4)
    scales = np.linspace(0, 3, 30)
    scaled = pi.scale_draws(draws, scales)
    for i, scale in enumerate(scales):
        alone = pi.scale_draws(draws, float(scale))
        chex.assert_trees_all_close(
            pb.Atoms(*(part[i] for part in scaled)),
            pb.Atoms(*(part[i] for part in alone)),
            atol=1e-14,
        )
    with pytest.raises(pb.InputError, match="one for each of the 30 draws"):
        pi.scale_draws(draws, scales[:7])
    with pytest.raises(pb.InputError, match="one for each of the 1 draws"):
        pi.scale_draws(pb.Atoms(*(part[:1] for part in draws)), scales)


def test_draws_scaled_to_nothing_are_their_mean_on_the_logit_scale():
    draws = draw_atoms(6, 5)
    mean = pi.scale_draws(draws, 0.0)
    logits = np.log(draws.joint).mean(axis=0)
    joint = np.exp(logits) / np.exp(logits).sum(axis=(-2, -1), keepdims=True)
    np.testing.assert_allclose(mean.joint[0], joint, atol=1e-12)
    least, greatest = draws.joint[..., 1], 1 - draws.joint[..., 0]
    position = special.logit((draws.mu - least) / (greatest - least)).mean(axis=0)
    wanted = joint[..., 1] + (1 - joint.sum(axis=-1)) * special.expit(position)
    np.testing.assert_allclose(mean.mu, np.stack([wanted] * 6), atol=1e-12)


NUM_POINTS, NUM_DRAWS, RANK = 70, 40, 5  # three blocks of points


def make_draws(dtype=np.float64):
    rng = np.random.default_rng(0)
    parts = (
        rng.normal(size=(NUM_POINTS, 6)),
        0.4 * rng.normal(size=(NUM_POINTS, 6, RANK)),
        0.3 + rng.normal(size=(NUM_DRAWS, RANK)),
    )
    return pi.LinearDraws(*(part.astype(dtype) for part in parts))


def link(free):
    """Softmax and anchoring map, point by point and draw by draw."""
    weights = np.exp(free[..., :4])
    joint = (weights / weights.sum(axis=-1, keepdims=True)).reshape(
        *free.shape[:-1], 2, 2
    )
    return pb.Atoms(joint, pb.anchor(joint, free[..., 4:]))


def assert_close(found, wanted, rtol=1e-9):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol)


def test_atoms_are_those_of_one_product_per_draw():
    draws = make_draws()
    free = [draws.center + draws.factors @ one for one in draws.coefficients]
    atoms = draws.atoms()
    assert_close(atoms, link(np.array(free)))
    assert atoms.mu.shape == (NUM_DRAWS, NUM_POINTS, 2)
    assert np.all(pb.is_compatible(atoms))


def test_float32_stays_float32_and_every_law_compatible():
    atoms = make_draws(np.float32).atoms()
    assert atoms.joint.dtype == atoms.mu.dtype == np.float32
    assert np.all(pb.is_compatible(atoms))
    assert_close(atoms, make_draws().atoms(), rtol=1e-4)


@pytest.mark.parametrize("scale", [0.0, 0.3, np.linspace(0, 2, NUM_DRAWS)])
def test_scaled_coefficients_are_scaled_draws(scale):
    draws = make_draws()
    assert_close(draws.scale(scale).atoms(), pi.scale_draws(draws.atoms(), scale))


def link_freely(raw):
    """Softmax, logistic function and the limits of each arm, by scipy."""
    joint = special.softmax(raw[..., :4], axis=-1).reshape(*raw.shape[:-1], 2, 2)
    mu = special.expit(raw[..., 4:])
    limits = joint[..., 1], 1 - joint[..., 0]  # P(x, 1) and 1 - P(x, 0)
    return mu, pb.Atoms(joint, np.minimum(np.maximum(mu, limits[0]), limits[1]))


def test_a_free_arm_is_its_logit_moved_between_the_limits_of_the_joint_law():
    draws = make_draws()._replace(link="free")
    raw = np.array([draws.center + draws.factors @ one for one in draws.coefficients])
    mu, wanted = link_freely(raw)
    found = draws.atoms()
    assert_close(found, wanted)
    assert_close(found, pb.project_to_compatible(pb.Atoms(wanted.joint, mu)))
    moved = ~np.isclose(found.mu, mu)
    assert 0.1 < moved.mean() < 0.9  # both kinds of numbers are there
    anchored = draws._replace(link="anchored").atoms()
    np.testing.assert_array_equal(found.joint, anchored.joint)
    assert np.abs(found.mu - anchored.mu).max() > 0.1


def test_free_draws_are_scaled_before_they_are_linked():
    draws = make_draws()._replace(link="free")
    mean = draws.coefficients.mean(axis=0)
    moved = mean + 0.3 * (draws.coefficients - mean)
    raw = np.array([draws.center + draws.factors @ one for one in moved])
    assert_close(draws.scale(0.3).atoms(), link_freely(raw)[1])


def test_a_million_extreme_free_numbers_are_exactly_compatible_in_float32():
    """Logits up to hundreds, ties and the limits themselves; no tolerance."""
    rng = np.random.default_rng(0)
    size, num_draws = 2000, 500
    center = rng.normal(size=(size, 6)) * 10.0 ** rng.uniform(-3, 2, (size, 1))
    center[:200, 4:] = np.inf
    center[200:400, 4:] = -np.inf
    center[400:600, :4] = 0.0
    factors = rng.normal(size=(size, 6, 2)) * 10.0 ** rng.uniform(-3, 2, (size, 1, 1))
    coefficients = rng.normal(size=(num_draws, 2))
    parts = (part.astype(np.float32) for part in (center, factors, coefficients))
    atoms = pi.LinearDraws(*parts, "free").atoms()
    assert atoms.joint.dtype == atoms.mu.dtype == np.float32
    assert atoms.mu.shape == (num_draws, size, 2)
    assert np.all(pb.is_compatible(atoms))
    assert np.all((atoms.mu >= 0) & (atoms.mu <= 1))


def test_a_scale_of_the_wrong_length_is_told():
    with pytest.raises(ValueError, match="one for each of the 40 draws"):
        make_draws().scale(np.ones(3))


def test_no_points_have_no_atoms():
    draws = make_draws()
    nobody = draws._replace(center=draws.center[:0], factors=draws.factors[:0])
    assert nobody.atoms().mu.shape == (NUM_DRAWS, 0, 2)
