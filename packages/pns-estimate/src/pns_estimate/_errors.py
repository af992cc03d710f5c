"""Errors that the user can do something about."""

import errno
import os

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, a quota, a file


class UserError(ValueError):
    """What was given cannot be used; the message says what to do about it."""


class InterruptedFitError(UserError):
    """A fit that can go on where it stopped."""


class NotFittedError(UserError, AttributeError):
    """A question came before `fit` or `load`.

    As in scikit-learn it is a ValueError and an AttributeError, so `hasattr` of what a fit
    leaves behind is False before it.
    """


def storage_reason(error: BaseException) -> str | None:
    """Says why a disk does not take more, if that is what an error is about."""
    cause: BaseException | None = error
    while cause is not None:
        for code in _FULL:
            # Libraries that write in C++ have errors of their own, with this text.
            if getattr(cause, "errno", None) == code or os.strerror(code) in str(cause):
                return os.strerror(code)
        cause = cause.__cause__ or cause.__context__
    return None
