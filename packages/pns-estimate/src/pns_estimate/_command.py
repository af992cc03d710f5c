"""The command `pns-estimate`."""

import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_infer as pi
from absl import app, flags, logging

from pns_estimate._columns import Missing, Unseen
from pns_estimate._decisions import Criterion, Decision, check_decision, decide
from pns_estimate._errors import UserError
from pns_estimate._estimator import PnsEstimator
from pns_estimate._files import complete_file, read_table, write_json
from pns_estimate._prediction import Target
from pns_estimate._report import write_report
from pns_estimate._training_data import WeightsAre
from pns_estimate.methods import METHODS

_USAGE = """Bounds, for every person, the probability that a treatment makes the difference.

From two tables, one of people who chose and one of people who were assigned:

  pns-estimate --observational log.csv --experimental trial.parquet \\
      --treatment x --outcome y --predict people.csv --out run/

From a model that was fitted before, for other people, with no training data:

  pns-estimate --load run/model --predict others.csv --out others/

Writes intervals.parquet, intervals.csv, report.html, config.json and model/ to --out; after a
fit by crossfit averages.csv, sorted_groups.csv and subgroups.csv, too. With --gains, whom to
treat: decisions.csv, and what that is worth: values.csv.
"""


def _text_flag(name: str, help_text: str, default: str | None = None):
    return flags.DEFINE_string(name, default, help_text)


