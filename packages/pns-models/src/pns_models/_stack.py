"""A stack: learners of several classes, pooled by how well they predict what is held out.

With m_c the mean of the members of class c that saw everything outside their folds, and
w_c convex weights, one set for the log and one for the trial, the stack answers with

    m = sum_c w_c m_c

on the scale of raw numbers. How far m may be from the truth shows in three ways.

- Noise. A member that saw a share q of the units differs from one that saw all by
  (1 - q) / q times the variance of the latter, so deviations of such members s from their
  mean are scaled by sqrt(q / (1 - q)).
- Bias. A class that needs more units than there are is worse with fewer: the mean of the
  members that saw a share, minus m. Draws use twice this difference, which is the bias if
  it falls with the power 0.29 of the sample size; METHOD.md says how the 2 was chosen.
- Differences of the classes, m_c - m.

A draw adds all of them with independent normal multipliers; noise and differences of a
class are multiplied by sqrt(w_c), which is the variance of a class drawn by its weight.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from pns_bounds import BINARY
from scipy import optimize, special

from pns_models._data import Counts, flat_weights
from pns_models._learner import MEMBERS, Members

SHARE = 0.25  # of the units, that members which show the error see
_SHIFT = 2.0  # of the bias, in the difference between members that saw a share and all
_ROWS = 4096  # that members answer at a time
_SOME_ROWS = 65_536  # by which weights are chosen, at most

Raw = Float[np.ndarray, "members n raw"]


class Answers(NamedTuple):
    """What the classes say of some rows."""

    full: list[Raw]  # of each class, by members that saw everything outside their fold
    part: list[Raw]  # of each class, by members that saw a share


class Linear(NamedTuple):
    """Draws before the link: center + factors . standard normals."""

    center: Float[np.ndarray, "n raw"]
    factors: Float[np.ndarray, "n raw rank"]


def ask(members: Members, z: Float[np.ndarray, "n d"]) -> Raw:
    """Asks members for raw numbers; makes the logits of the cells logarithms."""
    raw = np.array(members.raw(z), np.float32)
    cells = raw[..., : BINARY.num_cells]
    with np.errstate(invalid="ignore"):  # infinite ones become NaN, which is told later
        cells -= special.logsumexp(cells, axis=-1, keepdims=True)
    return raw


def pool(answers: Answers, weights: Float[np.ndarray, "classes sources"]) -> Linear:
    """Pools what the classes say; see the module's docstring."""
    columns = np.repeat([0, 1], [BINARY.num_cells, BINARY.num_treatments])
    weight = weights[:, columns].astype(np.float32)  # [classes, raw]
    means = np.stack([raw.mean(axis=0) for raw in answers.full])
    center = np.einsum("cr,cnr->nr", weight, means)
    parts = np.stack([raw.mean(axis=0) for raw in answers.part])
    shift = np.einsum("cr,cnr->nr", weight, parts - means)
    factors = [np.float32(_SHIFT) * shift[None]]
    roots = np.sqrt(weight)
    factors.append(roots[:, None] * (means - center))
    for root, raw, mean in zip(roots, answers.part, parts, strict=True):
        size = SHARE / (1 - SHARE) / max(len(raw) - 1, 1)
        factors.append(np.float32(np.sqrt(size)) * root * (raw - mean))
    return Linear(center, np.moveaxis(np.concatenate(factors), 0, -1))


