"""From held-out units to averages: reweighted exactly where the laws differ."""

import numpy as np
import pns_infer as pi
from held_out_examples import NUM_CELLS, make_world, rough_units


def prepare(law, source="both"):
    rng = np.random.default_rng(0)
    cell, units = rough_units(rng, make_world(7, law), 4000, 3000)
    fold = np.arange(7000) % 5
    return pi.prepare_units(units, np.eye(NUM_CELLS)[cell], fold, source), units


def test_where_the_laws_agree_nothing_is_reweighted():
    found, units = prepare(np.full((2, NUM_CELLS), 0.2))
    assert found.ratio is None and found.units.ratio is None
    assert found.laws.p_value > 0.05
    want, _ = pi.calibrate_arms(units, np.arange(7000) % 5)
    np.testing.assert_array_equal(found.units.atoms.mu, want.atoms.mu)


def test_where_they_differ_the_target_source_keeps_its_rows_as_they_are():
    law = np.array([[0.3, 0.3, 0.2, 0.1, 0.1], [0.1, 0.1, 0.2, 0.3, 0.3]])
    found, units = prepare(law, "experimental")
    assert found.laws.p_value < 1e-6 and found.ratio is not None
    np.testing.assert_allclose(found.units.ratio[units.is_experimental], 1)
    assert found.ratio.effective_observational < 3500
