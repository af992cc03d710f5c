"""The bound functions: one source, averages, benefits by row, contradictions, formats.

Sharpness of the estimands themselves is in test_estimand.py.
"""

import chex
import numpy as np
import pns_bounds as pb
import pytest
import scipy.linalg
from response_program import (
    EVENTS,
    against_the_program,
    assert_equal_interval,
    atoms_of,
    constraints,
    optima,
)

BENEFITS = [(3.0, 0.5, -1.0, -3.0), (0.3, 1.0, 0.8, 0.1), (1.0, 1.0, 1.0, 1.0)]


def test_each_function_is_the_interval_of_its_estimand(cells):
    atoms = atoms_of(cells)
    types = pb.response_type_bounds(atoms)
    for interval, estimand in (
        (pb.pns_bounds(atoms), pb.PNS),
        (pb.harm_bounds(atoms), pb.HARM),
        (pb.pn_bounds(atoms), pb.PN),
        (pb.ps_bounds(atoms), pb.PS),
        (types.complier, pb.PNS),
        (types.always, pb.ESTIMANDS["always"]),
        (types.never, pb.ESTIMANDS["never"]),
        (types.defier, pb.HARM),
    ):
        chex.assert_trees_all_equal(interval, estimand.bounds(atoms))


@against_the_program
def test_unit_selection_is_the_optimum_of_the_program(law):
    atoms = atoms_of(law)
    for benefits in BENEFITS:  # rising, falling and flat in PNS
        objective = sum(
            benefit * event
            for benefit, event in zip(benefits, EVENTS.values(), strict=True)
        )
        interval = pb.unit_selection_bounds(atoms, *benefits)
        assert_equal_interval(
            interval, optima(np.asarray(objective), *constraints(atoms)), law
        )


@against_the_program
def test_a_single_source_gives_the_optimum_of_its_own_program(law):
    atoms = atoms_of(law)
    pns = EVENTS["pns"]
    assert_equal_interval(
        pb.experimental_only_bounds(atoms.mu),
        optima(pns, *constraints(atoms, joint=False)),
        law,
    )
    assert_equal_interval(
        pb.observational_only_bounds(atoms.joint),
        optima(pns, *constraints(atoms, mu=False)),
        law,
    )


def test_the_combined_interval_lies_within_those_of_either_source(cells):
    atoms = atoms_of(cells)
    combined = pb.pns_bounds(atoms)
    for single in (
        pb.experimental_only_bounds(atoms.mu),
        pb.observational_only_bounds(atoms.joint),
    ):
        assert np.all(single.lower <= combined.lower)
        assert np.all(single.upper >= combined.upper - 1e-15)
        assert np.any(single.width > combined.width + 0.1)


def test_the_average_is_the_optimum_of_the_program_over_all_strata():
    rng = np.random.default_rng(3)
    laws_by_stratum = rng.dirichlet(np.full(8, 0.5), size=4).reshape(4, 2, 2, 2)
    weights = np.array([1.0, 3.0, 0.0, 2.0])
    portions = weights / weights.sum()
    atoms = atoms_of(laws_by_stratum)
    programs = [constraints(pb.Atoms(*row)) for row in zip(*atoms, strict=True)]
    rows = scipy.linalg.block_diag(*[program[0] for program in programs])
    values = np.concatenate([program[1] for program in programs])
    objective = np.concatenate([s * EVENTS["pns"].ravel() for s in portions])

    average = pb.average_bounds(pb.pns_bounds(atoms), weights)

    assert_equal_interval(average, optima(objective, rows, values), laws_by_stratum)
    marginal = pb.pns_bounds(
        pb.Atoms(
            np.einsum("i,ixy->xy", portions, atoms.joint),
            np.einsum("i,ix->x", portions, atoms.mu),
        )
    )
    assert marginal.width > average.width + 0.01  # covariates narrow the interval


def test_harm_is_pns_with_the_arms_exchanged(cells):
    exchanged = atoms_of(np.einsum("ixab->ixba", cells)[:, ::-1])
    for harm, pns in zip(
        pb.harm_bounds(atoms_of(cells)), pb.pns_bounds(exchanged), strict=True
    ):
        np.testing.assert_allclose(harm, pns, rtol=0, atol=1e-15)


