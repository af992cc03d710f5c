"""Members: what they draw, weigh and lose, and what they never see."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pns_models as pm
import pytest
from flax import nnx
from pns_models import _members
from pns_models._data import flat_weights
from pns_models._links import loss_by_index
from pns_models._network_learner import make_states

pytestmark = pytest.mark.usefixtures("quick_compilation")
RECIPE = pm.Recipe(
    pm.AnchoredConfig(pm.Backbone(4, 1, bottleneck=2)),
    pm.make_member_training(max_steps=8, batch_size=32),
)


@pytest.fixture(scope="module")
def folded(small):
    rows = pm.rows_from_tables(*small.tables())
    folded, _ = rows.deal(np.random.default_rng(0), 3).folded()
    # One count is 0 everywhere, one only outside fold 1.
    folded.counts.observational[folded.cell == 0, 0, 1] = 0
    folded.counts.experimental[(folded.cell == 1) & (folded.fold != 1), 1, 1] = 0
    return folded


def seen_counts(folded, fold):
    """Adds up the counts of each cell outside a fold, row by row."""
    seen = np.zeros((folded.cell.max() + 1, 8))
    for cell, own, weights in zip(
        folded.cell, folded.fold, flat_weights(folded.counts), strict=True
    ):
        seen[cell] += weights * (own != fold)
    return seen


def chances(folded, fold):
    """Computes the probability of a visit to each cell."""
    seen = seen_counts(folded, fold)
    sources = seen[:, :4].sum(axis=1), seen[:, 4:].sum(axis=1)
    return sum(part / part.sum() for part in sources) / 2


def make_resamples(folded, seed=0):
    """Two members for each of three folds; each sees half of what is outside."""
    return pm.Resamples(folded, per_fold=2, share=0.5, seed=seed)


def make_cells(folded, batch_size):
    standardizer = pm.make_standardizer(folded.counts)
    return _members.make_cells(make_resamples(folded), standardizer, batch_size)


def test_entries_are_numbered_and_what_is_0_shares_the_last_number(folded):
    cells = make_cells(folded, 64)
    np.testing.assert_array_equal(cells.z[folded.cell], folded.counts.z)
    entry, totals = np.asarray(cells.entry), folded.cell_totals()
    np.testing.assert_array_equal(entry[totals > 0], np.arange((totals > 0).sum()))
    assert np.all(entry[totals == 0] == (totals > 0).sum())
    assert (totals == 0).any(), "or nothing shares the last number"


def test_cells_are_drawn_in_proportion_to_units_outside_the_fold(folded):
    """Half by each source; stratified draws vary less than binomial ones."""
    cells = make_cells(folded, 64)
    draw = jax.jit(jax.vmap(_members._draw_places, in_axes=(0, None, None)))
    keys = jax.random.split(jax.random.key(0), 500)
    for j in range(3):
        chance = np.diff(np.asarray(cells.tickets[j], float), prepend=0)
        np.testing.assert_allclose(chance / chance.sum(), chances(folded, j), rtol=1e-5)
        places = np.asarray(draw(keys, cells.tickets[j], cells.starts[j])).ravel()
        found = np.bincount(places, minlength=len(chance))
        expected = chances(folded, j) * len(places)
        error = 4 * np.sqrt(np.maximum(expected, 1)) * (expected > 0)
        assert np.all(np.abs(found - expected) <= error)


def test_cells_of_the_held_out_fold_alone_are_never_drawn():
    """They lie first, in between and last."""
    tickets = jnp.array([0, 5, 5, 9, 9, 9], jnp.int32)
    for size in (3, 9):
        starts = jnp.arange(size + 1) * 9 // size
        draw = jax.vmap(_members._draw_places, in_axes=(0, None, None))
        keys = jax.random.split(jax.random.key(0), 400)
        places = np.asarray(draw(keys, tickets, starts))
        assert set(places.ravel()) == {1, 3}
        if size == 9:
            np.testing.assert_array_equal(places[0], [1] * 5 + [3] * 4)


def test_very_many_units_keep_their_proportions_and_nobody_is_lost():
    seen = np.zeros((4, 2, 2, 2))
    seen[:, 0, 0, 0] = [3e9, 1e9, 5e8, 2.0]
    seen[:, 1, 1, 0] = [6e9, 2e9, 1e9, 4.0]
    tickets = _members._num_tickets(seen)
    assert tickets.min() >= 1 and tickets.sum() < 2**31
    np.testing.assert_allclose(tickets[:3] / tickets[0], [1, 1 / 3, 1 / 6], rtol=1e-5)


def test_a_visit_is_weighed_by_its_chance(folded):
    """L_obs and L_exp are means, so each source's units are divided by their number."""
    resamples = make_resamples(folded)
    weights = _members.visit_weights(resamples)
    np.testing.assert_array_equal(weights[:, -1], 0)
    for member in (1, 4):
        own = resamples.weights(member)
        units = [own[resamples.source == source].sum() for source in (0, 1)]
        per_visit = np.array(units)[resamples.source]
        per_visit *= chances(folded, 1)[resamples.cell]
        total = np.asarray(weights[member, :-1], np.float64) * per_visit
        np.testing.assert_allclose(total, own, rtol=1e-5)


