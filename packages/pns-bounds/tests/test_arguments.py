"""Arguments: NumPy and JAX on one path, conversion, and messages that say what to do."""

import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pytest

FUNCTIONS = {
    "bound_terms": pb.bound_terms,
    "pns": pb.pns_bounds,
    "harm": pb.harm_bounds,
    "pn": pb.pn_bounds,
    "ps": pb.ps_bounds,
    "types": pb.response_type_bounds,
    "benefit": lambda atoms: pb.unit_selection_bounds(atoms, 2.0, 1.0, -1.0, -2.0),
    "average": lambda atoms: pb.average_bounds(pb.pns_bounds(atoms)),
    "experiment": lambda atoms: pb.experimental_only_bounds(atoms.mu),
    "observation": lambda atoms: pb.observational_only_bounds(atoms.joint),
    "slack": pb.compatibility_slack,
    "projection": pb.project_to_compatible,
    "monotonicity": lambda atoms: pb.identify_under_monotonicity(
        atoms, incompatible="allow"
    ),
    "exogeneity": lambda atoms: pb.identify_under_exogeneity(atoms.joint),
    "inverse": pb.anchor_inverse,
    "anchor": lambda atoms: pb.anchor(atoms.joint, 4 * atoms.mu - 2),
    "log_anchor": lambda atoms: pb.log_anchor(
        # Any namespace's logarithm would do; this one keeps the input's.
        atoms.joint.__array_namespace__().log(atoms.joint),
        4 * atoms.mu - 2,
    ),
}


def compatible_atoms(dtype, num_rows: int = 64) -> pb.Atoms:
    rng = np.random.default_rng(7)
    joint = rng.dirichlet(np.ones(4), size=num_rows).reshape(-1, 2, 2).astype(dtype)
    delta = rng.normal(size=(num_rows, 2)).astype(dtype)
    return pb.Atoms(joint, pb.anchor(joint, delta))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numpy_in_numpy_out_with_its_dtype(name, dtype):
    for leaf in jax.tree.leaves(FUNCTIONS[name](compatible_atoms(dtype))):
        assert isinstance(leaf, np.ndarray | np.generic)
        assert leaf.dtype == dtype


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_jax_agrees_with_numpy_plain_and_under_jit_and_vmap(name, dtype):
    function = FUNCTIONS[name]
    atoms = compatible_atoms(dtype)
    expected = jax.tree.leaves(function(atoms))
    tolerance = 50 * np.finfo(dtype).eps  # a handful of roundings, PN's quotient
    with jax.enable_x64(dtype == np.float64):
        on_device = jax.tree.map(jnp.asarray, atoms)
        results = [jax.jit(function)(on_device)]
        if dtype == np.float32:  # slow, op by op; once is enough
            results.append(function(on_device))
        if name != "average":  # which reduces the axis that vmap would take
            results.append(jax.vmap(function)(on_device))
        for result in results:
            for have, want in zip(jax.tree.leaves(result), expected, strict=True):
                assert isinstance(have, jax.Array)
                assert have.dtype == dtype
                np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_finite_at_interior_and_at_degenerate_atoms(name):
    function = FUNCTIONS[name]
    interior = compatible_atoms(np.float32)
    degenerate = pb.Atoms(
        np.array([[[0, 0.5], [0.5, 0]], [[0, 0], [0, 1]], [[1, 0], [0, 0]]], "float32"),
        np.array([[0.5, 0.5], [0.5, 1], [0, 0.5]], "float32"),
    )
    if name in ("inverse", "log_anchor"):  # infinite or undefined at the limits
        degenerate = interior

    def total(atoms):
        # NaN stands for an undefined probability; its gradient must still be 0.
        return sum(jnp.nansum(leaf) for leaf in jax.tree.leaves(function(atoms)))

    for atoms in (interior, degenerate):
        gradient = jax.jit(jax.grad(total))(jax.tree.map(jnp.asarray, atoms))
        for leaf in jax.tree.leaves(gradient):
            assert np.all(np.isfinite(leaf))


