"""What the command `pns-estimate` does once its flags are read."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pns_infer as pi
import pns_models as pm
from absl import flags

from pns_estimate._compilation_cache import use_compilation_cache
from pns_estimate._duration import AUDIT, INTERVALS, REPORT, answer_steps, fit_steps
from pns_estimate._errors import Setting, UserError, as_user_errors
from pns_estimate._estimator import PnsEstimator
from pns_estimate._progress import Step, begin, say, watch
from pns_estimate._settings import check_memory
from pns_estimate._unit import make_unit
from pns_estimate.answers.answers import attempt
from pns_estimate.answers.files import (
    check_key,
    check_people,
    show,
    show_audit,
    show_averages,
    show_doubts,
    with_key,
    write_intervals,
    write_tables,
)
from pns_estimate.answers.question import (
    Criterion,
    Decision,
    Question,
    Target,
    check_decision,
)
from pns_estimate.answers.subgroups import check_columns
from pns_estimate.command import flags as _flags
from pns_estimate.command.check import describe_check
from pns_estimate.command.config import (
    find_changes,
    hash_inputs,
    make_config,
    read_config,
)
from pns_estimate.command.run_folder import (
    CHECKPOINTS,
    MODEL,
    check_run_folder,
    run_folder,
)
from pns_estimate.methods import Method, get_method
from pns_estimate.methods.crossfit import CrossFitRecipe
from pns_estimate.methods.network import NetworkMethod
from pns_estimate.report.page import write_numbers, write_report
from pns_estimate.tables.checks import TableWarning
from pns_estimate.tables.columns import Missing, Unseen
from pns_estimate.tables.files import write_json
from pns_estimate.tables.preparation import PreparedTables, prepare_tables
from pns_estimate.tables.readers import Frame, Stream, open_table
from pns_estimate.tables.rows import Roles, WeightsAre

_NEEDED = (
    *(_flags.OBSERVATIONAL, _flags.EXPERIMENTAL),
    *(_flags.TREATMENT, _flags.OUTCOME),
)
_FOR_FITS = (
    *(_flags.METHOD, _flags.LEARNERS, _flags.SEED, _flags.DRAWS, _flags.AUDIT),
    *(_flags.MISSING, _flags.UNSEEN),
    *(_flags.WEIGHTS, _flags.WEIGHTS_ARE, _flags.GROUPS, _flags.ASSIGNMENT),
    *(_flags.COVARIATES, _flags.TREATMENT_REFERENCE, _flags.OUTCOME_REFERENCE),
)

_CSV_ROWS = 200_000  # of streamed people; more are written as Parquet alone


def _say(text: str) -> None:
    if pm.is_writer():
        say(text)


def _check_flags(arguments: Sequence[str]) -> Path | None:
    """Raises unless the flags fit together; returns where to write, if anything is."""
    if arguments:
        raise UserError(f"only flags are taken, got {list(arguments)}; see --help.")
    if _flags.OUT.value is None and not _flags.CHECK.value:
        raise UserError("say where to write with --out; see --help.")
    if _flags.LOAD.value is not None:
        given = [f"--{flag.name}" for flag in (*_NEEDED, *_FOR_FITS) if flag.present]
        if given:
            raise UserError(f"--load fits nothing, so leave out {', '.join(given)}.")
        if _flags.PREDICT.value is None:
            raise UserError("--load needs --predict: the people to answer for.")
    else:
        absent = [f"--{flag.name}" for flag in _NEEDED if flag.value is None]
        if absent:
            raise UserError(f"{', '.join(absent)} must be given; see --help.")
    method = get_method(_flags.METHOD.value)  # one that is not known is told
    _read_recipe()
    if _flags.AUDIT.value and isinstance(method, NetworkMethod):
        raise UserError(
            Setting("audit"), " is for ", Setting("method", "crossfit"), "."
        )
    _check_question()
    if _flags.OUT.value is None:
        return None
    out = Path(_flags.OUT.value)
    if not _flags.DISTRIBUTED.value and not _flags.PROCESS_ID.value:
        check_run_folder(out)  # else only the process that writes can tell
    return out


def _read_recipe() -> CrossFitRecipe | None:
    """Reads the learners to stack; None stacks all of them."""
    names = _flags.LEARNERS.value
    if names is None:
        return None
    recipe = get_method(_flags.METHOD.value).recipe
    if not isinstance(recipe, CrossFitRecipe):
        raise UserError(
            Setting("learners"), " is for ", Setting("method", "crossfit"), "."
        )
    known = f"one or more of {', '.join(pm.LEARNERS)}, each once"
    wrong = [name for name in names if name not in pm.LEARNERS]
    wrong = wrong or [name for name in names if names.count(name) > 1]
    if wrong or not names:
        got = repr(wrong[0]) if wrong else "none"
        raise UserError(Setting("learners"), f" must be {known}, got {got}.")
    return dataclasses.replace(recipe, learners=tuple(pm.LEARNERS[n] for n in names))


def _join_processes() -> None:
    """Joins the other processes of the run, if there are any."""
    given = {
        "coordinator_address": _flags.COORDINATOR_ADDRESS.value,
        "num_processes": _flags.NUM_PROCESSES.value,
        "process_id": _flags.PROCESS_ID.value,
    }
    if not _flags.DISTRIBUTED.value and all(v is None for v in given.values()):
        return
    if _flags.LOAD.value is not None:
        raise UserError("--load fits nothing, so one process is enough.")
    if _flags.AUDIT.value:
        raise UserError("--audit runs in one process; audit a run that is not shared.")
    with as_user_errors():
        pm.join_processes(**given)


def _check_question() -> None:
    """Raises unless alpha, threshold, draws and decision fit together."""
    check_memory(_flags.MEMORY_GB.value)
    question, decision = _read_question(), _read_decision()
    question.check()
    if decision is not None:
        check_decision(decision)
    else:
        for flag in (_flags.COST, _flags.BUDGET, _flags.CRITERION, _flags.GAINS_IN):
            if flag.present:
                raise UserError(f"--{flag.name} is for decisions: give --gains, too.")
    if _flags.LOAD.value is None and _flags.METHOD.value != "plug_in":
        _check_draws(get_method(_flags.METHOD.value), question.alpha)


def _check_draws(method: Method, alpha: float) -> None:
    """Raises if there will be too few draws for intervals, before they are made."""
    needed, num_draws = pi.draws_needed(1 - alpha / 2), _flags.DRAWS.value
    advice: tuple[str | Setting, ...] = ("fit with a larger ", Setting("num_draws"))
    bootstrap = method.bootstrap if isinstance(method, NetworkMethod) else None
    if bootstrap is not None:  # it has its own number of draws
        num_draws, advice = bootstrap.num_draws, ("take another method",)
    if num_draws < needed:
        raise UserError(
            f"the {num_draws} draws of the method {method.name!r} are too few for ",
            Setting("alpha", alpha),
            f", which needs {needed} or, to keep their noise small, ten times as many; ",
            *advice,
            ", or take a larger ",
            Setting("alpha"),
            ".",
        )


def _estimate(
    out: Path, config: Mapping[str, Any], bar: ExitStack
) -> tuple[PnsEstimator, Frame | Stream, dict[str, Any]]:
    """Fits and saves, or loads; returns people to answer for and what was read, too.

    All that can be wrong with tables and people is found before the fit. What shows the
    progress of the run is entered into `bar`.
    """
    if _flags.LOAD.value is not None:
        estimator, people, warned = _load()
        for warning in warned:
            _say(f"warning: {warning}")
        files = _hash_inputs(config)
        _watch(bar, answer_steps(people.num_rows()))
        return estimator, people, files
    _say("reading tables")
    estimator = _make_estimator(out / CHECKPOINTS)
    prepared, people, warned = _prepare(estimator)
    for warning in warned:
        _say(f"warning: {warning}")
    files = _hash_inputs(config)
    rows = [f"{number:,}" for number in prepared.read.num_rows.values()]
    _say(f"fitting: {_flags.METHOD.value}, {' + '.join(rows)} rows")
    asked = answer_steps(people.num_rows())
    _watch(bar, [*_fit_steps(estimator, prepared), *asked])
    estimator._fit_prepared(prepared)
    if pm.is_writer():
        estimator.save(out / MODEL)
    return estimator, people, files


def _load() -> tuple[PnsEstimator, Frame | Stream, list[str]]:
    """Loads the model, and opens the people to answer for; returns warnings, too."""
    estimator = PnsEstimator.load(_flags.LOAD.value)
    people = _open(_flags.PREDICT, "prediction")
    encoder = estimator._fitted().encoder
    check_columns(_flags.SUBGROUPS.value or [], encoder.columns)
    check_people(people, encoder)
    return estimator, *_named(people)


def _make_estimator(checkpoints: Path | None) -> PnsEstimator:
    return PnsEstimator(
        _flags.METHOD.value,
        recipe=_read_recipe(),
        num_draws=_flags.DRAWS.value,
        seed=_flags.SEED.value,
        missing=cast(Missing, _flags.MISSING.value),  # the flag allows no other values
        unseen=cast(Unseen, _flags.UNSEEN.value),
        progress=pm.is_writer(),
        checkpoint_dir=checkpoints,
    )


def _check() -> str:
    """Does everything that comes before a fit; says what the fit would do."""
    if _flags.LOAD.value is not None:
        _, people, warned = _load()
        lines = [f"the model can answer for all {people.num_rows():,} people"]
        lines += [f"warning: {text}" for text in warned]
        return "\n".join([*lines, "nothing was written"])
    estimator = _make_estimator(None)
    prepared, people, warned = _prepare(estimator)
    size = people.num_rows()
    steps = [*_fit_steps(estimator, prepared), *answer_steps(size)]
    return describe_check(estimator, prepared, size, warned, steps)


def _watch(bar: ExitStack, steps: Sequence[Step]) -> None:
    bar.enter_context(watch(steps, show=pm.is_writer(), lines=True))


def _fit_steps(estimator: PnsEstimator, prepared: PreparedTables) -> list[Step]:
    size = prepared.rows.z.shape
    audit = _flags.AUDIT.value
    return fit_steps(estimator.method, estimator.recipe, *size, audit=audit)


def _hash_inputs(config: Mapping[str, Any]) -> dict[str, Any]:
    """Hashes what was read, and says what differs from the run that is run again."""
    if not pm.is_writer():
        return {}
    files = hash_inputs()
    for change in find_changes(config, files):
        _say(f"warning: {change}")
    return files


def _prepare(
    estimator: PnsEstimator,
) -> tuple[PreparedTables, Frame | Stream, list[str]]:
    """Reads and checks the tables and the people to answer for; returns warnings, too."""
    assert _flags.TREATMENT.value and _flags.OUTCOME.value  # _check_flags
    experimental = _open(_flags.EXPERIMENTAL, "experimental")
    observational = _open(_flags.OBSERVATIONAL, "observational")
    people = experimental
    if _flags.PREDICT.value is not None:
        people = _open(_flags.PREDICT, "prediction")
    roles = Roles(
        _flags.TREATMENT.value,
        _flags.OUTCOME.value,
        _flags.WEIGHTS.value,
        cast(WeightsAre, _flags.WEIGHTS_ARE.value),
        _flags.GROUPS.value,
        _flags.TREATMENT_REFERENCE.value,
        _flags.OUTCOME_REFERENCE.value,
        _read_assignment(),
        _flags.ID.value,
    )
    people, repeated = _named(people)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pi.AssignmentWarning)
        warnings.simplefilter("always", TableWarning)
        prepared = prepare_tables(
            {"observational": observational, "experimental": experimental},
            roles,
            _flags.COVARIATES.value,
            estimator.get_params(),
            _flags.MEMORY_GB.value,
        )
    check_columns(_flags.SUBGROUPS.value or [], prepared.meaning.encoder.columns)
    if _flags.PREDICT.value is not None:
        check_people(people, prepared.meaning.encoder)
    return prepared, people, [*map(str, (each.message for each in caught)), *repeated]


def _open(flag: flags.FlagHolder[str | None], name: str) -> Frame | Stream:
    """Reads the table that a flag names, or opens it as a stream."""
    table = open_table(
        flag.value, name, _flags.MEMORY_GB.value, True, _say, _flags.ID.value
    )
    asked = _flags.EXPERIMENTAL if _flags.PREDICT.value is None else _flags.PREDICT
    if flag is asked and isinstance(table, Stream) and _flags.GAINS.value is not None:
        raise UserError(
            "--gains needs people who fit into memory, and those to answer for are "
            "streamed; give fewer of them to --predict, as one file."
        )
    return table


def _named(people: Frame | Stream) -> tuple[Frame | Stream, list[str]]:
    """Names the people to answer for by `--id`; those of a stream while they are read.

    Returns warnings, too.
    """
    key = _flags.ID.value
    if key is None:
        return people, []
    problem = check_key(people, key)
    named = with_key(people, key) if isinstance(people, Frame) else people
    return named, [] if problem is None else [problem]


def _read_assignment() -> float | str | None:
    """Reads a number if it is one, else the name of a column."""
    given = _flags.ASSIGNMENT.value
    try:
        return None if given is None else float(given)
    except ValueError:
        return given


def _read_question() -> Question:
    asked = _flags.PREDICT.value
    return Question(
        _flags.ESTIMAND.value,
        cast(Target, _flags.TARGET.value),
        _flags.ALPHA.value,
        _flags.THRESHOLD.value,
        _flags.OUTCOME_IS_BAD.value,
        "the people of the trial" if asked is None else f"the rows of {asked}",
        _flags.SUBGROUPS.value,
        _flags.TREATMENT_LABEL.value,
        _flags.OUTCOME_LABEL.value,
        _flags.UNIT.value,
        _flags.GAINS_IN.value,
    )


def _read_decision() -> Decision | None:
    if _flags.GAINS.value is None:
        return None
    return Decision(
        _flags.GAINS.value,
        _flags.COST.value,
        _flags.BUDGET.value,
        cast(Criterion, _flags.CRITERION.value),
    )


def answer(arguments: Sequence[str]) -> None:
    """Fits or loads, answers for people and writes everything to `--out`.

    Arguments are what the command line has beside the flags, the program first.
    """
    config = read_config()
    out = _check_flags(arguments[1:])
    if out is None or _flags.CHECK.value:
        print(_check())
        return
    _join_processes()
    use_compilation_cache()
    if not pm.is_writer():
        _estimate(out, config, ExitStack())
        return
    with run_folder(out), ExitStack() as bar:
        estimator, people, files = _estimate(out, config, bar)
        try:
            answers = _write_answers(estimator, people, out, files)
        except BaseException:
            if _flags.LOAD.value is None:
                _say(f"the fitted model is kept: --load {out / MODEL}")
            raise
    print(answers)


def _write_answers(
    estimator: PnsEstimator, people: Frame | Stream, out: Path, files: dict[str, Any]
) -> str:
    """Writes all but the model; returns what to print."""
    question, decision = _read_question(), _read_decision()
    audit = None
    if _flags.AUDIT.value:
        begin(AUDIT)
        _say("audit: fitting tables drawn from the fit")
        audit = attempt(lambda: estimator.audit(1, question.alpha, question.estimand))
    size = people.num_rows()
    begin(INTERVALS)
    _say(f"intervals for {size:,} {make_unit(question.unit).many}")
    path, text = out / "intervals.parquet", out / "intervals.csv"
    if isinstance(people, Stream):
        is_long = size > _CSV_ROWS
        if is_long:
            _say(
                f"no intervals.csv: {size:,} people, and it is for {_CSV_ROWS:,} at most"
            )
        written = estimator._write_intervals(
            path, people, question, None if is_long else text, _flags.ID.value
        )
        question = dataclasses.replace(question, about=f"a sample of {question.about}")
        answers = estimator.answers(written.sample, question, decision, audit)
        first, text = written.first, path if is_long else text
    else:
        answers = estimator.answers(people.frame, question, decision, audit)
        write_intervals(out, answers)
        first = next(iter(answers.intervals.values())).head()
    write_tables(out, answers)
    begin(REPORT)
    _say("report")
    write_report(out / "report.html", answers)
    write_numbers(out / "summary.json", answers)
    is_fit = _flags.LOAD.value is None
    write_json(
        out / "config.json", make_config(estimator._fitted(), files, is_fit=is_fit)
    )
    if answers.summary.compatibility.is_contradiction:
        _say("warning: the two tables contradict each other; see the report.")
    averages = show_averages(answers)
    parts = [show(first), "", f"{size:,} intervals: {text}"]
    parts += [*filter(None, [show_doubts(answers)])]
    parts += ["", averages, ""] if averages else []
    parts += [*filter(None, [show_audit(answers)])]
    return "\n".join([*parts, f"report: {out / 'report.html'}"])
