"""The folder that a run writes: locked meanwhile, and cleared if the run does not end well.

A file in it says that a run is unfinished, and the operating system locks that file for
as long as the run lives: after `kill -9` the file is there and the lock is not.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pns_estimate._errors import InterruptedFitError, UserError

MODEL = "model"
CHECKPOINTS = "checkpoints"
_MARKER = ".unfinished"
_WRITTEN = (
    *("intervals.parquet", "intervals.csv", "decisions.csv", "averages.csv"),
    *("sorted_groups.csv", "subgroups.csv", "values.csv"),
    *("report.html", "summary.json", "config.json", MODEL, CHECKPOINTS),
)


def check_run_folder(out: Path) -> None:
    """Raises unless a run may write to the folder: it is new, empty, or left by a run."""
    try:
        if not out.exists():
            return
        found = list(out.iterdir()) if out.is_dir() else [out]
    except OSError as error:
        raise UserError(f"{out} cannot be read: {error.strerror}.") from error
    is_unfinished = any(path.name == _MARKER for path in found)
    if found and not (is_unfinished and all(map(_is_ours, found))):
        raise UserError(f"{out} is not an empty folder; name a new one with --out.")


@contextmanager
def run_folder(out: Path) -> Iterator[None]:
    """Makes and locks the folder, and removes what an unfinished run left in it.

    If the run fails, what it wrote is removed, but for a model that is complete. If it
    was killed, or lost another process, checkpoints stay for the next run.
    """
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / _MARKER).open("a")
    except OSError as error:
        if is_new and out.is_dir():
            out.rmdir()
        raise UserError(f"{out} cannot be written: {error.strerror}.") from error
    with file:
        if not _lock(file) or not _is_same(file, out / _MARKER):
            raise UserError(f"another run is writing to {out}; name a new folder.")
        check_run_folder(out)
        _clear(out, keep=(CHECKPOINTS,))
        try:
            yield
        except InterruptedFitError:
            raise
        except BaseException:
            _clear(out, keep=(MODEL,))
            if not (out / MODEL).exists():
                _finish(out, file)
                if is_new:
                    out.rmdir()
            raise
        _clear_one(out / CHECKPOINTS)
        _finish(out, file)


def _is_ours(path: Path) -> bool:
    """Tells whether a run writes such a file, or writes it aside."""
    name = path.name
    return name in (*_WRITTEN, _MARKER) or any(
        name.startswith(f".{written}-") for written in _WRITTEN
    )


def _clear(out: Path, keep: tuple[str, ...] = ()) -> None:
    for path in out.iterdir():
        if path.name in (_MARKER, *keep) or not _is_ours(path):
            continue
        _clear_one(path)


def _clear_one(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _finish(out: Path, file: IO[str]) -> None:
    if sys.platform == "win32":
        file.close()  # an open file cannot be removed there
    (out / _MARKER).unlink(missing_ok=True)


def _is_same(file: IO[str], path: Path) -> bool:
    """Tells whether the file that is locked is still the one in the folder."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _lock(file: IO[str]) -> bool:
    """Locks an open file until it is closed; False if another process has the lock."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks
        return True
    return True