def test_the_expected_loss_of_a_visit_is_that_of_the_units_seen(small, folded):
    """Every cell once, its loss times its chance; the dense loss knows no visits."""
    network, cells = small.network(), make_cells(folded, 64)
    resamples, member = make_resamples(folded, 1), 5
    weights = jnp.asarray(_members.visit_weights(resamples)[member])
    one = jax.jit(
        jax.vmap(lambda c: _members.member_loss(network, cells, c[None], weights))
    )
    losses = np.asarray(one(jnp.arange(len(cells.z))))
    dense = resamples.counts(member).reshape(-1, 8)
    units = np.array([dense[:, :4].sum(), dense[:, 4:].sum()])
    expected = jax.jit(loss_by_index, static_argnums=3)(
        network.encode(cells.standardizer.compiled(cells.z))[None],
        jnp.asarray(dense, jnp.float32),
        jnp.asarray(units, jnp.float32),
        "anchored",
    )
    np.testing.assert_allclose(losses @ chances(folded, 2), expected[0], rtol=1e-4)


def test_a_member_never_sees_its_fold(folded):
    """Counts of fold 1 are multiplied: its members do not move, the others do."""
    factor = np.where(folded.fold == 1, 7, 1)[:, None, None]
    wild = folded._replace(
        counts=folded.counts._replace(
            observational=folded.counts.observational * factor,
            experimental=folded.counts.experimental * factor,
        )
    )
    results, standardizer = [], pm.make_standardizer(folded.counts)
    for data in (folded, wild):
        resamples = pm.Resamples(data, per_fold=2)
        program, members = make_states(jax.random.key(0), resamples, RECIPE)
        cells = _members.make_cells(resamples, standardizer, 32)
        results.append(_members.train_members(program, 4, members, cells))
    mine = np.asarray(members.fold) == 1
    assert mine.tolist() == [False, True, False, False, True, False]
    (before, losses), (after, wild_losses) = results
    chex.assert_trees_all_equal(
        jax.tree.map(lambda leaf: leaf[mine], before.params),
        jax.tree.map(lambda leaf: leaf[mine], after.params),
    )
    np.testing.assert_array_equal(losses[mine], wild_losses[mine])
    assert np.all(losses[~mine] != wild_losses[~mine])


def test_members_do_not_depend_on_each_other(folded):
    """In the opposite order, each trains as before; a second chunk follows the first."""
    cells = make_cells(folded, 32)
    program, members = make_states(jax.random.key(0), make_resamples(folded), RECIPE)
    backwards = jax.tree.map(lambda leaf: leaf[::-1], members)
    results = []
    for some in (members, backwards):
        half, first = _members.train_members(program, 4, some, cells)
        whole, second = _members.train_members(program, 4, half, cells)
        assert half.step.tolist() == [4] * 6 and whole.step.tolist() == [8] * 6
        results.append((whole.params, jnp.stack([first, second], axis=1)))
    chex.assert_shape(results[0][1], (6, 2))
    assert len(np.unique(results[0][1])) == 12, "all draw batches of their own"
    chex.assert_trees_all_equal(
        results[0], jax.tree.map(lambda leaf: leaf[::-1], results[1])
    )


def test_steps_are_those_of_optax_with_a_cosine_decay_and_one_program_serves_all(
    folded,
):
    """Against a loop over the steps of a member, with optax's own schedule."""
    cells, num_steps = make_cells(folded, 32), 6
    resamples = make_resamples(folded)
    program, members = make_states(jax.random.key(0), resamples, RECIPE)
    decay_steps = np.full_like(members.decay_steps, num_steps + 2)
    members = members._replace(decay_steps=decay_steps)
    found, mean = _members.train_members(program, num_steps, members, cells)
    size = _members.train_members._cache_size()
    _members.train_members(
        program, 2, members._replace(decay_steps=decay_steps + 5), cells
    )
    assert _members.train_members._cache_size() == size
    optimizer = dataclasses.replace(program.optimizer, decay_steps=num_steps + 2)
    transformation, number = optimizer.transformation(), 4
    member = jax.tree.map(lambda leaf: leaf[number], members)
    params, moments, losses = member.params, transformation.init(member.params), []
    for step in range(num_steps):
        key = jax.random.fold_in(member.key, step)
        fold = cells.tickets[member.fold], cells.starts[member.fold]
        places = _members._draw_places(key, *fold)

        def loss(params, places=places):
            network = nnx.merge(program.structure, params)
            return _members.member_loss(network, cells, places, member.weights)

        value, gradient = jax.value_and_grad(loss)(params)
        updates, moments = transformation.update(gradient, moments, params)
        params = optax.apply_updates(params, updates)
        losses.append(float(value))
    own = jax.tree.map(lambda leaf: leaf[number], found.params)
    chex.assert_trees_all_close(own, params, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mean[number], np.mean(losses), rtol=1e-5)
