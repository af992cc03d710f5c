"""Members: what they draw, weigh and lose, and what they never see."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_models as pm
import pytest
from flax import nnx
from pns_models import _members
from pns_models._data import flat_weights
from pns_models._member_groups import _make_members
from scipy import stats

pytestmark = pytest.mark.usefixtures("quick_compilation")
RECIPE = pm.Recipe(
    pm.AnchoredConfig(pm.Backbone(4, 1, bottleneck=2)),
    pm.make_member_training(max_steps=8, batch_size=32),
)


@pytest.fixture(scope="module")
def folded(small):
    counts = pm.counts_from_tables(*small.tables(), merge=False)
    fold = pm.assign_folds(np.random.default_rng(0), counts, 3)
    return pm.fold_counts(counts, fold)[0]


def units_of(folded, entries, source):
    """Looks the count of each entry up in the table."""
    weights = flat_weights(folded.counts).reshape(-1, 2, 4)[:, source]
    return weights[np.asarray(entries.row), np.asarray(entries.outcome)]


@pytest.mark.parametrize("source", [0, 1])
def test_entries_are_the_counts_that_are_not_0(folded, source):
    entries = _members.make_entries(folded)[source]
    units = units_of(folded, entries, source)
    weights = flat_weights(folded.counts).reshape(-1, 2, 4)[:, source]
    assert np.all(units > 0) and units.sum() == weights.sum()
    fold = folded.fold[np.asarray(entries.row)]
    for j in range(3):
        visits = np.diff(np.asarray(entries.ends[j]), prepend=0)
        np.testing.assert_array_equal(visits, np.where(fold == j, 0, units))


@pytest.mark.parametrize("source", [0, 1])
def test_entries_are_drawn_in_proportion_to_units_outside_the_fold(folded, source):
    """Stratified draws of k visits to an entry vary less than binomial ones."""
    entries = _members.make_entries(folded)[source]
    units = units_of(folded, entries, source)
    fold = folded.fold[np.asarray(entries.row)]
    draw = jax.jit(
        jax.vmap(_members._draw_places, in_axes=(0, None, None)), static_argnums=2
    )
    keys = jax.random.split(jax.random.key(0), 500)
    for j in range(3):
        places = np.asarray(draw(keys, entries.ends[j], 64)).ravel()
        seen = np.bincount(places, minlength=len(units))
        assert seen[fold == j].sum() == 0
        share = np.where(fold == j, 0, units) / units[fold != j].sum()
        expected = share * len(places)
        error = 4 * np.sqrt(np.maximum(expected, 1))
        assert np.all(np.abs(seen - expected) <= error)


def test_draws_at_the_last_place_do_not_reach_the_held_out_fold(monkeypatch):
    """The largest uniform number rounds up to the end, behind which the fold lies."""
    largest = np.float32(1 - 2**-24)
    monkeypatch.setattr(jax.random, "uniform", lambda key, s: jnp.full(s, largest))
    ends = jnp.array([0, 5, 9, 9, 9], jnp.int32)  # entries 0, 3 and 4 are held out
    for size in (4, 256, 4096):
        places = np.asarray(_members._draw_places(jax.random.key(0), ends, size))
        assert set(places) <= {1, 2} and places[-1] == 2


def test_very_many_units_keep_their_proportions():
    """More than 2**31 of them, which int32 cannot count."""
    counts = np.array([3e9, 1e9, 5e8, 2.0], np.float32)
    visits = _members._num_visits(counts)
    assert visits.sum() < 2**23 and visits.min() >= 1
    np.testing.assert_allclose(visits[:3] / visits[0], counts[:3] / 3e9, rtol=1e-5)
    rng = np.random.default_rng(0)
    weights = np.asarray(_members._weights_of(rng, counts, 4))
    # A visit to the entry of two units stands for two, the others for many more.
    per_unit = weights[:, :3] * visits[:3] / counts[:3]
    np.testing.assert_allclose(per_unit / per_unit[0, 0], 1, rtol=1e-3)


def test_weights_have_mean_1_and_the_variance_of_the_mean_of_exponentials(folded):
    """The law of c units' mean weight is Gamma(c) / c: tested by its own quantiles."""
    num_members = 2000
    drawn = _members.draw_weights(np.random.default_rng(0), folded, num_members)
    for source, entries in enumerate(_members.make_entries(folded)):
        counts = units_of(folded, entries, source)
        weights = np.asarray(drawn[source], np.float64)
        chex.assert_shape(weights, (num_members, len(counts)))
        error = 4.5 / np.sqrt(num_members * counts)
        assert np.all(np.abs(weights.mean(axis=0) - 1) < error)
        # The variance of a sample variance of Gamma(c) / c: (2 + 6 / c) / (m c^2).
        error = 5 * np.sqrt((2 + 6 / counts) / num_members) / counts
        assert np.all(np.abs(weights.var(axis=0) - 1 / counts) < error)
        law = stats.gamma(counts[0], scale=1 / counts[0])
        assert stats.kstest(weights[:, 0], law.cdf).pvalue > 1e-3
        correlation = np.corrcoef(weights.T)[np.triu_indices(len(counts), 1)]
        assert np.abs(correlation).max() < 4.5 / np.sqrt(num_members)


