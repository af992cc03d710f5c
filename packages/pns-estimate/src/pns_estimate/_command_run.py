"""What the command `pns-estimate` does once its flags are read."""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pns_infer as pi

from pns_estimate import _flags
from pns_estimate._columns import Missing, Unseen
from pns_estimate._compilation_cache import use_compilation_cache
from pns_estimate._decisions import Criterion, Decision, check_decision, decide
from pns_estimate._errors import UserError
from pns_estimate._estimator import PnsEstimator
from pns_estimate._files import complete_file, read_table, write_json
from pns_estimate._prediction import Target
from pns_estimate._question import Question
from pns_estimate._report import write_report
from pns_estimate._training_data import WeightsAre
from pns_estimate.methods import METHODS


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_flags(arguments: Sequence[str]) -> Path:
    if arguments:
        raise UserError(f"only flags are taken, got {list(arguments)}; see --help.")
    if _flags.OUT.value is None:
        raise UserError("say where to write with --out; see --help.")
    needed = {
        "observational": _flags.OBSERVATIONAL.value,
        "experimental": _flags.EXPERIMENTAL.value,
        "treatment": _flags.TREATMENT.value,
        "outcome": _flags.OUTCOME.value,
    }
    absent = [f"--{name}" for name, value in needed.items() if value is None]
    if _flags.LOAD.value is not None:
        given = [f"--{name}" for name, value in needed.items() if value is not None]
        given += [
            f"--{flag.name}"
            for flag in (
                *(
                    _flags.METHOD,
                    _flags.SEED,
                    _flags.DRAWS,
                    _flags.MISSING,
                    _flags.UNSEEN,
                ),
                *(_flags.WEIGHTS, _flags.WEIGHTS_ARE, _flags.GROUPS, _flags.ASSIGNMENT),
            )
            if flag.present
        ]
        if given:
            raise UserError(f"--load fits nothing, so leave out {', '.join(given)}.")
        if _flags.PREDICT.value is None:
            raise UserError("--load needs --predict: the people to answer for.")
    elif absent:
        raise UserError(f"{', '.join(absent)} must be given; see --help.")
    if _flags.METHOD.value not in METHODS:
        raise UserError(
            f"--method must be one of {', '.join(METHODS)}, got {_flags.METHOD.value!r}."
        )
    if not 0 < _flags.ALPHA.value < 1:
        raise UserError(f"--alpha must lie in (0, 1), got {_flags.ALPHA.value}.")
    _read_question().check()
    if _flags.GAINS.value is None:
        given = [
            f.name for f in (_flags.COST, _flags.BUDGET, _flags.CRITERION) if f.present
        ]
        if given:
            raise UserError(f"--{given[0]} is for decisions: give --gains, too.")
    else:
        check_decision(_read_decision())
    out = Path(_flags.OUT.value)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not an empty folder; name a new one with --out.")
    return out


def _estimate() -> tuple[PnsEstimator, Any]:
    """Fits or loads; returns the estimator and the people to answer for."""
    if _flags.LOAD.value is not None:
        return PnsEstimator.load(_flags.LOAD.value), read_table(
            _flags.PREDICT.value, "prediction"
        )
    _say("reading tables")
    observational = read_table(_flags.OBSERVATIONAL.value, "observational")
    experimental = read_table(_flags.EXPERIMENTAL.value, "experimental")
    people = experimental
    if _flags.PREDICT.value is not None:
        people = read_table(_flags.PREDICT.value, "prediction")
    estimator = PnsEstimator(
        _flags.METHOD.value,
        num_draws=_flags.DRAWS.value,
        seed=_flags.SEED.value,
        missing=cast(Missing, _flags.MISSING.value),  # the flag allows no other values
        unseen=cast(Unseen, _flags.UNSEEN.value),
    )
    _say(
        f"fitting: {_flags.METHOD.value}, {len(observational):,} + {len(experimental):,} rows"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pi.AssignmentWarning)
        _fit(estimator, observational, experimental)
    for warning in caught:
        _say(f"warning: {warning.message}")
    return estimator, people


