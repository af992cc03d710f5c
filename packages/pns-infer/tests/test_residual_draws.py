"""Draws of a cell's law: moments in closed form, limits, and no incompatible law."""

import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from pns_infer.calibration import residual_draws as _residual_draws
from residual_examples import MODEL, repeat

OBSERVATIONAL = np.array([[30, 12], [9, 41]])
EXPERIMENTAL = np.array([[22, 14], [11, 30]])


def make_settings(
    strength=200.0,
    share=1.0,
    size=1,
    experimental_strength=None,
    rare_factor=1.0,
):
    fields = (1.0, strength, experimental_strength or strength, share)
    return pi.ResidualSettings(
        *(np.full(size, value) for value in (*fields, share, rare_factor))
    )


def make_profile(settings, weight=(1.0,)):
    return pi.ResidualProfile(settings, np.array(weight), np.zeros(len(weight)), 0.0)


def draw_cell(rng, draws, observational, experimental, settings, is_rare=False):
    """Draws the law of one cell."""
    cells = pb.Atoms(*(part[:, None] for part in draws))
    drawn = pi.draw_residual(
        [rng],
        cells,
        *(observational[None], experimental[None], settings, np.array([is_rare])),
    )
    return pb.Atoms(*(part[:, 0] for part in drawn))


def draw(settings, size):
    rng, draws = np.random.default_rng(0), repeat(MODEL, size)
    return draw_cell(rng, draws, OBSERVATIONAL, EXPERIMENTAL, settings)


def test_cells_are_drawn_as_each_would_be_alone():
    """Counts, model, settings and rarity are each cell's own; the others' do not matter."""
    rng, size = np.random.default_rng(0), 50
    draws = pb.project_to_compatible(
        pb.Atoms(
            rng.dirichlet(np.ones(4), (size, 3)).reshape(size, 3, 2, 2),
            rng.random((size, 3, 2)),
        )
    )
    counts = rng.integers(0, 50, (2, 3, 2, 2))
    highest = (1, 90, 90, 1, 1, 1)
    settings = pi.ResidualSettings(*(rng.uniform(0, high, size) for high in highest))
    is_rare = np.array([False, True, False])
    together = pi.draw_residual(
        [np.random.default_rng(i) for i in range(3)], draws, *counts, settings, is_rare
    )
    for i in range(3):
        alone = draw_cell(
            np.random.default_rng(i),
            pb.Atoms(*(part[:, i] for part in draws)),
            *(counts[0, i], counts[1, i], settings, is_rare[i]),
        )
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_array_equal(one[:, i], other)


def test_a_rare_cell_has_the_strength_times_the_factor():
    size = 500
    half = make_settings(400.0, 0.7, rare_factor=0.5)
    rng, draws = np.random.default_rng(0), repeat(MODEL, size)
    counts = (OBSERVATIONAL, EXPERIMENTAL)
    rare = draw_cell(rng, draws, *counts, half, is_rare=True)
    expected = draw(make_settings(200.0, 0.7), size)
    for given, wanted in zip(rare, expected, strict=True):
        np.testing.assert_array_equal(given, wanted)
    many = [np.repeat(part[None], 2, axis=0) for part in counts]
    means = pi.residual_mean(
        repeat(MODEL, 2), *many, make_profile(half), np.array([True, False])
    )
    for i, strength in enumerate((200.0, 400.0)):
        alone = pi.residual_mean(
            repeat(MODEL, 1),
            *(part[:1] for part in many),
            make_profile(make_settings(strength, 0.7)),
        )
        for given, wanted in zip(means, alone, strict=True):
            np.testing.assert_allclose(given[i], wanted[0], rtol=1e-12)


