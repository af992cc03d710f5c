"""The estimands that are known by name, and how to add one.

The four response types, the probabilities of necessity and of sufficiency, and the
benefit of a treatment for given gains. Every other formula of the workspace reads these.
"""

import types
from collections.abc import Mapping, Sequence

import numpy as np

from pns_bounds._arguments import Array, namespace, read_only, require
from pns_bounds._atoms import Atoms
from pns_bounds._estimand import BoundTerms, Estimand
from pns_bounds._layout import BINARY, read_formulas


def estimand_of(
    name: str,
    sentence: str,
    lower: Sequence[str],
    upper: Sequence[str],
    divisor: str | None = None,
) -> Estimand:
    """Makes an estimand whose labels are its formulas."""
    fields = {}
    for side, formulas in (("lower", lower), ("upper", upper)):
        labels = [f"({each}) / {divisor}" if divisor else each for each in formulas]
        fields[f"{side}_labels"] = labels
        fields[f"{side}_matrix"], fields[f"{side}_offset"] = read_formulas(formulas)
    if divisor:
        fields["denominator"] = read_formulas([divisor])[0][0]
    return Estimand(name=name, sentence=sentence, **fields)


PNS = estimand_of(
    "pns",
    "The probability that the outcome happens with the treatment and would not happen "
    "without it.",
    lower=["mu1 - mu0", "P(y) - mu0", "mu1 - P(y)"],
    upper=["mu1", "1 - mu0", "p11 + p00", "mu1 - mu0 + p10 + p01"],
)
"""The probability of necessity and sufficiency, P(Y_1=1, Y_0=0 | z).

Its terms are those of Tian and Pearl, eq:pns-lower-1 (the constant 0 is the floor) and
eq:pns-upper-1.
"""
HARM = estimand_of(
    "harm",
    "The probability that the outcome happens without the treatment and would not "
    "happen with it.",
    lower=["mu0 - mu1", "P(y) - mu1", "mu0 - P(y)"],
    upper=["mu0", "1 - mu1", "p01 + p10", "mu0 - mu1 + p00 + p11"],
)
"""The probability of harm, P(Y_1=0, Y_0=1 | z): PNS with the arms exchanged."""
ALWAYS = estimand_of(
    "always",
    "The probability that the outcome happens with or without the treatment.",
    lower=["mu1 + mu0 - 1", "mu0 - p01 - p10", "mu1 - p11 - p00"],
    upper=["mu1", "mu0", "P(y)", "mu1 + mu0 - P(y)"],
)
NEVER = estimand_of(
    "never",
    "The probability that the outcome happens neither with nor without the treatment.",
    lower=["1 - mu1 - mu0", "p10 + p01 - mu0", "p11 + p00 - mu1"],
    upper=["1 - mu1", "1 - mu0", "1 - P(y)", "1 - mu1 - mu0 + P(y)"],
)
PN = estimand_of(
    "pn",
    "Among treated units with the outcome, the probability that it would not have "
    "happened without the treatment.",
    lower=["P(y) - mu0"],
    upper=["p10 + P(y) - mu0"],
    divisor="p11",
)
"""The probability of necessity, P(Y_0=0 | X=1, Y=1, z)."""
PS = estimand_of(
    "ps",
    "Among untreated units without the outcome, the probability that it would have "
    "happened with the treatment.",
    lower=["mu1 - P(y)"],
    upper=["mu1 - p11"],
    divisor="p00",
)
"""The probability of sufficiency, P(Y_1=1 | X=0, Y=0, z)."""


def benefit_form(
    complier: Array, always: Array, never: Array, defier: Array
) -> tuple[Array, Array, Array, Array]:
    """Writes the mean benefit as slope * PNS + a mu1 + b mu0 + c: (slope, a, b, c).

    Given PNS the other types have probability mu1 - PNS (always), 1 - mu0 - PNS (never)
    and mu0 - mu1 + PNS (defier).
    """
    return complier - always - never + defier, always - defier, defier - never, never


