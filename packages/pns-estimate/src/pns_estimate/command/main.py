"""The command `pns-estimate`: reads flags, shows help, and turns errors into one line.

What it does then is in `run`, which is imported only if something is to be done.
"""

import _thread
import functools
import importlib.metadata
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn, Self

from absl import app, flags, logging

from pns_estimate._errors import UserError, storage_reason
from pns_estimate.command import flags as _flags

INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended
_AGAIN_AFTER = 0.1  # seconds; the callback that dropped the first one has ended


class Interrupts:
    """Watches for Ctrl-C within a `with` block, so that it is not lost.

    Python raises KeyboardInterrupt wherever the main thread is. In a callback of the
    garbage collector, such as the one of JAX, it is printed and dropped; elsewhere a
    library may turn it into an error of its own. Either way the run would go on, or blame
    the user's table.

    Until `start_work` it ends the process at once: nothing has been written. Then it
    raises KeyboardInterrupt, again if one was dropped. In a thread, and where Ctrl-C is
    ignored or handled by others, nothing is changed.

    Attributes:
      happened: whether Ctrl-C came, whatever became of it.
    """

    def __init__(self) -> None:
        """Watches for nothing yet."""
        self.happened = False
        self._is_working = False
        self._is_installed = False
        self._dropped = queue.SimpleQueue[bool]()  # may be used in any callback

    def start_work(self) -> None:
        """From now on Ctrl-C is an exception, so that files can be removed."""
        self._is_working = True

    def end(self) -> NoReturn:
        """Ends the process, without Python's own steps.

        Threads of XLA that still compile would crash in them.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(2, b"pns-estimate: interrupted\n")
        os._exit(INTERRUPTED)

    def __enter__(self) -> Self:
        """Takes over from Python's own handler."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            self._hook, sys.unraisablehook = sys.unraisablehook, self._see_dropped
            threading.Thread(target=self._raise_again, daemon=True).start()
            self._is_installed = True
        return self

    def __exit__(self, *_: object) -> None:
        """Gives back what it took over."""
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = self._hook
            self._dropped.put(False)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self.happened = True
        if not self._is_working:
            self.end()
        raise KeyboardInterrupt

    def _see_dropped(self, dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            self._dropped.put(True)
        else:
            self._hook(dropped)

    def _raise_again(self) -> None:
        """Sends Ctrl-C to the main thread again, which also ends what it waits for."""
        while self._dropped.get():
            time.sleep(_AGAIN_AFTER)
            main = threading.main_thread().ident
            if main is not None and hasattr(signal, "pthread_kill"):
                signal.pthread_kill(main, signal.SIGINT)
            else:
                _thread.interrupt_main()  # Windows


def _fail(message: str, code: int) -> NoReturn:
    print(f"pns-estimate: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


def _parse(argv: list[str]) -> list[str]:
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        _fail(_flags.describe_error(error), 2)


def _quiet() -> None:
    """Keeps stderr for what we say: libraries speak of devices, caches and home folders.

    Their errors reach the main thread, which says what they mean. `--debug` shows all.
    """
    logging.set_verbosity(logging.INFO if _flags.DEBUG.value else logging.ERROR)
    if _flags.DEBUG.value:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # of XLA, errors alone
    show = threading.excepthook
    threading.excepthook = lambda dropped: (
        None
        if dropped.exc_value and storage_reason(dropped.exc_value)
        else show(dropped)
    )


def _guarded(interrupts: Interrupts, arguments: Sequence[str]) -> None:
    _quiet()
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


def _explain(error: BaseException) -> NoReturn:
    if isinstance(error, UserError):
        _fail(_flags.in_flags(error), 2)
    reason = storage_reason(error)
    if reason is not None:
        _fail(f"a file cannot be written: {reason}.", 2)
    text = str(error).splitlines()[0] if str(error) else ""
    _fail(f"unexpected {type(error).__name__}: {text} (--debug shows where)", 1)


def run(argv: list[str] | None = None) -> None:
    """Runs the command: exits with 0, with 2 for a user's mistake, 1 for our own.

    Ctrl-C ends it with 130. Without program and arguments, those of the process are taken.
    """
    argv = sys.argv if argv is None else argv
    if _flags.is_help(argv[1:]):
        print(_flags.help_text())
        sys.exit(0)
    if "--version" in argv[1:]:
        print(f"pns-estimate {importlib.metadata.version('pns-estimate')}")
        sys.exit(0)
    with Interrupts() as interrupts:
        main = functools.partial(_guarded, interrupts)
        app.run(main, argv=argv, flags_parser=_parse)


if __name__ == "__main__":
    run()
