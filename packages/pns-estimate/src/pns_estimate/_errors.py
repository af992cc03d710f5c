"""Errors that the user can do something about."""


class UserError(ValueError):
    """What was given cannot be used; the message says what to do about it."""


class NotFittedError(UserError):
    """A question came before `fit` or `load`."""
