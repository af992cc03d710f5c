"""Stacks: pooled answers, their error and its size, and weights that are best."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from pns_models import _stack
from pns_models._learner import RunContext
from pns_models._links import log_probabilities
from scipy import optimize, special

SOURCE = np.array([0, 0, 0, 0, 1, 1])  # of each raw number


def make_answers(num_classes=3, num_rows=4, seed=0):
    """Draws what classes say."""
    rng = np.random.default_rng(seed)
    return list(rng.normal(size=(num_classes, num_rows, 6)).astype(np.float32))


def make_weights(num_classes=3, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(num_classes), 2).T


def test_the_center_is_the_weighted_mean_of_the_classes():
    answers, weights = make_answers(), make_weights()
    center = _stack.pool(answers, weights).center
    for row, number in itertools.product(range(4), range(6)):
        expected = sum(
            weight[SOURCE[number]] * float(raw[row, number])
            for raw, weight in zip(answers, weights, strict=True)
        )
        np.testing.assert_allclose(center[row, number], expected, atol=1e-5)


@pytest.mark.parametrize("numbers", [[0, 1, 2, 3], [4, 5]])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_draws_have_the_covariance_of_a_class_drawn_by_its_weight(numbers, scale):
    """That of a mixture, by its first two moments.

    With a size of the error everyone has the same further variance, and all of it is
    scaled.
    """
    answers, weights = make_answers(), make_weights()
    even = np.array([0.5, 2.0])
    size = None if scale is None else _stack.ErrorSize(np.array([scale, 2.0]), even)
    linear = _stack.pool(answers, weights, size)
    weight = weights[:, SOURCE[numbers[0]]]
    for row in range(4):
        said = [raw[row, numbers].astype(float) for raw in answers]
        first = sum(w * each for w, each in zip(weight, said, strict=True))
        second = sum(
            w * np.outer(each, each) for w, each in zip(weight, said, strict=True)
        )
        expected = second - np.outer(first, first)
        if scale is not None:
            source = SOURCE[numbers[0]]
            expected = expected + even[source] ** 2 * np.eye(len(numbers))
            expected = size.scale[source] ** 2 * expected
        factors = linear.factors[row, numbers].astype(float)
        np.testing.assert_allclose(factors @ factors.T, expected, rtol=1e-3, atol=1e-4)


def test_every_class_has_a_multiplier_of_its_own():
    linear = _stack.pool(make_answers(), make_weights())
    assert linear.factors.shape == (4, 6, 3)
    one = _stack.pool(make_answers(1), np.ones((1, 2)))
    np.testing.assert_array_equal(one.factors, 0)  # it differs from no other


def mean_loss_of_draws(linear, counts, num_draws):
    """Computes the expected excess loss of draws under the center, one by one."""
    rng = np.random.default_rng(1)
    base = log_probabilities(jnp.asarray(linear.center), "free")
    total = 0.0
    for _ in range(num_draws):
        normals = rng.standard_normal(linear.factors.shape[-1])
        raw = linear.center + linear.factors @ normals
        drawn = log_probabilities(jnp.asarray(raw, jnp.float32), "free")
        gap = [jnp.exp(b) * (b - d) for b, d in zip(base, drawn, strict=True)]
        log = counts.observational.sum((1, 2)) @ np.asarray(gap[0].sum((1, 2)))
        arms = (counts.experimental.sum(2) * np.asarray(gap[1].sum(2))).sum()
        total = total + np.array(
            [log / counts.observational.sum(), arms / counts.experimental.sum()]
        )
    return total / num_draws


def test_the_size_of_the_error_gives_draws_a_multiple_of_the_excess():
    """By the second order of the loss; the excess is small, so that it is exact enough."""
    _, counts = make_held_out(1)
    answers = make_answers(num_rows=400)
    weights, excess, num_draws = make_weights(), np.array([1e-3, 2e-3]), 2000
    size = _stack.size_error(_stack.pool(answers, weights), counts, excess)
    linear = _stack.pool(answers, weights, size)
    found = mean_loss_of_draws(linear, counts, num_draws)
    # The loss of a draw varies as the square of a normal at worst: sqrt(2 / draws) is 3%.
    np.testing.assert_allclose(found, _stack._CAUTION * excess, rtol=0.12)
    more = _stack.size_error(_stack.pool(answers, weights), counts, 4 * excess)
    np.testing.assert_allclose(more.scale, 2 * size.scale)
    np.testing.assert_allclose(more.even, size.even)


def test_rows_that_come_in_blocks_give_the_same_size(monkeypatch):
    _, counts = make_held_out(1)
    shown = _stack.pool(make_answers(num_rows=400), make_weights())
    excess = np.array([1e-3, 2e-3])
    whole = _stack.size_error(shown, counts, excess)
    blocks = [slice(0, 150), slice(150, 300), slice(300, 450)]  # the last is short
    monkeypatch.setattr(_stack, "row_blocks", lambda *_: iter(blocks))
    for found, expected in zip(
        _stack.size_error(shown, counts, excess), whole, strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_error_that_classes_do_not_show_is_the_same_for_everyone():
    _, counts = make_held_out(1)
    same = [np.zeros((400, 6), np.float32)]
    excess = np.array([0.01, 0.02]) / _stack._CAUTION
    size = _stack.size_error(_stack.pool(same, np.ones((1, 2))), counts, excess)
    linear = _stack.pool(same, np.ones((1, 2)), size)
    found = mean_loss_of_draws(linear, counts, 1000)
    np.testing.assert_allclose(found, [0.01, 0.02], rtol=0.2)
    np.testing.assert_array_equal(linear.factors, linear.factors[:1].repeat(400, 0))


def test_logits_of_cells_become_logarithms_when_members_are_asked():
    rng = np.random.default_rng(0)

    class Fixed:
        def raw(self, z):
            return numbers

    numbers = rng.normal(size=(2, 3, 6)).astype(np.float32)
    before = numbers.copy()
    raw = _stack.ask(Fixed(), np.zeros((3, 1), np.float32))
    np.testing.assert_array_equal(numbers, before)
    logs = np.asarray(jax.nn.log_softmax(before[..., :4]))
    np.testing.assert_allclose(raw[..., :4], logs, atol=1e-6)
    np.testing.assert_array_equal(raw[..., 4:], before[..., 4:])


def make_held_out(num_classes, num_rows=400, seed=0):
    """Draws counts, and classes that know different parts of their law."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(num_rows, 6))
    law = np.asarray(jax.nn.softmax(truth[:, :4]))
    law = law.astype(float) / law.sum(axis=1, keepdims=True, dtype=float)
    log = rng.multinomial(10, law)
    mu = 1 / (1 + np.exp(-truth[:, 4:]))
    cases = rng.binomial(5, mu)
    trial = np.stack([5 - cases, cases], axis=-1)
    counts = pm.Counts(
        np.zeros((num_rows, 1), np.float32),
        log.reshape(-1, 2, 2).astype(np.float32),
        trial.astype(np.float32),
    )
    sizes = np.linspace(0.7, 1.3, num_classes)
    held_out = [
        (truth + size * rng.normal(size=truth.shape)).astype(np.float32)
        for size in sizes
    ]
    return held_out, counts