_OBSERVATIONAL = _text_flag("observational", "CSV or Parquet: people who chose.")
_EXPERIMENTAL = _text_flag("experimental", "CSV or Parquet: people assigned at random.")
_TREATMENT = _text_flag("treatment", "The column with the treatment.")
_OUTCOME = _text_flag("outcome", "The column with the outcome.")
_TREATMENT_REFERENCE = _text_flag(
    "treatment_reference", "Its value that means untreated, unless it is 0 or false."
)
_OUTCOME_REFERENCE = _text_flag(
    "outcome_reference", "Its value that means no outcome, unless it is 0 or false."
)
_COVARIATES = flags.DEFINE_list(
    "covariates", None, "Columns that describe people; all shared ones by default."
)
_WEIGHTS = _text_flag("weights", "A column of weights in both tables.")
_WEIGHTS_ARE = flags.DEFINE_enum(
    "weights_are",
    "frequency",
    ["frequency", "sampling"],
    "Whether a row of weight w counts as w people, or is one who stands for w.",
)
_GROUPS = _text_flag(
    "groups", "A column of one table or both; groups are held out together."
)
_ASSIGNMENT = _text_flag(
    "assignment",
    "Chance of the treated arm in the trial: a number, or a column of it; the arms' "
    "shares by default.",
)
_GAINS = flags.DEFINE_list(
    "gains",
    None,
    "Whom to treat: four gains, of treating one who responds only if treated, either "
    "way, neither way, only if untreated. 1,0,0,-1 counts outcomes.",
)
_COST = flags.DEFINE_float("cost", 0.0, "Cost of a treatment, in the units of --gains.")
_BUDGET = flags.DEFINE_float("budget", None, "Greatest share of people to treat.")
_CRITERION = flags.DEFINE_enum(
    "criterion",
    "maximin",
    ["maximin", "minimax_regret"],
    "What to do with people whose interval of the benefit contains 0.",
)
_PREDICT = _text_flag(
    "predict", "CSV or Parquet: people to answer for; the experimental ones by default."
)
_LOAD = _text_flag("load", "A model/ folder; nothing is fitted.")
_OUT = _text_flag("out", "The folder to write; it must not exist or be empty.")
_METHOD = flags.DEFINE_enum(
    "method", "crossfit", list(METHODS), "Where uncertainty comes from."
)
_ESTIMAND = flags.DEFINE_enum("estimand", "pns", list(pb.ESTIMANDS), "What to bound.")
_TARGET = flags.DEFINE_enum(
    "target", "set", ["set", "parameter"], "What each interval covers."
)
_ALPHA = flags.DEFINE_float("alpha", 0.05, "The probability that an interval misses.")
_SEED = flags.DEFINE_integer("seed", 0, "Decides all randomness.")
_DRAWS = flags.DEFINE_integer("num_draws", 2000, "Draws behind each interval.")
_MISSING = flags.DEFINE_enum(
    "missing", "error", ["error", "indicator"], "Covariates without a value."
)
_UNSEEN = flags.DEFINE_enum(
    "unseen",
    "error",
    ["error", "unknown"],
    "Categories that the training tables do not have.",
)
_SETTINGS = (
    *(_OBSERVATIONAL, _EXPERIMENTAL, _TREATMENT, _OUTCOME, _COVARIATES, _WEIGHTS),
    *(_WEIGHTS_ARE, _GROUPS, _TREATMENT_REFERENCE, _OUTCOME_REFERENCE),
    *(_ASSIGNMENT, _GAINS, _COST, _BUDGET, _CRITERION),
    *(_PREDICT, _LOAD, _OUT),
    *(_METHOD, _ESTIMAND, _TARGET, _ALPHA, _SEED, _DRAWS, _MISSING, _UNSEEN),
)
_MOST_REPORTED = 1000  # people in the report
_DEBUG = flags.DEFINE_bool("debug", False, "Show where an error came from.")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_flags(arguments: Sequence[str]) -> Path:
    if arguments:
        raise UserError(f"only flags are taken, got {list(arguments)}; see --help.")
    if _OUT.value is None:
        raise UserError("say where to write with --out; see --help.")
    needed = {
        "observational": _OBSERVATIONAL.value,
        "experimental": _EXPERIMENTAL.value,
        "treatment": _TREATMENT.value,
        "outcome": _OUTCOME.value,
    }
    absent = [f"--{name}" for name, value in needed.items() if value is None]
    if _LOAD.value is not None:
        given = [f"--{name}" for name, value in needed.items() if value is not None]
        given += [
            f"--{flag.name}"
            for flag in (
                *(_METHOD, _SEED, _DRAWS, _MISSING, _UNSEEN),
                *(_WEIGHTS, _WEIGHTS_ARE, _GROUPS, _ASSIGNMENT),
            )
            if flag.present
        ]
        if given:
            raise UserError(f"--load fits nothing, so leave out {', '.join(given)}.")
        if _PREDICT.value is None:
            raise UserError("--load needs --predict: the people to answer for.")
    elif absent:
        raise UserError(f"{', '.join(absent)} must be given; see --help.")
    if not 0 < _ALPHA.value < 1:
        raise UserError(f"--alpha must lie in (0, 1), got {_ALPHA.value}.")
    if _GAINS.value is None:
        given = [f.name for f in (_COST, _BUDGET, _CRITERION) if f.present]
        if given:
            raise UserError(f"--{given[0]} is for decisions: give --gains, too.")
    else:
        check_decision(_read_decision())
    out = Path(_OUT.value)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not an empty folder; name a new one with --out.")
    return out


def _estimate() -> tuple[PnsEstimator, Any]:
    """Fits or loads; returns the estimator and the people to answer for."""
    if _LOAD.value is not None:
        return PnsEstimator.load(_LOAD.value), read_table(_PREDICT.value, "prediction")
    _say("reading tables")
    observational = read_table(_OBSERVATIONAL.value, "observational")
    experimental = read_table(_EXPERIMENTAL.value, "experimental")
    people = experimental
    if _PREDICT.value is not None:
        people = read_table(_PREDICT.value, "prediction")
    estimator = PnsEstimator(
        _METHOD.value,
        num_draws=_DRAWS.value,
        seed=_SEED.value,
        missing=cast(Missing, _MISSING.value),  # the flag allows no other values
        unseen=cast(Unseen, _UNSEEN.value),
    )
    _say(
        f"fitting: {_METHOD.value}, {len(observational):,} + {len(experimental):,} rows"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pi.AssignmentWarning)
        _fit(estimator, observational, experimental)
    for warning in caught:
        _say(f"warning: {warning.message}")
    return estimator, people