@pytest.mark.parametrize("share", [1.0, 0.4, 0.0])
def test_draws_have_the_mean_and_variance_of_a_dirichlet(share):
    """Counts and strength keep mu well inside its limits: no projection binds."""
    size = 40_000
    settings = make_settings(800.0, share, size, experimental_strength=400.0)
    drawn = draw(settings, size)
    outcome = np.stack([1 - MODEL.mu, MODEL.mu], axis=-1)
    shapes = [
        (drawn.joint.reshape(size, 1, 4), 800 * MODEL.joint.reshape(1, 4), (1, 4)),
        (np.stack([1 - drawn.mu, drawn.mu], axis=-1), 400 * outcome, (2, 2)),
    ]
    for (values, prior, form), counts in zip(
        shapes, (OBSERVATIONAL, EXPERIMENTAL), strict=True
    ):
        counts = counts.reshape(form)
        shape = prior + share * counts
        total = shape.sum(axis=-1, keepdims=True)
        mean = shape / total
        variance = mean * (1 - mean) / (total + 1)
        error = np.sqrt(variance.max() / size)
        np.testing.assert_allclose(values.mean(axis=0), mean, atol=4.5 * error)
        np.testing.assert_allclose(
            values.var(axis=0), variance, rtol=5 * np.sqrt(2 / size)
        )


@pytest.mark.parametrize("is_rare", [False, True])
def test_the_mean_of_draws_is_residual_mean(is_rare):
    """Counts of another law, and strengths whose average has a far smaller weight."""
    size = 40_000
    fields = ([1, 1], [32, 65536], [32, 32768], [1, 0.5], [0.5, 1], [0.5, 1])
    settings = pi.ResidualSettings(*(np.array(field, float) for field in fields))
    profile = make_profile(settings, (0.6, 0.4))
    counts = np.array([[120, 100], [80, 100]]), np.array([[60, 60], [30, 90]])
    drawn = draw_cell(
        np.random.default_rng(0),
        repeat(MODEL, size),
        *counts,
        profile.sample(np.random.default_rng(1), size),
        is_rare,
    )
    many = [part[None] for part in counts]
    mean, at_the_average = (
        pi.residual_mean(repeat(MODEL, 1), *many, one, np.array([is_rare]))
        for one in (profile, make_profile(profile.mean()))
    )
    for draws, value, other in zip(drawn, mean, at_the_average, strict=True):
        error = draws.std(axis=0).max() / np.sqrt(size)
        np.testing.assert_allclose(draws.mean(axis=0), value[0], atol=4.5 * error)
        assert np.abs(draws.mean(axis=0) - other[0]).max() > 20 * error


def test_endless_strength_gives_the_model_and_endless_counts_the_frequencies():
    settings = make_settings(1e14, size=50)
    drawn = draw(settings, 50)
    for values, expected in zip(drawn, MODEL, strict=True):
        np.testing.assert_allclose(
            values, np.broadcast_to(expected, values.shape), 1e-5
        )
    counts = 1e14 * MODEL.joint[::-1], 1e14 * np.array([[0.5, 0.5], [0.5, 0.5]])
    drawn = draw_cell(
        np.random.default_rng(0), repeat(MODEL, 50), *counts, make_settings(32.0)
    )
    np.testing.assert_allclose(drawn.joint - MODEL.joint[::-1], 0, atol=1e-5)
    np.testing.assert_allclose(drawn.mu, 0.5, atol=1e-5)


