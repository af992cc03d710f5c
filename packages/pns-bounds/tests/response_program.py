"""Second implementation of every bound: the response-type linear program.

A law q[x, y0, y1] of treatment and both potential outcomes fixes the atoms; the bounds
on a linear functional of q are the optima of that functional over all laws with the
same atoms. Nothing here knows a closed form.
"""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pns_bounds as pb
import scipy.optimize

X, Y0, Y1 = np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij")
Y = np.where(X == 1, Y1, Y0)  # consistency: what is seen is the outcome of one's arm

CELL_EVENTS = [((X == x) & (Y == y)).astype(float) for x in (0, 1) for y in (0, 1)]
# Response types by the name of their estimand, in the order of `benefit`'s gains.
EVENTS = {
    "pns": (Y1 == 1) & (Y0 == 0),
    "always": (Y1 == 1) & (Y0 == 1),
    "never": (Y1 == 0) & (Y0 == 0),
    "harm": (Y1 == 0) & (Y0 == 1),
}


def atoms_of(law: np.ndarray) -> pb.Atoms:
    """Sums a law q[..., x, y0, y1] into its atoms."""
    joint = [(law * event).sum((-3, -2, -1)) for event in CELL_EVENTS]
    mu = [(law * (outcome == 1)).sum((-3, -2, -1)) for outcome in (Y0, Y1)]
    joint = np.stack(joint, axis=-1)
    return pb.Atoms(joint.reshape(*joint.shape[:-1], 2, 2), np.stack(mu, axis=-1))


def constraints(atoms: pb.Atoms, joint: bool = True, mu: bool = True):
    """Returns rows and right-hand sides of the equalities that the atoms impose."""
    rows = [np.ones(8)]
    values = [1.0]
    if joint:
        rows += [event.ravel() for event in CELL_EVENTS]
        values += list(np.ravel(atoms.joint))
    if mu:
        rows += [(outcome == 1).ravel().astype(float) for outcome in (Y0, Y1)]
        values += list(np.ravel(atoms.mu))
    return np.array(rows), np.array(values)


def optima(objective: np.ndarray, rows: np.ndarray, values: np.ndarray):
    """Minimizes and maximizes a linear functional of nonnegative cells."""
    ends = []
    for sign in (1, -1):
        solution = scipy.optimize.linprog(
            sign * objective.ravel().astype(float),
            A_eq=rows,
            b_eq=values,
            bounds=(0, None),
            method="highs",
            options={
                "primal_feasibility_tolerance": 1e-10,
                "dual_feasibility_tolerance": 1e-10,
            },
        )
        assert solution.status == 0, solution.message
        ends.append(sign * solution.fun)
    return ends


def objective_of(name: str, atoms: pb.Atoms) -> np.ndarray | None:
    """The functional of q that an estimand is; None where it conditions on nobody."""
    if name in EVENTS:
        return EVENTS[name]
    if name == "pn":
        event, whole = (X == 1) & (Y == 1) & (Y0 == 0), atoms.joint[1, 1]
    else:
        event, whole = (X == 0) & (Y == 0) & (Y1 == 1), atoms.joint[0, 0]
    return event / whole if whole > 0 else None


def law_from_counts(counts) -> np.ndarray:
    counts = np.array(counts, dtype=float)
    return (counts / counts.sum()).reshape(2, 2, 2)


def laws():
    """Laws from eight counts, zeros being common; cells as rare as 1 in 8,000."""
    count = st.one_of(st.just(0), st.integers(0, 1000))
    counts = st.lists(count, min_size=8, max_size=8).filter(sum)
    return counts.map(law_from_counts)


# Cells in the order of (x, y0, y1), the last index fastest.
NOBODY_TREATED_RESPONDED = law_from_counts([3, 1, 4, 1, 5, 0, 9, 0])  # p11 = 0
EVERYBODY_TREATED = law_from_counts([0, 0, 0, 0, 2, 7, 1, 8])
NOBODY_TREATED = law_from_counts([2, 7, 1, 8, 0, 0, 0, 0])
EVERYBODY_RESPONDS = law_from_counts([0, 0, 0, 3, 0, 0, 0, 5])
TREATMENT_DECIDES = law_from_counts([0, 4, 0, 0, 0, 6, 0, 0])
ONE_CELL = law_from_counts([0, 0, 0, 0, 0, 0, 1, 0])


def against_the_program(test):
    """Runs a test of one law on hypothesis' laws and on the degenerate ones."""
    for law in (
        NOBODY_TREATED_RESPONDED,
        EVERYBODY_TREATED,
        NOBODY_TREATED,
        EVERYBODY_RESPONDS,
        TREATMENT_DECIDES,
        ONE_CELL,
    ):
        test = hypothesis.example(law=law)(test)
    return hypothesis.settings(max_examples=150)(hypothesis.given(law=laws())(test))


def assert_equal_interval(interval: pb.Interval, ends, law) -> None:
    np.testing.assert_allclose(
        [float(interval.lower), float(interval.upper)],
        ends,
        rtol=0,
        atol=1e-9,
        err_msg=f"law q[x, y0, y1] = {law.tolist()}",
    )
