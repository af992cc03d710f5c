"""Writes tables and figures of a folder of results, whichever program computed them.

Every study calls it at its end; after runs on several machines, with their files in one
folder, call it yourself.

  python experiments/summarize.py --out=results/low_dim
"""

from collections.abc import Sequence

from absl import app, flags
from pns_experiments.options import refuse_arguments
from pns_experiments.report import write_report

_OUT = flags.DEFINE_string("out", None, "Folder of the results.", required=True)


def main(argv: Sequence[str]) -> None:
    """Summarizes a folder of results."""
    refuse_arguments(argv)
    print(write_report(_OUT.value))


if __name__ == "__main__":
    app.run(main)
