"""The 200 covariates of the ACIC 2019 high-dimensional track: their law, or your rows.

The challenge's covariates were simulated: 30 blocks of dependent columns, each block one
exchangeable copula, and 20 independent columns. This package holds the law as a table, so
it can draw any number of fresh rows. Structural models use the columns winsorized at their
0.5 and 99.5 percentiles, then standardized: otherwise the raw tails, up to 80,466, would
dominate every linear index.
"""

import functools
import hashlib
import importlib.resources
import json
import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from pns_bounds import InputError
from scipy import special

from pns_dgp._model import as_numbers, check_entries, require
from pns_dgp._normal_scores import Margin, draw_scores, make_margin

_PERCENTILES = (0.005, 0.995)


class Scaling(NamedTuple):
    """Winsorizing limits, then the mean and deviation of what they leave, each [d]."""

    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]
    mean: Float[np.ndarray, " d"]
    deviation: Float[np.ndarray, " d"]

    def __call__(self, raw: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Winsorizes and standardizes rows [n, d]."""
        return (np.clip(raw, self.low, self.high) - self.mean) / self.deviation


class _Block(NamedTuple):
    copula: dict[str, Any]
    flips: np.ndarray  # [size] -1 where a column uses 1 - u, else 1
    margins: tuple[Margin, ...]


@functools.cache
def _read_law() -> tuple[tuple[str, ...], tuple[_Block, ...]]:
    folder = importlib.resources.files("pns_dgp") / "data"
    table = json.loads((folder / "acic2019_covariates.json").read_text())
    names, blocks = [], []
    for block in table["blocks"]:
        margins, flips = [], []
        for column in block["columns"]:
            parameters = dict(column)
            names.append(parameters.pop("name"))
            flips.append(-1.0 if parameters.pop("flip") else 1.0)
            margins.append(make_margin(parameters.pop("family"), parameters))
        blocks.append(_Block(block["copula"], np.array(flips), tuple(margins)))
    return tuple(names), tuple(blocks)


class AcicCovariates:
    """The law of the challenge's covariates: unlimited fresh rows."""

    @property
    def names(self) -> tuple[str, ...]:
        """Group, block and position of each column, such as N1_1 or I_20."""
        return _read_law()[0]

    @functools.cached_property
    def scaling(self) -> Scaling:
        """Winsorizing and standardizing constants, computed from the law itself."""
        # Each margin is integrated over the midpoints of 20,000 equally likely slices.
        middles = special.ndtri((np.arange(20_000) + 0.5) / 20_000)
        limits = special.ndtri(np.array(_PERCENTILES))
        rows = []
        for block in _read_law()[1]:
            for margin in block.margins:
                low, high = margin(limits)
                kept = np.clip(margin(middles), low, high)
                rows.append((low, high, kept.mean(), kept.std() or 1.0))
        return Scaling(*np.array(rows).T)

    def draw_raw(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n d"]:
        """Draws n rows [n, 200] in original units, as the challenge's files have them."""
        rows = np.empty((n, len(self.names)))
        start = 0
        for block in _read_law()[1]:
            size = len(block.margins)
            scores = draw_scores(rng, n, size, block.copula) * block.flips
            for column, margin in enumerate(block.margins):
                rows[:, start + column] = margin(scores[:, column])
            start += size
        return rows

    def draw(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n d"]:
        """Draws n rows [n, 200], winsorized and standardized."""
        return self.scaling(self.draw_raw(rng, n))

    def describe(self) -> dict[str, Any]:
        """Says where the rows come from."""
        return {"source": "law of the ACIC 2019 high-dimensional covariates"}


class RowCovariates:
    """Covariates drawn with replacement from rows that a user holds."""

    def __init__(self, rows: Any) -> None:
        """Stores an array or DataFrame [num_rows, d], winsorized and standardized."""
        raw = as_numbers("rows", rows)
        problem = f"must have shape [num_rows, num_covariates], got {list(raw.shape)}."
        require(raw.ndim == 2 and raw.size, "rows", problem)
        names = [f"Z{i + 1}" for i in range(raw.shape[1])]
        if isinstance(rows, pd.DataFrame):
            names = [str(name) for name in rows.columns]
        is_unique = len(set(names)) == len(names)
        require(is_unique, "rows", f"must have different column names, got {names}.")
        self.names = tuple(names)
        check_entries("rows", raw, np.isfinite(raw), "be finite", self.names)
        low, high = np.quantile(raw, _PERCENTILES, axis=0)
        kept = np.clip(raw, low, high)
        deviation = kept.std(axis=0)
        flat = [self.names[i] for i in np.flatnonzero((deviation == 0) & raw.any(0))]
        if flat:
            warnings.warn(
                f"columns {flat} do not vary between their 0.5 and 99.5 percentiles and "
                "become constant.",
                stacklevel=2,
            )
        self.scaling = Scaling(
            low, high, kept.mean(axis=0), np.where(deviation > 0, deviation, 1.0)
        )
        self._rows = self.scaling(raw).astype(np.float32)

    def draw(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n d"]:
        """Draws n rows [n, d] with replacement."""
        return self._rows[rng.integers(len(self._rows), size=n)]

    def describe(self) -> dict[str, Any]:
        """Says where the rows come from."""
        return {
            "source": f"{len(self._rows)} rows given by the user",
            "columns": list(self.names),
            "sha256": hashlib.sha256(self._rows.tobytes()).hexdigest(),
            "scaling": {k: v.tolist() for k, v in self.scaling._asdict().items()},
        }


Covariates = AcicCovariates | RowCovariates


def make_covariates(rows: Any | None) -> Covariates:
    """Takes a user's rows, an array or DataFrame [num_rows, d]; None: the challenge's law."""
    if isinstance(rows, Covariates):
        return rows
    return AcicCovariates() if rows is None else RowCovariates(rows)


def load_acic_csv(
    paths: str | os.PathLike | Sequence[str | os.PathLike],
) -> pd.DataFrame:
    """Reads covariates from files of the ACIC 2019 high-dimensional track.

    A file has a row per unit and the columns Y, A (outcome and treatment, which are
    not used here) and V1 to V200. **The challenge shuffled the columns anew for each of
    its data-generating processes**: V7 of files from two processes are different
    covariates, so pool only files of one process. Returns V1 to V200 in float32, rows
    in the files' order.

    Example:
      >>> import pathlib, tempfile
      >>> names = ",".join(f"V{i}" for i in range(1, 201))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder, "units.csv")
      ...     _ = path.write_text(names + chr(10) + ",".join(["1"] * 200))
      ...     load_acic_csv([path, path]).shape
      (2, 200)
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    require(paths, "paths", "must name at least one file.")
    return pd.concat([_load_one(path) for path in paths], ignore_index=True)


def _load_one(path: str | os.PathLike) -> pd.DataFrame:
    wanted = [f"V{i}" for i in range(1, 201)]
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:  # of decoding and of parsing, too
        raise InputError(f"{path}", f"cannot be read as CSV: {error}") from error
    missing = [name for name in wanted if name not in frame.columns]
    require(not missing, f"{path}", f"lacks {len(missing)} columns: {missing[:5]}.")
    require(len(frame), f"{path}", "has a header and no rows.")
    numbers = frame[wanted].apply(pd.to_numeric, errors="coerce")
    numbers = numbers.where(numbers.abs() < np.finfo(np.float32).max)
    ok = np.isfinite(numbers.to_numpy(np.float64))
    found = frame[wanted].to_numpy()
    check_entries(f"{path}", found, ok, "hold finite numbers", wanted)
    return numbers.astype(np.float32)
