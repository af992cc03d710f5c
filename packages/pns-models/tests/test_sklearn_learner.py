"""Classifiers of scikit-learn: fitted with weights, never without an answer, saved safely."""

import importlib
import zipfile

import jax
import numpy as np
import pns_bounds as pb
import pns_models as pm
import pytest
from pns_models import _sklearn_learner
from pns_models._learner import RunContext
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

LOGISTIC = pm.SklearnLearner(LogisticRegression(C=0.5))
FOREST = pm.SklearnLearner(RandomForestClassifier(10, min_samples_leaf=5), "forest")


def fit(folded, learner, key=0, **parts):
    resamples = pm.Resamples(folded, **parts)
    return learner.fit(jax.random.key(key), resamples, RunContext())


def make_folded(tables):
    rows = pm.rows_from_tables(*tables)
    return rows.deal(np.random.default_rng(0), 2).folded()[0]


@pytest.fixture(scope="module")
def tables(small):
    """Covariates of other scales than those that classifiers like."""
    scale = np.array([1, 100, 0.01], np.float32)
    return [(5 + scale * z, x, y) for z, x, y in small.tables()]


@pytest.fixture(scope="module")
def folded(tables):
    return make_folded(tables)


def test_answers_are_those_of_classifiers_fitted_to_each_unit(tables):
    """One row for each unit outside the fold, without weights, on standardized columns."""
    rows = pm.rows_from_tables(*tables).deal(np.random.default_rng(0), 2)
    folded, place = rows.folded()
    raw = fit(folded, LOGISTIC).raw(folded.counts.z)
    z, x, y = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    fold = folded.fold[place]
    is_log = np.arange(len(z)) < len(tables[0][0])
    scaler = StandardScaler().fit(z)
    asked = scaler.transform(folded.counts.z)
    tasks = [(is_log, 2 * x + y), (~is_log & (x == 0), y), (~is_log & (x == 1), y)]
    for member in range(2):
        expected = []
        for chosen, label in tasks:
            seen = chosen & (fold != member)
            other = LogisticRegression(C=0.5).fit(
                scaler.transform(z[seen]), label[seen]
            )
            logs = other.predict_log_proba(asked)
            expected.append(logs if logs.shape[1] == 4 else logs[:, 1:] - logs[:, :1])
        np.testing.assert_allclose(raw[member], np.hstack(expected), atol=2e-3)
    assert np.ptp(raw[..., 4:]) > 0.3, "or constants would pass"


@pytest.mark.parametrize("learner", [LOGISTIC, FOREST], ids=lambda each: each.name)
def test_answers_are_finite_and_free(folded, learner):
    raw = fit(folded, learner, per_fold=2, share=0.25).raw(folded.counts.z)
    assert raw.shape == (4, len(folded.fold), 6) and raw.dtype == np.float32
    assert np.isfinite(raw).all()
    np.testing.assert_allclose(np.exp(raw[..., :4]).sum(axis=-1), 1, atol=1e-5)
    assert len(np.unique(raw[:, 0, 4])) > 1, "members differ"


@pytest.mark.parametrize("learner", [LOGISTIC, FOREST], ids=lambda each: each.name)
def test_a_class_that_a_member_does_not_see_has_half_a_unit(tables, learner):
    """No treated unit of the log has the outcome outside fold 0, and no trial unit."""
    folded = make_folded(tables)
    log, trial = folded.counts[1:]
    outside = folded.fold != 0
    log[outside, 1, 1] = 0
    trial[outside, :, 0] += trial[outside, :, 1]
    trial[outside, :, 1] = 0
    members = fit(folded, learner)
    raw = members.raw(folded.counts.z).astype(float)
    assert np.isfinite(raw).all()
    size = log[outside].sum()
    half = 0.5 / (size + 1)
    # Three classes may be at half a unit, too, so the sum is 1 to 1 + 3 halves.
    missing = np.exp(raw[0, :, 3])
    assert np.all(
        (missing <= half * 1.0001) & (missing >= half / (1 + 3 * half) * 0.9999)
    )
    for arm in (0, 1):
        half = 0.5 / (trial[outside, arm].sum() + 1)
        np.testing.assert_allclose(np.exp(raw[0, :, 4 + arm]), half, rtol=1e-4)
    assert np.exp(raw[1, :, 3]).mean() > 5 * half


def test_an_arm_without_units_is_even(folded):
    members = fit(folded, LOGISTIC)
    log, control, _ = members.models[0]
    nothing = _sklearn_learner.SklearnMembers(
        members.fold[:1],
        ((log, control, None),),
        np.array([[100.0, 50.0, 0.0]]),
        members.standardizer,
    )
    raw = nothing.raw(folded.counts.z)
    np.testing.assert_array_equal(raw[0, :, 5], 0)
    np.testing.assert_allclose(
        raw[0, :, :4], members.raw(folded.counts.z)[0, :, :4], atol=0.1
    )


