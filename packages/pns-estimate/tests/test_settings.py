"""Settings, clones and pickles of the estimator, as scikit-learn's users expect them."""

import copy
import inspect
import io
import pickle

import joblib
import numpy as np
import pandas as pd
import pns_estimate as pe
import pytest
import sklearn.base
import sklearn.exceptions
from pns_estimate import _settings
from sklearn.utils import estimator_checks, validation
from small_tables import small_recipe

# Every other check of scikit-learn calls fit(X, y) with one array, and does not apply: fit
# takes two tables with columns that have names.
CHECKS = (
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_mixin_order,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_set_params,
    estimator_checks.check_valid_tag_types,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_common_check_of_scikit_learn_passes(check):
    check("PnsEstimator", pe.PnsEstimator(num_draws=300))


def test_settings_are_read_changed_and_shown():
    recipe = small_recipe("crossfit")
    estimator = pe.PnsEstimator(seed=3, recipe=recipe)
    assert estimator.get_params() == {
        "method": "crossfit",
        "num_draws": 2000,
        "seed": 3,
        "missing": "error",
        "unseen": "error",
        "calibrate": True,
        "recipe": recipe,
        "progress": True,
        "checkpoint_dir": None,
    }
    assert estimator.set_params(recipe=None, num_draws=500) is estimator
    assert repr(estimator) == "PnsEstimator(num_draws=500, seed=3)"
    assert repr(pe.PnsEstimator("epinet")) == "PnsEstimator(method='epinet')"
    with pytest.raises(pe.UserError, match=r"no such setting: \['draws'\]; there are"):
        estimator.set_params(seed=4, draws=1)
    assert estimator.seed == 3  # all or nothing


def test_a_clone_has_the_settings_and_nothing_that_was_learned(linear, people):
    clone = sklearn.base.clone(linear)
    assert clone.get_params() == linear.get_params()
    with pytest.raises(pe.NotFittedError):
        clone.intervals(people)


def test_what_is_not_fitted_is_known_by_the_usual_means(linear, people):
    new = pe.PnsEstimator()
    for name in ("summary_", "sample_size_", "population_"):
        assert not hasattr(new, name)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        validation.check_is_fitted(new)
    validation.check_is_fitted(linear)
    for kind in (ValueError, AttributeError, pe.UserError):
        with pytest.raises(kind, match=r"call fit\(\.\.\.\) first"):
            new.predict(people)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_draws": 199}, "num_draws must be a whole number of at least 200, got 1"),
        ({"num_draws": 500.0}, "num_draws must be a whole number"),
        ({"num_draws": "many"}, "num_draws must be a whole number .* got 'many'"),
        ({"num_draws": True}, "num_draws must be a whole number"),
        ({"seed": -1}, "seed must be a whole number from 0 to 4294967295, got -1"),
        ({"seed": 2**32}, "seed must be a whole number from 0"),
        ({"seed": None}, "seed must be a whole number"),
        ({"missing": "drop"}, r"missing must be one of \['error', 'indicator'\]"),
        ({"unseen": ["error"]}, "unseen must be one of"),
        ({"calibrate": "no"}, "calibrate must be True or False, got 'no'"),
        ({"progress": None}, "progress must be True or False"),
        ({"method": 3}, "method must be a name, got 3"),
        ({"method": "forest"}, "method must be one of"),
    ],
)
def test_settings_are_kept_as_given_and_checked_by_fit(tables, change, message):
    estimator = pe.PnsEstimator(**change)
    assert estimator.get_params().items() >= change.items()
    with pytest.raises(pe.UserError, match=message):
        estimator.fit(*tables, treatment="x", outcome="y")


def test_settings_changed_after_the_fit_are_checked_before_an_answer(linear, people):
    changed = copy.deepcopy(linear).set_params(num_draws=2.5)
    with pytest.raises(pe.UserError, match="num_draws must be a whole number"):
        changed.intervals(people)


def test_whole_numbers_of_numpy_are_settings_that_can_be_saved(
    tables, people, tmp_path
):
    given = {"num_draws": np.int64(300), "seed": np.uint8(0), "calibrate": np.False_}
    estimator = pe.PnsEstimator("linear", **given)
    assert estimator.num_draws is given["num_draws"]
    estimator.fit(*tables, treatment="x", outcome="y")
    estimator.save(tmp_path / "model")
    loaded = pe.PnsEstimator.load(tmp_path / "model")
    plain = "PnsEstimator(method='linear', num_draws=300, calibrate=False)"
    assert repr(loaded) == plain
    pd.testing.assert_frame_equal(loaded.intervals(people), estimator.intervals(people))


def through_joblib(estimator):
    file = io.BytesIO()
    joblib.dump(estimator, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize(
    "copied",
    [lambda e: pickle.loads(pickle.dumps(e)), through_joblib, copy.deepcopy],
    ids=["pickle", "joblib", "deepcopy"],
)
@pytest.mark.parametrize("name", ["fitted", "folded"])
def test_a_copy_answers_the_same_and_still_knows_the_tables(
    name, copied, people, request
):
    estimator = request.getfixturevalue(name)
    same = copied(estimator)
    assert repr(same) == repr(estimator)
    pd.testing.assert_frame_equal(
        same.intervals(people), estimator.intervals(people), check_exact=True
    )
    assert same.has_population == estimator.has_population == (name == "folded")
    if same.has_population:
        assert same.average() == estimator.average()


def test_a_pickle_of_another_version_warns(linear, monkeypatch):
    stored = pickle.dumps(linear)
    monkeypatch.setattr(_settings, "_version", lambda: "9.9")
    with pytest.warns(UserWarning, match=r"written by pns-estimate 0.* read by 9\.9"):
        pickle.loads(stored)


ORDER = (
    *("path", "rows", "observational", "experimental"),
    *("threshold", "columns", "num_groups", "mask", "weights", "decision"),
    *("alpha", "estimand", "target", "side", "source"),
)


@pytest.mark.parametrize("kind", [pe.PnsEstimator, pe.Prediction, pe.Population])
def test_arguments_come_in_one_order(kind):
    asked = 0
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_"):
            continue
        parameters = inspect.signature(method).parameters.values()
        given = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        places = [ORDER.index(argument) for argument in given if argument in ORDER]
        assert places == sorted(places), f"{name}{tuple(given)}"
        asked += len(places) > 1
    assert asked >= 5
