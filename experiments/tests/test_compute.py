"""Timings of methods, at their smallest."""

import pytest
from pns_experiments import compute


@pytest.mark.slow
def test_a_network_is_timed_without_solves():
    """The smoke run of the program times a bootstrap."""
    task = {"method": "epinet", "num_train": 300, "replicate": 0}
    numbers = compute.measure(compute.PRESETS["smoke"], 0, task)
    assert numbers["training_s"] > 0 and numbers["points_2_s"] > 0
    assert numbers["draws"] == 50 and 0.1 < numbers["peak_memory_gb"] < 8
    assert not {"solves_s", "residual", "reference_s_per_point"} & numbers.keys()


def test_the_default_preset_times_every_method():
    study = compute.PRESETS["default"]
    assert set(study.num_train) == set(study.num_draws) == set(compute.METHODS)
    for method in compute.METHODS:
        assert study.recipe(method).training.max_steps == study.steps
