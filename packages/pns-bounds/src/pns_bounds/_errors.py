"""Errors that are about an argument of the caller."""

from typing import Any


class InputError(ValueError):
    """An argument cannot be used; the message starts with its name.

    Attributes:
      argument: the name of the argument.
      problem: the rest of the sentence: what was expected, what came, what to do.
    """

    def __init__(self, argument: str, problem: str):
        """Joins both parts to a sentence."""
        super().__init__(f"{argument} {problem}")
        self.argument = argument
        self.problem = problem

    def __reduce__(self):
        """Keeps both parts when the error is pickled."""
        return type(self), (self.argument, self.problem)


class IncompatibleAtomsError(InputError):
    """The experimental and observational probabilities contradict each other."""


def require(ok: Any, argument: str, problem: str) -> None:
    """Raises an InputError unless a condition on an argument holds."""
    if not ok:
        raise InputError(argument, problem)
