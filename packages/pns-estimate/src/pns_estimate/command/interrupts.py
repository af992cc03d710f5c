"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread is. In a callback of the garbage
collector, such as the one of JAX, it is printed and dropped; elsewhere a library may turn
it into an error of its own. Either way the run would go on, or blame the user's table.
"""

import _thread
import os
import queue
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, NoReturn, Self

INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended
_AGAIN_AFTER = 0.1  # seconds; the callback that dropped the first one has ended


class Interrupts:
    """Watches for Ctrl-C within a `with` block.

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