def _fit(estimator: PnsEstimator, observational: Any, experimental: Any) -> None:
    assert _TREATMENT.value and _OUTCOME.value  # _check_flags
    estimator.fit(
        observational,
        experimental,
        treatment=_TREATMENT.value,
        outcome=_OUTCOME.value,
        covariates=_COVARIATES.value,
        weights=_WEIGHTS.value,
        weights_are=cast(WeightsAre, _WEIGHTS_ARE.value),
        groups=_GROUPS.value,
        treatment_reference=_TREATMENT_REFERENCE.value,
        outcome_reference=_OUTCOME_REFERENCE.value,
        assignment=_read_assignment(),
    )


def _read_assignment() -> float | str | None:
    """Reads a number if it is one, else the name of a column."""
    try:
        return None if _ASSIGNMENT.value is None else float(_ASSIGNMENT.value)
    except ValueError:
        return _ASSIGNMENT.value


def _read_decision() -> Decision:
    return Decision(
        _GAINS.value or (),
        _COST.value,
        _BUDGET.value,
        cast(Criterion, _CRITERION.value),
    )


def _write_averages(estimator: PnsEstimator, out: Path) -> str:
    """Writes what is known of the tables' people; returns the averages to print."""
    population = estimator.population_
    found = population.comparison(_ALPHA.value, _ESTIMAND.value)
    tables = {
        "averages": found,
        "sorted_groups": population.sorted_groups(alpha=_ALPHA.value).table,
        "subgroups": population.subgroups(alpha=_ALPHA.value, estimand=_ESTIMAND.value),
    }
    if _GAINS.value is not None:
        tables["values"] = population.value(_read_decision(), _ALPHA.value)
    for name, table in tables.items():
        _write_csv(out / f"{name}.csv", table)
    return "average over the people of both tables\n" + found.to_string(
        float_format=lambda value: f"{value:.3f}"
    )


def _write_csv(path: Path, table: pd.DataFrame) -> None:
    with complete_file(path) as aside:
        table.to_csv(aside, index_label=table.index.name or "row")


def _main(arguments: Sequence[str]) -> None:
    out = _check_flags(arguments[1:])
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
            _ALPHA.value, cast(Target, _TARGET.value), _ESTIMAND.value
        )
        with complete_file(out / "intervals.parquet") as aside:
            table.to_parquet(aside)
        with complete_file(out / "intervals.csv") as aside:
            table.to_csv(aside, index_label="row")
        decision = None if _GAINS.value is None else _read_decision()
        if decision is not None:
            _write_csv(
                out / "decisions.csv", decide(prediction, decision, _ALPHA.value)
            )
        averages = ""
        if estimator.has_population:
            averages = _write_averages(estimator, out)
        _say("report")
        if len(people) > _MOST_REPORTED:
            rng = np.random.default_rng(_SEED.value)
            prediction = prediction.take(
                rng.choice(len(people), _MOST_REPORTED, replace=False)
            )
        write_report(
            out / "report.html",
            prediction,
            estimator.summary_,
            _ALPHA.value,
            estimator.population_ if estimator.has_population else None,
            decision,
        )
        if _LOAD.value is None:
            estimator.save(out / "model")
        write_json(out / "config.json", {flag.name: flag.value for flag in _SETTINGS})
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


def run(argv: list[str] | None = None) -> None:
    """Runs the command: 0 if it worked, 2 for a user's mistake, 1 for a fault of ours.

    Args:
      argv: program and arguments; those of the process if None.
    """
    sys.modules["__main__"].__doc__ = _USAGE

    def guarded(arguments: Sequence[str]) -> None:
        logging.set_verbosity(logging.INFO if _DEBUG.value else logging.WARNING)
        try:
            _main(arguments)
        except UserError as error:
            if _DEBUG.value:
                traceback.print_exc()
            _say(f"pns-estimate: {error}")
            sys.exit(2)
        except Exception as error:  # noqa: BLE001 (one line for people, not a trace)
            if _DEBUG.value:
                traceback.print_exc()
            _say(
                f"pns-estimate: unexpected {type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else ''} (--debug shows where)"
            )
            sys.exit(1)

    app.run(guarded, argv=argv)


if __name__ == "__main__":
    run()
