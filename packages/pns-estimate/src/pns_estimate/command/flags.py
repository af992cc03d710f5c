"""The flags of the command `pns-estimate`, and its help.

Nothing heavy is imported here: help and mistakes in flags are answered at once.
"""

import shlex
import textwrap
from collections.abc import Callable, Sequence

import pns_bounds as pb
from absl import flags

from pns_estimate._errors import Setting, UserError

METHOD_NAMES = (
    *("crossfit", "epinet", "ensemble", "bootstrap_full", "bootstrap_last_layer"),
    "plug_in",
)  # those of the registry, which takes seconds to import
LEARNER_NAMES = (
    *("ridge", "splines", "kernel", "trees", "random_trees"),
    *("networks", "networks_2", "networks_3"),
)  # those of pns_models.LEARNERS

_USAGE = """Bounds, for every person, the probability that a treatment makes the difference.

From two tables, one of people who chose and one of people who were assigned:

  pns-estimate --observational log.csv --experimental trial.parquet \\
      --treatment x --outcome y --predict people.csv --out run/

From a model that was fitted before, for other people, with no training data:

  pns-estimate --load run/model --predict others.csv --out others/

What would that do, and for how long? With --check nothing is fitted or written.

The same run again, with another seed:

  pns-estimate --config run/config.json --seed 1 --out again/

Writes intervals.parquet, intervals.csv, report.html, summary.json, config.json and model/ to
--out; after a fit by crossfit averages.csv, sorted_groups.csv and subgroups.csv, too. With
--gains, whom to treat: decisions.csv, and what that is worth: values.csv.

Tables larger than memory are folders of Parquet files, read in batches: --observational
log/ --experimental trial/ --predict people/. Rows that agree in all columns are merged, so
memory grows with the number of rows that differ; --memory_gb bounds it.

Compiled programs are kept for the next run in the user's cache folder;
JAX_COMPILATION_CACHE_DIR names another, JAX_ENABLE_COMPILATION_CACHE=false keeps none.
"""


def _text_flag(name: str, help_text: str, default: str | None = None):
    return flags.DEFINE_string(name, default, help_text)


