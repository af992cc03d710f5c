"""The devices of a mesh: they decide how long training takes, never what it finds."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pns_models as pm
import pytest

PROGRAM = Path(__file__).parent / "fit_on_meshes.py"


@pytest.fixture(scope="module")
def fits_on_meshes(tmp_path_factory):
    """What one core and meshes of eight simulated devices found."""
    path = tmp_path_factory.mktemp("meshes") / "found.npz"
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parent)}
    subprocess.run(
        [sys.executable, str(PROGRAM), str(path)], env=environment, check=True
    )
    with np.load(path) as found:
        return dict(found)


def test_members_on_devices_of_their_own_are_those_of_one_core(fits_on_meshes):
    one_core = fits_on_meshes["one core"]
    assert np.ptp(one_core) > 0.1
    for name in ("all devices", "1 x 1", "2 x 1"):
        np.testing.assert_array_equal(fits_on_meshes[name], one_core)


@pytest.mark.parametrize("name", ["1 x 2", "2 x 4"])
def test_devices_that_share_the_rows_differ_by_rounding_alone(fits_on_meshes, name):
    np.testing.assert_allclose(
        fits_on_meshes[name], fits_on_meshes["one core"], rtol=0, atol=1e-5
    )
    assert np.any(fits_on_meshes[name] != fits_on_meshes["one core"])


def test_a_mesh_has_members_along_one_axis_and_rows_along_the_other():
    assert dict(pm.make_mesh().shape) == {"member": jax.device_count(), "data": 1}
    with pytest.raises(ValueError, match="divide the number of devices, 1, got 2"):
        pm.make_mesh(num_data=2, devices=jax.devices()[:1])
