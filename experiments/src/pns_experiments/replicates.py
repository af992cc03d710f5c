"""Data of a replicate: two tables, test points, and their truth."""

import re
from typing import NamedTuple

import jax
import numpy as np
import pns_bounds as pb
import pns_dgp
from jaxtyping import Float, Int, Key


class Tables(NamedTuple):
    """What a method may see.

    Attributes:
      observational: the log.
      experimental: the trial.
      covariate: of each column of z, the covariate that it belongs to; a category has one
        for each label. None if all columns are covariates.
    """

    observational: pns_dgp.Sample
    experimental: pns_dgp.Sample
    covariate: Int[np.ndarray, " num_covariates"] | None = None

    @property
    def both(self) -> tuple[pns_dgp.Sample, pns_dgp.Sample]:
        """The log and the trial."""
        return self.observational, self.experimental


class Replicate(NamedTuple):
    """One replicate of a setting.

    Attributes:
      tables: what a method learns from.
      z: test points.
      truth: at the test points; to score, never to fit.
      method_key: decides everything random in a method.
    """

    tables: Tables
    z: Float[np.ndarray, "num_test num_covariates"]
    truth: pns_dgp.Truth
    method_key: Key[jax.Array, ""]


_MODELS = {"li_1": pns_dgp.li_model_1, "acic": pns_dgp.acic_model}
# Of the random curved family: its seed, then how many covariates there are.
_CURVED = re.compile(r"curved:(\d+)(?::(\d+))?")
# Of the families of worlds: the family, then its seed.
_WORLD = re.compile(r"world:(\w+):(\d+)")
# Of the random Li family: its seed, then how many covariates are observed and hidden.
_MEMBER = re.compile(r"li:(\d+)(?::(\d+)\+(\d+))?")


def is_model(name: str) -> bool:
    """Tells whether `make_model` knows a name."""
    if world := _WORLD.fullmatch(name):
        return world[1] in pns_dgp.FAMILIES
    families = (_MEMBER, _CURVED)
    return name in _MODELS or any(family.fullmatch(name) for family in families)


def make_model(name: str) -> pns_dgp.StructuralModel:
    """Makes 'li_1', 'acic', or a member of a random family.

    A member is 'li:<seed>', with 15 observed and 5 hidden covariates, or for example
    'li:<seed>:12+3'; 'curved:<seed>', with 8 covariates, or 'curved:<seed>:20'; or
    'world:<family>:<seed>'.
    """
    if not is_model(name):
        raise pb.InputError(
            "model",
            "must be 'li_1', 'acic', 'li:<seed>', 'li:<seed>:<observed>+<hidden>', "
            "'curved:<seed>', 'curved:<seed>:<covariates>' or 'world:<family>:<seed>' "
            f"with a family of {sorted(pns_dgp.FAMILIES)}, got {name!r}.",
        )
    if member := _WORLD.fullmatch(name):
        return pns_dgp.make_world(member[1], int(member[2]))
    if member := _CURVED.fullmatch(name):
        seed, size = (int(part or 0) for part in member.groups())
        if not size:
            return pns_dgp.random_curved_model(seed)
        return pns_dgp.random_curved_model(seed, size, num_binary=size // 3)
    if member := _MEMBER.fullmatch(name):
        seed, observed, hidden = (int(part or 0) for part in member.groups())
        if not observed:
            return pns_dgp.random_li_model(seed)
        return pns_dgp.random_li_model(seed, observed + hidden, hidden)
    return _MODELS[name]()


def count_twins(
    tables: Tables, z: Float[np.ndarray, "num_test num_covariates"]
) -> Int[np.ndarray, " num_test"]:
    """Counts the rows of both tables that share all covariates with each point."""
    rows = np.concatenate([np.asarray(table.z, np.float32) for table in tables.both])
    together = np.concatenate([rows, z.astype(np.float32)])
    _, cell = np.unique(together, axis=0, return_inverse=True)
    sizes = np.bincount(cell[: len(rows)], minlength=cell.max() + 1)
    return sizes[cell[len(rows) :]]


def draw_replicate(
    model_name: str,
    num_observational: int,
    num_experimental: int,
    num_test: int,
    replicate: int,
    seed: int,
) -> Replicate:
    """Draws a replicate; the same arguments give the same data to every method."""
    model = make_model(model_name)
    key = jax.random.fold_in(jax.random.key(seed), replicate)
    data_key, test_key, method_key = jax.random.split(key, 3)
    sizes = {"observational": num_observational, "experimental": num_experimental}
    samples = {s: model.sample(data_key, sizes[s], s) for s in pns_dgp.SOURCES}
    z = np.asarray(model.sample_population(test_key, num_test).z, np.float32)
    covariate = _covariate(model)
    tables = Tables(
        **{
            s: some._replace(z=_indicators(np.asarray(some.z), covariate))
            for s, some in samples.items()
        },
        covariate=covariate,
    )
    return Replicate(tables, _indicators(z, covariate), model.oracle(z), method_key)


def _covariate(model: pns_dgp.StructuralModel) -> Int[np.ndarray, " d"] | None:
    """Says to which covariate each column belongs, see `Tables`."""
    if not isinstance(model, pns_dgp.World) or not model.categories:
        return None
    sizes = np.ones(model.num_covariates, int)
    sizes[list(model.categories)] = model.num_labels
    return np.repeat(np.arange(len(sizes)), sizes)


def _indicators(
    z: Float[np.ndarray, "n covariates"], covariate: Int[np.ndarray, " d"] | None
) -> Float[np.ndarray, "n columns"]:
    """Replaces each category by indicators of its labels."""
    if covariate is None:
        return z
    labels = np.arange(pns_dgp.World.num_labels)
    columns = [
        column[:, None] == labels if np.sum(covariate == j) > 1 else column[:, None]
        for j, column in enumerate(z.T)
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)
