"""Errors that the user can do something about."""


class UserError(ValueError):
    """What was given cannot be used; the message says what to do about it."""


class NotFittedError(UserError, AttributeError):
    """A question came before `fit` or `load`.

    As in scikit-learn it is a ValueError and an AttributeError, so `hasattr` of what a fit
    leaves behind is False before it.
    """
