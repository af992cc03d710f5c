"""Settings of an estimator: read, changed, shown, checked; scikit-learn and pickle."""

import importlib.metadata
import inspect
import numbers
import sys
import warnings
from typing import Any, Self

from pns_estimate._errors import UserError, require

_LEAST_DRAWS = 200
_SEEDS = 2**32


class Settings:
    """Keeps the arguments of `__init__` as they are, under their own names."""

    _state: Any = None  # what a fit leaves behind

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the settings by name; `deep` is there for scikit-learn."""
        return {name: getattr(self, name) for name in _defaults(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Changes settings, all or none; what was fitted stays until the next `fit`."""
        known = _defaults(type(self))
        unknown = [name for name in params if name not in known]
        if unknown:
            raise UserError(f"no such setting: {unknown}; there are {list(known)}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Shows the call that makes an estimator with these settings."""
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if not _is_same(value, _defaults(type(self))[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        """Tells scikit-learn whether there is anything to ask."""
        return self._state is not None

    def __sklearn_tags__(self) -> Any:
        """Tells scikit-learn that this is no classifier, regressor or transformer."""
        utils = sys.modules["sklearn.utils"]  # whoever asks has imported it
        return utils.Tags(
            estimator_type=None, target_tags=utils.TargetTags(required=False)
        )

    def __getstate__(self) -> dict[str, Any]:
        """Adds the version, for `pickle`, `joblib` and `copy`."""
        return {**vars(self), "_version": _version()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Warns if another version wrote the pickle."""
        written = state.pop("_version", "unknown")
        if written != _version():
            warnings.warn(
                f"this pickle was written by pns-estimate {written} and is read by "
                f"{_version()}; answers may be wrong without an error. Only folders of "
                "`save` are checked when they are read.",
                stacklevel=2,
            )
        vars(self).update(state)


def check_settings(settings: dict[str, Any]) -> None:
    """Raises unless the settings of `PnsEstimator` have values that it knows."""
    for name, known in (
        ("missing", ["error", "indicator"]),
        ("unseen", ["error", "unknown"]),
    ):
        value = settings[name]
        is_known = isinstance(value, str) and value in known
        require(is_known, name, f"one of {known}", value)
    method, num_draws, seed = (settings[n] for n in ("method", "num_draws", "seed"))
    require(isinstance(method, str), "method", "a name", method)
    enough = f"a whole number of at least {_LEAST_DRAWS}"
    is_enough = is_whole(num_draws) and num_draws >= _LEAST_DRAWS
    require(is_enough, "num_draws", enough, num_draws)
    inside = f"a whole number from 0 to {_SEEDS - 1}"
    require(is_whole(seed) and 0 <= seed < _SEEDS, "seed", inside, seed)
    for name in ("calibrate", "progress"):
        is_said = settings[name] in (True, False)
        require(is_said, name, "True or False", settings[name])


def check_memory(memory_gb: Any) -> None:
    """Raises unless `memory_gb` is a positive number."""
    is_positive = isinstance(memory_gb, (int, float)) and memory_gb > 0
    require(is_positive, "memory_gb", "a positive number", memory_gb)


def _version() -> str:
    return importlib.metadata.version("pns-estimate")


def _defaults(kind: type) -> dict[str, Any]:
    arguments = list(inspect.signature(kind).parameters.values())
    return {argument.name: argument.default for argument in arguments}


def is_whole(value: Any) -> bool:
    """Tells whether a value is a whole number, and not a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_same(value: Any, default: Any) -> bool:
    """Whether there is nothing to show; arrays and the like are never the default."""
    return value is default or (type(value) is type(default) and bool(value == default))
