"""The flags that every study takes.

Importing this module defines none of them: a program calls `define_flags`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pns_bounds as pb
import pns_models as pm
from absl import app, flags

Study = TypeVar("Study")


class Options(NamedTuple):
    """What the command line says about a run.

    Attributes:
      out: folder of the results.
      preset: name of the study, or None for the first.
      seed: decides everything random.
      replicate_start: the first replicate.
      replicate_end: one past the last, or None for the preset's.
      shard: name of the results file, for work shared among machines.
      workers: number of processes that do the tasks.
    """

    out: Path
    preset: str | None = None
    seed: int = 2026
    replicate_start: int = 0
    replicate_end: int | None = None
    shard: str = "results"
    workers: int = 1

    def pick(self, presets: Mapping[str, Study]) -> Study:
        """Returns the preset that was asked for, the first if none was."""
        name = self.preset or next(iter(presets))
        if name not in presets:
            raise app.UsageError(f"no such preset: {name}; there are {list(presets)}.")
        return presets[name]

    def replicates(self, count: int) -> range:
        """Returns the replicates to run, of a preset that has `count`."""
        end = count if self.replicate_end is None else self.replicate_end
        if end <= self.replicate_start:
            raise app.UsageError(
                f"there is no replicate from {self.replicate_start} to before {end}; set "
                "--replicate_end above --replicate_start."
            )
        return range(self.replicate_start, end)


def define_flags() -> None:
    """Defines the flags of a study, with the defaults of `Options`."""
    default = Options._field_defaults
    flags.DEFINE_string("out", None, "Folder of the results.", required=True)
    flags.DEFINE_string("preset", None, "Which study; the first one if not given.")
    flags.DEFINE_integer(
        "seed", default["seed"], "Decides everything random.", lower_bound=0
    )
    flags.DEFINE_integer("replicate_start", 0, "First replicate.", lower_bound=0)
    flags.DEFINE_integer("replicate_end", None, "One past the last; the preset's.")
    flags.DEFINE_string("shard", default["shard"], "Name of the results file.")
    flags.DEFINE_integer(
        "workers",
        default["workers"],
        "Processes that do the tasks, each with its share of the cores.",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "distributed",
        False,
        "Share every fit with the other processes of this job, which JAX finds by itself "
        "under SLURM, Open MPI and Kubernetes and on TPU slices; elsewhere give the "
        "three below. All run the same command; process 0 writes.",
    )
    flags.DEFINE_string("coordinator_address", None, "Host and port of process 0.")
    flags.DEFINE_integer("num_processes", None, "How many processes share fits.")
    flags.DEFINE_integer("process_id", None, "The number of this process, from 0.")


def read_flags(argv: Sequence[str]) -> Options:
    """Reads the flags, and joins other processes; raises if there is anything else."""
    refuse_arguments(argv)
    _join_processes()
    values: dict[str, Any] = {n: flags.FLAGS[n].value for n in Options._fields}
    return Options(**{**values, "out": Path(values["out"])})


def _join_processes() -> None:
    """Joins the other processes of the run, if there are any."""
    names = ("coordinator_address", "num_processes", "process_id")
    given = {name: flags.FLAGS[name].value for name in names}
    is_named = any(value is not None for value in given.values())
    if not is_named and not flags.FLAGS["distributed"].value:
        return
    if flags.FLAGS["workers"].value != 1:
        raise app.UsageError(
            "--workers gives each task to one process, and --distributed each fit to "
            "all of them: choose one."
        )
    try:
        pm.join_processes(**given)
    except pb.InputError as error:
        raise app.UsageError(str(error)) from error


def refuse_arguments(argv: Sequence[str]) -> None:
    """Raises if there are arguments beside the flags."""
    if len(argv) > 1:
        raise app.UsageError(
            f"{Path(argv[0]).stem} takes flags only, got {list(argv[1:])}."
        )
