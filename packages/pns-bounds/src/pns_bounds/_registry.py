"""The estimands that are known by name, and how to add one.

Four response types, the probabilities of necessity and sufficiency, and the benefit of a
treatment with gains of one's own. Every other formula of the workspace reads these.
"""

import types
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from pns_bounds._arrays import Array
from pns_bounds._atoms import (
    Atoms,
    exchange_arms,
    flip_outcome,
    pack_atoms,
    unpack_atoms,
)
from pns_bounds._estimand import Estimand

PNS = Estimand(
    name="pns",
    sentence=(
        "The probability that the outcome happens with the treatment and would not "
        "happen without it."
    ),
    lower_labels=("mu1 - mu0", "P(y) - mu0", "mu1 - P(y)"),
    lower_matrix=[
        [1, -1, 0, 0, 0, 0],
        [0, -1, 1, 0, 1, 0],
        [1, 0, -1, 0, -1, 0],
    ],
    lower_offset=[0, 0, 0],
    upper_labels=("mu1", "1 - mu0", "p11 + p00", "mu1 - mu0 + p10 + p01"),
    upper_matrix=[
        [1, 0, 0, 0, 0, 0],
        [0, -1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 1],
        [1, -1, 0, 1, 1, 0],
    ],
    upper_offset=[0, 1, 0, 0],
)
"""The probability of necessity and sufficiency, P(Y_1=1, Y_0=0 | z).

Its terms are those of Tian and Pearl, eq:pns-lower-1 (the constant 0 is the floor) and
eq:pns-upper-1.
"""


def _renamed(
    rename: Callable[[Atoms], Atoms],
    name: str,
    sentence: str,
    lower_labels: tuple[str, ...],
    upper_labels: tuple[str, ...],
) -> Estimand:
    """Makes the estimand that is PNS of renamed atoms; renaming is affine in eta."""
    shift = pack_atoms(rename(unpack_atoms(np.zeros(6))))
    linear = (pack_atoms(rename(unpack_atoms(np.eye(6)))) - shift).T  # eta' by eta
    lower, upper = np.array(PNS.lower_matrix), np.array(PNS.upper_matrix)
    return Estimand(
        name=name,
        sentence=sentence,
        lower_labels=lower_labels,
        lower_matrix=lower @ linear,
        lower_offset=PNS.lower_offset + lower @ shift,
        upper_labels=upper_labels,
        upper_matrix=upper @ linear,
        upper_offset=PNS.upper_offset + upper @ shift,
    )


HARM = _renamed(
    exchange_arms,
    name="harm",
    sentence=(
        "The probability that the outcome happens without the treatment and would not "
        "happen with it."
    ),
    lower_labels=("mu0 - mu1", "P(y) - mu1", "mu0 - P(y)"),
    upper_labels=("mu0", "1 - mu1", "p01 + p10", "mu0 - mu1 + p00 + p11"),
)
"""The probability of harm, P(Y_1=0, Y_0=1 | z): PNS with the arms exchanged."""
ALWAYS = _renamed(
    lambda atoms: flip_outcome(atoms, arm=0),
    name="always",
    sentence="The probability that the outcome happens with or without the treatment.",
    lower_labels=("mu1 + mu0 - 1", "mu0 - p01 - p10", "mu1 - p11 - p00"),
    upper_labels=("mu1", "mu0", "P(y)", "mu1 + mu0 - P(y)"),
)
"""The probability of the outcome with or without the treatment, P(Y_1=1, Y_0=1 | z)."""
NEVER = _renamed(
    lambda atoms: flip_outcome(atoms, arm=1),
    name="never",
    sentence=(
        "The probability that the outcome happens neither with nor without the treatment."
    ),
    lower_labels=("1 - mu1 - mu0", "p10 + p01 - mu0", "p11 + p00 - mu1"),
    upper_labels=("1 - mu1", "1 - mu0", "1 - P(y)", "1 - mu1 - mu0 + P(y)"),
)
"""The probability of the outcome neither with nor without it, P(Y_1=0, Y_0=0 | z)."""
PN = Estimand(
    name="pn",
    sentence=(
        "Among treated units with the outcome, the probability that it would not have "
        "happened without the treatment."
    ),
    lower_labels=("(P(y) - mu0) / p11",),
    lower_matrix=[[0, -1, 1, 0, 1, 0]],
    lower_offset=[0],
    upper_labels=("(p10 + P(y) - mu0) / p11",),
    upper_matrix=[[0, -1, 1, 1, 1, 0]],
    upper_offset=[0],
    denominator=[0, 0, 1, 0, 0, 0],
)
"""The probability of necessity, P(Y_0=0 | X=1, Y=1, z)."""
PS = Estimand(
    name="ps",
    sentence=(
        "Among untreated units without the outcome, the probability that it would have "
        "happened with the treatment."
    ),
    lower_labels=("(mu1 - P(y)) / p00",),
    lower_matrix=[[1, 0, -1, 0, -1, 0]],
    lower_offset=[0],
    upper_labels=("(mu1 - p11) / p00",),
    upper_matrix=[[1, 0, -1, 0, 0, 0]],
    upper_offset=[0],
    denominator=[0, 0, 0, 0, 0, 1],
)
"""The probability of sufficiency, P(Y_1=1 | X=0, Y=0, z)."""


