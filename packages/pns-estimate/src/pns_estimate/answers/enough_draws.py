"""Whether there are enough draws for what is asked, before they are made."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pns_bounds as pb

from pns_estimate._errors import Setting, UserError
from pns_estimate.answers.decisions import Decision, check_decision
from pns_estimate.answers.prediction import Prediction
from pns_estimate.answers.question import Question
from pns_estimate.methods import Method


class _MadeUpSampler:
    """Draws that mean nothing, as many as there will be."""

    has_draws = True

    def __init__(self, num_draws: int, is_posterior: bool):
        rng = np.random.default_rng(0)
        self.is_posterior = is_posterior
        joint = rng.dirichlet(np.ones(4), (num_draws, 1)).reshape(-1, 1, 2, 2)
        mu = rng.random((num_draws, 1, 2))
        self.drawn = pb.project_to_compatible(pb.Atoms(joint, mu))

    def atoms(self, z: Any) -> pb.Atoms:
        del z
        return pb.Atoms(*(part[0] for part in self.drawn))

    def draws(self, key: Any, z: Any, num_draws: int) -> pb.Atoms:
        del key, z, num_draws
        return self.drawn

    def save(self, folder: Any) -> None:
        raise NotImplementedError(f"{folder}: nothing to keep")


def check_num_draws(
    method: Method, num_draws: int, question: Question, decision: Decision | None
) -> None:
    """Raises if a report could not be written for want of draws, whatever they are.

    The questions of the report are asked of made-up draws.

    Args:
      method: may have its own number of draws.
      num_draws: that the method is asked for.
      question: of the report.
      decision: of the report.
    """
    own = getattr(method, "num_draws", None)
    asked = question.estimands()
    if decision is not None:
        asked.append(check_decision(decision))
    errors = []
    for is_posterior in (False, True):  # known after the fit
        sampler = _MadeUpSampler(own or num_draws, is_posterior)
        error = _ask(sampler, asked, question)
        if error is None:
            return
        errors.append(error)
    if own is None:
        raise errors[0]
    raise UserError(
        f"the {own} draws of the method {method.name!r} are too few for ",
        Setting("alpha", question.alpha),
        "; take another method, or a larger ",
        Setting("alpha"),
        ".",
    ) from errors[0]


def _ask(
    sampler: _MadeUpSampler, estimands: list[pb.Estimand], question: Question
) -> UserError | None:
    prediction = Prediction(
        people=pd.DataFrame(index=[0]),
        z=np.zeros((1, 1)),
        place=np.zeros(1, int),
        is_outside=np.zeros(1, bool),
        sampler=sampler,
        draws=[sampler.drawn],
        sample_size=1000.0,
    )
    questions = (
        lambda estimand: prediction.intervals(
            question.alpha, estimand, question.target
        ),
        lambda estimand: prediction.band(question.alpha, estimand, "lower"),
    )
    try:
        for ask, estimand in itertools.product(questions, estimands):
            ask(estimand)
    except UserError as error:
        return error
    return None
