"""The anchoring map: constraints to the last bit, gradients, inverse, log twin."""

import decimal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pytest

NUM_CHUNKS, CHUNK = 10, 1_000_000  # ten million sextuples


def sextuples(seed: int, size: int = CHUNK) -> np.ndarray:
    """Four logits and two deltas: moderate, wide, and corners of {-80, 0, 80}."""
    rng = np.random.default_rng(seed)
    draws = rng.standard_normal((size, 6), dtype=np.float32)
    draws[: size // 4] *= 3
    draws[size // 4 : size // 2] *= 30
    third = slice(size // 2, 3 * size // 4)
    draws[third] = rng.uniform(-80, 80, size=draws[third].shape)
    corners = rng.choice(np.array([-80, 0, 80], np.float32), size=draws[third].shape)
    keep = rng.random(corners.shape) < 0.2  # some corners meet moderate values
    draws[3 * size // 4 :] = np.where(keep, draws[3 * size // 4 :], corners)
    return draws


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).reshape(-1, 2, 2)


@jax.jit
def anchored_on_device(numbers):
    joint = jax.nn.softmax(numbers[..., :4]).reshape(*numbers.shape[:-1], 2, 2)
    return joint, pb.anchor(joint, numbers[..., 4:])


@pytest.mark.parametrize("shape", [(20, 200), (7, 3), (64, 256), (4000,), (1, 4000)])
def test_no_fusion_of_the_compiler_skips_a_rounding(shape):
    """Programs of different shapes are fused differently; all are judged by NumPy."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        scale = rng.choice([1, 10, 40], size=(*shape, 1))
        numbers = (scale * rng.standard_normal((*shape, 6))).astype(np.float32)
        atoms = jax.tree.map(np.asarray, pb.Atoms(*anchored_on_device(numbers)))
        assert np.all(pb.is_compatible(atoms))


def test_a_hundred_thousand_sextuples_violate_nothing_in_either_namespace():
    numbers = sextuples(50, 100_000)
    joint = softmax(numbers[:, :4])
    for atoms in (
        pb.Atoms(joint, pb.anchor(joint, numbers[:, 4:])),
        jax.tree.map(np.asarray, pb.Atoms(*anchored_on_device(numbers))),
    ):
        assert np.all(pb.is_compatible(atoms))


@pytest.mark.slow
def test_ten_million_float32_sextuples_violate_nothing_in_numpy():
    for seed in range(NUM_CHUNKS):
        numbers = sextuples(seed)
        joint = softmax(numbers[:, :4])
        mu = pb.anchor(joint, numbers[:, 4:])
        assert mu.dtype == np.float32
        assert np.all(pb.compatibility_slack(pb.Atoms(joint, mu)) >= 0)
        assert mu.min() >= 0 and mu.max() <= 1


@pytest.mark.slow
def test_ten_million_float32_sextuples_violate_nothing_in_compiled_jax():
    for seed in range(NUM_CHUNKS):
        atoms = pb.Atoms(*anchored_on_device(sextuples(100 + seed)))
        host = jax.tree.map(np.asarray, atoms)
        assert host.mu.dtype == np.float32
        # Judged by NumPy, and by a second compiled program.
        assert np.all(pb.compatibility_slack(host) >= 0)
        assert np.all(jax.jit(pb.is_compatible)(atoms))
        assert host.mu.min() >= 0 and host.mu.max() <= 1


def test_a_total_that_rounds_above_one_leaves_mu_a_probability():
    third = np.float32(1 / 3)
    joint = np.array([[third, third + np.float32(6e-8)], [0, third]], np.float32)
    assert joint[0, 0] + joint[0, 1] + joint[1, 1] > 1
    mu = pb.anchor(joint, np.array([0, 80], np.float32))
    assert mu[1] == 1
    assert np.all(pb.is_compatible(pb.Atoms(joint, mu)))


def test_the_map_is_the_convex_combination_of_the_paper():
    numbers = sextuples(1, 1000)[:250].astype(np.float64)
    joint = softmax(numbers[:, :4])
    position = 1 / (1 + np.exp(-numbers[:, 4:]))
    least, greatest = joint[:, :, 1], 1 - joint[:, :, 0]
    np.testing.assert_allclose(
        pb.anchor(joint, numbers[:, 4:]),
        (1 - position) * least + position * greatest,
        atol=1e-15,
    )


@pytest.mark.parametrize("scale", [1, 80, 1e4])
def test_gradients_are_finite_everywhere(scale):
    numbers = sextuples(2, 200_000) * np.float32(scale / 80)

    def plain(numbers):
        joint = jax.nn.softmax(numbers[:, :4]).reshape(-1, 2, 2)
        return jnp.sum(pb.anchor(joint, numbers[:, 4:]) * jnp.array([1.0, -2.0]))

    def logarithmic(numbers):
        log_joint = jax.nn.log_softmax(numbers[:, :4]).reshape(-1, 2, 2)
        return jnp.sum(pb.log_anchor(log_joint, numbers[:, 4:]))

    assert np.all(np.isfinite(jax.jit(jax.grad(plain))(numbers)))
    assert np.all(np.isfinite(jax.jit(jax.grad(logarithmic))(numbers)))


def test_the_derivative_at_delta_zero_is_a_quarter_of_the_interval():
    """Heads start at zero: a derivative lost there would never learn."""
    joint = jnp.array([[0.1, 0.2], [0.3, 0.4]])
    jacobian = jax.jacobian(pb.anchor, argnums=1)(joint, jnp.zeros(2))
    np.testing.assert_allclose(jacobian, np.diag([0.7 / 4, 0.3 / 4]), rtol=1e-6)


def test_the_inverse_recovers_delta_in_the_interior():
    rng = np.random.default_rng(3)
    joint = softmax(rng.uniform(-3, 3, size=(1000, 4)))
    delta = rng.uniform(-8, 8, size=(1000, 2))
    recovered = pb.anchor_inverse(pb.Atoms(joint, pb.anchor(joint, delta)))
    # Near a limit 16 digits of mu leave about 9 of the slack exp(-8) * 0.01.
    np.testing.assert_allclose(recovered, delta, atol=1e-9)


def test_the_inverse_at_and_beyond_the_limits():
    joint = np.full((2, 2), 0.25)
    np.testing.assert_array_equal(
        pb.anchor_inverse(pb.Atoms(joint, [0.25, 0.75])), [-np.inf, np.inf]
    )
    with pytest.raises(pb.InputError, match="atoms must ascend in each arm"):
        pb.anchor_inverse(pb.Atoms(joint, [0.2, 0.5]))
    with pytest.raises(pb.InputError, match="constant X"):
        pb.anchor_inverse(pb.Atoms([[0, 0], [0.5, 0.5]], [0.5, 0.5]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inside_the_inverse_is_finite_at_the_limits_and_elsewhere_the_same(dtype):
    rng = np.random.default_rng(4)
    joint = softmax(rng.uniform(-3, 3, size=(1000, 4))).astype(dtype)
    delta = rng.uniform(-3, 3, size=(1000, 2)).astype(dtype)
    atoms = pb.Atoms(joint, pb.anchor(joint, delta))
    chex.assert_trees_all_equal(
        pb.anchor_inverse(atoms, boundary="inside"), pb.anchor_inverse(atoms)
    )
    least, greatest = joint[:, :, 1], joint[:, :, 1] + joint[:, ::-1].sum(-1)
    eps = np.finfo(dtype).eps
    for mu, sign in ((least, -1), (greatest, 1)):
        inside = pb.anchor_inverse(pb.Atoms(joint, mu), boundary="inside")
        np.testing.assert_allclose(inside, -sign * np.log(eps), rtol=1e-6)
        back = pb.anchor(joint, inside)
        np.testing.assert_allclose(back, mu, rtol=0, atol=2 * eps)


def test_inside_takes_a_constant_treatment_and_forgives_rounding_alone():
    constant = pb.Atoms([[0, 0], [0.5, 0.5]], [0.3, 0.5])
    delta = pb.anchor_inverse(constant, boundary="inside")
    assert np.all(np.isfinite(delta)) and delta[1] == 0
    fair = np.full((2, 2), 0.25)
    pb.anchor_inverse(pb.Atoms(fair, [0.25 - 5e-7, 0.5]), boundary="inside")
    with pytest.raises(pb.InputError, match="atoms must ascend in each arm"):
        pb.anchor_inverse(pb.Atoms(fair, [0.25 - 2e-6, 0.5]), boundary="inside")
    with pytest.raises(pb.InputError, match="boundary must be one of"):
        pb.anchor_inverse(constant, boundary="outside")


def exact_logs(logits, delta) -> list[list[float]]:
    """Computes log P(Y=y | do(x)) with 120 decimal digits."""
    with decimal.localcontext(prec=120):
        weights = [decimal.Decimal(float(v)).exp() for v in logits]
        p00, p01, p10, p11 = (weight / sum(weights) for weight in weights)
        rows = []
        for own, other, d in (
            ((p00, p01), p10 + p11, delta[0]),
            ((p10, p11), p00 + p01, delta[1]),
        ):
            position = 1 / (1 + (-decimal.Decimal(float(d))).exp())
            rows.append(
                [
                    float((own[0] + other * (1 - position)).ln()),
                    float((own[1] + other * position).ln()),
                ]
            )
        return rows


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_the_log_twin_keeps_its_digits_where_mu_rounds_to_zero_or_one(dtype, rtol):
    numbers = sextuples(4, 400).astype(dtype)
    shifted = numbers[:, :4] - numbers[:, :4].max(-1, keepdims=True)
    log_joint = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    logs = pb.log_anchor(log_joint.reshape(-1, 2, 2), numbers[:, 4:])
    assert logs.dtype == dtype
    expected = [exact_logs(row[:4], row[4:]) for row in numbers]
    # Below `tiny` beside 0 a logarithm is lost in the rounding of log_joint itself.
    np.testing.assert_allclose(logs, expected, rtol=rtol, atol=4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(
        np.exp(logs[..., 1]),
        pb.anchor(softmax(numbers[:, :4]), numbers[:, 4:]),
        atol=8 * np.finfo(dtype).eps * 80,
    )


@pytest.mark.parametrize(
    ("joint", "delta", "message"),
    [
        (np.full((2, 2), 0.25), [0.0], r"delta must have shape \[..., 2\]"),
        (np.full((3, 2, 2), 0.25), [0.0, 0.0], "share their leading dimensions"),
        (np.full((2, 2), 0.25), [0.0, np.inf], "delta must be finite"),
        (np.full((2, 2), 0.3), [0.0, 0.0], "sum to one"),
        (np.full(4, 0.25), [0.0, 0.0], r"joint must have shape \[..., 2, 2\]"),
    ],
)
def test_bad_anchors_are_named(joint, delta, message):
    with pytest.raises(pb.InputError, match=message):
        pb.anchor(joint, delta)


def test_logits_are_no_log_probabilities():
    with pytest.raises(
        pb.InputError, match=r"exp\(log_joint\) must hold probabilities"
    ):
        pb.log_anchor(np.ones((2, 2)), [0.0, 0.0])