def both_losses(raw, counts):
    """Computes the losses of the log and of the trial by the link of networks."""
    logs = log_probabilities(jnp.asarray(raw), "free")
    return [
        -float(jnp.sum(part * log) / part.sum())
        for part, log in zip(counts[1:], logs, strict=True)
    ]


def test_losses_are_those_of_the_link():
    held_out, counts = make_held_out(1)
    found = _stack.source_losses(held_out[0], counts)
    np.testing.assert_allclose(found, both_losses(held_out[0], counts), rtol=1e-5)


def test_weights_of_two_classes_are_the_best_of_a_grid():
    held_out, counts = make_held_out(2)
    found = _stack.stack_weights(held_out, counts)
    assert found.shape == (2, 2)
    grid = np.linspace(0, 1, 1001)
    pooled = (w * held_out[0] + (1 - w) * held_out[1] for w in grid)
    losses = np.array([_stack.source_losses(raw, counts) for raw in pooled])
    best = grid[np.argmin(losses, axis=0)]
    assert np.all((best > 0.5) & (best < 1)), "or the optimum is a corner"
    np.testing.assert_allclose(found[0], best, atol=0.003)


def test_weights_of_three_classes_are_those_of_sequential_quadratic_programming():
    held_out, counts = make_held_out(3)
    found = _stack.stack_weights(held_out, counts)
    for source in (0, 1):

        def loss(weights, source=source):
            raw = np.tensordot(weights, np.stack(held_out).astype(float), 1)
            return _stack.source_losses(raw, counts)[source]

        best = optimize.minimize(
            loss,
            np.full(3, 1 / 3),
            method="SLSQP",
            bounds=[(0, 1)] * 3,
            constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1},
            options={"ftol": 1e-12},
        )
        np.testing.assert_allclose(found[:, source], best.x, atol=0.005)
        assert loss(found[:, source]) < best.fun + 1e-6
    np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-9)


