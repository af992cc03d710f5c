"""An audit: what is drawn, by frequencies; what is counted, by hand; what it needs."""

import dataclasses
import json

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_estimate as pe
import pns_models as pm
import pytest
from pns_estimate.answers.answers import Unanswered
from pns_estimate.answers.audit import CAVEAT, draw_rows, summarize
from pns_estimate.answers.files import show_audit
from pns_estimate.methods.crossfit import CrossFitRecipe
from pns_estimate.methods.protocol import _METHODS
from pns_estimate.report.page import make_numbers, make_page
from small_tables import FoldedMethod, draw_table, fit


def make_rows(copies, group=None):
    """Two cells; in each a row of the log, and one of either arm of the trial."""
    cell = np.repeat([0, 1], 3)
    return pm.Rows(
        z=cell[:, None].astype(np.float32),
        source=np.tile([0, 1, 1], 2),
        treatment=np.tile([1, 0, 1], 2),
        outcome=np.zeros(6, int),
        weights=np.array(copies, float),
        copies=np.array(copies, float),
        cell=cell,
        fold=np.tile([0, 1, 1], 2),
        group=group,
    )


def make_law():
    """No two probabilities are the same."""
    joint = np.array([[[0.1, 0.2], [0.3, 0.4]], [[0.35, 0.05], [0.45, 0.15]]])
    mu = np.array([[0.25, 0.55], [0.6, 0.3]])
    return pb.Atoms(*(np.repeat(part, 3, axis=0) for part in (joint, mu)))


def test_drawn_rows_follow_the_law_at_their_covariates_and_keep_their_arms():
    """Shares of 40,000 draws each: four standard errors are at most 0.01."""
    law, size = make_law(), 40_000
    drawn = draw_rows(np.random.default_rng(0), make_rows([size] * 6), law)
    assert len(drawn.z) == 2 * (4 + 2 + 2)
    np.testing.assert_array_equal(drawn.weights, drawn.copies)
    for cell in (0, 1):
        here = drawn.take(drawn.cell == cell)
        assert (here.z == cell).all() and (here.fold == here.source).all()
        for x, y in np.ndindex(2, 2):
            own = (here.treatment == x) & (here.outcome == y)
            share = here.copies[own & ~here.is_trial].sum() / size
            assert abs(share - law.joint[3 * cell, x, y]) < 0.01
            share = here.copies[own & here.is_trial].sum() / size
            mu = law.mu[3 * cell, x]
            assert abs(share - (mu if y else 1 - mu)) < 0.01


def test_as_many_people_are_drawn_and_groups_are_kept():
    copies = [3, 1, 5, 2, 4, 6]
    rows = make_rows(copies, group=np.arange(6))
    drawn = draw_rows(np.random.default_rng(1), rows, make_law())
    assert np.bincount(drawn.group, drawn.copies).tolist() == copies
    assert (drawn.treatment == rows.treatment[drawn.group])[drawn.is_trial].all()


def test_coverage_is_counted_by_table_width_and_disagreement():
    """Six people, two tables; the interval must contain the whole set."""
    lower, upper = np.zeros(6), np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    first = pd.DataFrame(
        {
            "lower": lower,
            "upper": upper,
            "set_lower": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            "set_upper": [0.2, 0.3, 0.3, 0.3, 0.3, 0.7],
            "disagreement": [0.6, 0.5, 0.4, 0.3, 0.2, 0.1],
        }
    )
    second = first.assign(lower=0.05, set_upper=0.1)  # above the set's lower end
    found = summarize([first, second], "pns", 0.1)
    assert found.by_table == [0.5, 0.0] and found.coverage == 0.25
    assert found.num_tables == 2 and found.num_people == 6
    # Sorted by width: .05, .1, .15, .2 | .25, .3, .35, .4 | .45, .5, .55, .6
    assert found.by_width == [0.0, 0.5, 0.25]
    assert found.by_disagreement == [0.25, 0.5, 0.0]
    assert found.mean_width == pytest.approx((0.35 + 0.3) / 2)
    assert found.set_width == pytest.approx((2.1 / 6 + 0.1) / 2)
    assert found.is_low and "25.0%" in found.sentence and "90%" in found.sentence
    for other in (first.drop(columns="disagreement"), first.assign(disagreement=None)):
        assert summarize([other], "pns", 0.1).by_disagreement is None


class RecallMethod(FoldedMethod):
    """Finds the same law in every pair of tables."""

    name = "recall"

    def fit(self, key, rows, recipe, progress=False, checkpoint_dir=None):
        return super().fit(jax.random.key(0), rows, recipe)


