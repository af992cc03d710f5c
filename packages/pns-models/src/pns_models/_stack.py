"""A stack: learners of several classes, pooled by how well they predict what is held out.

With m_c the mean of the members of class c, each of which saw everything outside its fold,
and w_c convex weights, one set for the log and one for the trial, the stack answers with

    m = sum_c w_c m_c

on the scale of raw numbers. Draws of its error have two parts.

- Differences of the classes, sqrt(w_c) (m_c - m), whose variance is that of a class drawn
  by its weight. They say where the error is large.
- An error that all classes share shows in none of them, so a second part is the same for
  everyone: its variance is `_EVEN` times the average of the first, over the rows and raw
  numbers of a source.

How large the error is in all, the learning curve says: in each source, both parts are
scaled by one factor, so that draws lose on average `_CAUTION` times what the curve expects
the stack to lose to the truth. A draw adds all parts with independent normal multipliers.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from pns_bounds import BINARY
from scipy import optimize, special

from pns_models._data import Counts, flat_weights, row_blocks
from pns_models._learner import MEMBERS, Members
from pns_models._rows import SOURCES

_EVEN = 4.0  # variance that is the same for everyone, beside what classes show
_CAUTION = 2.5  # of the expected excess: errors have longer tails than draws
_ROWS = 4096  # that members answer at a time
_SOME_ROWS = 65_536  # by which weights are chosen, at most

Raw = Float[np.ndarray, "members n raw"]


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


def pool_center(
    raw: Sequence[Float[np.ndarray, "n raw"]],
    weights: Float[np.ndarray, "classes sources"],
) -> Float[np.ndarray, "n raw"]:
    """Averages the classes by their weights."""
    return np.einsum("cr,cnr->nr", _by_number(weights), np.stack(raw))


def _by_number(
    weights: Float[np.ndarray, "*classes sources"],
) -> Float[np.ndarray, "*classes raw"]:
    """Repeats what belongs to a source for each of its raw numbers."""
    columns = np.repeat([0, 1], [BINARY.num_cells, BINARY.num_treatments])
    return weights[..., columns].astype(np.float32)


class ErrorSize(NamedTuple):
    """How large a stack's error is; see the module's docstring."""

    scale: Float[np.ndarray, " sources"]  # of all parts
    even: Float[np.ndarray, " sources"]  # deviation that is the same for everyone


def pool(
    raw: Sequence[Float[np.ndarray, "n raw"]],
    weights: Float[np.ndarray, "classes sources"],
    size: ErrorSize | None = None,
) -> Linear:
    """Pools what the classes say; see the module's docstring.

    Args:
      raw: numbers of each class, means over its members.
      weights: of the classes.
      size: of the error; None leaves the differences as they are.
    """
    center = pool_center(raw, weights)
    factors = np.sqrt(_by_number(weights))[:, None] * (np.stack(raw) - center)
    factors = np.moveaxis(factors, 0, -1)
    if size is None:
        return Linear(center, factors)
    even = np.diag(_by_number(size.even))
    even = np.broadcast_to(even, (len(center), *even.shape))
    scale = _by_number(size.scale)[:, None]
    return Linear(center, scale * np.concatenate([factors, even], axis=-1))


def size_error(
    shown: Linear, counts: Counts, excess: Float[np.ndarray, " sources"]
) -> ErrorSize:
    """Scales the error to the excess: see the module's docstring.

    To second order, an error e of a law's logits costs Var(e) / 2 under the law.

    Args:
      shown: held-out answers, with the differences of the classes.
      counts: of the rows.
      excess: of the loss.
    """
    same = np.eye(shown.center.shape[1])
    same = np.broadcast_to(same, (len(shown.center), *same.shape))
    loss = _variances(shown, counts)
    unit = _variances(shown._replace(factors=same), counts)  # of an even error of 1
    even = np.sqrt(np.where(loss > 0, _EVEN * loss / unit, 1.0))
    total = (loss + even**2 * unit) / 2
    return ErrorSize(np.sqrt(_CAUTION * excess / total), even)


def _variances(linear: Linear, counts: Counts) -> Float[np.ndarray, " sources"]:
    """Averages the variance of errors under the law of each row over units."""
    totals = np.zeros(len(SOURCES))
    for rows in row_blocks(len(linear.center), linear.factors[0].size):
        law = np.exp(_logs(linear.center[rows]))
        cells, arms = np.split(law, [BINARY.num_cells], axis=1)
        errors = linear.factors[rows].astype(np.float64)
        log, trial = np.split(errors, [BINARY.num_cells], axis=1)
        # The mean of a row's errors under its law moves no probability.
        mean = np.einsum("nc,nck->nk", cells, log)
        spread = np.einsum("nc,nck->n", cells, log**2) - np.square(mean).sum(axis=1)
        units = [np.asarray(part)[rows].sum(axis=2) for part in counts[1:]]
        by_arm = arms.reshape(-1, *BINARY.joint_shape).prod(axis=2)
        by_arm = by_arm * np.square(trial).sum(axis=2)
        totals += units[0].sum(axis=1) @ spread, (units[1] * by_arm).sum()
    return totals / source_sizes(counts)


@dataclasses.dataclass(frozen=True, eq=False)
class Stack:
    """Classes of members with their weights.

    Attributes:
      names: what each class is called.
      members: of each class, one or more for each fold.
      weights: of each class, for the log and for the trial.
      size: of the error.
    """

    names: tuple[str, ...]
    members: tuple[Members, ...]
    weights: Float[np.ndarray, "classes sources"]
    size: ErrorSize

    def answer(self, z: Float[np.ndarray, "n d"]) -> Linear:
        """Pools what the classes say of rows."""
        blocks = [pool(raw, self.weights, self.size) for raw in self._ask(z)]
        return Linear(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))

    def _ask(
        self, z: Float[np.ndarray, "n d"]
    ) -> Iterator[list[Float[np.ndarray, "some raw"]]]:
        """Asks each class, some rows at a time."""
        for block in np.split(z, range(_ROWS, len(z), _ROWS)):
            yield [ask(members, block).mean(axis=0) for members in self.members]

    def disagreement(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Computes by how much the classes differ about the probabilities of rows.

        It is the standard deviation of a probability among the classes, drawn by their
        weights; the largest of the six atoms. 0.05 means five points.
        """
        weights = np.repeat(self.weights, BINARY.num_cells, axis=1)[:, None]
        found = []
        for raw in self._ask(z):
            laws = np.exp(np.stack([_logs(each) for each in raw]))
            variance = (weights * np.square(laws - (weights * laws).sum(axis=0))).sum(0)
            found.append(np.sqrt(variance.max(axis=1)))
        return np.concatenate(found)

    def save(self, folder: Path) -> None:
        """Writes weights and members into a folder that exists."""
        arrays = {"weights": self.weights, "names": self.names, **self.size._asdict()}
        np.savez(folder / "stack.npz", **arrays)
        for number, members in enumerate(self.members):
            MEMBERS.save(members, folder / f"members_{number}")

    @classmethod
    def load(cls, folder: Path) -> "Stack":
        """Reads what `save` wrote."""
        with np.load(folder / "stack.npz", allow_pickle=False) as stored:
            weights, names = stored["weights"], tuple(stored["names"].tolist())
            size = ErrorSize(stored["scale"], stored["even"])
        folders = (folder / f"members_{number}" for number in range(len(names)))
        return cls(names, tuple(map(MEMBERS.load, folders)), weights, size)


