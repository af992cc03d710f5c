"""The study of averages: worlds with a known truth, and a smoke run."""

import numpy as np
import pandas as pd
import pns_bounds as pb
import pytest
from pns_experiments import average, average_worlds
from pns_experiments.average_worlds import SCENARIOS, draw_rows
from pns_experiments.options import Options


@pytest.mark.parametrize("name", ["laws_differ", "weights", "rare_outcome"])
def test_frequencies_of_a_world_are_its_atoms(name):
    """200,000 rows of each source; a frequency is known within 0.0012."""
    rows = draw_rows(SCENARIOS[name], [0], (200_000, 200_000))
    log, trial = ~rows.is_experimental, rows.is_experimental
    for x, y in np.ndindex(2, 2):
        found = np.mean((rows.x == x)[log] & (rows.y == y)[log])
        mean = rows.truth.joint[log, x, y].mean()
        np.testing.assert_allclose(found, mean, atol=0.005)
    for arm in (0, 1):
        inside = trial & (rows.x == arm)
        mean = rows.truth.mu[inside, arm].mean()
        np.testing.assert_allclose(rows.y[inside].mean(), mean, atol=0.006)
    assert pb.is_compatible(rows.truth, 1e-9).all()


def test_a_rare_outcome_is_rare_and_no_effect_is_none():
    rows = draw_rows(SCENARIOS["rare_outcome"], [0], (100_000, 100_000))
    assert 0.015 < rows.y.mean() < 0.025
    rows = draw_rows(SCENARIOS["no_effect"], [0], (1000, 1000))
    np.testing.assert_allclose(rows.truth.mu[:, 0], rows.truth.mu[:, 1])


def test_ratios_and_weights_turn_a_tilted_law_back():
    rows = draw_rows(SCENARIOS["weights"], [1], (100_000, 100_000))
    mean = np.average(rows.z, axis=0, weights=rows.weights)
    np.testing.assert_allclose(mean, 0, atol=0.015)
    assert rows.z[:, 0].mean() > 0.2  # 0.7 / 3
    shifted = draw_rows(SCENARIOS["laws_differ"], [2], (100_000, 50_000))
    chance = shifted.chance
    np.testing.assert_allclose(chance.mean(), 1 / 3, atol=0.005)
    high = shifted.z[:, 0] > 0.5
    share = shifted.is_experimental[high].mean()
    np.testing.assert_allclose(share, chance[high].mean(), atol=0.01)


def test_households_share_covariates_and_arm():
    rows = draw_rows(SCENARIOS["clusters"], [3], (400, 400))
    for values in (rows.z[:, 0], np.where(rows.is_experimental, rows.x, 0)):
        by_home = values.reshape(-1, 4)
        np.testing.assert_array_equal(by_home, by_home[:, :1].repeat(4, axis=1))
    np.testing.assert_array_equal(rows.household, np.arange(800) // 4)


def test_the_identified_set_is_that_of_many_people():
    scenario = SCENARIOS["laws_differ"]
    rows = draw_rows(scenario, [4], (100_000, 50_000))
    bounds = pb.pns_bounds(rows.truth)
    found = average_worlds.identified_set(scenario, (2000, 1000))
    means = bounds.lower.mean(), bounds.upper.mean()
    np.testing.assert_allclose(found, means, atol=0.003)


def test_held_out_atoms_do_not_see_their_fold():
    rows = draw_rows(SCENARIOS["changing_terms"], [5], (400, 400))
    fold = rows.household % 4
    before = average.held_out_atoms(rows, fold)
    flipped = rows._replace(y=np.where(fold == 0, 1 - rows.y, rows.y))
    after = average.held_out_atoms(flipped, fold)
    np.testing.assert_array_equal(before.joint[fold == 0], after.joint[fold == 0])
    assert not np.array_equal(before.mu[fold == 1], after.mu[fold == 1])


def test_a_smoke_run_writes_its_table(tmp_path):
    text = average.run_study(average.PRESETS["smoke"], Options(tmp_path))
    table = pd.read_csv(tmp_path / "table.csv")
    assert list(table["scenario"]) == ["changing_terms", "clusters"]
    assert np.all(table["width_ratio_mean"] > 0.9) and "clusters" in text
    assert np.all(table["width_mean"] > table["set_width_mean"])
