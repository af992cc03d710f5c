"""Public names that are imported when they are first asked for (PEP 562).

Networks, tables and figures take seconds to import; `import pns_estimate` and
`pns-estimate --help` need none of them.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the `__getattr__` and `__dir__` of a package.

    Args:
      package: its `__name__`.
      names: the public names by the module of the package that defines them, which is
        also an attribute of the package.

    Returns:
      The two functions; the first imports, and keeps what it found in the package.
    """
    home = {name: module for module, names in names.items() for name in names}

    def find(name: str) -> Any:
        if name in home:
            found = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        elif name in names:
            found = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, found)
        return found

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return find, listed
