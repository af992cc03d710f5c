"""One self-contained HTML page about a fit and some people.

The page is made from a prediction and a summary; it asks nobody else.
"""

from pathlib import Path

from pns_estimate import _report_answers as answers
from pns_estimate import _report_fit as about_fit
from pns_estimate import _report_population as about_all
from pns_estimate._decisions import Decision
from pns_estimate._files import complete_file
from pns_estimate._html import page
from pns_estimate._population import Population
from pns_estimate._prediction import Prediction
from pns_estimate._report_decisions import decisions
from pns_estimate._summary import FitSummary


def write_report(
    path: Path,
    prediction: Prediction,
    summary: FitSummary,
    alpha: float = 0.05,
    population: Population | None = None,
    decision: Decision | None = None,
) -> None:
    """Writes the page; the file appears when complete.

    Args:
      path: the file to write.
      prediction: the people to report on.
      summary: of the fit behind the prediction.
      alpha: for all intervals on the page.
      population: the people of the tables, for averages that need no draws.
      decision: whom to treat, if the page shall say.
    """
    corrected = prediction.sampler.has_draws
    title = answers.title(summary)
    sections = [
        answers.opening(prediction, summary, alpha),
        *_answers(prediction, population, summary, alpha),
        answers.sure_people(prediction, alpha) if corrected else "",
        "" if decision is None else decisions(prediction, population, decision, alpha),
        about_fit.tables(summary),
        about_fit.compatibility(summary),
        about_fit.fit(summary),
        about_fit.assumptions(corrected),
    ]
    with complete_file(path) as aside:
        aside.write_text(page(title, "\n".join(sections)), encoding="utf-8")


def _answers(
    prediction: Prediction,
    population: Population | None,
    summary: FitSummary,
    alpha: float,
) -> list[str]:
    """Makes averages, persons and subgroups: by draws if the tables' people are gone."""
    person = answers.each_person(prediction, alpha)
    if population is None:
        return [
            answers.averages(prediction, alpha),
            person,
            answers.subgroups(prediction, alpha),
        ]
    people = population.sorted_groups(alpha=alpha)
    return [
        about_all.in_short(population, people, summary, alpha),
        about_all.averages(population, alpha),
        about_all.sorted_people(people, alpha),
        person,
        about_all.subgroups(population, alpha),
    ]
