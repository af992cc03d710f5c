"""Timings of every method, at their smallest."""

import pytest
from pns_experiments import compute


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bootstrap_last_layer", "epinet"])
def test_set_up_and_draws_are_timed(method):
    study = compute.PRESETS["smoke"]
    task = {"method": method, "num_train": 300, "replicate": 0}
    numbers = compute.measure(study, 0, task)
    assert 0 < numbers["points_1_s"] and 0 < numbers["points_50_s"]
    assert numbers["draws"] == 50 and 0.1 < numbers["peak_memory_gb"] < 8
    solves = {"solves_s", "residual", "reference_s_per_point"}
    assert solves & numbers.keys() == (solves if "bootstrap" in method else set())
    # The default preset times them all, at several sizes.
    assert set(compute.PRESETS["default"].num_train) == set(compute.METHODS)
