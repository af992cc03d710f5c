"""The flags that every study takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from absl import app, flags

_PRESET = flags.DEFINE_string(
    "preset", None, "Which study; the first one if not given."
)
_SEED = flags.DEFINE_integer("seed", 2026, "Decides everything random.", lower_bound=0)
_START = flags.DEFINE_integer("replicate_start", 0, "First replicate.", lower_bound=0)
_END = flags.DEFINE_integer("replicate_end", None, "One past the last; the preset's.")
_OUT = flags.DEFINE_string("out", None, "Folder of the results.", required=True)
_SHARD = flags.DEFINE_string("shard", "results", "Name of the results file.")

Study = TypeVar("Study")


class Options(NamedTuple):
    """What the command line says about a run.

    Attributes:
      preset: name of the study, or None.
      seed: decides everything random.
      replicate_start: the first replicate.
      replicate_end: one past the last, or None for the preset's.
      out: folder of the results.
      shard: name of the results file, for work shared among machines.
    """

    preset: str | None
    seed: int
    replicate_start: int
    replicate_end: int | None
    out: Path
    shard: str

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


def read_options() -> Options:
    """Reads the flags."""
    return Options(
        _PRESET.value,
        _SEED.value,
        _START.value,
        _END.value,
        Path(_OUT.value),
        _SHARD.value,
    )