def test_the_gradient_of_an_end_is_the_row_of_its_binding_term():
    joint = jnp.array([[0.1, 0.2], [0.3, 0.4]])
    mu = jnp.array([0.25, 0.65])  # lower: mu1 - mu0; upper: p11 + p00
    lower = jax.grad(lambda atoms: pb.pns_bounds(atoms).lower)(pb.Atoms(joint, mu))
    upper = jax.grad(lambda atoms: pb.pns_bounds(atoms).upper)(pb.Atoms(joint, mu))
    for gradient, row in ((lower, pb.TERM_MATRIX[0]), (upper, pb.TERM_MATRIX[5])):
        mu1, mu0, p11, p10, p01, p00 = row
        np.testing.assert_array_equal(gradient.mu, [mu0, mu1])
        np.testing.assert_array_equal(gradient.joint, [[p00, p01], [p10, p11]])


def test_integers_and_lists_become_default_floats():
    interval = pb.pns_bounds(pb.Atoms([[1, 0], [0, 0]], [0, 1]))
    assert interval.lower == interval.upper == 1
    assert interval.lower.dtype == np.float64
    counts = jnp.array([[1, 1], [1, 1]])
    assert pb.atoms_from_counts(counts, counts).mu.dtype == jnp.float32


def test_bfloat16_is_kept():
    atoms = pb.Atoms(
        jnp.full((2, 2), 0.25, jnp.bfloat16), jnp.array([0.25, 0.5], jnp.bfloat16)
    )
    assert pb.pns_bounds(atoms).lower.dtype == jnp.bfloat16


def test_one_jax_array_among_numpy_ones_makes_the_result_a_jax_array():
    interval = pb.pns_bounds(pb.Atoms(np.full((2, 2), 0.25), jnp.array([0.5, 0.5])))
    assert isinstance(interval.lower, jax.Array)


def test_values_are_not_checked_under_tracing_but_shapes_are():
    contradictory = pb.Atoms(jnp.full((2, 2), 0.25), jnp.array([0.0, 0.1]))
    traced = jax.jit(pb.pns_bounds)(contradictory)
    assert traced.lower > traced.upper
    with pytest.raises(pb.IncompatibleAtomsError):
        pb.pns_bounds(contradictory)
    with pytest.raises(pb.InputError, match="mu must have shape"):
        jax.jit(pb.pns_bounds)(pb.Atoms(contradictory.joint, jnp.zeros(3)))


def test_values_under_an_eager_gradient_are_not_checked():
    """There the verdict is known while the values are not: no error half-way."""
    contradictory = pb.Atoms(jnp.full((2, 2), 0.25), jnp.array([0.0, 0.1]))
    gradient = jax.grad(lambda atoms: pb.pns_bounds(atoms).lower)(contradictory)
    assert np.all(np.isfinite(gradient.mu))


def test_tiny_cells_give_no_infinity():
    for p11 in (1e-40, 1.2e-38):
        joint = np.array([[0.5, 0.25], [0.25, p11]], np.float32)
        for how in ("project", "allow"):
            interval = pb.pn_bounds(
                pb.Atoms(joint, np.array([0.3, 0.2], np.float32)), incompatible=how
            )
            assert not np.any(np.isinf(interval))


