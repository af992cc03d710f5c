"""The protocol, and the truth that is built from cells."""

import numpy as np
import pns_bounds as pb
import pns_dgp
import pytest


@pytest.mark.parametrize(
    "model",
    [pns_dgp.li_model_1(), pns_dgp.acic_model(), pns_dgp.random_curved_model(0)],
)
def test_every_model_satisfies_the_protocol(model):
    assert isinstance(model, pns_dgp.StructuralModel)


def test_cells_sum_to_the_truth_without_rounding():
    rng = np.random.default_rng(0)
    cells = rng.dirichlet(np.full(8, 0.3), size=20_000).reshape(-1, 2, 2, 2)
    cells[:1000] = np.round(cells[:1000])  # some degenerate laws
    cells[:1000] = np.where(
        cells[:1000].sum((1, 2, 3), keepdims=True) == 1, cells[:1000], 0.125
    )
    truth = pns_dgp.truth_from_cells(cells)
    np.testing.assert_allclose(truth.pns, cells[:, :, 0, 1].sum(1), atol=1e-14)
    np.testing.assert_allclose(truth.harm, cells[:, :, 1, 0].sum(1), atol=1e-14)
    np.testing.assert_allclose(
        truth.atoms.mu[:, 1], cells[..., 1].sum((1, 2)), atol=1e-14
    )
    np.testing.assert_allclose(
        truth.atoms.mu[:, 0], cells[:, :, 1].sum((1, 2)), atol=1e-14
    )
    np.testing.assert_allclose(
        truth.atoms.joint[:, 1, 1], cells[:, 1, :, 1].sum(1), atol=1e-14
    )
    np.testing.assert_allclose(
        truth.atoms.joint[:, 0, 1], cells[:, 0, 1].sum(1), atol=1e-14
    )
    assert np.all(truth.atoms.joint.sum((1, 2)) == 1)
    assert np.all(pb.compatibility_slack(truth.atoms) >= 0)
    assert np.all(truth.interval.lower <= truth.pns)
    assert np.all(truth.pns <= truth.interval.upper)


def test_cells_that_are_no_law_are_refused():
    negative = np.full((1, 2, 2, 2), 0.15)
    negative[0, 0, 0, 0] = -0.05
    with pytest.raises(pb.InputError, match="probability law"):
        pns_dgp.truth_from_cells(negative)
    with pytest.raises(pb.InputError, match=r"cells must have shape \[n, 2, 2, 2\]"):
        pns_dgp.truth_from_cells(np.full(8, 0.125))
    with pytest.raises(pb.InputError, match="probability law"):
        pns_dgp.truth_from_cells(np.full((1, 2, 2, 2), 0.2))
