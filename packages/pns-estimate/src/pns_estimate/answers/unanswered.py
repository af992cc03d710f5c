"""Parts of the answers that the data cannot give: a sentence stands in their place."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from pns_estimate._errors import UserError, as_user_errors

_Answer = TypeVar("_Answer")


@dataclasses.dataclass(frozen=True)
class Unanswered:
    """A part of the answers that is not given, and the sentence that says why."""

    reason: str


def attempt(compute: Callable[[], _Answer]) -> _Answer | Unanswered:
    """Computes a part of the answers; one that cannot be given does not end the run."""
    try:
        with as_user_errors():
            return compute()
    except UserError as error:
        return Unanswered(str(error))
