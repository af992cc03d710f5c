"""Estimands: sharp by the linear program, tied to matrices and labels, transformable."""

import functools
import re

import chex
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pytest
from absl.testing import parameterized
from hypothesis import given, settings
from response_program import (
    EVENTS,
    against_the_program,
    assert_equal_interval,
    atoms_of,
    constraints,
    laws,
    objective_of,
    optima,
)

# The slope in PNS is complier - always - never + defier.
RISING = pb.benefit(3.0, 0.5, -1.0, -3.0, name="rising")
FALLING = pb.benefit(0.3, 1.0, 0.8, 0.1, name="falling")
FLAT = pb.benefit(1.0, 0.75, 0.5, 0.25, name="flat")
ALL = [*pb.ESTIMANDS.values(), RISING, FALLING, FLAT]
BY_NAME = pytest.mark.parametrize("estimand", ALL, ids=lambda each: each.name)


def random_atoms(num_rows: int = 500, dtype=np.float64) -> pb.Atoms:
    """Compatible atoms whose cells are all positive."""
    rng = np.random.default_rng(8)
    joint = rng.dirichlet(np.ones(4), size=num_rows).reshape(-1, 2, 2).astype(dtype)
    return pb.Atoms(
        joint, pb.anchor(joint, rng.normal(size=(num_rows, 2)).astype(dtype))
    )


@pytest.mark.parametrize("name", pb.ESTIMANDS)
def test_each_estimand_is_the_optimum_of_the_program_or_undefined(name):
    @against_the_program
    def check(law):
        atoms = atoms_of(law)
        interval = pb.ESTIMANDS[name].bounds(atoms)
        objective = objective_of(name, atoms)
        if objective is None:
            assert np.isnan(interval.lower) and np.isnan(interval.upper)
        else:
            ends = optima(objective, *constraints(atoms))
            assert_equal_interval(interval, ends, law)

    check()


@settings(max_examples=200)
@given(law=laws(), gains=st.tuples(*[st.integers(-8, 8)] * 4))
def test_the_benefit_of_any_gains_is_the_optimum_of_the_program(law, gains):
    atoms = atoms_of(law)
    objective = sum(g * event for g, event in zip(gains, EVENTS.values(), strict=True))
    ends = optima(np.asarray(objective), *constraints(atoms))
    assert_equal_interval(pb.benefit(*gains).bounds(atoms), ends, law)
    assert_equal_interval(pb.unit_selection_bounds(atoms, *gains), ends, law)


def test_benefits_of_both_slopes_and_of_none():
    """Where the slope is negative the terms of PNS change sides."""
    assert len(RISING.lower_labels) == 4 and len(RISING.upper_labels) == 4
    assert RISING.lower_labels[0] == "PNS = 0"
    assert FALLING.upper_labels[0] == "PNS = 0"
    assert FALLING.lower_labels[0] == "PNS = mu1"
    assert FLAT.lower_labels == FLAT.upper_labels == ("any PNS",)
    assert (RISING.floor, RISING.ceiling) == (-3.0, 3.0)
    pns_alone = pb.benefit(1, 0, 0, 0)
    atoms = random_atoms()
    chex.assert_trees_all_close(
        pns_alone.bounds(atoms), pb.PNS.bounds(atoms), atol=1e-15, rtol=0
    )
    with pytest.raises(pb.InputError, match="complier must be a finite"):
        pb.benefit(np.inf, 0, 0, 0)


@BY_NAME
def test_the_matrices_reproduce_the_terms(estimand):
    atoms = random_atoms()
    eta = pb.pack_atoms(atoms)
    whole = 1.0
    if estimand.denominator is not None:
        whole = (eta @ np.array(estimand.denominator))[:, None]
    assert estimand.is_linear == (estimand.denominator is None)
    terms = estimand.terms(atoms)
    for values, matrix, offset in (
        (terms.lower, estimand.lower_matrix, estimand.lower_offset),
        (terms.upper, estimand.upper_matrix, estimand.upper_offset),
    ):
        expected = (eta @ np.array(matrix).T + offset) / whole
        np.testing.assert_allclose(values * whole, expected * whole, rtol=0, atol=5e-15)


