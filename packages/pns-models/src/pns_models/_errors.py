"""What can go wrong, by type: callers read the type and its attributes, not the text."""

from typing import Any

import pns_bounds as pb


def require(is_right: Any, argument: str, problem: str) -> None:
    """Raises an InputError unless an argument is right."""
    if not is_right:
        raise pb.InputError(argument, problem)


class DivergedError(ArithmeticError):
    """The loss ceased to be a finite number."""


class TooFewRowsError(ValueError):
    """A part of the data lacks units of a source.

    Attributes:
      part: which part, 'training', 'held-out' or 'fold'.
      observational: its observational units.
      experimental: its experimental units.
    """

    def __init__(
        self, message: str, part: str, observational: float, experimental: float
    ):
        super().__init__(message)
        self.part = part
        self.observational = observational
        self.experimental = experimental


class LostProcessError(RuntimeError):
    """Another process of the same run has ended."""


class NoDrawsError(ValueError):
    """Draws were asked of a network that has none."""


class DamagedModelError(ValueError):
    """A folder holds no model, a damaged one, or one of another format."""


class UnsuitableError(ValueError):
    """A learner that says that it is not made for such tables; it is left out."""
