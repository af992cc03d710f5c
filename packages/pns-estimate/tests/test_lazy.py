"""Names that are imported when they are asked for."""

import ast
import subprocess
import sys
from pathlib import Path

import pns_estimate as pe
import pytest

HEAVY = ("jax", "flax", "pandas", "matplotlib", "pyarrow", "pns_infer", "pns_models")


def imported_after(code):
    """Runs code in a new process; returns the heavy packages that it imported."""
    shown = f"import sys\n{code}\nprint(*set(sys.modules) & {set(HEAVY)})"
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_package_alone_imports_nothing_heavy_and_a_name_what_it_needs():
    code = "import pns_estimate as pe\nassert 'PnsEstimator' in dir(pe)\n"
    assert imported_after(code) == set()
    assert imported_after(code + "pe.UserError") == set()
    assert imported_after(code + "pe.PnsEstimator") >= {"jax", "flax", "pandas"}


def test_every_public_name_is_there_and_the_checker_sees_the_same():
    """The imports under TYPE_CHECKING, read from the source, against what is found."""
    path = pe.__file__
    assert path is not None
    guarded = {}
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("pns_estimate."):
            guarded |= {alias.name: node.module for alias in node.names}
    assert guarded.pop("lazy_names") == "pns_estimate._lazy"
    assert set(guarded) == set(pe.__all__) <= set(dir(pe))
    for name, module in guarded.items():
        assert getattr(pe, name) is getattr(sys.modules[module], name)
    star = "import pns_estimate as pe\nfrom pns_estimate import *\n"
    assert imported_after(star + "assert set(pe.__all__) <= set(globals())") >= {"jax"}


def test_a_name_is_looked_up_once_and_others_are_refused():
    assert pe.PnsEstimator is vars(pe)["PnsEstimator"]
    assert pe.methods is sys.modules["pns_estimate.methods"]
    with pytest.raises(
        AttributeError, match="'pns_estimate' has no attribute 'Forest'"
    ):
        _ = pe.Forest
