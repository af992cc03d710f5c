"""The command `pns-estimate`: reads flags, shows help, and turns errors into one line.

What it does then is in `run`, which is imported only if something is to be done.
"""

import functools
import sys
import traceback
from collections.abc import Sequence

from absl import app, flags, logging

from pns_estimate._errors import UserError, storage_reason
from pns_estimate.command import flags as _flags
from pns_estimate.command.interrupts import INTERRUPTED, Interrupts


def _fail(message: str, code: int) -> None:
    print(f"pns-estimate: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


def _parse(argv: list[str]) -> list[str]:
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        _fail(_flags.describe_error(error), 2)
        raise


def _guarded(interrupts: Interrupts, arguments: Sequence[str]) -> None:
    logging.set_verbosity(logging.INFO if _flags.DEBUG.value else logging.WARNING)
    error: BaseException | None = None
    try:
        from pns_estimate.command import run as _command_run  # takes seconds

        interrupts.start_work()
        _command_run.answer(arguments)
    except (Exception, KeyboardInterrupt) as caught:  # noqa: BLE001 (one line for people)
        error = caught
    if error is not None and _flags.DEBUG.value:
        traceback.print_exception(error)
    if interrupts.happened:
        interrupts.end()
    if isinstance(error, KeyboardInterrupt):
        _fail("interrupted", INTERRUPTED)
    if error is not None:
        _explain(error)


def _explain(error: BaseException) -> None:
    if isinstance(error, UserError):
        _fail(_flags.in_flags(error), 2)
    reason = storage_reason(error)
    if reason is not None:
        _fail(f"a file cannot be written: {reason}.", 2)
    text = str(error).splitlines()[0] if str(error) else ""
    _fail(f"unexpected {type(error).__name__}: {text} (--debug shows where)", 1)


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
    with Interrupts() as interrupts:
        main = functools.partial(_guarded, interrupts)
        app.run(main, argv=argv, flags_parser=_parse)


if __name__ == "__main__":
    run()