def test_a_useless_class_has_no_weight_and_sources_have_weights_of_their_own():
    held_out, counts = make_held_out(2)
    wild = [held_out[0], held_out[1].copy()]
    noise = np.random.default_rng(1).normal(size=(400, 4))
    wild[1][:, :4] = 30 * noise
    found = _stack.stack_weights(wild, counts)
    assert found[1, 0] < 0.01 and found[1, 1] > 0.1
    alone = _stack.stack_weights(held_out, counts)
    np.testing.assert_allclose(found[:, 1], alone[:, 1])


def test_rows_without_units_of_a_source_do_not_matter():
    held_out, counts = make_held_out(2)
    expected = _stack.stack_weights(held_out, counts)
    none = np.zeros((300, 2, 2), np.float32)
    longer = pm.Counts(*(np.concatenate([a, b]) for a, b in zip(
        counts, (np.zeros((300, 1), np.float32), none, none), strict=True
    )))  # fmt: skip
    rng = np.random.default_rng(1)
    more = [
        np.r_[raw, rng.normal(size=(300, 6)).astype(np.float32)] for raw in held_out
    ]
    np.testing.assert_allclose(_stack.stack_weights(more, longer), expected, atol=1e-4)
    losses = [
        _stack.source_losses(*pair)
        for pair in ((more[0], longer), (held_out[0], counts))
    ]
    np.testing.assert_allclose(*losses)


@pytest.fixture(scope="module")
def stack(small):
    """Ridge and trees."""
    rows = pm.rows_from_tables(*small.tables())
    folded = rows.deal(np.random.default_rng(0), 2).folded()[0]
    members = tuple(
        learner.fit(jax.random.key(0), pm.Resamples(folded), RunContext())
        for learner in (pm.LinearLearner(), pm.TreeLearner(max_trees=10))
    )
    weights = np.array([[0.3, 0.8], [0.7, 0.2]])
    size = _stack.ErrorSize(np.array([1.3, 0.8]), np.array([0.1, 0.4]))
    return pm.Stack(("ridge", "trees"), members, weights, size)


def test_a_stack_pools_what_its_members_say(stack, small, monkeypatch):
    """Also if rows come in several blocks, the last of them short."""
    z = small.tables()[0][0][:50]
    raw = [members.raw(z).mean(axis=0) for members in stack.members]
    expected = _stack.pool(raw, stack.weights, stack.size)
    for size in (4096, 16):
        monkeypatch.setattr(_stack, "_ROWS", size)
        found = stack.answer(z)
        for part, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(part, other, atol=1e-5)


def test_disagreement_is_the_largest_deviation_of_a_probability_among_classes(
    stack, small, monkeypatch
):
    """By a loop over rows, and of two classes: their distance times sqrt(w (1 - w))."""
    z = small.tables()[0][0][:20]
    first, second = (members.raw(z).mean(axis=0) for members in stack.members)
    expected = []
    for one, other in zip(first, second, strict=True):
        cells = special.softmax(one[:4]) - special.softmax(other[:4])
        arms = special.expit(one[4:]) - special.expit(other[4:])
        roots = np.sqrt(stack.weights.prod(axis=0))
        expected.append(max([*roots[0] * np.abs(cells), *roots[1] * np.abs(arms)]))
    assert len(set(np.round(expected, 4))) > 5
    for size in (4096, 16):
        monkeypatch.setattr(_stack, "_ROWS", size)
        np.testing.assert_allclose(stack.disagreement(z), expected, atol=1e-6)


def test_a_saved_stack_answers_alike(stack, small, tmp_path):
    stack.save(tmp_path)
    again = pm.Stack.load(tmp_path)
    z = small.tables()[0][0][:20]
    assert again.names == stack.names
    for part, other in zip(again.answer(z), stack.answer(z), strict=True):
        np.testing.assert_array_equal(part, other)
