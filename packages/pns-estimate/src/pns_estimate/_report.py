"""One self-contained HTML page about a fit and some people.

The page is made from a prediction and a summary; it asks nobody else.
"""

from pathlib import Path

from pns_estimate import _report_answers as answers
from pns_estimate import _report_fit as about_fit
from pns_estimate._files import complete_file
from pns_estimate._html import page
from pns_estimate._prediction import Prediction
from pns_estimate._summary import FitSummary


def write_report(
    path: Path, prediction: Prediction, summary: FitSummary, alpha: float = 0.05
) -> None:
    """Writes the page; the file appears when complete.

    Args:
      path: the file to write.
      prediction: the people to report on.
      summary: of the fit behind the prediction.
      alpha: for all intervals on the page.
    """
    corrected = prediction.sampler.has_draws
    title = answers.title(summary)
    sections = [
        answers.opening(prediction, summary, alpha),
        answers.averages(prediction, alpha),
        answers.each_person(prediction, alpha),
        answers.subgroups(prediction, alpha),
        answers.sure_people(prediction, alpha) if corrected else "",
        about_fit.tables(summary),
        about_fit.compatibility(summary),
        about_fit.fit(summary),
        about_fit.assumptions(corrected),
    ]
    with complete_file(path) as aside:
        aside.write_text(page(title, "\n".join(sections)), encoding="utf-8")
