"""Classifiers of scikit-learn as learners.

Three classifiers make one member: one of the cells of the log, with a class for each pair
of treatment and outcome, and one of the outcome in each arm of the trial. They know
nothing of each other, so that mu may lie outside the limits that the log sets.

A classifier may give a probability of 0, and does so to every class that it did not see.
So probabilities are at least that of half a unit, 1 / (2 (n + 1)) with n units that the
classifier saw.

Nothing of this is needed unless a classifier is given: scikit-learn is imported with the
first learner, and skops, which saves classifiers without pickle, when members are saved.
"""

import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from pns_bounds import BINARY, InputError

from pns_models._batches import numpy_rng
from pns_models._errors import DamagedModelError, require
from pns_models._learner import MEMBERS, RunContext
from pns_models._resamples import Resamples
from pns_models._standardizer import Standardizer, make_standardizer

_MODELS = "models.skops"
_SIZES = (BINARY.num_cells, *[BINARY.num_levels] * BINARY.num_treatments)  # classes


@MEMBERS.register
@dataclasses.dataclass(frozen=True, eq=False)
class SklearnMembers:
    """Fitted classifiers; see the module's docstring for those of a member.

    Attributes:
      fold: the one that each member did not see.
      models: of each member, that of the log and those of the arms; None saw no units.
      units: that each of them saw.
      standardizer: of the covariates.
    """

    kind: ClassVar[str] = "sklearn"
    fold: Int[np.ndarray, " m"]
    models: tuple[tuple[Any, ...], ...]
    units: Float[np.ndarray, "m models"]
    standardizer: Standardizer

    def raw(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m n raw"]:
        """Computes every member's raw numbers of rows, on the scale of the data."""
        z = self.standardizer(z)
        result = []
        for models, units in zip(self.models, self.units, strict=True):
            log, *arms = (
                _log_probabilities(model, z, size, float(seen))
                for model, size, seen in zip(models, _SIZES, units, strict=True)
            )
            result.append(
                np.column_stack([log, *(arm[:, 1] - arm[:, 0] for arm in arms)])
            )
        return np.stack(result).astype(np.float32)

    def take(self, order: Int[np.ndarray, " some"]) -> "SklearnMembers":
        """Picks members by number."""
        return dataclasses.replace(
            self,
            fold=self.fold[order],
            models=tuple(self.models[number] for number in order),
            units=self.units[order],
        )

    def save(self, folder: Path) -> None:
        """Writes classifiers with skops, and the rest as arrays.

        Raises:
          ImportError: if skops is not installed.
          InputError: if a classifier is not made of parts that `load` trusts.
        """
        skops = _import("skops.io", "skops")
        np.savez(
            folder / "members.npz",
            fold=self.fold,
            units=self.units,
            **self.standardizer._asdict(),
        )
        skops.dump([list(models) for models in self.models], folder / _MODELS)
        strange = _strange_types(skops, folder / _MODELS)
        require(
            not strange,
            "classifier",
            f"must be made of parts of scikit-learn to be saved, and has {strange}.",
        )

    @classmethod
    def load(cls, folder: Path) -> "SklearnMembers":
        """Reads what `save` wrote; trusts only types of skops' list and scikit-learn's.

        Raises:
          ImportError: if skops is not installed.
          DamagedModelError: if a file names another type.
        """
        skops = _import("skops.io", "skops")
        path = folder / _MODELS
        strange = _strange_types(skops, path)
        if strange:
            raise DamagedModelError(
                f"{path} holds types that are not scikit-learn's, so it is not read: "
                f"{strange}."
            )
        models = skops.load(path, trusted=skops.get_untrusted_types(file=path))
        with np.load(folder / "members.npz", allow_pickle=False) as stored:
            arrays = dict(stored)
        return cls(
            fold=arrays.pop("fold"),
            models=tuple(map(tuple, models)),
            units=arrays.pop("units"),
            standardizer=Standardizer(**arrays),
        )


class SklearnLearner:
    """Fits a classifier of scikit-learn, or one that follows its conventions.

    It is cloned for each member: once for the cells of the log, and once for the outcome of
    each arm. Covariates are standardized. If a `random_state` of it is None, the key of the
    fit decides it.

    Attributes:
      classifier: with `predict_proba`, and a `fit` that takes `sample_weight`.
      name: what reports call it; that of the classifier's class unless given.

    Example:
      >>> from sklearn.linear_model import LogisticRegression
      >>> SklearnLearner(LogisticRegression(C=0.1))
      SklearnLearner(LogisticRegression(C=0.1), name='LogisticRegression')
    """

    def __init__(self, classifier: Any, name: str | None = None):
        """Checks what would only fail later.

        Args:
          classifier: need not be fitted; it is not changed.
          name: what reports call it.

        Raises:
          InputError: if the classifier cannot be used.
        """
        _check_classifier(classifier)
        self.classifier = _import("sklearn.base", "scikit-learn").clone(classifier)
        self.name = type(classifier).__name__ if name is None else name

    def __repr__(self) -> str:
        shown = _describe(self.classifier)
        return f"{type(self).__name__}({shown}, name={self.name!r})"

    def fit(
        self, key: PRNGKeyArray, resamples: Resamples, context: RunContext
    ) -> SklearnMembers:
        """Fits classifiers to each resample."""
        rng = numpy_rng(key)
        standardizer = make_standardizer(resamples.folded.counts)
        z = standardizer(resamples.z)
        is_log = resamples.source == 0
        cell = BINARY.num_levels * resamples.treatment + resamples.outcome
        tasks = [(is_log, cell)]
        for arm in range(BINARY.num_treatments):
            tasks.append((~is_log & (resamples.treatment == arm), resamples.outcome))
        models, units = [], []
        for member in range(len(resamples.member_fold)):
            weights = resamples.weights(member)
            seen = [(some & (weights > 0), label) for some, label in tasks]
            models.append(
                tuple(
                    self._fit_one(rng, z[resamples.cell[i]], label[i], weights[i])
                    for i, label in seen
                )
            )
            units.append([weights[some].sum() for some, _ in tasks])
        return SklearnMembers(
            resamples.member_fold, tuple(models), np.array(units, float), standardizer
        )

    def _fit_one(
        self,
        rng: np.random.Generator,
        z: Float[np.ndarray, "n d"],
        label: Int[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
    ) -> Any:
        """Fits a clone, or what needs no second class; None if there are no units."""
        classifier = _import("sklearn.base", "scikit-learn").clone(self.classifier)
        seeds = {
            name: int(rng.integers(2**31))
            for name, value in sorted(classifier.get_params().items())
            if name.split("__")[-1] == "random_state" and value is None
        }
        if not len(label):
            return None
        if len(np.unique(label)) == 1:  # which many classifiers refuse
            classifier = _import("sklearn.dummy", "scikit-learn").DummyClassifier()
        else:
            classifier.set_params(**seeds)
        return classifier.fit(z, label, sample_weight=weights)


def _describe(value: Any) -> str:
    """Shows settings that are not the default; scikit-learn cuts them where they are long."""
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return repr(value)
    known = inspect.signature(type(value)).parameters
    settings = [
        f"{name}={_describe(setting)}"
        for name, setting in sorted(value.get_params(deep=False).items())
        if name not in known or repr(setting) != repr(known[name].default)
    ]
    return f"{type(value).__name__}({', '.join(settings)})"


def _check_classifier(classifier: Any) -> None:
    """Raises unless a classifier can be cloned, weighted and asked for probabilities."""
    is_instance = not isinstance(classifier, type)
    if not (
        is_instance and hasattr(classifier, "fit") and hasattr(classifier, "get_params")
    ):
        raise InputError(
            "classifier", f"must be one of scikit-learn's, got {classifier!r}."
        )
    missing = []
    if not hasattr(classifier, "predict_proba"):
        missing.append("predict_proba")
    if "sample_weight" not in inspect.signature(classifier.fit).parameters:
        missing.append("a fit that takes sample_weight")
    name = type(classifier).__name__
    require(
        not missing,
        "classifier",
        "must have predict_proba and a fit that takes sample_weight; "
        f"{name} does not have {' and '.join(missing)}.",
    )


def _log_probabilities(
    model: Any, z: Float[np.ndarray, "n d"], size: int, units: float
) -> Float[np.ndarray, "n {size}"]:
    """Computes logs of the probabilities of classes, none less than half a unit's."""
    result = np.zeros((len(z), size))
    if model is not None:
        result[:, np.asarray(model.classes_, int)] = model.predict_proba(z)
    result = np.maximum(result, 0.5 / (units + 1))
    return np.log(result / result.sum(axis=1, keepdims=True))


def _strange_types(skops: Any, path: Path) -> list[str]:
    """Lists types of a file that neither skops trusts nor scikit-learn defines."""
    names = skops.get_untrusted_types(file=path)
    return [name for name in names if not _is_of_sklearn(name)]


def _is_of_sklearn(name: str) -> bool:
    """Tells whether a name is that of a class which scikit-learn itself defines."""
    module, _, attribute = name.rpartition(".")
    if module.split(".")[0] != "sklearn":
        return False
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        return False
    # A module of scikit-learn also has names that it imported from elsewhere.
    return isinstance(found, type) and found.__module__.split(".")[0] == "sklearn"


def _import(module: str, package: str) -> Any:
    """Imports what only classifiers of scikit-learn need."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"classifiers of scikit-learn need the package {package}: pip install "
            "'pns-models[sklearn]'."
        ) from error