def source_losses(
    raw: Float[np.ndarray, "n raw"], counts: Counts
) -> Float[np.ndarray, " sources"]:
    """Computes the mean negative log-likelihood of the log and of the trial."""
    return row_losses(raw, counts).sum(axis=0) / source_sizes(counts)


def row_losses(
    raw: Float[np.ndarray, "n raw"], counts: Counts
) -> Float[np.ndarray, "n sources"]:
    """Sums the negative log-likelihood of the units of each row, by source."""
    terms = -flat_weights(counts).astype(np.float64) * _logs(raw)
    return terms.reshape(len(raw), len(SOURCES), -1).sum(axis=2)


def source_sizes(counts: Counts) -> Float[np.ndarray, " sources"]:
    """Counts the units of each source; 1 if there are none."""
    sizes = np.array([np.sum(part, dtype=np.float64) for part in counts[1:]])
    return np.where(sizes > 0, sizes, 1.0)


def frequencies(counts: Counts) -> Float[np.ndarray, "n raw"]:
    """Makes the raw numbers of a law that is the same for all rows: the frequencies."""
    log, trial = (np.asarray(part).sum(axis=0) + 0.5 for part in counts[1:])
    law = np.r_[np.log(log / log.sum()).ravel(), np.log(trial[:, 1] / trial[:, 0])]
    return np.broadcast_to(law.astype(np.float32), (len(counts.z), len(law)))


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