@pytest.mark.parametrize("name", pb.ESTIMANDS)
def test_the_labels_are_the_formulas(name):
    estimand = pb.ESTIMANDS[name]
    atoms = random_atoms()
    names = dict(
        zip(
            pb.BINARY.eta_names,
            pb.pack_atoms(atoms).T,
            strict=True,
        )
    )
    terms = estimand.terms(atoms)
    for labels, values in (
        (estimand.lower_labels, terms.lower),
        (estimand.upper_labels, terms.upper),
    ):
        assert values.shape[-1] == len(labels)
        for place, label in enumerate(labels):
            formula = re.sub(r"P\(y\)", "(p11 + p01)", label)
            np.testing.assert_allclose(
                values[:, place], eval(formula, names), rtol=1e-9, atol=1e-12
            )


def test_harm_always_and_never_are_pns_of_renamed_atoms(cells):
    renamed_laws = {
        "harm": np.einsum("ixab->ixba", cells)[:, ::-1],  # the arms exchanged
        "always": cells[:, :, ::-1],  # Y_0 renamed
        "never": cells[..., ::-1],  # Y_1 renamed
    }
    for name, law in renamed_laws.items():
        chex.assert_trees_all_close(
            pb.ESTIMANDS[name].terms(atoms_of(cells)),
            pb.PNS.terms(atoms_of(law)),
            rtol=0,
            atol=1e-15,
        )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@BY_NAME
def test_compatible_atoms_give_ordered_intervals_within_the_limits(estimand, dtype):
    """No tolerance, in every format; laws from fair to nearly degenerate."""
    rng = np.random.default_rng(5)
    scale = rng.choice([0.5, 5.0, 80.0], size=(50_000, 1))
    logits = (scale * rng.uniform(-1, 1, size=(50_000, 6))).astype(dtype)
    weights = np.exp(logits[:, :4] - logits[:, :4].max(-1, keepdims=True))
    joint = (weights / weights.sum(-1, keepdims=True)).reshape(-1, 2, 2)
    lower, upper = estimand.bounds(pb.Atoms(joint, pb.anchor(joint, logits[:, 4:])))
    assert lower.dtype == upper.dtype == dtype
    whole = {"pn": joint[:, 1, 1], "ps": joint[:, 0, 0]}
    whole = whole.get(estimand.name, np.ones(len(joint)))
    undefined = np.isnan(lower)
    np.testing.assert_array_equal(undefined, whole < np.finfo(dtype).tiny)
    ordered = (
        (dtype(estimand.floor) <= lower)
        & (lower <= upper)
        & (upper <= dtype(estimand.ceiling))
    )
    assert np.all(ordered | undefined)


class TransformTest(chex.TestCase):
    """Terms and bounds on host and device, with jit and without, vmapped, derived."""

    @chex.variants(
        with_jit=True, without_jit=True, with_device=True, without_device=True
    )
    @parameterized.named_parameters((each.name, each) for each in ALL)
    def test_terms_and_bounds_are_those_of_numpy(self, estimand):
        atoms = random_atoms(7, np.float32)
        terms = self.variant(estimand.terms)(atoms)
        chex.assert_shape(terms.lower, (7, len(estimand.lower_labels)))
        chex.assert_trees_all_close(terms, estimand.terms(atoms), rtol=1e-5, atol=1e-6)
        bounds = self.variant(estimand.bounds)(atoms)
        chex.assert_trees_all_close(
            bounds, estimand.bounds(atoms), rtol=1e-5, atol=1e-6
        )
        mapped = self.variant(jax.vmap(estimand.terms))(atoms)
        chex.assert_trees_all_close(mapped, terms, rtol=1e-5, atol=1e-6)

    @parameterized.named_parameters((each.name, each) for each in ALL)
    def test_gradients_are_those_of_differences(self, estimand):
        atoms = random_atoms(1)
        eta = pb.pack_atoms(atoms)[0]

        @jax.jit  # traced, so that a cell may move by itself
        def terms(eta):
            return jnp.concatenate(estimand.terms(pb.unpack_atoms(eta)))

        with jax.enable_x64(True):
            jacobian = jax.jacfwd(terms)(jnp.asarray(eta))
            step = 1e-6 * np.eye(6)
            differences = [
                (terms(jnp.asarray(eta + s)) - terms(jnp.asarray(eta - s))) / 2e-6
                for s in step
            ]
        np.testing.assert_allclose(jacobian, np.stack(differences, -1), atol=1e-6)


