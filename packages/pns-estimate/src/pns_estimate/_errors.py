"""Errors that the user can do something about.

A message names settings as data, so that each door writes them in its own way: Python
missing='indicator', the command --missing=indicator.
"""

import dataclasses
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pns_bounds as pb

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, a quota, a file


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting that a message names; with the value it has or should have, if any."""

    name: str
    value: Any = None

    def __str__(self) -> str:
        """Writes it as Python does."""
        return self.name if self.value is None else f"{self.name}={self.value!r}"


class UserError(ValueError):
    """What was given cannot be used; the message says what to do about it.

    Attributes:
      parts: of the message, in order: text, and the settings that it names.
    """

    def __init__(self, *parts: str | Setting):
        """Joins the parts as Python writes them."""
        super().__init__("".join(map(str, parts)))
        self.parts = parts

    @property
    def argument(self) -> str | None:
        """The setting that the message is about, if it starts with one."""
        first = self.parts[0]
        return first.name if isinstance(first, Setting) else None


def require(is_right: bool, name: str, wanted: str, got: Any) -> None:
    """Raises unless a setting is right, and says what it must be."""
    if not is_right:
        raise UserError(Setting(name), f" must be {wanted}, got {got!r}.")


class InterruptedFitError(UserError):
    """A fit that can go on where it stopped."""


class NotFittedError(UserError, AttributeError):
    """A question came before `fit` or `load`.

    As in scikit-learn it is a ValueError and an AttributeError, so `hasattr` of what a fit
    leaves behind is False before it.
    """


@contextmanager
def as_user_errors() -> Iterator[None]:
    """Turns errors that name an argument into errors of the user; no others."""
    try:
        yield
    except pb.InputError as error:
        raise UserError(Setting(error.argument), f" {error.problem}") from error


def storage_reason(error: BaseException) -> str | None:
    """Says why a disk does not take more, if that is what an error is about."""
    cause: BaseException | None = error
    while cause is not None:
        for code in _FULL:
            # Libraries that write in C++ have errors of their own, with this text.
            is_this = isinstance(cause, OSError) and cause.errno == code
            if is_this or os.strerror(code) in str(cause):
                return os.strerror(code)
        cause = cause.__cause__ or cause.__context__
    return None