class BenefitForm(NamedTuple):
    """Coefficients of the benefit: slope * PNS + mu1 * mu1 + mu0 * mu0 + offset."""

    slope: Array
    mu1: Array
    mu0: Array
    offset: Array


def benefit_form(
    complier: Array, always: Array, never: Array, defier: Array
) -> BenefitForm:
    """Writes the mean benefit as an affine function of PNS, mu1 and mu0.

    Given PNS = c the other types have probability mu1 - c (always), 1 - mu0 - c (never)
    and mu0 - mu1 + c (defier). Takes numbers or arrays.
    """
    return BenefitForm(
        slope=complier - always - never + defier,
        mu1=always - defier,
        mu0=defier - never,
        offset=never,
    )


def benefit(
    complier: float,
    always: float,
    never: float,
    defier: float,
    name: str = "benefit",
) -> Estimand:
    """Makes Li and Pearl's mean benefit of treating a unit, with gains of one's own.

    Args:
      complier: gain from treating a unit that responds only if treated.
      always: gain from one that responds either way.
      never: gain from one that responds neither way.
      defier: gain from one that responds only if untreated.
      name: of the estimand.

    Returns:
      A linear estimand on the scale of the gains, between the least and the greatest.

    Example:
      >>> benefit(100, -5, -5, -100).floor
      -100.0
    """
    gains = [float(gain) for gain in (complier, always, never, defier)]
    if not np.all(np.isfinite(gains)):
        raise ValueError(f"gains must be finite numbers, got {gains}.")
    form = benefit_form(*gains)
    sides = [_benefit_side(form, side) for side in ("lower", "upper")]
    if form.slope < 0:  # the benefit is least where PNS is greatest
        sides.reverse()
    (lower_labels, lower_matrix, lower_offset), (labels, matrix, offset) = sides
    return Estimand(
        name=name,
        sentence=(
            "The mean gain from treating a unit, if treating one that responds only "
            f"with the treatment is worth {gains[0]:g}, one that responds either way "
            f"{gains[1]:g}, neither way {gains[2]:g}, and only without it {gains[3]:g}."
        ),
        lower_labels=lower_labels,
        lower_matrix=lower_matrix,
        lower_offset=lower_offset,
        upper_labels=labels,
        upper_matrix=matrix,
        upper_offset=offset,
        floor=min(gains),
        ceiling=max(gains),
    )


def _benefit_side(
    form: BenefitForm, side: str
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Maps one side of PNS to the benefit; its floor 0 becomes a term, as mu enters."""
    rest = np.array([form.mu1, form.mu0, 0, 0, 0, 0])
    if form.slope == 0:
        return ["any PNS"], rest[None], np.array([form.offset])
    labels = [f"PNS = {label}" for label in getattr(PNS, f"{side}_labels")]
    matrix = np.array(getattr(PNS, f"{side}_matrix"))
    offset = np.array(getattr(PNS, f"{side}_offset"))
    if side == "lower":
        labels.insert(0, "PNS = 0")
        matrix = np.concatenate([np.zeros((1, 6)), matrix])
        offset = np.concatenate([[PNS.floor], offset])
    return labels, form.slope * matrix + rest, form.slope * offset + form.offset


_estimands = {each.name: each for each in (PNS, HARM, PN, PS, ALWAYS, NEVER)}
ESTIMANDS: Mapping[str, Estimand] = types.MappingProxyType(_estimands)
"""Every estimand that has a name, by that name; `register_estimand` adds one."""


def register_estimand(estimand: Estimand) -> Estimand:
    """Makes an estimand known by its name, for options and saved files.

    Returns:
      The estimand itself.

    Raises:
      ValueError: if another estimand has this name.

    Example:
      >>> register_estimand(HARM) is HARM  # it is known already: nothing changes
      True
    """
    known = _estimands.setdefault(estimand.name, estimand)
    if known != estimand:
        raise ValueError(
            f"an estimand named {estimand.name!r} is known already; take another name."
        )
    return estimand


def get_estimand(name: str) -> Estimand:
    """Finds a registered estimand.

    Raises:
      ValueError: if the name is not known; the message lists those that are.

    Example:
      >>> get_estimand("harm").upper_labels[0]
      'mu0'
    """
    if name not in _estimands:
        raise ValueError(
            f"estimand must be one of {list(_estimands)}, got {name!r}; add your own "
            "with pns_bounds.register_estimand."
        )
    return _estimands[name]