@dataclasses.dataclass(frozen=True, eq=False)
class Stack:
    """Classes of members with their weights.

    Attributes:
      names: what each class is called.
      full: members of each class that saw everything outside their fold.
      part: members that saw a share of it.
      weights: of each class, for the log and for the trial.
    """

    names: tuple[str, ...]
    full: tuple[Members, ...]
    part: tuple[Members, ...]
    weights: Float[np.ndarray, "classes sources"]

    def answer(self, z: Float[np.ndarray, "n d"]) -> Linear:
        """Pools what the classes say of rows."""
        blocks = [
            pool(
                Answers(
                    [ask(members, block) for members in self.full],
                    [ask(members, block) for members in self.part],
                ),
                self.weights,
            )
            for block in np.split(z, range(_ROWS, len(z), _ROWS))
        ]
        return Linear(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))

    def disagreement(self, linear: Linear) -> Float[np.ndarray, " n"]:
        """Computes the standard deviation of the arms' logits among the classes."""
        between = linear.factors[:, BINARY.num_cells :, 1 : 1 + len(self.names)]
        return np.sqrt(np.square(between).sum(axis=2).mean(axis=1))

    def save(self, folder: Path) -> None:
        """Writes weights and members into a folder that exists."""
        np.savez(folder / "stack.npz", weights=self.weights, names=self.names)
        for number, pair in enumerate(zip(self.full, self.part, strict=True)):
            for name, members in zip(("full", "part"), pair, strict=True):
                MEMBERS.save(members, folder / f"{name}_{number}")

    @classmethod
    def load(cls, folder: Path) -> "Stack":
        """Reads what `save` wrote."""
        with np.load(folder / "stack.npz", allow_pickle=False) as stored:
            weights, names = stored["weights"], tuple(stored["names"].tolist())
        full, part = (
            tuple(MEMBERS.load(folder / f"{kind}_{i}") for i in range(len(names)))
            for kind in ("full", "part")
        )
        return cls(names, full, part, weights)


def source_losses(
    raw: Float[np.ndarray, "n raw"], counts: Counts
) -> Float[np.ndarray, " sources"]:
    """Computes the mean negative log-likelihood of the log and of the trial."""
    logs = _logs(raw)
    flat = flat_weights(counts).astype(np.float64)
    size = BINARY.num_cells
    parts = [(flat[:, :size], logs[:, :size]), (flat[:, size:], logs[:, size:])]
    return np.array([-(w * log).sum() / (w.sum() or 1.0) for w, log in parts])


def _logs(raw: Float[np.ndarray, "n raw"]) -> Float[np.ndarray, "n counts"]:
    """Computes log-probabilities of what each count counts, in float64."""
    raw = raw.astype(np.float64)
    cells, arms = raw[:, : BINARY.num_cells], raw[:, BINARY.num_cells :]
    outcomes = np.stack([special.log_expit(-arms), special.log_expit(arms)], axis=2)
    return np.concatenate(
        [special.log_softmax(cells, axis=1), outcomes.reshape(len(raw), -1)], axis=1
    )


def stack_weights(
    held_out: Sequence[Float[np.ndarray, "n raw"]], counts: Counts
) -> Float[np.ndarray, "classes sources"]:
    """Finds the convex weights of least held-out loss, for each source.

    Args:
      held_out: raw numbers of each row by each class.
      counts: of the rows.
    """
    step = -(-len(held_out[0]) // _SOME_ROWS)
    raw = np.stack([each[::step] for each in held_out]).astype(np.float64)
    flat = flat_weights(counts)[::step].astype(np.float64)
    size = BINARY.num_cells
    log = _convex_weights(raw[..., :size], flat[:, :size])
    # An arm is a law of two levels: its logits are 0 and the number of the arm.
    arms = np.stack([np.zeros_like(raw[..., size:]), raw[..., size:]], axis=-1)
    shape = (len(raw), -1, BINARY.num_levels)
    trial = _convex_weights(
        arms.reshape(shape), flat[:, size:].reshape(-1, BINARY.num_levels)
    )
    return np.stack([log, trial], axis=1)


def _convex_weights(
    logits: Float[np.ndarray, "classes n outcomes"],
    counts: Float[np.ndarray, "n outcomes"],
) -> Float[np.ndarray, " classes"]:
    """Minimizes the loss of pooled logits, a convex function, over the simplex."""
    units = counts.sum(axis=1)
    seen = units > 0
    logits, counts, units = logits[:, seen], counts[seen], units[seen]

    def objective(free: Float[np.ndarray, " classes"]) -> tuple[float, np.ndarray]:
        weights = special.softmax(free)
        logs = special.log_softmax(np.tensordot(weights, logits, 1), axis=1)
        residual = units[:, None] * np.exp(logs) - counts
        slope = np.einsum("cno,no->c", logits, residual) / units.sum()
        value = -float((counts * logs).sum() / units.sum())
        return value, weights * (slope - weights @ slope)

    found = optimize.minimize(
        objective, np.zeros(len(logits)), jac=True, method="L-BFGS-B"
    )
    return special.softmax(found.x)
