"""One self-contained HTML page of answers, and their numbers as JSON.

Both are functions of `Answers` alone. The words of the page are in `templates/`.
"""

import dataclasses
import datetime
import importlib.metadata
from pathlib import Path

from pns_estimate.answers.answers import STRONG, Answers, Unanswered
from pns_estimate.answers.audit import CAVEAT
from pns_estimate.answers.population import SortedPeople
from pns_estimate.report.averages import (
    average_table,
    count_recommendations,
    decision_section,
    make_opening,
    share_section,
    sorted_section,
    subgroup_section,
)
from pns_estimate.report.fit import audit_table, fit_section, source_table
from pns_estimate.report.html import Json, make_words, render
from pns_estimate.report.people import count_above, hold_data, make_views, mean_width
from pns_estimate.tables.files import complete_file, write_json

_FLAGGED = 0.01  # p-value below which networks and trial disagree


def write_report(path: Path, answers: Answers) -> None:
    """Writes the page; the file appears when complete."""
    text = make_page(answers)
    with complete_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_numbers(path: Path, answers: Answers) -> None:
    """Writes the numbers of the page as JSON."""
    write_json(path, make_numbers(answers))


def make_page(answers: Answers) -> str:
    """Fills the templates."""
    summary, question = answers.summary, answers.question
    words = make_words(summary, question)
    views = make_views(answers, words)
    shares = share_section(answers, words)
    held = hold_data(answers, views, words)
    held["value"] = None if isinstance(shares, Unanswered) else shares["held"]
    return render(
        "report.html",
        title=f"Does {question.treatment_label or summary.treatment.column} make the "
        f"difference for {question.outcome_label or summary.outcome.column}?",
        asked=answers.asked,
        audit=answers.audit,
        audit_table=audit_table(answers.audit),
        averages=average_table(answers, words),
        refusals=answers.averages.refusals,
        caveat=CAVEAT,
        checks=answers.checks,
        compatibility=summary.compatibility,
        constraint=words.explain(summary.compatibility.constraint),
        decided=decision_section(answers, words),
        fit=fit_section(summary, words),
        flagged=_FLAGGED,
        groups=sorted_section(answers, words),
        held=held,
        made=_make_made(answers),
        opening=make_opening(answers, words),
        question=question,
        shares=shares,
        strong=STRONG,
        subgroups=subgroup_section(answers, words),
        summary=summary,
        tables=source_table(summary, words),
        views=views,
        words=words,
    )


def make_numbers(answers: Answers) -> dict[str, Json]:
    """Collects what the page says in numbers, as JSON holds it."""
    summary, groups = answers.summary, answers.sorted_groups
    decisions = answers.decisions
    averages = {n: t.to_dict("index") for n, t in answers.averages.by_estimand.items()}
    refusals = {n: {"not_given": why} for n, why in answers.averages.refusals.items()}
    sorted_groups = recommendations = None
    if isinstance(groups, SortedPeople):
        sorted_groups = groups.table.to_dict("records")
    elif answers.asked.has_population:
        sorted_groups = {"not_given": groups.reason}
    if not isinstance(decisions, Unanswered):
        recommendations = count_recommendations(decisions)
    return {
        "treatment": dataclasses.asdict(summary.treatment),
        "outcome": dataclasses.asdict(summary.outcome),
        "outcome_is_bad": answers.question.outcome_is_bad,
        "effect": answers.averages.effect._asdict(),
        "averages": {**averages, **refusals},
        "sorted_groups": sorted_groups,
        "subgroup_columns": answers.subgroup_columns._asdict(),
        "threshold": answers.question.threshold,
        "surely_above": count_above(answers),
        "mean_width": {n: mean_width(table) for n, table in answers.intervals.items()},
        "recommendations": recommendations,
        "compatibility": dataclasses.asdict(summary.compatibility),
        "audit": _audit_numbers(answers),
        "problems": list(summary.problems),
        "people": answers.asked.num_people,
        "outside": answers.asked.num_outside,
        "disagreed": answers.asked.num_disagreed,
        "made": _make_made(answers),
    }


def _audit_numbers(answers: Answers) -> Json:
    audit = answers.audit
    if isinstance(audit, Unanswered):
        return {"not_given": audit.reason}
    return audit and {**dataclasses.asdict(audit), "caveat": CAVEAT}


def _make_made(answers: Answers) -> dict[str, Json]:
    """Says how the answers were made."""
    summary, question = answers.summary, answers.question
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
