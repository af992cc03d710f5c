"""Samplers on an ensemble: draws from factors against draws by a pass per index."""

import dataclasses

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
import pytest
from pns_estimate.answers.prediction import Draws
from pns_estimate.methods import disagreement
from pns_estimate.methods.network import NetworkSampler
from pns_estimate.methods.residual import CellCounts, ResidualSampler
from pns_estimate.methods.stack import StackSampler
from pns_estimate.methods.wrapper import ScaledSampler
from small_stacks import make_stack

KEY, NUM_DRAWS = jax.random.key(0), 50


@dataclasses.dataclass(frozen=True)
class PerIndex:
    """A network sampler that knows nothing of factors."""

    model: pm.FittedModel
    has_draws, is_posterior = True, False

    def atoms(self, z):
        return self.model.atoms(z)

    def draws(self, key, z, num_draws):
        return self.model.draws(key, z, num_draws)


@pytest.fixture(scope="module")
def model():
    """An ensemble that was not trained, on two covariates."""
    config = pm.EnsembleConfig(pm.Backbone(width=4, depth=0), num_members=5)
    scale = pm.Standardizer(
        np.zeros(2, np.float32), np.ones(2, np.float32), np.zeros(2, bool)
    )
    network = config.make(jax.random.key(1), 2)
    return pm.FittedModel(network, pm.Recipe(config), scale)


def add_counts(inner):
    """Two cells are known; settings differ between draws."""
    cells = CellCounts(
        np.array([[0.0, 0.0], [1.0, 0.0]], np.float32),
        np.array([[50.0, 40, 30, 80, 30, 20, 10, 40], [9, 5, 3, 8, 7, 0, 4, 4]]),
    )
    values = [(0.5, 90, 70, 0.5, 1, 0.5), (1.5, 40, 90, 1, 0.3, 1.0)]
    settings = pi.ResidualSettings(*np.array(values, float).T)
    profile = pi.ResidualProfile(settings, np.array([0.3, 0.7]), np.zeros(2), 30.0)
    return ResidualSampler(inner, cells, profile)


def add_scale(inner):
    return ScaledSampler(inner, 0.6)


def draw_people(n):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 2)).astype(np.float32)
    z[: n // 3] = rng.integers(0, 2, (n // 3, 2))
    return z


def assert_close(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize(
    "wrappers",
    [(), (add_scale,), (add_scale, add_scale)],
    ids=["alone", "scaled", "twice"],
)
def test_draws_from_factors_are_those_of_a_pass_per_index(model, wrappers):
    fast, slow = NetworkSampler(model), PerIndex(model)
    for wrap in wrappers:
        fast, slow = wrap(fast), wrap(slow)
    z = draw_people(70)
    found = fast.draws(KEY, z, NUM_DRAWS)
    assert_close(found, slow.draws(KEY, z, NUM_DRAWS))
    assert np.all(pb.is_compatible(found)) and found.mu.dtype == np.float32
    linear = fast.linear_draws(KEY, z, NUM_DRAWS)
    assert linear is not None and linear.factors.shape == (70, 6, 5)
    if wrappers:
        assert slow.linear_draws(KEY, z, NUM_DRAWS) is None


def test_a_residual_scales_the_same_draws_by_its_settings(model):
    z = draw_people(70)
    (fast, settings), (slow, same) = (
        add_counts(inner)._draw_inner(KEY, z, NUM_DRAWS, seed=3)
        for inner in (NetworkSampler(model), PerIndex(model))
    )
    assert_close(fast, slow)
    assert_close(settings, same)
    assert len(set(settings.draw_scale)) == 2


@pytest.fixture(params=["network", "stack"])
def inner(request, model):
    if request.param == "network":
        return NetworkSampler(model)
    return StackSampler(make_stack())


@pytest.mark.parametrize("wrap", [add_counts, add_scale])
def test_an_answer_does_not_depend_on_who_else_is_asked_about_nor_on_their_order(
    inner, wrap
):
    """Draws are made in blocks of other sizes, filled up and on several threads."""
    sampler, z = wrap(inner), draw_people(600)

    def answer(chosen):
        draws = Draws(sampler, KEY, z[chosen], 200)
        credible = pi.credible_intervals(draws, 0.1)
        corrected = pi.intervals_from_draws(draws, 0.1, sample_size=1000)
        return np.stack([*credible[:4], *corrected[:4]])

    together = answer(np.arange(600))
    order = np.random.default_rng(1).permutation(600)
    for chosen in (order, order[:130], order[:90], order[:1]):
        np.testing.assert_allclose(answer(chosen), together[:, chosen], atol=2e-5)
    assert together[[1, 5]].std(axis=1).min() > 0.01  # upper ends differ


@pytest.mark.parametrize("wrap", [add_counts, add_scale])
def test_other_people_or_another_seed_compile_nothing(inner, wrap, num_compiled):
    sampler, z = wrap(inner), draw_people(700)

    def ask(num_people, seed):
        draws = Draws(sampler, jax.random.key(seed), z[:num_people], 200)
        pi.credible_intervals(draws, 0.1)
        pi.intervals_from_draws(draws, 0.1, sample_size=1000)

    ask(90, 0)
    ask(700, 0)
    compiled = num_compiled()
    for num_people, seed in ((130, 0), (1, 0), (650, 0), (90, 1)):
        ask(num_people, seed)
    assert num_compiled() == compiled
    jax.jit(lambda x: x + 1)(1.0)
    assert num_compiled() > compiled  # a program is seen


def test_wrappers_hand_on_the_disagreement_of_a_stack_and_of_nothing_else(model):
    z, stack = draw_people(30), make_stack()
    wanted = stack.disagreement(z)
    assert wanted.min() > 0
    inner = StackSampler(stack)
    for sampler in (inner, add_scale(inner), add_scale(add_counts(inner))):
        np.testing.assert_array_equal(disagreement(sampler, z), wanted)
    assert disagreement(add_scale(add_counts(NetworkSampler(model))), z) is None
    parts = ("names", "members", "weights")
    one = {name: getattr(stack, name)[:1] for name in parts}
    alone = add_scale(StackSampler(dataclasses.replace(stack, **one)))
    assert np.isnan(disagreement(alone, z)).all()
