"""A prediction: draws made once, kept in memory or on disk, and shared by questions."""

import copy
import dataclasses

import jax
import numpy as np
import pandas as pd
import pns_bounds as pb
import pytest
from pns_estimate.answers.files import show_doubts
from pns_estimate.answers.prediction import Draws
from pns_estimate.methods import ScaledSampler
from pns_estimate.methods.stack import StackSampler
from pns_estimate.report.page import make_numbers, make_page
from small_stacks import make_stack
from small_tables import draw_table, fit


def count_draws(prediction):
    """Number of units for which the sampler made draws."""
    return prediction.sampler.inner.num_drawn


def draw_strangers(n):
    """People of whom no two share their covariates."""
    return draw_table(n, True, 5).assign(age=np.linspace(20, 69, n))


def test_all_questions_share_one_set_of_draws(linear):
    rows = draw_strangers(1100)  # three blocks
    prediction = linear.predict(rows)
    before = count_draws(prediction)
    prediction.intervals()
    assert count_draws(prediction) == before + 1100
    for estimand in ("pns", "harm"):
        prediction.intervals(0.2, estimand, "parameter")
        prediction.band(estimand=estimand)
        prediction.average(estimand=estimand)
    prediction.threshold_set(0.1)
    assert count_draws(prediction) == before + 1100


def test_other_people_or_another_seed_compile_nothing(fitted, num_compiled):
    fitted.predict(draw_strangers(90)).intervals()
    compiled = num_compiled()
    fitted.predict(draw_strangers(130)).intervals()
    other = copy.copy(fitted).set_params(seed=fitted.seed + 1)
    other.predict(draw_strangers(90)).intervals()
    assert num_compiled() == compiled


def test_people_who_share_covariates_share_draws_and_have_the_answers_of_strangers(
    linear,
):
    """Every question, as if each of the draws were made for one person."""
    rows = draw_table(700, True, 5)
    prediction = linear.predict(rows)
    key = jax.random.fold_in(jax.random.key(linear.seed), 2)
    alone = dataclasses.replace(
        prediction,
        z=prediction.z[prediction.place],
        place=np.arange(700),
        draws=Draws(
            prediction.sampler, key, prediction.z[prediction.place], linear.num_draws
        ),
    )
    before = count_draws(prediction)
    shared = prediction.intervals()
    num_kinds = len(rows[["age", "region", "member"]].drop_duplicates())
    assert num_kinds < 400 and count_draws(prediction) == before + num_kinds
    pd.testing.assert_frame_equal(shared, alone.intervals(), rtol=1e-5)
    pd.testing.assert_frame_equal(prediction.band(), alone.band(), rtol=1e-5)
    pd.testing.assert_frame_equal(prediction.atoms(), alone.atoms(), rtol=1e-5)
    above = prediction.threshold_set(0.1)
    pd.testing.assert_series_equal(above, alone.threshold_set(0.1))
    mask = rows["member"].to_numpy()
    np.testing.assert_allclose(prediction.average(mask), alone.average(mask), rtol=1e-5)


@pytest.mark.parametrize("memory", [0, 250_000, 10**9])
def test_draws_are_the_same_in_memory_and_on_disk(linear, memory):
    prediction = linear.predict(draw_strangers(700))
    key = jax.random.key(0)
    draws = Draws(prediction.sampler, key, prediction.z, 20, memory=memory)
    expected = prediction.sampler.draws(key, prediction.z, 20)
    for _ in range(2):
        blocks = list(draws)
        assert [len(block.mu[0]) for block in blocks] == [512, 188]
        joined = jax.tree.map(lambda *b: np.concatenate(b, axis=1), *blocks)
        for found, wanted in zip(joined, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
    on_disk = [isinstance(block.mu, np.memmap) for block in draws]
    size = sum(part.nbytes for part in blocks[0])
    assert on_disk == [memory < size, memory < size * 700 / 512]


def test_a_pass_that_stops_early_leaves_the_rest_for_later(linear):
    prediction = linear.predict(draw_strangers(700))
    before = count_draws(prediction)
    next(iter(prediction.draws))
    assert count_draws(prediction) == before + 512
    prediction.intervals()
    assert count_draws(prediction) == before + 700


class OneZeroCell:
    """A sampler's draws, with p11 = 0 in one draw of one person."""

    has_draws, is_posterior = True, True

    def __init__(self, inner):
        self.inner = inner

    def atoms(self, z):
        return self.inner.atoms(z)

    def draws(self, key, z, num_draws):
        drawn = pb.Atoms(*map(np.array, self.inner.draws(key, z, num_draws)))
        drawn.joint[5, 2, 0, 1] += drawn.joint[5, 2, 1, 1]
        drawn.joint[5, 2, 1, 1] = 0
        return pb.project_to_compatible(drawn)


@pytest.mark.parametrize("is_posterior", [False, True])
def test_a_zero_cell_in_one_draw_of_one_person_ends_no_call(
    linear, people, is_posterior
):
    prediction = linear.predict(people)
    sampler = OneZeroCell(prediction.sampler)
    sampler.is_posterior = is_posterior
    odd = dataclasses.replace(
        prediction,
        sampler=sampler,
        draws=Draws(sampler, jax.random.key(0), prediction.z, 300),
    )
    answer = odd.intervals(estimand="pn")
    assert answer[["lower", "upper"]].notna().all(axis=None)
    assert np.isfinite(odd.average(estimand="pn").upper)
    assert odd.band(estimand="pn")["lower"].notna().all()


@pytest.fixture(scope="module")
def stacked(tables):
    """A fit whose sampler is a stack that nothing was trained for."""
    estimator = fit(*tables)
    sampler = StackSampler(make_stack(estimator._state.encoder.width))
    estimator._state = estimator._state._replace(sampler=ScaledSampler(sampler, 1.0))
    return estimator


def test_the_disagreement_of_learners_is_a_column_of_every_table_of_people(
    stacked, linear, people, tmp_path
):
    """Asked of the stack person by person; some people share covariates."""
    people = pd.concat([people, people.iloc[:5]])
    table, encoder = stacked.intervals(people), stacked._state.encoder
    stack = stacked._state.sampler.inner.stack
    for row, found in enumerate(table["disagreement"]):
        z, _ = encoder.encode(people.iloc[[row]], "people")
        np.testing.assert_allclose(found, stack.disagreement(z)[0], rtol=1e-5)
    assert table["disagreement"].nunique() == len(people.drop_duplicates()) > 20
    stacked.write_intervals(tmp_path / "people.parquet", people)
    streamed = pd.read_parquet(tmp_path / "people.parquet")
    pd.testing.assert_frame_equal(streamed, table.reset_index(drop=True))
    assert "disagreement" not in linear.intervals(people)


def test_the_report_counts_people_about_whom_learners_differ(stacked, people, tmp_path):
    found = stacked.intervals(people)["disagreement"]
    number = int((found > 0.1).sum())
    assert 0 < number < len(people)
    answers = stacked.answers(people)
    assert answers.asked.num_disagreed == number
    assert make_numbers(answers)["disagreed"] == number
    text = f"About {number} people the learners differ by more than 10 points"
    assert text in " ".join(make_page(answers).split())
    doubts = show_doubts(answers)
    assert doubts.startswith(
        f"for {number} of the {len(people)} people (the rows given)"
    )
    one = dataclasses.replace(answers, prediction=stacked.predict(people[found < 0.1]))
    assert show_doubts(one) == "" and "the learners differ" not in make_page(one)
