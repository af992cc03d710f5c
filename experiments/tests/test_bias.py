"""The bias study: what the greatest of several estimates does, and its correction."""

import numpy as np
import pandas as pd
import pytest
from pns_experiments import bias
from pns_experiments.options import Options
from pns_experiments.runner import read_results


@pytest.mark.slow
def test_plug_in_bounds_are_too_high_and_corrected_ones_are_not(tmp_path):
    bias.run_study(bias.PRESETS["smoke"], Options(tmp_path))
    rows = read_results(tmp_path / "results.jsonl")
    assert len(rows) == 16 and len({row["plug_in_bias"] for row in rows}) == 16
    for row in rows:
        noise, gap = row["task"]["noise"], row["task"]["gap"]
        if gap == 0:  # two and four normals: 0.56 and 1.03; standard error below 0.06
            expected = {2: 0.564, 4: 1.029}[row["task"]["num_terms"]]
            assert abs(row["plug_in_bias"] / noise - expected) < 0.2
        elif gap > 4 * noise:  # the other terms hardly matter
            assert abs(row["plug_in_bias"] / noise) < 0.2
        # 250 estimates: a share has a standard error of 0.014.
        assert row["corrected_coverage"] > 0.95 - 3 * 0.014 - 0.02
        assert row["corrected_coverage"] < 1 or gap < 4 * noise  # it is sharp there
        if gap <= noise:
            assert row["plug_in_coverage"] < row["half_median_coverage"]
    assert (tmp_path / "bias.png").stat().st_size > 5000
    table = pd.read_csv(tmp_path / "table.csv")
    assert len(table) == 8 and np.all(table["replicates"] == 2)
    first = [rows[0]["plug_in_bias"], rows[8]["plug_in_bias"]]
    np.testing.assert_allclose(table["plug_in_bias_mean"][0], np.mean(first))
