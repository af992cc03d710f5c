"""The multiplier bootstrap by shared solves: a function and its result.

The vocabulary is that of `problem`. (The paper solves anew for each point:
`per_point_draws`, kept as a reference.)
"""

import dataclasses
import enum
import warnings

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from pns_infer.bootstrap.curvature import multiplied_scores
from pns_infer.bootstrap.draws import Points, bootstrap_draws, split_inputs
from pns_infer.bootstrap.equation import Equation, check_cells, make_equation
from pns_infer.bootstrap.problem import BootstrapProblem, ModelFunction, SolveConfig
from pns_infer.bootstrap.solve import make_solver
from pns_infer.core.inputs import check_at_least

_DEFAULT = SolveConfig()


class NotConvergedWarning(UserWarning):
    """A linear solve ended before it reached its tolerance."""


class SolveStatus(enum.Enum):
    """How the solves ended; the value says what to try next."""

    CONVERGED = "nothing to do"
    MAX_ITERATIONS = "take more damping or more max_iterations"
    ILL_CONDITIONED = "take more damping"
    NOT_FINITE = "take more damping, or curvature='ggn'; check that params and outputs are finite"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class BootstrapResult:
    """Draws of a fitted model that stand for its sampling error.

    Attributes:
      shifts: what each draw adds to the parameters (of the head for scope='last_layer').
      residuals: relative residuals of the linear solves.
      problem: that was solved.
      config: of the solves.
      params: the estimate.
      key: made the multipliers.
      equation: that was solved, with the data.
    """

    shifts: Float[np.ndarray, "num_draws num_parameters"] = dataclasses.field(
        repr=False
    )
    residuals: Float[np.ndarray, " num_draws"] = dataclasses.field(repr=False)
    problem: BootstrapProblem
    config: SolveConfig
    params: PyTree = dataclasses.field(repr=False)
    key: PRNGKeyArray = dataclasses.field(repr=False)
    equation: Equation = dataclasses.field(repr=False)

    @property
    def num_draws(self) -> int:
        """Number of draws."""
        return len(self.shifts)

    @property
    def limit(self) -> float:
        """The relative residual up to which a solve counts as converged."""
        return max(self.config.tolerance, 1e-3)

    @property
    def status(self) -> SolveStatus:
        """How the solves ended."""
        if not np.all(np.isfinite(self.residuals)):
            return SolveStatus.NOT_FINITE
        if np.all(self.residuals <= self.limit):
            return SolveStatus.CONVERGED
        if self.shifts.shape[1] <= self.config.direct_up_to:
            return SolveStatus.ILL_CONDITIONED
        return SolveStatus.MAX_ITERATIONS

    @property
    def converged(self) -> bool:
        """Whether every solve reached its tolerance."""
        return self.status is SolveStatus.CONVERGED

    @property
    def message(self) -> str:
        """How the solves went, and what to try next if they did not converge."""
        worst = f"worst relative residual {np.max(self.residuals):.2g}"
        if self.converged:
            return f"all {self.num_draws} solves reached {self.limit:g} ({worst})."
        failed = np.mean(~(self.residuals <= self.limit))
        return (
            f"{failed:.0%} of {self.num_draws} solves did not reach the tolerance "
            f"{self.limit:g} ({worst}); {self.status.value}."
        )

    def draws(
        self,
        z: Points,
        function: ModelFunction | None = None,
        points_per_chunk: int = 1024,
    ) -> PyTree[Float[np.ndarray, "num_draws num_points ..."]]:
        """Evaluates every draw at points z; see `bootstrap_draws`."""
        return bootstrap_draws(
            self.problem, self.params, self.shifts, z, function, points_per_chunk
        )


def solve_bootstrap(
    key: PRNGKeyArray,
    problem: BootstrapProblem,
    params: PyTree,
    z: Shaped[Array | np.ndarray, "num_cells d"],
    counts: Shaped[Array | np.ndarray, "num_cells num_columns"],
    num_draws: int = 1000,
    config: SolveConfig = _DEFAULT,
) -> BootstrapResult:
    """Solves for the shift of every draw.

    Args:
      key: decides the multipliers.
      problem: the estimator.
      params: the estimate, where Psi is 0; a pair for a TwoStage.
      z: covariates of the cells.
      counts: units of each cell and column.
      num_draws: of the bootstrap; more leave the earlier ones unchanged.
      config: curvature, damping, and when to stop.

    Returns:
      Shifts and residuals. If a solve did not converge, its message is a
      NotConvergedWarning, too.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from pns_infer import BootstrapProblem, CountColumns
      >>> def outputs(params, z):
      ...     return z @ params
      >>> def nll(logit, counts):
      ...     logits = jnp.concatenate([logit, -logit], axis=1)
      ...     return jnp.sum(counts * jax.nn.softplus(logits), axis=1)
      >>> columns = CountColumns(trial=(0, 0), source=(0, 0))  # outcomes of one source
      >>> problem = BootstrapProblem(outputs, nll=nll, columns=columns)
      >>> z, counts = jnp.ones((1, 1)), jnp.array([[20.0, 80.0]])
      >>> params = jnp.log(jnp.array([[4.0]]))  # the logit of 80 of 100
      >>> result = solve_bootstrap(jax.random.key(0), problem, params, z, counts)
      >>> error = 1 / (100 * 0.8 * 0.2) ** 0.5  # of the logit
      >>> bool(abs(result.shifts.std() / error - 1) < 0.1), result.converged
      (True, True)
    """
    z, counts = jnp.asarray(z, float), jnp.asarray(counts, float)
    check_cells(z, counts, problem.columns)
    check_at_least("num_draws", num_draws, 2)
    moving, inputs = split_inputs(problem, params, z)
    equation = make_equation(problem, moving, inputs, counts, config.rows_per_batch)
    solve = make_solver(equation, config)
    step = config.draws_per_batch
    scores = [
        multiplied_scores(equation, key, np.arange(i, min(i + step, num_draws)))
        for i in range(0, num_draws, step)
    ]
    solutions, residuals = solve(np.concatenate(scores))
    result = BootstrapResult(
        shifts=-solutions,
        residuals=residuals,
        problem=problem,
        config=config,
        params=params,
        key=key,
        equation=equation,
    )
    if not result.converged:
        warnings.warn(result.message, NotConvergedWarning, stacklevel=2)
    return result
