"""Groups of members: they learn what they saw, and are judged on what they did not."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _member_groups, _placement
from pns_models._checkpoints import RunCheckpoints
from pns_models._data import flat_weights
from pns_models._members import make_cells, member_raw

pytestmark = pytest.mark.usefixtures("quick_compilation")
NO_CHECKPOINTS = RunCheckpoints(None, {})
# Linear in one binary covariate: it can hold every frequency.
SATURATED = pm.Recipe(
    pm.AnchoredConfig(pm.Backbone(8, depth=0)),
    pm.make_member_training(
        learning_rate=2e-2, weight_decay=0.0, max_steps=600, batch_size=512
    ),
)


@pytest.fixture(scope="module")
def folded(small):
    """One covariate in two folds; by this seed, frequencies that an anchored law has."""
    tables = [(z[:, 1:2], x, y) for z, x, y in small.tables(600, 500, seed=3)]
    counts = pm.counts_from_tables(*tables, merge=False)
    fold = pm.assign_folds(np.random.default_rng(0), counts, 2)
    return pm.fold_counts(counts, fold)[0]


@pytest.fixture(scope="module")
def group(folded):
    z = jnp.asarray(2 * folded.counts.z - 1)
    return _member_groups.train_group(
        jax.random.key(0), folded, z, SATURATED, 1, NO_CHECKPOINTS, 60.0, False
    )


def weighted_totals(folded, weights, fold):
    """Undoes the scale of a visit: a member's weighted counts of each cell."""
    seen = np.where((folded.fold != fold)[:, None], flat_weights(folded.counts), 0)
    seen = np.stack([np.bincount(folded.cell, w) for w in seen.T], axis=1)
    units = seen.reshape(-1, 2, 4).sum(axis=(0, 2))
    chance = (seen.reshape(-1, 2, 4).sum(axis=2) / units).mean(axis=1, keepdims=True)
    entry = np.asarray(make_cells(folded, jnp.asarray(folded.counts.z), 8).entry)
    return weights[entry] * chance * np.repeat(units, 4)


def frequencies(totals):
    """Computes the frequencies of one cell."""
    joint, arms = totals[:4].reshape(2, 2), totals[4:].reshape(2, 2)
    return joint / joint.sum(), arms[:, 1] / arms.sum(axis=1)


def test_a_saturated_network_reaches_the_weighted_frequencies_of_what_it_saw(
    folded, group
):
    """Without the noise of minibatches; frequencies of everybody are not reached."""
    _, members = _member_groups._make_members(
        jax.random.key(0), folded, 1, SATURATED, 1
    )
    _, first = np.unique(folded.cell, return_index=True)
    z = jnp.asarray(2 * folded.counts.z[first] - 1)
    raw = member_raw(group.structure, group.params, z)
    atoms = jax.tree.map(np.asarray, pm.atoms_from_raw(raw, "anchored"))
    everybody, errors, others = folded.cell_totals(), [], []
    for member, fold in enumerate(np.asarray(group.fold)):
        totals = weighted_totals(folded, np.asarray(members.weights[member]), fold)
        for cell in range(2):
            here = (atoms.joint[member, cell], atoms.mu[member, cell])
            own = frequencies(totals[cell])
            assert pb.is_compatible(pb.Atoms(*own)), "or no anchored law has them"
            for law, gaps in ((own, errors), (frequencies(everybody[cell]), others)):
                gaps += [np.abs(a - b).max() for a, b in zip(here, law, strict=True)]
    assert max(errors) < 0.002 and max(others) > 0.04


