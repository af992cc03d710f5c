"""Public names that are imported when they are first asked for (PEP 562).

Networks, tables and figures take seconds to import; `import pns_estimate` and
`pns-estimate --help` need none of them.
"""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_names(
    package: str, source: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the `__getattr__` and `__dir__` of a package.

    Imports under TYPE_CHECKING in its source file say where names are. The first function
    imports, and keeps what it found in the package.
    """
    home = {
        alias.name: node.module
        for branch in ast.parse(Path(source).read_text("utf-8")).body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    parts = {module.removeprefix(f"{package}.") for module in home.values()}

    def find(name: str) -> Any:
        if name in home:
            found = getattr(importlib.import_module(home[name]), name)
        elif name in parts:
            found = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, found)
        return found

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return find, listed
