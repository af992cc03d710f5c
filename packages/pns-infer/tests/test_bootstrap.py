"""The bootstrap against closed forms, dense matrices and the per-point algorithm."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from pns_infer import _bootstrap
from scipy import optimize

LOGISTIC = pi.CellLayout(group=(0, 0), source=(0, 0))


def logistic_outputs(params, z):
    return (z @ params["w"] + params["b"])[:, None]


def logistic_nll(outputs, counts):
    logit = outputs[:, 0]
    return counts[:, 0] * jax.nn.softplus(logit) + counts[:, 1] * jax.nn.softplus(
        -logit
    )


def logistic_data(n=400, seed=0):
    """Counts of (y = 0, y = 1) for repeated covariates, and the fitted coefficients."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2))
    people = rng.integers(1, 6, n)
    ones = rng.binomial(people, 1 / (1 + np.exp(-(0.3 + z @ [0.8, -0.5]))))
    counts = np.stack([people - ones, ones], axis=1).astype(float)
    design = np.column_stack([np.ones(n), z])

    def loss(beta):
        logit = design @ beta
        return np.sum(people * np.logaddexp(0, logit) - ones * logit)

    beta = optimize.minimize(loss, np.zeros(3), method="BFGS", tol=1e-10).x
    params = {"b": jnp.float32(beta[0]), "w": jnp.asarray(beta[1:], jnp.float32)}
    return z.astype(np.float32), counts, params, design, beta


def sandwich(design, counts, beta):
    """Closed form: H^-1 S H^-1 with S the sum of squared scores of persons."""
    p = 1 / (1 + np.exp(-design @ beta))
    people = counts.sum(axis=1)
    hessian = design.T @ (design * (people * p * (1 - p))[:, None])
    squares = counts[:, 1] * (1 - p) ** 2 + counts[:, 0] * p**2
    meat = design.T @ (design * squares[:, None])
    inverse = np.linalg.inv(hessian)
    return inverse @ meat @ inverse


@pytest.mark.slow
@pytest.mark.parametrize("curvature", ["hessian", "ggn", "estimating_equation"])
def test_draws_of_a_logistic_model_have_the_sandwich_covariance(curvature):
    """4,000 draws: a standard deviation is known to 1.1%."""
    z, counts, params, design, beta = logistic_data()
    bootstrap = pi.MultiplierBootstrap(
        jax.random.key(0),
        logistic_outputs,
        logistic_nll,
        params,
        z,
        counts,
        num_draws=4000,
        layout=LOGISTIC,
        curvature=curvature,
        damping=0.0,
        tolerance=1e-5,
        draws_per_batch=500,
    )
    assert np.max(bootstrap.residuals) < 1e-4
    points = np.array([[0, 0], [1, 1], [-1, 2]], np.float32)
    drawn = bootstrap.draws(points)[..., 0]
    at = np.column_stack([np.ones(3), points])
    expected = at @ sandwich(design, counts, beta) @ at.T
    np.testing.assert_allclose(
        drawn.std(0) / np.sqrt(np.diag(expected)), 1, atol=4 * 0.0112
    )
    np.testing.assert_allclose(
        np.corrcoef(drawn.T),
        expected / np.sqrt(np.outer(np.diag(expected), np.diag(expected))),
        atol=4 * 0.016,
    )
    np.testing.assert_allclose(drawn.mean(0), at @ beta, atol=0.02)


@pytest.mark.slow
def test_a_row_of_many_people_is_as_good_as_many_rows():
    """The same solves; the multipliers differ, so standard errors agree in law."""
    z, counts, params, *_ = logistic_data(60)
    rows, cells = [], []
    for row in range(len(z)):
        for column in (0, 1):
            for _ in range(int(counts[row, column])):
                rows.append(z[row])
                cells.append(np.eye(2)[column])
    errors = []
    for covariates, people in ((z, counts), (np.array(rows), np.array(cells))):
        bootstrap = pi.MultiplierBootstrap(
            jax.random.key(0),
            logistic_outputs,
            logistic_nll,
            params,
            covariates,
            people,
            num_draws=3000,
            layout=LOGISTIC,
            damping=0.0,
            tolerance=1e-5,
            rows_per_batch=50,
            draws_per_batch=500,
        )
        errors.append(bootstrap.shifts.std(axis=0))
    np.testing.assert_allclose(errors[0] / errors[1], 1, atol=4 * 0.018)