def _fit(estimator: PnsEstimator, observational: Any, experimental: Any) -> None:
    assert _flags.TREATMENT.value and _flags.OUTCOME.value  # _check_flags
    estimator.fit(
        observational,
        experimental,
        treatment=_flags.TREATMENT.value,
        outcome=_flags.OUTCOME.value,
        covariates=_flags.COVARIATES.value,
        weights=_flags.WEIGHTS.value,
        weights_are=cast(WeightsAre, _flags.WEIGHTS_ARE.value),
        groups=_flags.GROUPS.value,
        treatment_reference=_flags.TREATMENT_REFERENCE.value,
        outcome_reference=_flags.OUTCOME_REFERENCE.value,
        assignment=_read_assignment(),
    )


def _read_assignment() -> float | str | None:
    """Reads a number if it is one, else the name of a column."""
    try:
        return (
            None if _flags.ASSIGNMENT.value is None else float(_flags.ASSIGNMENT.value)
        )
    except ValueError:
        return _flags.ASSIGNMENT.value


def _read_question() -> Question:
    asked = _flags.PREDICT.value
    return Question(
        _flags.ESTIMAND.value,
        cast(Target, _flags.TARGET.value),
        _flags.ALPHA.value,
        _flags.THRESHOLD.value,
        _flags.OUTCOME_IS_BAD.value,
        "the people of the trial" if asked is None else f"the rows of {asked}",
    )


def _read_decision() -> Decision:
    return Decision(
        _flags.GAINS.value or (),
        _flags.COST.value,
        _flags.BUDGET.value,
        cast(Criterion, _flags.CRITERION.value),
    )


def _write_averages(estimator: PnsEstimator, out: Path) -> str:
    """Writes what is known of the tables' people; returns the averages to print."""
    population = estimator.population_
    found = population.comparison(_flags.ALPHA.value, _flags.ESTIMAND.value)
    tables = {
        "averages": found,
        "sorted_groups": population.sorted_groups(alpha=_flags.ALPHA.value).table,
        "subgroups": population.subgroups(
            alpha=_flags.ALPHA.value, estimand=_flags.ESTIMAND.value
        ),
    }
    if _flags.GAINS.value is not None:
        tables["values"] = population.value(_read_decision(), _flags.ALPHA.value)
    for name, table in tables.items():
        _write_csv(out / f"{name}.csv", table)
    return "average over the people of both tables\n" + found.to_string(
        float_format=lambda value: f"{value:.3f}"
    )


def _write_csv(path: Path, table: pd.DataFrame) -> None:
    with complete_file(path) as aside:
        table.to_csv(aside, index_label=table.index.name or "row")


def answer(arguments: Sequence[str]) -> None:
    """Fits or loads, answers for people and writes everything to `--out`.

    Args:
      arguments: what the command line has beside the flags, the program first.
    """
    out = _check_flags(arguments[1:])
    use_compilation_cache()
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}.") from error
    try:
        estimator, people = _estimate()
        _say(f"intervals for {len(people):,} people")
        prediction = estimator.predict(people)
        table = prediction.intervals(
            _flags.ALPHA.value, _flags.ESTIMAND.value, cast(Target, _flags.TARGET.value)
        )
        with complete_file(out / "intervals.parquet") as aside:
            table.to_parquet(aside)
        with complete_file(out / "intervals.csv") as aside:
            table.to_csv(aside, index_label="row")
        decision = None if _flags.GAINS.value is None else _read_decision()
        if decision is not None:
            _write_csv(
                out / "decisions.csv", decide(prediction, decision, _flags.ALPHA.value)
            )
        averages = ""
        if estimator.has_population:
            averages = _write_averages(estimator, out)
        _say("report")
        write_report(
            out / "report.html",
            prediction,
            estimator.summary_,
            _read_question(),
            estimator.population_ if estimator.has_population else None,
            decision,
            out / "summary.json",
        )
        if _flags.LOAD.value is None:
            estimator.save(out / "model")
        write_json(
            out / "config.json", {flag.name: flag.value for flag in _flags.SETTINGS}
        )
    except BaseException:
        if is_new and not any(out.iterdir()):
            out.rmdir()  # nothing was written: leave nothing behind
        raise
    if estimator.compatibility()["p_value"] < 0.05:
        _say("warning: the two tables contradict each other; see the report.")
    print(table.head().to_string(float_format=lambda value: f"{value:.3f}"))
    print(f"\n{len(table):,} intervals: {out / 'intervals.csv'}")
    if averages:
        print(f"\n{averages}\n")
    print(f"report: {out / 'report.html'}")
