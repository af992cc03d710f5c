"""The command `pns-estimate`: reads flags, shows help, and turns errors into one line.

What it does then is in `run`, which is imported only if something is to be done.
"""

import sys
import traceback
from collections.abc import Sequence

from absl import app, flags, logging

from pns_estimate._errors import UserError, storage_reason
from pns_estimate.command import flags as _flags

_INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended


def _fail(message: str, code: int) -> None:
    print(f"pns-estimate: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


def _parse(argv: list[str]) -> list[str]:
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        _fail(_flags.describe_error(error), 2)
        raise


def _guarded(arguments: Sequence[str]) -> None:
    logging.set_verbosity(logging.INFO if _flags.DEBUG.value else logging.WARNING)
    try:
        from pns_estimate.command import run as _command_run  # takes seconds

        _command_run.answer(arguments)
    except UserError as error:
        if _flags.DEBUG.value:
            traceback.print_exc()
        _fail(_flags.in_flags(error), 2)
    except KeyboardInterrupt:
        _fail("interrupted", _INTERRUPTED)
    except Exception as error:  # noqa: BLE001 (one line for people, not a trace)
        if _flags.DEBUG.value:
            traceback.print_exc()
        reason = storage_reason(error)
        if reason is not None:
            _fail(f"a file cannot be written: {reason}.", 2)
        text = str(error).splitlines()[0] if str(error) else ""
        _fail(
            f"unexpected {type(error).__name__}: {text} (--debug shows where)",
            1,
        )


def run(argv: list[str] | None = None) -> None:
    """Runs the command: 0 if it worked, 2 for a user's mistake, 1 for a fault of ours.

    Ctrl-C ends it with 130.

    Args:
      argv: program and arguments; those of the process if None.
    """
    argv = sys.argv if argv is None else argv
    if _flags.is_help(argv[1:]):
        print(_flags.help_text())
        sys.exit(0)
    app.run(_guarded, argv=argv, flags_parser=_parse)


if __name__ == "__main__":
    run()
