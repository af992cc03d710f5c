"""The paper's own recipes at their smallest: their spread is there and widens."""

import sys

import jax
import numpy as np
import pns_bounds as pb
import pytest
from binaries import EXPERIMENTS

sys.path.insert(0, str(EXPERIMENTS))
import methods

PAPER = sorted(name for name in methods.METHODS if name.startswith("paper_"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
@pytest.mark.filterwarnings("ignore::pns_infer.NotConvergedWarning")
def test_corrected_intervals_are_wider_than_plug_in_bounds(name):
    model = methods.make_model("li:7")
    tables = methods.Tables(
        model.sample(jax.random.key(0), 1500, "observational"),
        model.sample(jax.random.key(0), 1000, "experimental"),
    )
    z = np.asarray(model.sample_population(jax.random.key(1), 40).z, np.float32)
    answer = methods.METHODS[name].run(jax.random.key(2), tables, z, 0.05, "smoke")
    assert np.all(pb.is_compatible(answer.atoms))
    plain = pb.pns_bounds(answer.atoms)
    widths = [np.mean(np.asarray(i.upper) - i.lower) for i in (answer.interval, plain)]
    assert widths[0] > widths[1] + 0.01
