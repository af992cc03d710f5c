"""How a text file holds a table: its encoding, separator and decimal mark."""

import codecs
import gzip
import re
from pathlib import Path
from typing import NamedTuple

_SAMPLE = 65_536  # bytes
_COMMA_NUMBER = re.compile(r"(^|;)-?\d+,\d+(;|$)", re.MULTILINE)


class TextFormat(NamedTuple):
    """Arguments of `pandas.read_csv`."""

    sep: str
    encoding: str
    decimal: str

    def note(self) -> str | None:
        """Says what is unusual about it."""
        parts = []
        if self.sep != ",":
            parts.append(f"separated by {self.sep!r}")
        if self.decimal != ".":
            parts.append("numbers with a decimal comma")
        if self.encoding != "utf-8-sig":
            parts.append(f"encoded as {self.encoding}")
        return ", ".join(parts) or None


def sniff_format(path: Path) -> TextFormat:
    """Finds out from the first bytes of a file; a comma and UTF-8 if nothing speaks against."""
    is_packed = path.suffix.lower() == ".gz"
    with gzip.open(path) if is_packed else path.open("rb") as file:
        sample = file.read(_SAMPLE)
    encoding = _find_encoding(sample)
    text = sample.decode(encoding, errors="ignore")
    header = text.partition("\n")[0]
    sep = ","
    if path.name.lower().endswith((".tsv", ".tsv.gz")):
        sep = "\t"
    elif "," not in header:
        sep = max(",;\t|", key=header.count)
    is_comma = sep == ";" and _COMMA_NUMBER.search(text.replace("\r", "")) is not None
    return TextFormat(sep, encoding, "," if is_comma else ".")


def _find_encoding(sample: bytes) -> str:
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # may end in a letter
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"
