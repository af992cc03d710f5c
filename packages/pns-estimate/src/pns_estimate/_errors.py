"""The one error that means: the user can fix this."""


class UserError(ValueError):
    """What was given cannot be used; the message says what to do about it."""
