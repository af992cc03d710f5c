"""One bar over a whole run: the step it is at, how far it is, and about how long is left.

A step begins by name, from anywhere: what is not watched, or not planned, shows nothing.
Without a terminal a line a minute says the same.
"""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import tqdm

_BAR = "{desc}: {percentage:3.0f}%|{bar}| "
_TICK = 0.5  # seconds between looks at the bar
_HEARTBEAT = 60.0  # seconds between lines where there is no terminal
_MOST = 0.95  # of a step, as long as it is not known to have ended
_TRUST = 5.0  # expected seconds after which the pace so far counts as much as 1


class Step(NamedTuple):
    """A part of a run."""

    name: str
    seconds: float  # that it is expected to take


class Progress:
    """Follows the steps of a plan, in order; some may be left out."""

    def __init__(self, steps: Sequence[Step], start: float):
        """Stands before the first step."""
        self._steps, self._start = steps, start
        self._at, self._began, self._known = -1, start, 0.0

    @property
    def name(self) -> str:
        """What is being done."""
        return self._steps[max(self._at, 0)].name

    def begin(self, name: str, now: float) -> None:
        """Ends the step before; nothing happens if no step of this name is to come."""
        for place in range(self._at + 1, len(self._steps)):
            if self._steps[place].name == name:
                self._at, self._began, self._known = place, now, 0.0
                return

    def advance(self, share: float) -> None:
        """Notes how much of the step is done."""
        self._known = share

    def look(self, now: float) -> tuple[float, float]:
        """Returns the share that is done, and about how many seconds are left."""
        seconds = [step.seconds for step in self._steps]
        done = sum(seconds[: max(self._at, 0)])
        # By now the run is slower or faster than was expected, and so is the rest.
        pace = (self._began - self._start + _TRUST) / (done + _TRUST)
        own = seconds[max(self._at, 0)]
        by_time = (now - self._began) / max(pace * own, 1e-9)
        done += own * max(self._known, min(by_time, _MOST))
        total = sum(seconds)
        return done / total, max(pace * (total - done), 0.0)


_current: Progress | None = None
_lock = threading.Lock()


def begin(name: str) -> None:
    """Begins a step of what is watched."""
    with _lock:
        if _current is not None:
            _current.begin(name, time.monotonic())


def advance(share: float) -> None:
    """Notes how much of the present step is done."""
    with _lock:
        if _current is not None:
            _current.advance(share)


def is_watched() -> bool:
    """Tells whether there is a bar, or lines, of a whole run."""
    return _current is not None


def say(text: str) -> None:
    """Writes a line to stderr, above the bar if there is one."""
    tqdm.tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


def show_seconds(seconds: float) -> str:
    """Writes a time as roughly as it is known."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"{10 * round(seconds / 10)} seconds"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


@contextmanager
def watch(steps: Sequence[Step], *, show: bool, lines: bool = False) -> Iterator[None]:
    """Watches a run: a bar if there is a terminal, else a line a minute if wanted.

    Within a run that is watched already nothing changes.
    """
    global _current
    is_terminal = sys.stderr.isatty()
    if _current is not None or not steps or not (show and (is_terminal or lines)):
        yield
        return
    _current = progress = Progress(steps, time.monotonic())
    ended = threading.Event()
    tell = _draw if is_terminal else _write_lines
    teller = threading.Thread(target=tell, args=(progress, ended), daemon=True)
    teller.start()
    try:
        yield
    finally:
        _current = None
        ended.set()
        teller.join()


def _draw(progress: Progress, ended: threading.Event) -> None:
    look = {"bar_format": _BAR, "leave": False, "dynamic_ncols": True}
    bar = tqdm.tqdm(total=1.0, desc=progress.name, **look)
    with bar:
        while not ended.wait(_TICK):
            with _lock:
                share, left = progress.look(time.monotonic())
                name = progress.name
            bar.n = max(bar.n, share)  # it never goes back
            bar.set_description_str(name, refresh=False)
            bar.bar_format = _BAR + f"about {show_seconds(left)} left"
            bar.refresh()


def _write_lines(progress: Progress, ended: threading.Event) -> None:
    while not ended.wait(_HEARTBEAT):
        with _lock:
            share, left = progress.look(time.monotonic())
            name = progress.name
        say(f"{name}: {share:.0%} of the run is done, about {show_seconds(left)} left")
