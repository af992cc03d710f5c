"""What the check of shapes finds while tests run, and what it lets pass."""

from typing import Literal

import jax.numpy as jnp
import numpy as np
import pytest
from check_shapes import after_the_call
from jaxtyping import Float, TypeCheckError, jaxtyped


@jaxtyped(typechecker=after_the_call)
def add(
    x: Float[np.ndarray, " n"],
    y: Float[np.ndarray, " n"] | None = None,
    sign: Literal[-1, 1] = 1,
) -> Float[np.ndarray, " n"]:
    """Adds y, if any; a column is wrong, and its error is ours."""
    if np.ndim(x) == 2:
        raise ValueError("x must be a vector")
    return np.asarray(x) + (0 if y is None else sign * np.asarray(y))


def test_arrays_of_the_stated_shape_pass():
    np.testing.assert_array_equal(add(np.ones(3), np.ones(3)), np.full(3, 2.0))
    np.testing.assert_array_equal(add(jnp.ones(3), np.ones(3)), np.full(3, 2.0))


@pytest.mark.parametrize(
    ("x", "y"),
    [(np.ones(3), np.ones(1)), (np.ones(3, int), None), (np.ones(()), None)],
    ids=["shape", "dtype", "axes"],
)
def test_arrays_of_another_shape_or_dtype_do_not(x, y):
    with pytest.raises(TypeCheckError):
        add(x, y)


def test_an_error_of_the_function_comes_first():
    with pytest.raises(ValueError, match="must be a vector"):
        add(np.ones((3, 1)))


def test_lists_and_values_that_are_no_arrays_pass():
    np.testing.assert_array_equal(add([1.0, 2.0], sign=3), [1.0, 2.0])


def test_the_packages_are_checked(pytestconfig):
    import pns_bounds as pb

    assert "check_shapes.after_the_call" in pytestconfig.getoption("jaxtyping_packages")
    assert hasattr(pb.pns_bounds, "__wrapped__")
