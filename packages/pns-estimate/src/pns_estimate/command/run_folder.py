"""The folder that a run writes: it is locked meanwhile, and cleared if the run fails.

A file in it says that a run is unfinished, and the operating system locks that file for
as long as the run lives: after `kill -9` the file is still there, but not the lock.
"""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from pns_estimate._errors import InterruptedFitError, UserError
from pns_estimate.tables.files import remove

MODEL = "model"
CHECKPOINTS = "checkpoints"
_MARKER = ".unfinished"
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # of the file system
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

    If the run fails, everything that it wrote is removed except a complete model. If it
    was killed, or lost another process, checkpoints stay for the next run.
    """
    is_new = not out.exists()
    lock = FileLock(out / _MARKER, timeout=0, fallback_to_soft=False)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        message = f"another run is writing to {out}; name a new folder."
        raise UserError(message) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            if is_new and out.is_dir():
                out.rmdir()
            raise UserError(f"{out} cannot be written: {error.strerror}.") from error
    try:
        check_run_folder(out)
        _clear(out, keep=(CHECKPOINTS,))
        try:
            yield
        except InterruptedFitError:
            raise
        except BaseException:
            _clear(out, keep=(MODEL,))
            if not (out / MODEL).exists():
                _finish(out, lock)
                if is_new:
                    out.rmdir()
            raise
        remove(out / CHECKPOINTS)
        _finish(out, lock)
    finally:
        lock.release()


def _is_ours(path: Path) -> bool:
    """Tells whether a run writes such a file, or writes it aside."""
    name = path.name
    return name in (*_WRITTEN, _MARKER) or any(
        name.startswith(f".{written}-") for written in _WRITTEN
    )


def _clear(out: Path, keep: tuple[str, ...] = ()) -> None:
    for path in out.iterdir():
        if _is_ours(path) and path.name not in (_MARKER, *keep):
            remove(path)


def _finish(out: Path, lock: BaseFileLock) -> None:
    if sys.platform == "win32":
        lock.release()  # an open file cannot be removed there
    (out / _MARKER).unlink(missing_ok=True)
