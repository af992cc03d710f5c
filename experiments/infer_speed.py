"""Times pns-infer; every figure is a ratio within the run, or a peak of memory.

--part=clr         8,000 draws for 10,000 points: time and peak memory.
--part=last_layer  Bootstrap of a last layer, 1,000 draws, 10,000 points, against the
                   per-point algorithm.
--part=full        The same for all parameters of the network of `bootstrap_full`, which are
                   solved for directly; 100k + 50k rows, 200 draws.
--part=full_large  The same for the 52k parameters of the preset `default`.
"""

from collections.abc import Sequence

from absl import app, flags
from pns_experiments import infer_speed
from pns_experiments.options import refuse_arguments

_NUM_DRAWS = {"clr": 8000, "last_layer": 1000, "full": 200, "full_large": 200}
_PART = flags.DEFINE_enum("part", "clr", list(_NUM_DRAWS), "What to time.")
_DRAWS = flags.DEFINE_integer("draws", None, "Draws; 8000, 1000 or 200 by part.")
_POINTS = flags.DEFINE_integer("points", 10_000, "Points.")
_REFERENCE = flags.DEFINE_integer(
    "reference_points", 2, "Points of the slow reference."
)


def main(argv: Sequence[str]) -> None:
    """Runs the part that was asked for."""
    refuse_arguments(argv)
    num_draws = _DRAWS.value or _NUM_DRAWS[_PART.value]
    if _PART.value == "clr":
        infer_speed.time_intervals(num_draws, _POINTS.value)
    else:
        infer_speed.time_bootstrap(
            _PART.value, num_draws, _POINTS.value, _REFERENCE.value
        )


if __name__ == "__main__":
    app.run(main)
