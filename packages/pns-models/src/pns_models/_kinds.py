"""Things that are saved in a folder of their own, which says what they are."""

import json
from pathlib import Path
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import pns_bounds as pb

from pns_models._errors import DamagedModelError

_FORMAT = 1
_CARD = "kind.json"


class Saved(Protocol):
    """What can be saved by its kind."""

    kind: ClassVar[str]

    def save(self, folder: Path) -> None:
        """Writes files into a folder that exists."""
        ...

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote."""
        ...


Thing = TypeVar("Thing", bound=Saved)
Class = TypeVar("Class", bound=type)


class Kinds(Generic[Thing]):
    """The classes of one sort of thing, by the kind that a saved folder names.

    Example:
      >>> import pathlib, tempfile
      >>> shapes = Kinds("shapes")
      >>> @shapes.register
      ... class Circle:
      ...     kind = "circle"
      ...
      ...     def save(self, folder):
      ...         (folder / "radius").write_text("1")
      ...
      ...     @classmethod
      ...     def load(cls, folder):
      ...         return cls()
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     shapes.save(Circle(), pathlib.Path(folder) / "shape")
      ...     type(shapes.load(pathlib.Path(folder) / "shape")).__name__
      'Circle'
    """

    def __init__(self, noun: str):
        """Starts without any; the noun is for messages."""
        self._noun = noun
        self._classes: dict[str, type] = {}

    def register(self, cls: Class) -> Class:
        """Makes a class known by its `kind`; usable as a decorator."""
        known = self._classes.get(cls.kind, cls)
        # A cell of a notebook that runs again defines the same class once more.
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise pb.InputError(
                "kind", f"{cls.kind!r} is taken by {known.__qualname__}."
            )
        self._classes[cls.kind] = cls
        return cls

    def save(self, thing: Thing, folder: Path) -> None:
        """Writes a thing and its kind to a new folder."""
        folder.mkdir()
        card = {"format": _FORMAT, "kind": thing.kind}
        (folder / _CARD).write_text(json.dumps(card) + "\n")
        thing.save(folder)

    def load(self, folder: Path) -> Thing:
        """Reads what `save` wrote; raises DamagedModelError if it cannot."""
        try:
            card = json.loads((folder / _CARD).read_text())
            found, kind = card["format"], card["kind"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedModelError(
                f"{folder} does not say which {self._noun} it holds; it is incomplete, or "
                "an older version wrote it."
            ) from error
        if found != _FORMAT or kind not in self._classes:
            raise DamagedModelError(
                f"{folder} holds {self._noun} of kind {kind!r} in format {found}; known "
                f"are {sorted(self._classes)} in format {_FORMAT}. A kind of your own must "
                "be registered before it is loaded."
            )
        return self._classes[kind].load(folder)