def test_equal_estimands_are_one_static_argument():
    """A benefit made twice from the same gains compiles nothing again."""
    chex.clear_trace_counter()

    @functools.partial(jax.jit, static_argnames="estimand")
    @chex.assert_max_traces(n=2)
    def width(atoms, estimand):
        return estimand.bounds(atoms).width

    atoms = jax.tree.map(jnp.asarray, random_atoms(3, np.float32))
    for _ in range(3):
        width(atoms, estimand=pb.benefit(2, 1, 0, -1))
        width(atoms, estimand=pb.PN)
    assert hash(pb.benefit(2, 1, 0, -1)) == hash(pb.benefit(2, 1, 0, -1))
    assert pb.benefit(2, 1, 0, -1) != pb.benefit(2, 1, 0, -2)


def test_terms_where_nobody_is_asked_about_are_nan():
    atoms = pb.Atoms([[0.5, 0.25], [0.25, 0.0]], [0.3, 0.2])
    assert np.all(np.isnan(np.concatenate(pb.PN.terms(atoms))))
    assert np.all(np.isfinite(np.concatenate(pb.PS.terms(atoms))))


def test_a_rare_cell_keeps_its_digits():
    """p11 + p01 would lose p11 beside p01; mu0 - p01 does not."""
    joint = np.array([[0.45, 0.3], [0.25, 1e-7]], np.float32)
    interval = pb.PN.bounds(pb.Atoms(joint, np.array([0.3, 0.2], np.float32)))
    assert interval.lower == interval.upper == 1


def test_terms_of_your_own_are_a_function():
    """Mean excess over chance, a product: no matrix could say it."""

    def product(atoms):
        value = atoms.mu[..., 1:] * (1 - atoms.mu[..., :1])
        return pb.BoundTerms(value, value)

    both = pb.Estimand(
        name="independent benefit",
        sentence="PNS if the potential outcomes were independent.",
        lower_labels=["mu1 (1 - mu0)"],
        upper_labels=["mu1 (1 - mu0)"],
        function=product,
    )
    atoms = random_atoms()
    assert not both.is_linear
    lower, upper = both.bounds(atoms)
    np.testing.assert_array_equal(lower, atoms.mu[:, 1] * (1 - atoms.mu[:, 0]))
    np.testing.assert_array_equal(upper, lower)
    with pytest.raises(pb.InputError, match="mu must hold probabilities"):
        both.terms(pb.Atoms(atoms.joint, 2 + atoms.mu))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lower_matrix": [[1, -1]]}, r"lower_matrix .* 'effect' .* \[1, 6\]"),
        ({"lower_offset": [0, 0]}, "lower_offset of 'effect'"),
        ({"upper_labels": []}, "upper_matrix .* each of 0 labels"),
        ({"denominator": [1, 1]}, r"denominator of 'effect' must have shape \[6\]"),
    ],
)
def test_parts_must_fit_together(change, message):
    row = [[1, -1, 0, 0, 0, 0]]
    parts = {
        "lower_labels": ["mu1 - mu0"],
        "lower_matrix": row,
        "lower_offset": [0],
        "upper_labels": ["mu1 - mu0"],
        "upper_matrix": row,
        "upper_offset": [0],
    }
    with pytest.raises(pb.InputError, match=message):
        pb.Estimand(name="effect", sentence="", **{**parts, **change})


def test_terms_where_nobody_is_asked_about_can_be_the_limits():
    joint = np.array([[[0.5, 0.25], [0.25, 0.0]], [[0.4, 0.2], [0.1, 0.3]]])
    atoms = pb.Atoms(joint, np.array([[0.3, 0.2], [0.4, 0.5]]))
    found = pb.PN.terms(atoms, undefined="limits")
    np.testing.assert_array_equal(found.lower[0], 0.0)
    np.testing.assert_array_equal(found.upper[0], 1.0)
    for side, same in zip(found, pb.PN.terms(atoms), strict=True):
        np.testing.assert_array_equal(side[1], same[1])
    with pytest.raises(pb.InputError, match="undefined must be one of"):
        pb.PN.terms(atoms, undefined="zero")