def test_the_held_out_loss_is_that_of_each_fold_by_its_member(folded, group):
    z = jnp.asarray(2 * folded.counts.z - 1)
    raw = np.asarray(member_raw(group.structure, group.params, z))
    logs = [
        np.log(np.asarray(pm.atoms_from_raw(jnp.asarray(raw), "anchored").joint)),
        np.asarray(pm.log_probabilities(jnp.asarray(raw), "anchored").outcome),
    ]
    total = 0.0
    for source, cells in enumerate(folded.counts[1:]):
        terms = [
            (cells[row] * logs[source][folded.fold[row], row]).sum()  # member j: fold j
            for row in range(len(folded.fold))
        ]
        total -= sum(terms) / cells.sum()
    assert np.asarray(group.fold).tolist() == [0, 1]
    loss = _member_groups.held_out_loss(group, folded, z)
    np.testing.assert_allclose(loss, total, rtol=1e-5)
    np.testing.assert_allclose(group.history[-1][2], loss, rtol=1e-6)
    steps = [row[0] for row in group.history]
    assert steps == list(range(60, 601, 60))


def test_held_out_numbers_do_not_depend_on_the_size_of_blocks(
    folded, group, monkeypatch
):
    z = jnp.asarray(2 * folded.counts.z - 1)
    whole = _member_groups.held_out_raw(group, folded, z)
    chex.assert_shape(whole, (1, len(z), 6))
    monkeypatch.setattr(_member_groups, "_ROWS", 3)
    blocks = _member_groups.held_out_raw(group, folded, z)
    np.testing.assert_allclose(blocks, whole, rtol=1e-5, atol=1e-6)


def test_some_rows_are_of_all_folds(small):
    counts = pm.counts_from_tables(*small.tables(), merge=False)
    fold = pm.assign_folds(np.random.default_rng(0), counts, 3)
    folded, _ = pm.fold_counts(counts, fold)
    z = jnp.asarray(folded.counts.z)
    some, some_z = _member_groups.some_rows(folded, z, size=6)
    assert 3 <= len(some.fold) <= 6 and set(some.fold) == {0, 1, 2}
    np.testing.assert_array_equal(some.counts.z, some_z)


def test_joined_groups_keep_members_and_folds_together(group):
    both = _member_groups.join_groups(group, group)
    assert np.asarray(both.fold).tolist() == [0, 1, 0, 1]
    z = jnp.ones((1, 1))
    raw = member_raw(both.structure, both.params, z)
    np.testing.assert_array_equal(raw[:2], raw[2:])
    assert not np.allclose(raw[0], raw[1])


@pytest.mark.parametrize(("loss", "param"), [(np.nan, 1), (0.5, np.nan), (np.inf, 1)])
def test_losses_or_parameters_that_are_not_finite_are_told(loss, param):
    params = {"kernel": jnp.array([1.0, param])}
    with pytest.raises(pm.DivergedError, match="after 7 steps; try a smaller"):
        _member_groups._check_finite(7, np.array([[0.5, loss]]), params)


@pytest.mark.parametrize("num_cores", [1, 2])
def test_the_number_of_cores_does_not_matter(folded, group, monkeypatch, num_cores):
    monkeypatch.setattr(_placement, "num_cores", lambda: num_cores)
    again = _member_groups.train_group(
        jax.random.key(0),
        folded,
        jnp.asarray(2 * folded.counts.z - 1),
        SATURATED,
        1,
        NO_CHECKPOINTS,
        60.0,
        False,
    )
    chex.assert_trees_all_equal(again.params, group.params)
    assert again.history == group.history


@pytest.mark.parametrize("num_cores", [3, 4])
def test_members_that_pause_so_that_cores_end_together_lose_no_step(
    folded, monkeypatch, num_cores
):
    """Two members on one core train without a pause; on three or four they pause."""
    z = jnp.asarray(2 * folded.counts.z - 1)
    program, members = _member_groups._make_members(
        jax.random.key(0), folded, 1, SATURATED, 1
    )
    cells = make_cells(folded, z, 16)
    found = []
    for cores in (1, num_cores):
        monkeypatch.setattr(_placement, "num_cores", lambda cores=cores: cores)
        placed = _placement.OnCores(program, members, cells)
        losses = [placed.train(12), placed.train(12)]
        found.append((np.concatenate(losses, axis=1), placed.state()))
    assert found[1][0].shape == (2, 24) and found[1][1][2].tolist() == [24, 24]
    chex.assert_trees_all_close(found[1], found[0], atol=1e-6)
