"""Two small problems for tests of the bootstrap: logistic regression and a network."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pns_bounds as pb
import pns_infer as pi
from pns_infer.bootstrap.problem import TwoStage
from scipy import optimize


def logistic_outputs(params, z):
    return (z @ params["w"] + params["b"])[:, None]


def logistic_nll(outputs, counts):
    logit = outputs[:, 0]
    return counts[:, 0] * jax.nn.softplus(logit) + counts[:, 1] * jax.nn.softplus(
        -logit
    )


LOGISTIC = pi.BootstrapProblem(
    logistic_outputs, nll=logistic_nll, trial=(0, 0), source=(0, 0)
)


@functools.cache
def logistic_data(n=400, seed=0):
    """Counts of (y = 0, y = 1) for repeated covariates, and the fitted coefficients."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2))
    units = rng.integers(1, 6, n)
    ones = rng.binomial(units, 1 / (1 + np.exp(-(0.3 + z @ [0.8, -0.5]))))
    counts = np.stack([units - ones, ones], axis=1).astype(float)
    design = np.column_stack([np.ones(n), z])

    def loss(beta):
        logit = design @ beta
        return np.sum(units * np.logaddexp(0, logit) - ones * logit)

    beta = optimize.minimize(loss, np.zeros(3), method="BFGS", tol=1e-10).x
    params = {"b": jnp.float32(beta[0]), "w": jnp.asarray(beta[1:], jnp.float32)}
    return z.astype(np.float32), counts, params, design, beta


def anchored_features(body, z):
    return jnp.tanh(z @ body)


def anchored_head(head, features):
    return features @ head[0] + head[1]


def anchored_logs(outputs, frozen):
    """Log-probabilities [n, 8] of a network whose joint law is frozen inside mu."""

    def log_joint(raw):
        return jax.nn.log_softmax(raw[:, :4]).reshape(-1, 2, 2)

    experimental = pb.log_anchor(log_joint(frozen), outputs[:, 4:])
    parts = (log_joint(outputs), experimental)
    return jnp.concatenate([part.reshape(-1, 4) for part in parts], axis=1)


def anchored_frozen_nll(outputs, frozen, counts):
    return -jnp.sum(counts * anchored_logs(outputs, frozen), axis=1)


NETWORK = TwoStage(anchored_features, anchored_head)
ANCHORED = {
    scope: pi.BootstrapProblem(NETWORK, frozen_nll=anchored_frozen_nll, scope=scope)
    for scope in ("full", "last_layer")
}


@functools.cache
def anchored_data(seed=0, n=150, width=4):
    """Parameters (one hidden layer), covariates, and counts of two unequal sources."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 3)).astype(np.float32)
    counts = np.concatenate(
        [rng.multinomial(6, [0.2, 0.3, 0.1, 0.4], n), rng.integers(0, 3, (n, 4))],
        axis=1,
    ).astype(float)
    body = 0.7 * rng.standard_normal((3, width)).astype(np.float32)
    head = 0.5 * rng.standard_normal((width, 6)).astype(np.float32)
    return (jnp.asarray(body), (jnp.asarray(head), jnp.zeros(6))), z, counts


def anchored_config(**options):
    """Settings that converge; 150 cells make two full batches and a part of one."""
    settings = {
        "damping": 0.05,
        "preconditioner_rank": 20,
        "tolerance": 1e-6,
        "max_iterations": 200,
        "rows_per_batch": 64,
        "draws_per_batch": 4,
    }
    return pi.SolveConfig(**{**settings, **options})


@functools.cache
def solve_anchored(scope="full", curvature="ggn", num_draws=4, **options):
    params, z, counts = anchored_data()
    config = anchored_config(curvature=curvature, **options)
    key = jax.random.key(3)
    return pi.solve_bootstrap(
        key, ANCHORED[scope], params, z, counts, num_draws, config
    )


@functools.cache
def dense_curvature(curvature):
    """J by its definition, all cells at once, with Jacobians of Jacobians."""
    anchored_data()  # cached outside of the trace
    return np.asarray(jax.jit(_dense_curvature, static_argnums=0)(curvature))


def _dense_curvature(curvature):
    params, z, counts = anchored_data()
    vector, unravel = jax.flatten_util.ravel_pytree(params)
    weights = jnp.asarray(counts) / column_sizes()

    def outputs(v):
        return NETWORK(unravel(v), z)

    def loss(v, frozen):
        return jnp.sum(anchored_frozen_nll(outputs(v), outputs(frozen), weights))

    if curvature == "estimating_equation":
        return jax.jacfwd(lambda v: jax.grad(loss)(v, v))(vector)
    # Fisher: expected outer products of scores, column by column.
    jacobian = jax.jacrev(outputs)(vector)  # [n, 6, p]
    fixed = outputs(vector)
    logs = anchored_logs(fixed, fixed)
    total = 0
    for column in range(8):
        group = [range(4), range(4, 6), range(6, 8)][(0, 0, 0, 0, 1, 1, 2, 2)[column]]
        score = jax.grad(lambda o, c=column: jnp.sum(anchored_logs(o, fixed)[:, c]))
        units = weights[:, jnp.array(group)].sum(axis=1) * jnp.exp(logs[:, column])
        along = jnp.einsum("ni,nip->np", score(fixed), jacobian)
        total = total + jnp.einsum("n,np,nq->pq", units, along, along)
    return total


@functools.cache
def dense_scores():
    """The score [n, 8, p] of one unit of each cell and column, by a Jacobian."""
    params, z, _ = anchored_data()
    vector, unravel = jax.flatten_util.ravel_pytree(params)
    fixed = NETWORK(params, z)
    return np.asarray(
        jax.jit(jax.jacrev(lambda v: -anchored_logs(NETWORK(unravel(v), z), fixed)))(
            vector
        )
    )


def column_sizes():
    _, _, counts = anchored_data()
    return np.array([counts[:, :4].sum()] * 4 + [counts[:, 4:].sum()] * 4)
