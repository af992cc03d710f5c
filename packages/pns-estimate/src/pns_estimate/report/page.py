"""One self-contained HTML page about a fit and some people, and its numbers as JSON.

The page is made from a prediction and a summary; it asks nobody else. Its words are in
`templates/`.
"""

import dataclasses
import datetime
import importlib.metadata
from pathlib import Path
from typing import Any

from pns_estimate.answers.decisions import Decision
from pns_estimate.answers.population import Population
from pns_estimate.answers.prediction import Prediction
from pns_estimate.answers.question import Question
from pns_estimate.answers.unanswered import attempt
from pns_estimate.fit.summary import FitSummary
from pns_estimate.report import averages as about_averages
from pns_estimate.report import fit as about_fit
from pns_estimate.report import population as about_all
from pns_estimate.report.decisions import decisions, shares
from pns_estimate.report.html import render
from pns_estimate.report.people import View, find_people
from pns_estimate.report.words import make_words
from pns_estimate.tables.files import complete_file, write_json


def write_report(
    path: Path,
    prediction: Prediction,
    summary: FitSummary,
    question: Question | None = None,
    population: Population | None = None,
    decision: Decision | None = None,
    summary_path: Path | None = None,
) -> None:
    """Writes the page; the file appears when complete.

    Args:
      path: the file to write.
      prediction: the people to report on; all of them count in every number.
      summary: of the fit behind the prediction.
      question: estimand, target, alpha, threshold, and whether the outcome is bad.
      population: the people of the tables, for averages that need no draws.
      decision: whom to treat, if the page shall say.
      summary_path: where to write the page's numbers as JSON; nowhere if None.

    Example:
      >>> import itertools
      >>> import json
      >>> import tempfile
      >>> from pathlib import Path
      >>> import pandas as pd
      >>> import pns_estimate as pe
      >>> import pns_models as pm
      >>> values = list(itertools.product((0, 1), repeat=3))
      >>> log = pd.DataFrame(values, columns=["member", "offered", "bought"])
      >>> trial = log.copy()
      >>> log["people"] = [200, 50, 200, 50, 200, 50, 50, 200]
      >>> trial["people"] = [200, 50, 200, 50, 175, 75, 50, 200]
      >>> recipe = pm.Recipe(  # a small network and all people, for the example
      ...     pm.AnchoredConfig(pm.Backbone(width=4, depth=0)),
      ...     pm.TrainConfig(
      ...         learning_rate=0.1,
      ...         weight_decay=0.0,
      ...         max_steps=100,
      ...         held_out_fraction=0.0,
      ...         patience=None,
      ...         eval_every=100,
      ...     ),
      ... )
      >>> estimator = pe.PnsEstimator("plug_in", recipe=recipe, calibrate=False)
      >>> columns = {"treatment": "offered", "outcome": "bought", "weights": "people"}
      >>> prediction = estimator.fit(log, trial, **columns).predict(log[["member"]])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     page, other = Path(folder) / "report.html", Path(folder) / "numbers.json"
      ...     write_report(page, prediction, estimator.summary_, summary_path=other)
      ...     text, numbers = page.read_text("utf-8"), json.loads(other.read_text())
      >>> "Does offered make the difference for bought?" in text
      True
      >>> round(numbers["effect"]["estimate"], 2)  # half of the people are members
      0.25
      >>> round(numbers["mean_width"]["pns"], 1)  # 0.2 for members and for others
      0.2
    """
    question = question or Question()
    question.check()
    words = make_words(summary, question.outcome_is_bad)
    averages = about_averages.find_averages(prediction, population, summary, question)
    views, held = find_people(prediction, question, words)
    groups = decided = treated = None
    if population is not None:
        found = attempt(lambda: population.sorted_groups(alpha=question.alpha))
        groups = about_all.sorted_people(found, question.alpha, words)
        treated = shares(population, decision, words, question.alpha)
        held["value"] = treated.get("held")
    if decision is not None:
        decided = decisions(prediction, population, decision, question.alpha)
    foot = _foot(summary, question)
    text = render(
        "report.html",
        title=f"Does {summary.treatment.column} make the difference for "
        f"{summary.outcome.column}?",
        question=question,
        words=words,
        summary=summary,
        has_draws=prediction.sampler.has_draws,
        num_people=len(prediction.people),
        num_outside=int(prediction.is_outside.sum()),
        opening=about_averages.opening(averages, summary, question, words),
        averages=about_averages.average_table(averages, question, words),
        refusals=averages.refusals,
        notes=None if population is None else about_all.notes(population),
        groups=groups,
        subgroups=about_all.subgroups(prediction, population, question, words),
        decided=decided,
        shares=treated,
        views=views,
        held=held,
        tables=about_fit.tables(summary, words),
        compatibility=about_fit.compatibility(summary, words),
        fit=about_fit.fit(summary, words),
        foot=foot,
    )
    with complete_file(path) as aside:
        aside.write_text(text, encoding="utf-8")
    if summary_path is not None:
        numbers = _numbers(question, summary, averages, views, groups, decided)
        numbers |= {"people": len(prediction.people), "made": foot}
        write_json(summary_path, numbers)


def _foot(summary: FitSummary, question: Question) -> dict[str, Any]:
    """Says how the page was made."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": importlib.metadata.version("pns-estimate"),
        "seed": summary.seed,
        "method": summary.method,
        "rows": {name: entry.rows for name, entry in summary.tables.items()},
        "estimand": question.estimands()[0].name,
        "target": question.target,
        "alpha": question.alpha,
    }


def _numbers(
    question: Question,
    summary: FitSummary,
    averages: about_averages.Averages,
    views: list[View],
    groups: dict[str, Any] | None,
    decided: dict[str, Any] | None,
) -> dict[str, Any]:
    """Collects what the page says in numbers, as JSON holds them."""
    return {
        "treatment": dataclasses.asdict(summary.treatment),
        "outcome": dataclasses.asdict(summary.outcome),
        "outcome_is_bad": question.outcome_is_bad,
        "effect": averages.effect._asdict(),
        "averages": {
            name: table.to_dict("index") for name, table in averages.by_estimand.items()
        }
        | {name: _not_given(why) for name, why in averages.refusals.items()},
        "sorted_groups": groups and _group_numbers(groups),
        "threshold": question.threshold,
        "surely_above": views[0].above,
        "mean_width": {view.name: view.width for view in views},
        "recommendations": decided and decided["counts"],
        "compatibility": dataclasses.asdict(summary.compatibility),
        "problems": list(summary.problems),
    }


def _group_numbers(groups: dict[str, Any]) -> Any:
    if groups["refusal"]:
        return _not_given(groups["refusal"])
    return groups["people"].table.to_dict("records")


def _not_given(reason: str) -> dict[str, str]:
    return {"not_given": reason}
