"""Messages of the library as the command says them: flags, not arguments of Python."""

import re
import shlex

from pns_estimate.command import flags as _flags

_NAMES = "|".join(sorted((f.name for f in _flags.SETTINGS), key=len, reverse=True))
_VALUE = r"('[^']*'|\"[^\"]*\"|[\w.+-]+)"
_NO_WORDS = (
    "alpha|num_draws|memory_gb|weights_are|treatment_reference|outcome_reference"
)


def in_flags(message: str) -> str:
    """Rewrites settings in a message as flags.

    Args:
      message: of a `UserError`, such as "... or fit with missing='indicator'."

    Returns:
      The message with --missing=indicator, and with the names of settings that it
      starts with, or that are no English words, as flags.
    """
    message = re.sub(rf"(?<![\w-])({_NAMES})={_VALUE}( or {_VALUE})?", _pair, message)
    message = re.sub(rf"^({_NAMES}) (must|is for)\b", r"--\1 \2", message)
    return re.sub(rf"(?<![\w'\"-])({_NO_WORDS})\b(?!=)", r"--\1", message)


def _pair(match: re.Match[str]) -> str:
    name, first, _, second = match.groups()
    pairs = [f"--{name}={_quote(value)}" for value in (first, second) if value]
    return " or ".join(pairs)


def _quote(value: str) -> str:
    """Quotes a value as a shell needs it; the end of a sentence stays outside."""
    if value[0] in "'\"":
        return shlex.quote(value[1:-1])
    end = "." if value.endswith(".") else ""
    return shlex.quote(value.removesuffix(".")) + end