def benefit(
    complier: float, always: float, never: float, defier: float, name: str = "benefit"
) -> Estimand:
    """Makes Li and Pearl's mean benefit of treating a unit, for given gains.

    Gains are from treating a unit that responds only if treated (a complier), either way
    (always), neither way (never), or only if untreated (a defier).

    Example:
      >>> benefit(100, -5, -5, -100).floor
      -100.0
    """
    named = {"complier": complier, "always": always, "never": never, "defier": defier}
    for gain_of, gain in named.items():
        require(np.isfinite(gain), gain_of, f"must be a finite number, got {gain}.")
    gains = [float(gain) for gain in named.values()]
    slope, per_mu1, per_mu0, constant = benefit_form(*gains)
    rest = np.array([per_mu1, per_mu0, *[0] * BINARY.num_cells])
    # The floor of PNS becomes a term, because mu enters the benefit.
    sides = [("0", *PNS.lower_labels), PNS.upper_labels] if slope else [("0",)] * 2
    if slope < 0:  # the benefit is least where PNS is greatest
        sides.reverse()
    fields = {}
    for side, formulas in zip(("lower", "upper"), sides, strict=True):
        matrix, offset = read_formulas(formulas)
        labels = [f"PNS = {each}" if slope else "any PNS" for each in formulas]
        fields[f"{side}_labels"] = labels
        fields[f"{side}_matrix"] = slope * matrix + rest
        fields[f"{side}_offset"] = slope * offset + constant
    return Estimand(
        name=name,
        sentence=(
            "The mean gain from treating a unit, if treating one that responds only "
            f"with the treatment is worth {gains[0]:g}, one that responds either way "
            f"{gains[1]:g}, neither way {gains[2]:g}, and only without it {gains[3]:g}."
        ),
        floor=min(gains),
        ceiling=max(gains),
        **fields,
    )


_estimands = {each.name: each for each in (PNS, HARM, PN, PS, ALWAYS, NEVER)}
ESTIMANDS: Mapping[str, Estimand] = types.MappingProxyType(_estimands)
"""Every estimand that has a name, by that name; `register_estimand` adds one."""


def register_estimand(estimand: Estimand) -> Estimand:
    """Adds an estimand to `ESTIMANDS`, for options and saved files; returns it.

    Example:
      >>> register_estimand(HARM) is HARM  # known already: nothing changes
      True
    """
    known = _estimands.setdefault(estimand.name, estimand)
    problem = f"must have a name of its own: {estimand.name!r} is taken."
    require(known == estimand, "estimand", problem)
    return estimand


def bound_terms(atoms: Atoms) -> BoundTerms:
    """Evaluates the four lower and four upper terms on PNS, each side [..., 4].

    These are `PNS.terms` with the floor 0 as the first lower term, as the paper counts
    in eq:pns-lower-1 and eq:pns-upper-1.

    Example:
      >>> terms = bound_terms(Atoms([[0.2, 0.3], [0.1, 0.4]], [0.35, 0.8]))
      >>> terms.lower.round(3).tolist()
      [0.0, 0.45, 0.35, 0.1]
    """
    lower, upper = PNS.terms(atoms)
    xp = namespace(lower)
    return BoundTerms(
        lower=xp.concatenate([xp.zeros_like(lower[..., :1]), lower], axis=-1),
        upper=upper,
    )


TERM_MATRIX = read_only(PNS.lower_matrix + PNS.upper_matrix)
"""The terms of PNS are TERM_MATRIX eta + TERM_OFFSET (app. sec:pns-theory).

Here eta = (mu1, mu0, p11, p10, p01, p00). Rows are the three lower terms (the constant 0
is left out), then the four upper ones.
"""
TERM_OFFSET = read_only(PNS.lower_offset + PNS.upper_offset)
"""The constants of the terms; see `TERM_MATRIX`."""
