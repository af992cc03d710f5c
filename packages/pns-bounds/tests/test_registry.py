"""The registry: names, and values that cannot change."""

import dataclasses

import pns_bounds as pb
import pytest


@pytest.fixture
def toy():
    """The average effect, known here under a name that no other test takes."""
    return pb.Estimand(
        name="toy effect",
        sentence="The average effect.",
        lower_labels=["mu1 - mu0"],
        lower_matrix=[[1, -1, 0, 0, 0, 0]],
        lower_offset=[0],
        upper_labels=["mu1 - mu0"],
        upper_matrix=[[1, -1, 0, 0, 0, 0]],
        upper_offset=[0],
        floor=-1.0,
    )


def test_every_estimand_is_known_by_its_name():
    for name in ("pns", "harm", "pn", "ps", "always", "never"):
        assert pb.ESTIMANDS[name].name == name


def test_one_of_your_own_is_found_and_its_name_is_taken(toy):
    assert pb.register_estimand(toy) is toy
    assert pb.ESTIMANDS["toy effect"] == toy
    pb.register_estimand(toy)  # again, as when a module is imported twice
    other = dataclasses.replace(toy, floor=0.0)
    with pytest.raises(pb.InputError, match="'toy effect' is taken"):
        pb.register_estimand(other)


def test_the_registry_is_changed_by_registering_alone():
    with pytest.raises(TypeError):
        pb.ESTIMANDS["pns"] = pb.HARM
