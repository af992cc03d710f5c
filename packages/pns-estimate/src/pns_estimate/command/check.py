"""What `--check` prints: how the tables would be read, and what a fit would do."""

from collections.abc import Sequence

import numpy as np
import pns_models as pm

from pns_estimate._estimator import PnsEstimator
from pns_estimate._progress import Step, show_seconds
from pns_estimate.methods import METHODS
from pns_estimate.methods.crossfit import CrossFitRecipe
from pns_estimate.tables.columns import Covariate, TwoValues
from pns_estimate.tables.preparation import PreparedTables

_MOST_COVARIATES = 40  # with a line of their own
_MOST_LEVELS = 6  # of a category that are named
_ROUGHLY = 2.0  # the factor within which times are known


def describe_check(
    estimator: PnsEstimator,
    prepared: PreparedTables,
    num_people: int,
    warnings: Sequence[str],
    steps: Sequence[Step],
) -> str:
    """Says what a fit of prepared tables would do."""
    rows, meaning = prepared.rows, prepared.meaning
    lines = [
        f"{name} table: {number:,} rows"
        for name, number in prepared.read.num_rows.items()
    ]
    lines += [
        f"treatment: {_two(meaning.treatment)}",
        f"outcome: {_two(meaning.outcome)}",
        *_covariates(meaning.encoder.covariates, meaning.encoder.width),
        f"distinct combinations of covariates: {len(np.unique(rows.cell)):,}",
        *_method(estimator, rows),
        f"people to answer for: {num_people:,}",
    ]
    lines += [f"warning: {text}" for text in warnings] or ["no warnings"]
    seconds = sum(step.seconds for step in steps)
    low, high = show_seconds(seconds / _ROUGHLY), show_seconds(seconds * _ROUGHLY)
    if seconds < 20:
        time = f"less than {show_seconds(max(seconds * _ROUGHLY, 10))}"
    elif low.split()[-1] == high.split()[-1]:  # 20 to 80 seconds
        time = f"about {low.split()[0]} to {high}"
    else:
        time = f"about {low} to {high}"
    lines.append(f"{time} on two cores")
    return "\n".join([*lines, "nothing was fitted, and nothing was written"])


def _two(values: TwoValues) -> str:
    return f"{values.column} = {values.one!r} against {values.zero!r}"


def _covariates(covariates: Sequence[Covariate], width: int) -> list[str]:
    if not covariates:
        return ["covariates: none, so that the answer is that of frequencies"]
    shown = covariates[:_MOST_COVARIATES]
    lines = [f"covariates: {len(covariates):,}, encoded as {width:,} columns"]
    lines += [f"  {each.column}: {_encoding(each)}" for each in shown]
    if len(covariates) > len(shown):
        lines.append(f"  and {len(covariates) - len(shown):,} more")
    return lines


def _encoding(covariate: Covariate) -> str:
    parts = [f"a number, {covariate.low:g} to {covariate.high:g} in both tables"]
    if covariate.kind == "category":
        levels = covariate.levels[:_MOST_LEVELS]
        rest = ", ..." if len(covariate.levels) > len(levels) else ""
        parts = [f"{len(covariate.levels)} categories: {', '.join(levels)}{rest}"]
    if covariate.absent:
        parts.append(
            f"not in both tables: {', '.join(covariate.absent[:_MOST_LEVELS])}"
        )
    if covariate.indicator:
        parts.append("an indicator of missing values")
    if not covariate.varies:
        parts.append("always the same")
    return "; ".join(parts)


def _method(estimator: PnsEstimator, rows: pm.Rows) -> list[str]:
    """Names the method; of a stack its folds and the learners that it would fit."""
    method = METHODS[estimator.method]
    recipe = method.recipe if estimator.recipe is None else estimator.recipe
    if not isinstance(recipe, CrossFitRecipe):
        return [f"method: {estimator.method}, {method.sentence}"]
    units = rows.copies.sum()
    few = [
        each
        for each in recipe.learners
        if isinstance(each, pm.NetworkLearner) and units < each.min_units
    ]
    fitted = [each.name for each in recipe.learners if each not in few]
    lines = [
        f"method: {estimator.method}, {recipe.num_folds} folds",
        f"learners: {', '.join(fitted) or 'none'}",
    ]
    if few:
        lines.append(
            f"left out: {', '.join(each.name for each in few)} (they need "
            f"{min(each.min_units for each in few):,} rows)"
        )
    return lines