@pytest.fixture
def recalled(tables):
    pe.register_method(RecallMethod())
    yield fit(*tables, method="recall")
    del _METHODS["recall"]


def test_a_method_that_finds_the_truth_covers_and_one_that_does_not_is_warned_of(
    recalled, folded, tables
):
    found, other = recalled.audit(2), folded.audit()
    assert found.coverage > 0.95 and not found.is_low
    assert other.coverage < 0.7 and other.is_low  # its law is another one each time
    assert found.num_people == 1000 and len(found.by_table) == 2
    people = pd.concat(tables)
    atoms = recalled.atoms(people)
    joint = atoms[["p00", "p01", "p10", "p11"]].to_numpy(float).reshape(-1, 2, 2)
    mu = atoms[["mu0", "mu1"]].to_numpy(float)
    width = pb.pns_bounds(pb.Atoms(joint, mu), incompatible="allow").width
    error = width.std() / np.sqrt(1000)
    assert abs(found.set_width - width.mean()) < 4 * error


def test_the_seed_decides_an_audit(tables):
    found = [fit(*tables, method="folded", seed=s).audit() for s in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_streamed_tables_with_whole_weights_have_the_audit_of_tables_in_memory(
    tmp_path,
):
    tables = [draw_table(n, n == 900, n).assign(w=2) for n in (1200, 900)]
    folders = [tmp_path / "log", tmp_path / "trial"]
    for folder, table in zip(folders, tables, strict=True):
        folder.mkdir()
        table.to_parquet(folder / "part.parquet")
    found = []
    for given in (tables, folders):
        estimator = fit(*given, method="folded", weights="w")
        assert estimator.population_.rows.copies.sum() == 4200
        found.append(estimator.audit(num_people=200))
    assert found[0] == found[1] and 0 < found[0].coverage < 1


@pytest.mark.parametrize("weights_are", ["frequency", "sampling"])
def test_weights_that_are_no_numbers_of_people_are_told(tables, weights_are):
    options = {"weights": "w", "weights_are": weights_are, "method": "folded"}
    weight = 1.5 if weights_are == "frequency" else 2
    estimator = fit(*(t.assign(w=weight) for t in tables), **options)
    with pytest.raises(pe.UserError, match="weights must be whole numbers of people"):
        estimator.audit()


def test_what_an_audit_needs_is_one_sentence(linear, folded, tmp_path):
    with pytest.raises(pe.NotFittedError):
        pe.PnsEstimator().audit()
    folded.save(tmp_path / "model")
    for estimator in (linear, pe.PnsEstimator.load(tmp_path / "model")):
        with pytest.raises(pe.UserError, match="an audit needs the tables"):
            estimator.audit()
    for options, message in (
        ({"num_tables": 0}, "num_tables must be a whole number of at least 1"),
        ({"num_people": 2.5}, "num_people must be a whole number of at least 3"),
        ({"alpha": 1}, "alpha must lie in"),
        ({"estimand": "joy"}, "estimand must be one of"),
    ):
        with pytest.raises(pe.UserError, match=message):
            folded.audit(**options)


def test_the_default_method_is_audited_with_its_own_settings(tables):
    """Ridge regression and splines find their own law again: 95%, give or take."""
    learners = (pm.LEARNERS["ridge"], pm.LEARNERS["splines"])
    recipe = CrossFitRecipe(learners, num_folds=3, members_per_fold=2)
    estimator = fit(*tables, method="crossfit", recipe=recipe)
    found = estimator.audit(num_people=300)
    assert found.coverage > 0.85 and found.mean_width > found.set_width > 0


def test_report_numbers_and_text_show_an_audit_or_why_there_is_none(folded, people):
    audit = folded.audit(num_people=300, alpha=0.2, estimand="harm")
    answers = folded.answers(people, audit=audit)
    numbers = json.loads(json.dumps(make_numbers(answers)))["audit"]
    assert numbers == {**dataclasses.asdict(audit), "caveat": CAVEAT}
    page = " ".join(make_page(answers).split())
    assert "An audit of the intervals" in page and CAVEAT in page
    assert audit.sentence[1:] in page and "do not rely on them" in page
    assert f'data-value="{audit.by_width[0]}"' in page
    assert show_audit(answers) == f"audit: {audit.sentence} {CAVEAT}"
    refused = folded.answers(people, audit=Unanswered("no <tables>."))
    assert "Not given: no &lt;tables&gt;." in make_page(refused)
    assert make_numbers(refused)["audit"] == {"not_given": "no <tables>."}
    assert show_audit(refused) == "no audit: no <tables>."
    plain = folded.answers(people)
    assert "An audit" not in make_page(plain) and show_audit(plain) == ""
    assert make_numbers(plain)["audit"] is None