def test_the_key_decides_a_random_state_that_is_not_given(folded):
    z = folded.counts.z
    one, same, other = (fit(folded, FOREST, key).raw(z) for key in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert np.any(one != other)
    fixed = pm.SklearnLearner(RandomForestClassifier(5, random_state=3))
    one, other = (fit(folded, fixed, key) for key in (0, 1))
    np.testing.assert_array_equal(one.raw(z), other.raw(z))
    assert one.models[0][0].random_state == 3


def test_the_classifier_that_is_given_is_not_changed(folded):
    classifier = RandomForestClassifier(5)
    fit(folded, pm.SklearnLearner(classifier))
    assert not hasattr(classifier, "estimators_") and classifier.random_state is None


def test_learners_are_named_and_told_apart():
    assert (LOGISTIC.name, FOREST.name) == ("LogisticRegression", "forest")
    assert repr(FOREST) == (
        "SklearnLearner(RandomForestClassifier(min_samples_leaf=5, n_estimators=10), "
        "name='forest')"
    )
    weights = [{i: float(i) for i in range(size)} for size in (200, 201)]
    many = [
        pm.SklearnLearner(LogisticRegression(class_weight=each)) for each in weights
    ]
    assert repr(many[0]) != repr(many[1])
    assert isinstance(LOGISTIC, pm.Learner)


def test_a_classifier_is_stacked_beside_others(folded):
    learners = [FOREST, pm.LinearLearner(), LOGISTIC]
    result = pm.cross_fit(jax.random.key(0), folded, learners, 2)
    assert [each.problem for each in result.classes] == [""] * 3
    losses = {each.name: each.losses for each in result.classes}
    # Both are linear on the logit scale, but for the anchors of the ridge.
    gap = np.abs(losses["LogisticRegression"] - losses["ridge regression"])
    assert gap.max() < 0.02


@pytest.mark.parametrize(
    ("classifier", "message"),
    [
        (LinearSVC(), "LinearSVC does not have predict_proba."),
        (SVC(), "SVC does not have predict_proba"),
        (KNeighborsClassifier(), "does not have a fit that takes sample_weight."),
        (
            make_pipeline(LogisticRegression()),
            "Pipeline does not have a fit that takes",
        ),
        (LogisticRegression, "be one of scikit-learn's, got <class"),
        ("logistic", "be one of scikit-learn's, got 'logistic'"),
    ],
)
def test_classifiers_that_cannot_be_used_are_told(classifier, message):
    with pytest.raises(pb.InputError, match=f"^classifier must.* {message}"):
        pm.SklearnLearner(classifier)


@pytest.mark.parametrize("learner", [LOGISTIC, FOREST], ids=lambda each: each.name)
def test_saved_members_answer_alike_and_are_not_pickled(folded, tmp_path, learner):
    tables = folded.counts._replace(experimental=folded.counts.experimental.copy())
    tables.experimental[folded.fold == 1, 1, 1] = 0  # one model knows a single class
    members = fit(folded._replace(counts=tables), learner, per_fold=2, share=0.5)
    pm.MEMBERS.save(members, tmp_path / "members")
    again = pm.MEMBERS.load(tmp_path / "members")
    z = folded.counts.z
    np.testing.assert_array_equal(again.raw(z), members.raw(z))
    assert again.fold.tolist() == [0, 1, 0, 1]
    order = np.array([2, 0])
    np.testing.assert_array_equal(again.take(order).raw(z), members.raw(z)[order])
    with zipfile.ZipFile(tmp_path / "members" / "models.skops") as archive:
        assert {name.split(".")[-1] for name in archive.namelist()} == {"json", "npy"}
    assert {path.name for path in (tmp_path / "members").iterdir()} == {
        "kind.json",
        "members.npz",
        "models.skops",
    }


class Constant(ClassifierMixin, BaseEstimator):
    """Follows the conventions, and is of no library that is trusted."""

    def fit(self, z, label, sample_weight):
        self.classes_ = np.unique(label)
        return self

    def predict_proba(self, z):
        return np.full((len(z), len(self.classes_)), 1 / len(self.classes_))


def test_types_of_others_are_neither_saved_nor_read(folded, tmp_path, monkeypatch):
    members = fit(folded, pm.SklearnLearner(Constant()))
    np.testing.assert_array_equal(members.raw(folded.counts.z)[..., 4:], 0)
    with pytest.raises(pb.InputError, match="parts of scikit-learn.*Constant"):
        pm.MEMBERS.save(members, tmp_path / "one")
    with monkeypatch.context() as context:
        context.setattr(_sklearn_learner, "_strange_types", lambda *_: [])
        pm.MEMBERS.save(members, tmp_path / "two")
    with pytest.raises(pm.DamagedModelError, match="not scikit-learn's.*Constant"):
        pm.MEMBERS.load(tmp_path / "two")


@pytest.mark.parametrize(
    ("name", "is_trusted"),
    [
        ("sklearn.tree._tree.Tree", True),
        ("sklearn.linear_model._logistic.LogisticRegression", True),
        ("sklearn_evil.Tree", False),
        ("os.system", False),
        ("sklearn.datasets._base.load_iris", False),  # a function
        ("sklearn.datasets._base.urlretrieve", False),  # of another library
        ("sklearn.utils.fixes.no_such_thing", False),
        ("sklearn.no_such_module.Thing", False),
    ],
)
def test_only_classes_that_scikit_learn_defines_are_trusted(name, is_trusted):
    assert _sklearn_learner._is_of_sklearn(name) == is_trusted


def test_without_skops_it_is_named(folded, tmp_path, monkeypatch):
    members, real = fit(folded, LOGISTIC), importlib.import_module

    def broken(name, *rest):
        if name.startswith("skops"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", broken)
    message = r"need the package skops: pip install 'pns-models\[sklearn\]'"
    with pytest.raises(ImportError, match=message):
        pm.MEMBERS.save(members, tmp_path / "members")
    with pytest.raises(ImportError, match=message):
        _sklearn_learner.SklearnMembers.load(tmp_path / "members")