def test_importing_the_package_imports_numpy_alone():
    code = (
        "import sys, numpy; before = set(sys.modules); import pns_bounds; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - {'numpy'} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['pns_bounds']"


FAIR = [[0.25, 0.25], [0.25, 0.25]]
USES_ATOMS = [
    pb.bound_terms,
    pb.pns_bounds,
    pb.harm_bounds,
    pb.pn_bounds,
    pb.ps_bounds,
    pb.response_type_bounds,
    lambda atoms: pb.unit_selection_bounds(atoms, 1, 0, 0, 0),
    pb.compatibility_slack,
    pb.is_compatible,
    pb.project_to_compatible,
    pb.identify_under_monotonicity,
    pb.anchor_inverse,
]


@pytest.mark.parametrize("function", USES_ATOMS)
@pytest.mark.parametrize(
    ("joint", "mu", "message"),
    [
        ([0.25] * 4, [0.5, 0.5], r"joint must have shape \[..., 2, 2\], got \[4\]"),
        ([[0.2] * 3] * 2, [0.5, 0.5], r"joint must have shape .* got \[2, 3\]"),
        (FAIR, 0.5, r"mu must have shape \[..., 2\], got \[\]"),
        (FAIR, [0.5, 0.5, 0.5], r"mu must have shape \[..., 2\], got \[3\]"),
        ([FAIR] * 3, [0.5, 0.5], r"leading dimensions, got \[3\] and \[\]"),
        (FAIR, [0.5, np.nan], r"mu must hold probabilities .* got \[0.5, nan\]"),
        (FAIR, [0.5, 1.1], r"mu must hold probabilities .* got \[0.5, 1.1\]"),
        ([[0.5, np.nan], [0.5, 0]], [0.5, 0.5], "joint must hold probabilities"),
        ([[-0.1, 0.6], [0.5, 0]], [0.5, 0.5], "joint must hold probabilities"),
        ([[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5], "^joint must sum to one.*overall total"),
    ],
)
def test_bad_atoms_are_named(function, joint, mu, message):
    with pytest.raises(pb.InputError, match=message):
        function(pb.Atoms(joint, mu))


@pytest.mark.parametrize("slip", [2e-6, -2e-6])
def test_probabilities_may_leave_the_unit_by_rounding_only(slip):
    mu = [0.5, 1 + slip] if slip > 0 else [slip, 0.5]
    with pytest.raises(pb.InputError, match="mu must hold probabilities"):
        pb.experimental_only_bounds(mu)


def test_the_first_bad_row_and_their_number_are_named():
    joint = np.full((2, 5, 2, 2), 0.25)
    joint[0, 3] = [[0.2, 0.2], [0.2, 0.2]]
    joint[1, 1] = 0.3
    with pytest.raises(pb.InputError) as caught:
        pb.pns_bounds(pb.Atoms(joint, np.full((2, 5, 2), 0.5)))
    assert "2 of 10 rows are affected, the first at index (0, 3)" in str(caught.value)
    assert "[[0.2, 0.2], [0.2, 0.2]]" in str(caught.value)


def test_a_single_source_is_checked_too():
    with pytest.raises(pb.InputError, match="mu must hold"):
        pb.experimental_only_bounds([0.2, -0.1])
    with pytest.raises(pb.InputError, match="sum to one"):
        pb.observational_only_bounds([[0.2, 0.1], [0.1, 0.1]])
    with pytest.raises(pb.InputError, match="sum to one"):
        pb.identify_under_exogeneity([[0.2, 0.1], [0.1, 0.1]])


def test_rounding_is_forgiven_and_a_wrong_digit_is_not():
    def near_one(error):
        return pb.Atoms([[0.25 + error, 0.25], [0.25, 0.25]], [0.5, 0.5])

    pb.pns_bounds(near_one(9e-7))
    above = pb.pns_bounds(pb.Atoms([[0.0, 0.0], [0.0, 1.0]], [0.5, 1 + 2e-16]))
    assert 0 <= above.lower <= above.upper
    with pytest.raises(pb.InputError, match="sum to one"):
        pb.pns_bounds(near_one(2e-6))


def test_half_precisions_are_forgiven_eight_units_in_the_last_place():
    def near_one(error):
        cells = np.full((2, 2), 0.25, np.float16)
        cells[0, 0] += np.float16(error)
        return pb.Atoms(cells, np.array([0.5, 0.5], np.float16))

    pb.pns_bounds(near_one(0.005))
    with pytest.raises(pb.InputError, match="sum to one"):
        pb.pns_bounds(near_one(0.02))


def test_masked_arrays_do_not_lose_their_mask():
    mu = np.ma.array([0.5, 0.5], mask=[False, True])
    with pytest.raises(pb.InputError, match="^mu must not be masked"):
        pb.pns_bounds(pb.Atoms(FAIR, mu))


def test_text_and_ragged_lists_are_not_probabilities():
    for joint in ([["a", "b"], ["c", "d"]], [[0.5, 0.5], [0.0]]):
        with pytest.raises(pb.InputError, match="^joint must be an array of numbers"):
            pb.pns_bounds(pb.Atoms(joint, [0.5, 0.5]))


def test_an_input_error_names_its_argument_and_survives_a_process():
    with pytest.raises(pb.InputError, match="^incompatible must be one of") as caught:
        pb.pns_bounds(
            pb.atoms_from_counts([[9, 21], [51, 19]], [[79, 21], [51, 49]]),
            incompatible="ignore",
        )
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.argument, str(again)) == ("incompatible", str(caught.value))