OBSERVATIONAL = _text_flag(
    "observational",
    "CSV or Parquet: people who chose; a folder of Parquet is streamed.",
)
EXPERIMENTAL = _text_flag("experimental", "People assigned at random, in the same way.")
TREATMENT = _text_flag("treatment", "The column with the treatment.")
OUTCOME = _text_flag("outcome", "The column with the outcome.")
TREATMENT_REFERENCE = _text_flag(
    "treatment_reference", "Its value that means untreated, unless it is 0 or false."
)
OUTCOME_REFERENCE = _text_flag(
    "outcome_reference", "Its value that means no outcome, unless it is 0 or false."
)
COVARIATES = flags.DEFINE_list(
    "covariates",
    None,
    "Columns that describe people; all that the tables share by default, and --covariates= "
    """for none. A name with a comma is quoted: --covariates='age,"height, cm"'.""",
)
WEIGHTS = _text_flag("weights", "A column of weights in both tables.")
WEIGHTS_ARE = flags.DEFINE_enum(
    "weights_are",
    "frequency",
    ["frequency", "sampling"],
    "Whether a row of weight w counts as w people, or is one who stands for w.",
)
GROUPS = _text_flag(
    "groups", "A column of one table or both; groups are held out together."
)
ASSIGNMENT = _text_flag(
    "assignment",
    "Chance of the treated arm in the trial: a number, or a column of it; the arms' "
    "shares by default.",
)
ID = _text_flag(
    "id",
    "A column that names the people to answer for, such as a customer number; it is no "
    "covariate, and every file with a row per person carries it.",
)
GAINS = flags.DEFINE_list(
    "gains",
    None,
    "Whom to treat: four gains, of treating one who responds only if treated, either "
    "way, neither way, only if untreated. 1,0,0,-1 counts outcomes.",
)
COST = flags.DEFINE_float("cost", 0.0, "Cost of a treatment, in the units of --gains.")
BUDGET = flags.DEFINE_float("budget", None, "Greatest share of people to treat.")
CRITERION = flags.DEFINE_enum(
    "criterion",
    "maximin",
    ["maximin", "minimax_regret"],
    "What to do with people whose interval of the benefit contains 0.",
)
PREDICT = _text_flag(
    "predict",
    "People to answer for, in the same way; the experimental ones by default.",
)
MEMORY_GB = flags.DEFINE_float(
    "memory_gb",
    4.0,
    "GB that a fit of streamed tables may take, about; a single Parquet file for which "
    "it would take more is streamed, too.",
)
LOAD = _text_flag("load", "A model/ folder; nothing is fitted.")
OUT = _text_flag("out", "The folder to write; it must not exist or be empty.")
METHOD = flags.DEFINE_string(
    "method",
    METHOD_NAMES[0],
    f"Where uncertainty comes from: {', '.join(METHOD_NAMES)}.",
)
LEARNERS = flags.DEFINE_list(
    "learners",
    None,
    f"What --method=crossfit stacks: {', '.join(LEARNER_NAMES)}; all by default.",
)
ESTIMAND = flags.DEFINE_enum("estimand", "pns", list(pb.ESTIMANDS), "What to bound.")
TARGET = flags.DEFINE_enum(
    "target", "set", ["set", "parameter"], "What each interval covers."
)
ALPHA = flags.DEFINE_float("alpha", 0.05, "The probability that an interval misses.")
THRESHOLD = flags.DEFINE_float(
    "threshold",
    None,
    "The report counts who surely exceeds this value; without it, for every value.",
)
OUTCOME_IS_BAD = flags.DEFINE_bool(
    "outcome_is_bad",
    None,
    "Whether the outcome is unwanted; --nooutcome_is_bad if it is wanted. Decides "
    "what the report calls benefit and harm; without it, it uses neither word.",
)
SUBGROUPS = flags.DEFINE_list(
    "subgroups",
    None,
    "Covariates to make subgroups of; by default all, or those whose groups differ most "
    "in the prediction if they would make more than 60.",
)
TREATMENT_LABEL = _text_flag(
    "treatment_label",
    "What the report calls the treatment, such as e-mail; without it that is no e-mail.",
)
OUTCOME_LABEL = _text_flag(
    "outcome_label", "What the report calls the outcome, such as 'a visit'."
)
UNIT = _text_flag(
    "unit", "What the report calls a person: customer, or child/children."
)
GAINS_IN = _text_flag(
    "gains_in", "The money that --gains and --cost are in, such as EUR."
)
SEED = flags.DEFINE_integer(
    "seed", 0, "Decides all randomness.", lower_bound=0, upper_bound=2**32 - 1
)
DRAWS = flags.DEFINE_integer(
    "num_draws", 2000, "Draws behind each interval.", lower_bound=200
)
MISSING = flags.DEFINE_enum(
    "missing", "error", ["error", "indicator"], "Covariates without a value."
)
UNSEEN = flags.DEFINE_enum(
    "unseen",
    "error",
    ["error", "unknown"],
    "Categories that the training tables do not have.",
)
AUDIT = flags.DEFINE_bool(
    "audit",
    False,
    "Draw tables from the fit, fit them again and report how often intervals cover the "
    "truth there; takes about as long as the fit. For --method=crossfit.",
)
CONFIG = _text_flag(
    "config",
    "The config.json of a run: all settings are as in that run, except those given beside "
    "it, and --out. Paths in it are read from the current folder.",
)
CHECK = flags.DEFINE_bool(
    "check",
    False,
    "Read and check everything, say what a fit would do and about how long it would take, "
    "and write nothing.",
)
VERSION = flags.DEFINE_bool("version", False, "Print the version, and do nothing else.")
DEBUG = flags.DEFINE_bool("debug", False, "Show where an error came from.")
DISTRIBUTED = flags.DEFINE_bool(
    "distributed",
    False,
    "Share the fit with the other processes of this job, which JAX finds by itself under "
    "SLURM, Open MPI and Kubernetes and on TPU slices; elsewhere give the three below. "
    "All run the same command; process 0 writes.",
)
COORDINATOR_ADDRESS = _text_flag(
    "coordinator_address", "Host and port of process 0, 10.0.0.1:8476 for example."
)
NUM_PROCESSES = flags.DEFINE_integer(
    "num_processes", None, "How many processes share the fit.", lower_bound=1
)
PROCESS_ID = flags.DEFINE_integer(
    "process_id", None, "The number of this process, from 0.", lower_bound=0
)
SECTIONS = {
    "Tables": (
        *((OBSERVATIONAL, "PATH"), (EXPERIMENTAL, "PATH"), (PREDICT, "PATH")),
        *((MEMORY_GB, "NUMBER"), (LOAD, "FOLDER")),
    ),
    "Columns": (
        *((TREATMENT, "COLUMN"), (OUTCOME, "COLUMN"), (COVARIATES, "COLUMN,...")),
        *((TREATMENT_REFERENCE, "VALUE"), (OUTCOME_REFERENCE, "VALUE")),
        *((WEIGHTS, "COLUMN"), (WEIGHTS_ARE, ""), (GROUPS, "COLUMN")),
        *(
            (ASSIGNMENT, "NUMBER or COLUMN"),
            (ID, "COLUMN"),
            (MISSING, ""),
            (UNSEEN, ""),
        ),
    ),
    "Method": (
        *((METHOD, "NAME"), (LEARNERS, "NAME,...")),
        *((DRAWS, "NUMBER"), (SEED, "NUMBER"), (AUDIT, "")),
    ),
    "Question": (
        *((ESTIMAND, ""), (TARGET, ""), (ALPHA, "NUMBER"), (THRESHOLD, "NUMBER")),
        *((OUTCOME_IS_BAD, ""), (SUBGROUPS, "COLUMN,...")),
        *((TREATMENT_LABEL, "TEXT"), (OUTCOME_LABEL, "TEXT"), (UNIT, "NAME")),
    ),
    "Decisions": (
        *((GAINS, "NUMBER,..."), (COST, "NUMBER"), (BUDGET, "NUMBER")),
        *((CRITERION, ""), (GAINS_IN, "NAME")),
    ),
    "Output": (
        *((OUT, "FOLDER"), (CONFIG, "FILE")),
        *((CHECK, ""), (VERSION, ""), (DEBUG, "")),
    ),
    "Several processes": (
        *((DISTRIBUTED, ""), (COORDINATOR_ADDRESS, "HOST:PORT")),
        *((NUM_PROCESSES, "NUMBER"), (PROCESS_ID, "NUMBER")),
    ),
}
"""Flags as the help groups them, each with what its value is; choices name themselves."""

