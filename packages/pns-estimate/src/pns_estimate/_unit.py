"""What a row is called in the words of the user: a customer in place of a person."""

import re
from typing import NamedTuple

# Words of ours, and none that is part of a name: people.csv, num_people, #people.
_WORDS = re.compile(
    r"(?<![\w.#\"/=-])(?:(?P<article>[Aa]) )?(?P<word>[Pp]eople|[Pp]erson|[Pp]ersons)"
    r"(?![\w\"/=-]|\.\w)"
)


class Unit(NamedTuple):
    """One of them, and several."""

    one: str = "person"
    many: str = "people"

    def __call__(self, text: str) -> str:
        """Writes these words in place of person and people."""
        if self == Unit():
            return text
        text = text.replace("person-by-person", f"{self.one}-by-{self.one}")
        return _WORDS.sub(self._replace_word, text)

    def _replace_word(self, found: re.Match[str]) -> str:
        word = found["word"]
        new = self.one if word.lower() == "person" else self.many
        if found["article"]:
            an = "an" if new[:1].lower() in "aeio" else "a"
            return (an.capitalize() if found["article"] == "A" else an) + " " + new
        return new[:1].upper() + new[1:] if word[0] == "P" else new


def make_unit(name: str | None) -> Unit:
    """Makes a unit of one word, or of two: 'customer', 'child/children'."""
    if name is None:
        return Unit()
    one, _, many = name.partition("/")
    return Unit(one, many or _plural(one))


def _plural(one: str) -> str:
    if one.lower() == "person":
        return "people"
    if re.search(r"[^aeiou]y$", one):
        return one[:-1] + "ies"
    return one + ("es" if one.endswith(("s", "x", "z", "ch", "sh")) else "s")
