"""Solves one bootstrap on one device and on eight simulated ones.

Not a test itself: the number of devices is fixed once JAX runs, so a test starts this in a
process of its own, with the file to write as its argument.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pns_infer as pi
from pns_infer.bootstrap import solve as _solve


def outputs(params, z):
    """A logit for each row."""
    return jnp.tanh(z @ params["hidden"]) @ params["last"]


def nll(logit, counts):
    """Of counts of both outcomes."""
    logits = jnp.concatenate([logit, -logit], axis=1)
    return jnp.sum(counts * jax.nn.softplus(logits), axis=1)


def solve():
    """Returns the shifts of 19 draws, by conjugate gradients."""
    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "hidden": jax.random.normal(keys[0], (3, 5)),
        "last": jax.random.normal(keys[1], (5, 1)),
    }
    z = jax.random.normal(keys[2], (40, 3))
    problem = pi.BootstrapProblem(outputs, nll=nll, trial=(0, 0), source=(0, 0))
    config = pi.SolveConfig(direct_up_to=0, draws_per_batch=2, damping=1e-2)
    key = jax.random.key(1)
    return pi.solve_bootstrap(
        key, problem, params, z, jnp.full((40, 2), 5.0), 19, config
    )


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    used = []
    spread = _solve._spread
    _solve._spread = lambda right: used.append(spread(right)) or used[-1]
    eight = solve()
    _solve._spread = lambda right: right
    one = solve()
    devices = [len(part.sharding.device_set) for part in used]
    np.savez(sys.argv[1], eight=eight.shifts, one=one.shifts, devices=devices)