def anchored_problem(seed=0, n=300, width=5):
    """A small anchored network with one hidden layer, and two tables of unequal size."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 3)).astype(np.float32)
    counts = np.concatenate(
        [rng.multinomial(6, [0.2, 0.3, 0.1, 0.4], n), rng.integers(0, 3, (n, 4))],
        axis=1,
    ).astype(float)
    body = 0.7 * rng.standard_normal((3, width)).astype(np.float32)
    head = 0.5 * rng.standard_normal((width, 6)).astype(np.float32)
    params = (jnp.asarray(body), (jnp.asarray(head), jnp.zeros(6)))
    model = pi.TwoStage(
        features=lambda body, z: jnp.tanh(z @ body),
        head=lambda head, f: f @ head[0] + head[1],
    )
    return model, params, z, counts


def anchored_logs(outputs, frozen):
    def log_joint(raw):
        return jax.nn.log_softmax(raw[:, :4]).reshape(-1, 2, 2)

    experimental = pb.log_anchor(log_joint(frozen), outputs[:, 4:])
    parts = (log_joint(outputs), experimental)
    return jnp.concatenate([part.reshape(-1, 4) for part in parts], axis=1)


def anchored_frozen_nll(outputs, frozen, counts):
    return -jnp.sum(counts * anchored_logs(outputs, frozen), axis=1)


def anchored_nll(outputs, counts):
    return anchored_frozen_nll(outputs, outputs, counts)


def make(curvature, scope="full", num_draws=4, **options):
    model, params, z, counts = anchored_problem()
    settings = {
        "frozen_nll": anchored_frozen_nll,
        "damping": 0.05,
        "tolerance": 1e-6,
        "max_iterations": 200,
        "rows_per_batch": 128,
        **options,
    }
    return pi.MultiplierBootstrap(
        jax.random.key(3),
        model,
        anchored_nll,
        params,
        z,
        counts,
        num_draws=num_draws,
        scope=scope,
        curvature=curvature,
        **settings,
    )


@functools.partial(jax.jit, static_argnums=0)
def dense_curvature(curvature):
    """The matrix by its definition, all rows at once, with jacobians of jacobians."""
    model, params, z, counts = anchored_problem()
    vector, unravel = jax.flatten_util.ravel_pytree(params)
    sizes = jnp.array([counts[:, :4].sum()] * 4 + [counts[:, 4:].sum()] * 4)
    weights = jnp.asarray(counts) / sizes

    def outputs(v):
        body, head = unravel(v)
        return model.head(head, model.features(body, z))

    def loss(v, frozen):
        return jnp.sum(anchored_frozen_nll(outputs(v), outputs(frozen), weights))

    if curvature == "hessian":
        return jax.hessian(loss)(vector, vector)
    if curvature == "estimating_equation":
        return jax.jacfwd(lambda v: jax.grad(loss)(v, v))(vector)
    # Fisher: expected outer products of scores, cell by cell.
    jacobian = jax.jacrev(outputs)(vector)  # [n, 6, p]
    total = 0
    probabilities = jnp.exp(anchored_logs(outputs(vector), outputs(vector)))
    fixed = outputs(vector)
    for cell in range(8):
        group = [range(4), range(4, 6), range(6, 8)][(0, 0, 0, 0, 1, 1, 2, 2)[cell]]
        score = jax.grad(
            lambda o, cell=cell: jnp.sum(anchored_logs(o, fixed)[:, cell])
        )(fixed)
        people = weights[:, jnp.array(group)].sum(axis=1) * probabilities[:, cell]
        along = jnp.einsum("ni,nip->np", score, jacobian)
        total = total + jnp.einsum("n,np,nq->pq", people, along, along)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("curvature", ["hessian", "ggn", "estimating_equation"])
def test_products_are_those_of_the_dense_matrix(curvature):
    bootstrap = make("ggn")
    problem = bootstrap._problem._replace(curvature=curvature, damping=0.0)
    size = len(bootstrap._vector)
    columns = _bootstrap._products(
        problem, bootstrap._vector, bootstrap._rows, jnp.eye(size)
    )
    dense = dense_curvature(curvature)
    np.testing.assert_allclose(columns.T, dense, atol=2e-5)
    asymmetry = float(jnp.abs(dense - dense.T).max())
    assert (asymmetry > 1e-3) == (curvature == "estimating_equation")


@pytest.mark.slow
@pytest.mark.parametrize("curvature", ["ggn", "estimating_equation"])
@pytest.mark.parametrize("scope", ["full", "last_layer"])
def test_shared_solves_equal_the_per_point_algorithm(curvature, scope):
    bootstrap = make(curvature, scope)
    points = np.random.default_rng(1).standard_normal((3, 3)).astype(np.float32)

    def mu(params, z):
        model, *_ = anchored_problem()
        if scope == "last_layer":
            raw = model.head(params, z)
        else:
            raw = model.head(params[1], model.features(params[0], z))
        return jnp.exp(anchored_logs(raw, raw)[:, 4:])

    for function in (None, mu):
        shared = bootstrap.draws(points, function)
        single = pi.per_point_draws(bootstrap, points, function)
        assert shared.shape == single.shape
        # Conjugate gradients reach 1e-6 in float32, GMRES does not.
        tolerance = (
            1e-3 if (scope, curvature) == ("full", "estimating_equation") else 2e-4
        )
        np.testing.assert_allclose(
            shared, single, atol=tolerance * np.abs(shared).max()
        )
        assert np.std(shared, axis=0).min() > 1e-4


def test_the_last_layer_equals_the_full_scope_of_a_model_that_is_one_layer():
    model, params, z, counts = anchored_problem()
    last = make("ggn", "last_layer", num_draws=5)
    features = model.features(params[0], z)
    full = pi.MultiplierBootstrap(
        jax.random.key(3),
        model.head,
        anchored_nll,
        params[1],
        features,
        counts,
        num_draws=5,
        frozen_nll=anchored_frozen_nll,
        damping=0.05,
        tolerance=1e-6,
        max_iterations=300,
        rows_per_batch=128,
    )
    np.testing.assert_allclose(last.shifts, full.shifts, atol=1e-3)


@pytest.mark.slow
def test_each_sample_is_divided_by_its_own_size():
    """Ten times the experiment: its share of the noise falls by the root of ten.

    With its scores alone in the outputs of delta, whose curvature does not change.
    """
    model, params, z, counts = anchored_problem()
    spreads = []
    for factor in (1, 10):
        people = counts.copy()
        people[:, 4:] *= factor
        bootstrap = pi.MultiplierBootstrap(
            jax.random.key(0),
            model,
            anchored_nll,
            params,
            z,
            people,
            num_draws=2000,
            frozen_nll=anchored_frozen_nll,
            scope="last_layer",
            damping=0.02,
            draws_per_batch=500,
        )
        spreads.append(bootstrap.draws(z[:5]).std(axis=0))
    ratio = spreads[0] / spreads[1]
    np.testing.assert_allclose(ratio[:, 4:], np.sqrt(10), rtol=0.1)
    np.testing.assert_allclose(ratio[:, :4], 1, rtol=0.1)


def test_a_solve_that_did_not_converge_is_warned_of():
    with pytest.warns(pi.NotConvergedWarning, match="100% of 4 solves"):
        bootstrap = make("ggn", damping=1e-6, max_iterations=1)
    assert bootstrap.residuals.shape == (4,) and bootstrap.residuals.max() > 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("ggn")


def test_more_draws_leave_the_earlier_ones_unchanged():
    few, more = make("ggn", num_draws=3), make("ggn", num_draws=6, draws_per_batch=4)
    np.testing.assert_allclose(few.shifts, more.shifts[:3], atol=1e-5)


def test_an_indefinite_last_layer_is_told():
    with pytest.raises(ValueError, match="not positive definite; take more damping"):
        make("hessian", "last_layer", damping=0.0)


def test_covariates_of_any_type_are_numbers():
    """Sample sizes must not take the type of z: 0/1 columns often are booleans."""
    z, counts, params, *_ = logistic_data(200)
    spreads = []
    for kind in (bool, np.int8, np.float32):
        bootstrap = pi.MultiplierBootstrap(
            jax.random.key(0),
            logistic_outputs,
            logistic_nll,
            params,
            (z > 0).astype(kind),
            counts,
            num_draws=50,
            layout=LOGISTIC,
            tolerance=1e-5,
        )
        spreads.append(bootstrap.shifts)
    np.testing.assert_allclose(spreads[0], spreads[2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(spreads[1], spreads[2], rtol=1e-4, atol=1e-5)


def test_bad_rows_are_told():
    model, params, z, counts = anchored_problem()
    build = functools.partial(
        pi.MultiplierBootstrap, jax.random.key(0), model, anchored_nll, params
    )
    with pytest.raises(ValueError, match=r"shapes \[n, d\] and \[n, 8\]"):
        build(z, counts[:, :4])
    with pytest.raises(ValueError, match="not negative"):
        build(z, -counts)
    nobody = counts.copy()
    nobody[:, 4:] = 0
    with pytest.raises(ValueError, match="sample 1 has no people"):
        build(z, nobody)
    with pytest.raises(ValueError, match="needs outputs as a TwoStage"):
        pi.MultiplierBootstrap(
            jax.random.key(0),
            lambda p, z: z,
            anchored_nll,
            params,
            z,
            counts,
            scope="last_layer",
        )
    with pytest.raises(ValueError, match="z must be finite"):
        build(z * np.nan, counts)
    with pytest.raises(ValueError, match="num_draws must be at least 2"):
        build(z, counts, num_draws=1)


def test_draws_are_compiled_once_for_all_calls():
    calls = []

    def line(params, z):
        calls.append(None)
        return z @ params

    shifts, z = np.eye(3, dtype=np.float32), np.ones((5, 3), np.float32)
    made = [pi.linear_draws(line, np.full(3, c, np.float32), shifts, z) for c in (0, 1)]
    assert len(calls) == 1
    np.testing.assert_allclose(made[0], 1)
    np.testing.assert_allclose(made[1], 4)
