"""The study of width against coverage."""

import pytest
from pns_experiments import tradeoff
from pns_experiments.methods import METHODS
from pns_experiments.options import Options
from pns_experiments.replicates import draw_replicate
from pns_experiments.runner import read_results


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pns_estimate.TableWarning")  # few events
def test_wider_draws_give_wider_intervals_and_factor_one_changes_nothing(tmp_path):
    study = tradeoff.PRESETS["smoke"]
    text = tradeoff.run_study(study, Options(tmp_path))
    (row,) = read_results(tmp_path / "results.jsonl")
    widths = [row[f"width_{factor:g}"] for factor in tradeoff.FACTORS]
    coverage = [row[f"set_coverage_{factor:g}"] for factor in tradeoff.FACTORS]
    assert widths == sorted(widths) and widths[0] < widths[-1]
    assert coverage == sorted(coverage)
    data = draw_replicate(study.model, 1500, 1000, 60, 0, Options(tmp_path).seed)
    answer = METHODS["epinet"].answer(
        data.method_key, data.tables, data.z, 0.05, "smoke"
    )
    width = float((answer.interval.upper - answer.interval.lower).mean())
    assert row["width_1"] == pytest.approx(width, abs=1e-4)
    assert "width 1" in text
    assert (tmp_path / "tradeoff.png").stat().st_size > 5000
