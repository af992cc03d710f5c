"""The report's sections about the tables, the fit, and what they assume."""

from pns_estimate._html import BLUE, GREY, make_figure, percent, svg, table, text
from pns_estimate._report_residual import residual
from pns_estimate._summary import FitSummary


def tables(summary: FitSummary) -> str:
    """Shows sizes and shares of both tables, and the covariates."""
    rows = [
        [
            name,
            f"{entry['rows']:,}",
            f"{entry['effective_size']:,.0f}",
            percent(entry["treated"]),
            percent(entry["outcome_untreated"]),
            percent(entry["outcome_treated"]),
        ]
        for name, entry in summary.tables.items()
    ]
    head = ["table", "rows", "counted as people", "treated"]
    head += ["outcome if untreated", "outcome if treated"]
    names = ", ".join(f"<code>{text(name)}</code>" for name in summary.covariates)
    return f"<h2>The data</h2>\n{table(head, rows)}\n<p>Covariates: {names}.</p>"


def compatibility(summary: FitSummary) -> str:
    """Says whether the tables contradict each other."""
    test = summary.compatibility
    bad = test["p_value"] < 0.05
    verdict = (
        "<b>The two tables contradict each other</b>: no single population fits both. "
        "Do not rely on the intervals before the reason is known."
        if bad
        else "The two tables do not contradict each other."
    )
    shown = "p &lt; 0.001" if test["p_value"] < 0.001 else f"p = {test['p_value']:.3f}"
    return (
        f"<h2>Do the tables fit together?</h2>\n<p class='answer{' warn' * bad}'>"
        f"{verdict} ({shown}, {test['strata']} strata.)</p>\n<p class='note'>The "
        f"inequality nearest to failing is {text(test['constraint'])}, with a slack "
        f"of {test['slack']:.3f}.</p>"
    )


def fit(summary: FitSummary) -> str:
    """Shows the losses, the reliability, and how the draws were scaled or weighed."""
    parts = ["<h2>The fit</h2>"]
    if summary.steps:
        parts.append(_draw_losses(summary))
    if summary.reliability:
        parts.append(_draw_reliability(summary))
        parts.append(
            "<p class='note'>Expected calibration error: "
            f"{summary.ece_joint:.4f} for choices and outcomes, {summary.ece_mu:.4f} for "
            "outcomes under assignment.</p>"
        )
    if summary.draw_scale:
        low, high = summary.draw_scale["interval"]
        parts.append(
            "<p class='note'>The draws were scaled by "
            f"{high:.2f}: held-out people are best explained by "
            f"{summary.draw_scale['best']:.2f}, and by {low:.2f} to {high:.2f} nearly as "
            "well; the largest is taken.</p>"
        )
    if summary.residual:
        parts.append(residual(summary.residual))
    if summary.notes:
        parts.append(table(["the method", ""], list(summary.notes.items())))
    return "\n".join(parts)


def _draw_losses(summary: FitSummary) -> str:
    figure, axes = make_figure(8, 2.8)
    axes.plot(summary.steps, summary.training, color=GREY, lw=1.2, label="training")
    axes.plot(summary.steps, summary.held_out, color=BLUE, lw=1.2, label="held-out")
    axes.set(xlabel="step", ylabel="loss (nats)")
    axes.legend(frameon=False)
    return svg(figure, "Training and held-out loss")


def _draw_reliability(summary: FitSummary) -> str:
    figure, axes = make_figure(4.6, 4.2)
    axes.plot([0, 1], [0, 1], color=GREY, lw=0.8)
    for name, curve in summary.reliability.items():
        axes.plot(curve["predicted"], curve["observed"], lw=1, marker=".", label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted", ylabel="observed, held-out")
    axes.legend(frameon=False)
    return svg(figure, "Predicted probabilities against frequencies")


def assumptions(corrected: bool) -> str:
    """Lists what the numbers rest on."""
    coverage = (
        "Coverage is asymptotic and rests on the draws: they must vary about the "
        "estimate as the estimate does about the truth. A network that is wrong in a "
        "way its draws do not know misses more often."
        if corrected
        else "Plug-in bounds carry no statement about sampling error."
    )
    return (
        "<h2>What the numbers assume</h2>\n<ul>\n<li>Both tables describe the same "
        "population: given the covariates, potential outcomes have one law. The test "
        "above can refute this, not prove it.</li>\n<li>In the experiment the "
        "treatment was assigned at random, and everybody took what they were "
        "assigned.</li>\n<li>One person's treatment does not change another's "
        "outcome.</li>\n<li>The observational table may be confounded in any way."
        f"</li>\n<li>{coverage}</li>\n<li>Person by person means: for people with "
        "these covariates. Two such people may differ.</li>\n</ul>"
    )
