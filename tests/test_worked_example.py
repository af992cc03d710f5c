"""The worked example of WORKSPACE.md: additions from outside, without touching ours."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pns_estimate as pe
import pns_models as pm
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def example() -> dict:
    """Runs the code of the page; returns its names."""
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "WORKSPACE.md").read_text(), flags=re.DOTALL
    )
    assert len(blocks) == 4
    names: dict = {"__name__": "worked_example"}
    for block in blocks:
        code = [line for line in block.splitlines() if line]
        assert len(code) <= 30
        exec(compile(block, "WORKSPACE.md", "exec"), names)  # noqa: S102, our page
    return names


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)

    def draw(n: int, randomized: bool) -> pd.DataFrame:
        z, taste = rng.integers(0, 2, n), rng.random(n) < 0.5
        x = rng.random(n) < (0.5 if randomized else 0.2 + 0.6 * taste)
        y = rng.random(n) < 0.1 + 0.2 * taste + 0.5 * x * z
        return pd.DataFrame({"z": z, "x": x, "y": y})

    return draw(4000, False), draw(3000, True)


def test_a_method_and_an_estimand_from_outside_give_the_effect_of_the_trial(
    example, tables, tmp_path
):
    """One term, no covariates: the interval is that of a difference of proportions."""
    estimator = pe.PnsEstimator("frequencies", calibrate=False, num_draws=4000)
    estimator.fit(*tables, treatment="x", outcome="y")
    rows = pd.DataFrame({"z": [0, 1]})
    found = estimator.intervals(rows, estimand="effect")
    arms = [tables[1]["y"][tables[1]["x"] == arm] for arm in (False, True)]
    effect = arms[1].mean() - arms[0].mean()
    error = np.sqrt(sum(arm.var() / len(arm) for arm in arms))
    # 4,000 draws: an end has a Monte Carlo error of about 0.04 standard errors.
    for name, end in (
        ("lower", effect - 1.96 * error),
        ("upper", effect + 1.96 * error),
    ):
        np.testing.assert_allclose(found[name], end, atol=0.15 * error)
    estimator.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.intervals(rows, estimand="effect"), found)
    estimator.report(tmp_path / "report.html", rows)
    assert (
        "the posterior of plain frequencies" in (tmp_path / "report.html").read_text()
    )


def test_a_network_from_outside_trains_and_survives_saving(example, tables, tmp_path):
    """With one binary covariate the linear logits are saturated: cells are frequencies."""
    training = pm.TrainConfig(
        learning_rate=0.1, weight_decay=0.0, max_steps=300, eval_every=100
    )
    recipe = pm.Recipe(example["LogisticConfig"](), training)
    estimator = pe.PnsEstimator("plug_in", recipe=recipe, progress=False)
    estimator.fit(*tables, treatment="x", outcome="y")
    rows = pd.DataFrame({"z": [0, 1]})
    atoms = estimator.atoms(rows)
    for z in (0, 1):
        some = tables[0][tables[0]["z"] == z]
        treated = (some["x"] & some["y"]).mean()
        # Nine tenths of the rows were trained on.
        assert abs(atoms.loc[z, "p11"] - treated) < 0.02
    estimator.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.atoms(rows), atoms, check_exact=True)


def test_a_learner_from_outside_is_cross_fitted_and_survives_saving(
    example, tables, tmp_path
):
    """With one binary covariate logistic regressions reach the frequencies."""
    recipe = pe.CrossFitRecipe(
        learners=(example["Logistic"](),), num_folds=3, members_per_fold=2
    )
    estimator = pe.PnsEstimator(recipe=recipe, progress=False, num_draws=400)
    estimator.fit(*tables, treatment="x", outcome="y")
    rows = pd.DataFrame({"z": [0, 1]})
    atoms = estimator.atoms(rows)
    for z in (0, 1):
        log, trial = (table[table["z"] == z] for table in tables)
        assert abs(atoms.loc[z, "p11"] - (log["x"] & log["y"]).mean()) < 0.02
        assert abs(atoms.loc[z, "mu1"] - trial[trial["x"]]["y"].mean()) < 0.02
    found = estimator.intervals(rows)
    assert (found["lower"] < found["bound_upper"]).all()
    note = estimator.summary_.notes["logistic regression"]
    assert note.startswith("weight 100% (log) and 100% (trial)")
    estimator.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.intervals(rows), found)
