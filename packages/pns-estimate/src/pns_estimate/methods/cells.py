"""When the counts of cells are used, how they are weighed, and what is said of it.

Cells are units who share all their covariates. Every method with draws asks here, so the
rule is one for all of them.
"""

import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pns_models as pm
from jaxtyping import Bool, Float

from pns_estimate.methods.protocol import Sampler
from pns_estimate.methods.residual import ResidualSampler, choose_cells

LEAST_CELL_SIZE = 10  # units from which on the counts of a cell are used, and saved
_SHOWN_SIZE = 100  # people for whom the note gives the weight of their counts
_LEAST_SHARED = 0.5  # share of units with a twin from which on cells are used


def are_cells_shared(totals: Float[np.ndarray, "num_cells counts"]) -> bool:
    """Tells whether half of all units, or more, share their covariates with another."""
    sizes = totals.sum(axis=1)
    return bool(sizes[sizes >= 2].sum() >= _LEAST_SHARED * sizes.sum())


def make_residual_sampler(
    rng: np.random.Generator,
    inner: Sampler,
    draws: pb.Atoms,
    folded: pm.FoldedCounts,
    least_cell_size: int,
    judged: Bool[np.ndarray, " n"] | None = None,
) -> ResidualSampler:
    """Judges how far counts of cells are to be trusted, and adds them to a sampler.

    The sampler's draws are of the rows that are judged, whose outcomes the model did not
    see; see `pns_infer.profile_residual`.
    """
    counts, cell = folded.counts, folded.cell
    profile = pi.profile_residual(
        rng, draws, counts.observational, counts.experimental, cell, judged
    )
    totals = folded.cell_totals()
    cells = choose_cells(np.asarray(counts.z), cell, totals, least_cell_size)
    return ResidualSampler(inner, cells, profile)


def describe_residual(profile: pi.ResidualProfile, whose: str) -> dict[str, str]:
    """Says what was found, for people who read a report."""
    mean = profile.mean()
    common, rare = (
        [
            f"{1 - float(profile.model_weight(source, _SHOWN_SIZE, is_rare)):.0%}"
            for source in ("observational", "experimental")
        ]
        for is_rare in (False, True)
    )
    return {
        "weight of people with the same covariates": (
            f"{common[0]} for {_SHOWN_SIZE} people of the log and {common[1]} for as "
            f"many of an arm of the trial; the rest is that of {whose} prediction. "
            f"Where people are rare, {rare[0]} and {rare[1]}"
        ),
        "share of their counts treated as new information": (
            f"{mean.observational_share[0]:.0%} (log), "
            f"{mean.experimental_share[0]:.0%} (trial)"
        ),
        f"scale of {whose} differences": f"{mean.draw_scale[0]:.2f}",
    }