_HOW = ("Output", "Several processes")
SETTINGS = (
    *(flag for name in SECTIONS if name not in _HOW for flag, _ in SECTIONS[name]),
    OUT,
)
"""Flags that decide what is written."""

_COLUMN = 30  # where the explanations start


def help_text() -> str:
    """Returns the usage, then every flag under its heading."""
    parts = [_USAGE]
    for heading, section in SECTIONS.items():
        parts.append(f"{heading}:\n")
        parts += [_explanation(flag.name, value) for flag, value in section]
        parts.append("")
    return "\n".join(parts)


def is_help(arguments: Sequence[str]) -> bool:
    """Tells whether help is asked for."""
    return not {"--help", "-help", "-h", "-?", "--helpshort"}.isdisjoint(arguments)


def in_flags(error: UserError) -> str:
    """Writes a message with its settings as flags: --missing=indicator."""
    return "".join(_flag(p) if isinstance(p, Setting) else p for p in error.parts)


def _flag(setting: Setting) -> str:
    if setting.name not in flags.FLAGS:
        return str(setting)
    if setting.value is None:
        return f"--{setting.name}"
    return f"--{setting.name}={shlex.quote(str(setting.value))}"


_READERS: dict[type | None, tuple[Callable[[str], object], str]] = {
    flags.FloatParser: (float, "not a number"),
    flags.IntegerParser: (int, "not a whole number"),
    flags.BooleanParser: (flags.BooleanParser().parse, "neither true nor false"),
}


def describe_error(error: flags.Error) -> str:
    """Returns what is wrong with a flag as one sentence."""
    text = " ".join(str(error).split()).removeprefix("flag ").removesuffix(" ?")
    given = text.partition(": ")[0]
    name, _, value = given.removeprefix("--").partition("=")
    kind = type(flags.FLAGS[name].parser) if name in flags.FLAGS else None
    read, problem = _READERS.get(kind, (str, ""))
    try:
        read(value)
    except ValueError:  # Python's words for it are no help
        text = f"{given}: {problem}"
    return f"{text.rstrip('.?')}; see --help."


def _explanation(name: str, value: str) -> str:
    flag = flags.FLAGS[name]
    text = str(flag.help)
    if isinstance(flag, flags.EnumFlag):
        value = "|".join(flag.parser.enum_values)
        text = text.removeprefix(f"<{value}>: ")
    if flag.default is not None and flag.default is not False:
        text += f" Default: {flag.default}."
    label = f"  --{name}" + (f" {value}" if value else "")
    lines = textwrap.wrap(text, 88 - _COLUMN)
    if len(label) < _COLUMN - 1:
        label, lines = label.ljust(_COLUMN) + lines[0], lines[1:]
    return "\n".join([label, *(" " * _COLUMN + line for line in lines)])