def test_published_example_of_two_sexes_with_one_trial():
    """Mueller and Pearl (2023): the same trial, opposite meanings."""
    mu = [[0.210, 0.489], [0.210, 0.490]]
    chose = np.array([0.3, 0.7])  # nobody's choice differs by sex
    recovered = np.array([[0.70, 0.27], [0.70, 0.70]])  # [sex, x]
    joint = np.stack([chose * (1 - recovered), chose * recovered], axis=-1)
    atoms = pb.Atoms(joint, mu)
    np.testing.assert_allclose(pb.pns_bounds(atoms).lower, [0.279, 0.49], atol=1e-12)
    np.testing.assert_allclose(pb.pns_bounds(atoms).upper, [0.279, 0.49], atol=1e-12)
    np.testing.assert_allclose(pb.harm_bounds(atoms).lower, [0.0, 0.21], atol=1e-12)
    np.testing.assert_allclose(pb.harm_bounds(atoms).upper, [0.0, 0.21], atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_anchored_probabilities_give_ordered_intervals_within_the_unit(dtype):
    """No tolerance: 0 <= lower <= upper <= 1 for compatible atoms of every format."""
    rng = np.random.default_rng(5)
    scale = rng.choice([0.5, 5.0, 80.0], size=(200_000, 1))
    logits = (scale * rng.uniform(-1, 1, size=(200_000, 6))).astype(dtype)
    weights = np.exp(logits[:, :4] - logits[:, :4].max(-1, keepdims=True))
    joint = (weights / weights.sum(-1, keepdims=True)).reshape(-1, 2, 2)
    atoms = pb.Atoms(joint, pb.anchor(joint, logits[:, 4:]))
    tiny = np.finfo(dtype).tiny
    undefined_allowed = {"pn": joint[:, 1, 1] < tiny, "ps": joint[:, 0, 0] < tiny}
    intervals = {
        **pb.response_type_bounds(atoms)._asdict(),
        "pn": pb.pn_bounds(atoms),
        "ps": pb.ps_bounds(atoms),
        "experiment": pb.experimental_only_bounds(atoms.mu),
        "observation": pb.observational_only_bounds(atoms.joint),
    }
    for name, (lower, upper) in intervals.items():
        assert lower.dtype == upper.dtype == dtype, name
        undefined = undefined_allowed.get(name, np.zeros(len(joint), bool))
        np.testing.assert_array_equal(np.isnan(lower), undefined, err_msg=name)
        ordered = (lower >= 0) & (lower <= upper) & (upper <= 1)
        assert np.all(ordered | undefined), name


TAKES_INCOMPATIBLE = {
    "pns": pb.pns_bounds,
    "harm": pb.harm_bounds,
    "pn": pb.pn_bounds,
    "ps": pb.ps_bounds,
    "types": pb.response_type_bounds,
    "benefit": lambda atoms, **how: pb.unit_selection_bounds(atoms, 0, 1, 2, 5, **how),
}


@pytest.mark.parametrize("name", TAKES_INCOMPATIBLE)
def test_incompatible_atoms_raise_project_or_stay(name):
    function = TAKES_INCOMPATIBLE[name]
    joint = np.full((3, 2, 2), 0.25)
    atoms = pb.Atoms(joint, np.array([[0.5, 0.5], [0.5, 0.9], [0.1, 0.5]]))
    where = "2 of 3 rows are affected, the first at .* 1"
    with pytest.raises(pb.IncompatibleAtomsError, match=where):
        function(atoms)
    with pytest.raises(pb.IncompatibleAtomsError, match=where):
        function(atoms, incompatible="raise")
    nearest = pb.Atoms(joint, np.array([[0.5, 0.5], [0.5, 0.75], [0.25, 0.5]]))
    projected, kept = (
        function(atoms, incompatible=how) for how in ("project", "allow")
    )
    np.testing.assert_array_equal(projected, function(nearest))
    assert not np.array_equal(kept, projected)
    with pytest.raises(pb.InputError, match="incompatible must be one of"):
        function(atoms, incompatible="ignore")
    just_beyond = pb.Atoms(joint[0], [0.5, 0.75 + 2e-6])
    with pytest.raises(pb.IncompatibleAtomsError):
        function(just_beyond)
    function(pb.Atoms(joint[0], [0.5, 0.75 + 5e-7]))  # rounding


@pytest.mark.parametrize(
    ("name", "mu"),
    [
        ("pns", [0.0, 0.1]),
        ("harm", [0.1, 0.0]),
        ("pn", [0.25 - 2e-6, 0.5]),  # more than p11 would respond only if treated
        ("pn", [0.75 + 2e-6, 0.5]),  # fewer than none
        ("ps", [0.5, 0.25 - 2e-6]),
        ("ps", [0.5, 0.75 + 2e-6]),
        ("benefit", [0.0, 0.1]),
    ],
)
def test_a_contradiction_is_shown_and_never_swapped(name, mu):
    atoms = pb.Atoms(np.full((2, 2), 0.25), mu)
    interval = TAKES_INCOMPATIBLE[name](atoms, incompatible="allow")
    assert interval.lower > interval.upper


def test_only_a_gap_of_rounding_is_closed():
    fair = np.full((2, 2), 0.25)
    # The last upper term is mu1 - mu0 + 1/2: it falls below 0 by the excess of mu0.
    for excess, crossed in ((5e-7, False), (2e-6, True)):
        atoms = pb.Atoms(fair, [0.75 + excess, 0.25])
        interval = pb.pns_bounds(atoms, incompatible="allow")
        assert (interval.lower > interval.upper) == crossed
    tiny = pb.experimental_only_bounds([-4e-7, 1 + 4e-7])
    assert tiny.lower == tiny.upper == 1


def test_unit_selection_takes_benefits_by_row(cells):
    atoms = atoms_of(cells[:3])
    compliers = np.array([1.0, 2.0, 3.0])
    whole = pb.unit_selection_bounds(atoms, compliers, 0.5, 0.0, -1.0)
    for row in range(3):
        single = pb.unit_selection_bounds(
            pb.Atoms(atoms.joint[row], atoms.mu[row]), compliers[row], 0.5, 0.0, -1.0
        )
        assert (whole.lower[row], whole.upper[row]) == tuple(single)


def test_average_rejects_what_has_no_mean():
    interval = pb.Interval(np.array([0.1, np.nan]), np.array([0.2, np.nan]))
    with pytest.raises(pb.InputError, match="1 of 2 rows .* index 1"):
        pb.average_bounds(interval)
    interval = pb.Interval(np.array([0.1, 0.2]), np.array([0.2, 0.4]))
    for weights in ([0.0, 0.0], [-1.0, 2.0], [np.inf, 1.0], [np.nan, 1.0]):
        with pytest.raises(pb.InputError, match="must be finite and positive"):
            pb.average_bounds(interval, weights)
    with pytest.raises(pb.InputError, match=r"weights must have shape .* got \[3\]"):
        pb.average_bounds(interval, [1.0, 1.0, 1.0])
    with pytest.raises(pb.InputError, match=r"weights must have shape .* got \[3, 2\]"):
        pb.average_bounds(interval, np.ones((3, 2)))
    for bad in (pb.Interval(0.1, 0.2), pb.Interval(np.zeros(0), np.zeros(0))):
        with pytest.raises(pb.InputError, match="one shape .* at least one point"):
            pb.average_bounds(bad)
    with (
        np.errstate(over="ignore"),
        pytest.raises(pb.InputError, match="holds their sum"),
    ):
        pb.average_bounds(pb.Interval(*np.ones((2, 100_000), np.float16)))


def test_the_average_takes_weights_by_row_and_stays_within_its_values():
    lower = np.array([[0.0, 0.2], [0.4, 0.8]])
    interval = pb.Interval(lower, lower + 0.1)
    weights = np.array([[1.0, 3.0], [1.0, 0.0]])
    average = pb.average_bounds(interval, weights)
    np.testing.assert_allclose(average.lower, [0.15, 0.4], atol=1e-15)
    for size in range(1, 60):
        ones = np.ones(size, np.float32)
        assert pb.average_bounds(pb.Interval(ones, ones)).upper == 1


def test_benefits_must_be_finite_numbers(cells):
    atoms = atoms_of(cells[:3])
    for benefit in (np.nan, np.inf):
        with pytest.raises(pb.InputError, match="complier must be finite"):
            pb.unit_selection_bounds(atoms, benefit, 0, 0, 0)
    with pytest.raises(pb.InputError, match=r"one per row \[3\], got shape \[2, 3\]"):
        pb.unit_selection_bounds(atoms, np.ones((2, 3)), 0, 0, 0)
    with pytest.raises(pb.InputError, match="complier must be an array of numbers"):
        pb.unit_selection_bounds(atoms, "1", 0, 0, 0)
