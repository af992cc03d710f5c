"""The devices of a mesh: they decide how long training takes, never what it finds."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pns_models as pm
import pytest

pytestmark = pytest.mark.slow
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


@pytest.mark.parametrize("name", ["all devices", "1 x 1", "1 x 2", "2 x 4"])
def test_devices_find_what_one_core_finds(fits_on_meshes, name):
    """Members spread over devices, then rows, then both."""
    one_core = fits_on_meshes["one core"]
    assert np.ptp(one_core) > 0.1
    np.testing.assert_allclose(fits_on_meshes[name], one_core, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["ensemble", "epinet"])
def test_rows_that_are_asked_about_may_be_cut_among_devices(fits_on_meshes, kind):
    cut = fits_on_meshes[f"{kind}, rows on all devices"]
    assert np.ptp(cut, axis=0).min() > 0
    np.testing.assert_allclose(
        cut, fits_on_meshes[f"{kind}, rows on one device"], rtol=0, atol=1e-6
    )


def test_a_mesh_has_members_along_one_axis_and_rows_along_the_other():
    assert dict(pm.make_mesh().shape) == {"member": jax.device_count(), "data": 1}
    with pytest.raises(ValueError, match="divide the number of devices, 1, got 2"):
        pm.make_mesh(num_data=2, devices=jax.devices()[:1])
