"""Shows `Example:` in a docstring as code; the parser knows the plural alone."""

import re

import griffe


class Examples(griffe.Extension):
    """Renames the heading before docstrings are parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Changes the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