def test_fractional_counts_weigh_what_they_are_and_sources_count_alike(folded):
    """All observational units weigh a tenth: L_obs is a mean, so it stays what it was."""
    light = folded._replace(
        counts=folded.counts._replace(observational=folded.counts.observational / 10)
    )
    entries = _members.make_entries(light)[0]
    counts = units_of(light, entries, 0)
    visits = np.diff(np.asarray(entries.ends).sum(axis=0), prepend=0) / 2  # three folds
    drawn = _members.draw_weights(np.random.default_rng(0), light, 4000)[0]
    share = np.asarray(drawn, np.float64).mean(axis=0) * visits
    expected = counts * visits.sum() / counts.sum()
    error = 4.5 * expected / np.sqrt(4000 * counts)
    assert np.all(np.abs(share - expected) < error)


def test_the_loss_is_that_of_the_counts_when_every_unit_is_visited_once(small):
    """As many units of each source, so that one batch holds them all."""
    counts = pm.counts_from_tables(*small.tables(240, 240), merge=False)
    fold = pm.assign_folds(np.random.default_rng(0), counts, 2)
    folded, _ = pm.fold_counts(counts, fold)
    entries = _members.make_entries(folded)
    places, weights, dense = [], [], []
    rng = np.random.default_rng(1)
    for source, part in enumerate(entries):
        units = units_of(folded, part, source).astype(int)
        places.append(jnp.asarray(np.repeat(np.arange(len(units)), units)))
        weight = rng.exponential(size=len(units)).astype(np.float32)
        table = np.zeros((len(folded.fold), 4), np.float32)
        table[np.asarray(part.row), np.asarray(part.outcome)] = units * weight
        weights.append(jnp.asarray(weight))
        dense.append(table)
    network, z = small.network(), jnp.asarray(folded.counts.z)
    loss = jax.jit(lambda *data: _members.member_loss(network, *data))(
        z, entries, tuple(places), tuple(weights)
    )
    expected = jax.jit(pm.loss_by_index, static_argnums=3)(
        network.encode(z)[None],
        jnp.concatenate(dense, axis=1),
        jnp.array([240.0, 240.0]),
        "anchored",
    )
    np.testing.assert_allclose(loss, expected[0], rtol=1e-5)


def test_a_member_never_sees_its_fold(folded):
    """Outcomes, weights and covariates of fold 1 become nonsense: its members do not move.

    The others do: NaN covariates reach them.
    """
    z = jnp.asarray(folded.counts.z)
    program, members = _make_members(jax.random.key(0), folded, 3, RECIPE, 2)
    entries = _members.make_entries(folded)
    wild_z = jnp.where((folded.fold == 1)[:, None], jnp.nan, z)
    wild_entries, wild_weights = [], []
    for part, weights in zip(entries, members.weights, strict=True):
        inside = folded.fold[np.asarray(part.row)] == 1
        wild_entries.append(
            part._replace(outcome=jnp.where(inside, 3 - part.outcome, part.outcome))
        )
        wild_weights.append(jnp.where(inside, 1e6, weights))
    wild = members._replace(weights=tuple(wild_weights))
    before, losses = _members.train_members(program, 4, members, z, entries)
    after, wild_losses = _members.train_members(
        program, 4, wild, wild_z, tuple(wild_entries)
    )
    mine = np.asarray(members.fold) == 1
    assert mine.tolist() == [False, True, False, False, True, False]
    chex.assert_trees_all_equal(
        jax.tree.map(lambda leaf: leaf[mine], before.params),
        jax.tree.map(lambda leaf: leaf[mine], after.params),
    )
    np.testing.assert_array_equal(losses[mine], wild_losses[mine])
    assert np.isfinite(losses).all()
    assert np.isnan(wild_losses[~mine]).any(axis=1).all()


def test_members_do_not_depend_on_each_other(folded):
    """In the opposite order, each trains as before; a second chunk follows the first."""
    z, entries = jnp.asarray(folded.counts.z), _members.make_entries(folded)
    program, members = _make_members(jax.random.key(0), folded, 3, RECIPE, 2)
    backwards = jax.tree.map(lambda leaf: leaf[::-1], members)
    results = []
    for some in (members, backwards):
        half, first = _members.train_members(program, 4, some, z, entries)
        whole, second = _members.train_members(program, 4, half, z, entries)
        assert half.step.tolist() == [4] * 6 and whole.step.tolist() == [8] * 6
        results.append((whole.params, jnp.concatenate([first, second], axis=1)))
    chex.assert_shape(results[0][1], (6, 8))
    assert len(np.unique(results[0][1])) == 48, "all draw batches of their own"
    chex.assert_trees_all_equal(
        results[0], jax.tree.map(lambda leaf: leaf[::-1], results[1])
    )


def test_raw_numbers_of_members_are_those_of_their_networks(folded):
    z = jnp.asarray(folded.counts.z)
    program, members = _make_members(jax.random.key(0), folded, 3, RECIPE, 2)
    raw = _members.member_raw(program.structure, members.params, z)
    chex.assert_shape(raw, (6, len(z), 6))
    params = jax.tree.map(lambda leaf: leaf[4], members.params)
    network = nnx.merge(program.structure, params)
    np.testing.assert_allclose(raw[4], network.encode(z), atol=1e-5)