def extreme_laws(rng, size):
    cells = np.exp(rng.uniform(-40, 0, (size, 4)))
    cells[: size // 8] = np.eye(4)[rng.integers(0, 4, size // 8)]
    joint = (cells / cells.sum(axis=-1, keepdims=True)).reshape(-1, 2, 2)
    mu = np.where(rng.random((size, 2)) < 0.3, 0.0, rng.random((size, 2)))
    return pb.project_to_compatible(pb.Atoms(joint, mu))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("strength", [1e-6, 0.02, 32.0, 65536.0, 1e15])
@pytest.mark.parametrize(
    "counts",
    [
        np.zeros((2, 2)),
        np.array([[0.3, 0.0], [1e-9, 2.7]]),
        np.array([[0, 10**12], [3, 0]]),
        np.full((2, 2), 1e200),
    ],
    ids=["none", "fractional", "large", "huge"],
)
def test_draws_are_compatible_with_no_tolerance(counts, strength, dtype):
    """Tiny shapes underflow by the thousand; contradicting counts are projected."""
    rng = np.random.default_rng(0)
    draws = pb.Atoms(*(part.astype(dtype) for part in extreme_laws(rng, 500)))
    settings = make_settings(strength, 0.3, 500)
    drawn = draw_cell(rng, draws, counts, counts[::-1], settings)
    mean = pi.residual_mean(
        draws,
        np.broadcast_to(counts, (500, 2, 2)),
        np.broadcast_to(counts[::-1], (500, 2, 2)),
        make_profile(make_settings(strength)),
    )
    assert mean.mu.dtype == mean.joint.dtype == dtype
    for atoms in (drawn, mean):
        assert np.all(pb.is_compatible(atoms))
        assert all(np.all((part >= 0) & (part <= 1)) for part in atoms)
        np.testing.assert_allclose(atoms.joint.sum(axis=(1, 2)), 1, rtol=1e-6)


def test_tiny_shapes_keep_their_mean_where_totals_underflow():
    """With shapes of 0.003 and 0.001 a fifth of all totals is 0 and is drawn again."""
    size = 20_000
    shape = np.broadcast_to([0.003, 0.001], (size, 1, 2))
    drawn = _residual_draws._draw_dirichlet(np.random.default_rng(0), shape)
    assert drawn.shape == (1, 2, size)
    error = np.sqrt(0.75 * 0.25 / size)
    np.testing.assert_allclose(drawn[0, 0].mean(), 0.75, atol=4 * error)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draws_keep_the_dtype_and_are_compatible(dtype):
    model = pb.Atoms(*(part[:, None].astype(dtype) for part in repeat(MODEL, 50)))
    counts = (OBSERVATIONAL[None], EXPERIMENTAL[None])
    rngs = [np.random.default_rng(0)]
    drawn = pi.draw_residual(rngs, model, *counts, make_settings(5.0, 0.1))
    assert drawn.joint.dtype == drawn.mu.dtype == dtype
    assert np.all(pb.is_compatible(drawn))


def test_jax_arrays_give_the_same_as_numpy():
    draws = repeat(MODEL, 5)
    single = pb.Atoms(*(part.astype(np.float32) for part in draws))
    other = pb.Atoms(*(jnp.asarray(part) for part in single))
    args = OBSERVATIONAL, EXPERIMENTAL, make_settings()
    many = [np.broadcast_to(part, (5, 2, 2)) for part in args[:2]]
    for left, right in (
        [
            draw_cell(np.random.default_rng(0), atoms, *args)
            for atoms in (single, other)
        ],
        [
            pi.residual_mean(atoms, *many, make_profile(args[2]))
            for atoms in (single, other)
        ],
    ):
        for a, b in zip(left, right, strict=True):
            assert isinstance(b, np.ndarray)
            np.testing.assert_array_equal(a, b)


def test_draws_and_means_say_what_does_not_fit():
    rng = np.random.default_rng(0)
    counts, draws = np.ones((2, 2)), repeat(MODEL, 3)
    with pytest.raises(pb.InputError, match="mu of draws must have shape"):
        pi.draw_residual([rng], draws, counts[None], counts[None], make_settings())
    with pytest.raises(pb.InputError, match="rngs must be 1, one for each cell, got 2"):
        cells = pb.Atoms(*(part[:, None] for part in draws))
        pi.draw_residual([rng] * 2, cells, counts[None], counts[None], make_settings())
    with pytest.raises(pb.InputError, match=r"observational must have shape \[1, 2"):
        draw_cell(rng, draws, counts[None], counts, make_settings())
    with pytest.raises(pb.InputError, match="strength must hold 1 or 3 numbers"):
        draw_cell(rng, draws, counts, counts, make_settings(size=2))
    with pytest.raises(pb.InputError, match="strength must be positive and finite"):
        draw_cell(rng, draws, counts, counts, make_settings(strength=-1.0))
    with pytest.raises(pb.InputError, match="share must lie between 0 and 1"):
        draw_cell(rng, draws, counts, counts, make_settings(share=1.1))
    with pytest.raises(pb.InputError, match=r"experimental must have shape \[3, 2"):
        profile = make_profile(make_settings())
        pi.residual_mean(repeat(MODEL, 3), np.ones((3, 2, 2)), counts, profile)
    with pytest.raises(pb.InputError, match="strength must hold 1 numbers"):
        pi.residual_mean(
            repeat(MODEL, 3),
            np.ones((3, 2, 2)),
            np.ones((3, 2, 2)),
            make_profile(make_settings(size=3)),
        )
