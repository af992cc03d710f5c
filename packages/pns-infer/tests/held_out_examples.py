"""Two tables with discrete covariates, their truth, and held-out atoms of any quality."""

from typing import NamedTuple

import numpy as np
import pns_bounds as pb
import pns_infer as pi

NUM_CELLS = 5


class World(NamedTuple):
    """Response types and choices in each of five cells.

    Attributes:
      types: [cell, 4] shares of never, complier, defier, always.
      choice: [cell, 4] chance that a type chooses treatment.
      law: [2, cell] of the observational and the experimental source.
    """

    types: np.ndarray
    choice: np.ndarray
    law: np.ndarray

    def atoms(self):
        """Returns the true atoms of each cell."""
        y1, y0 = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
        joint = np.zeros((NUM_CELLS, 2, 2))
        for kind in range(4):
            chosen = self.types[:, kind] * self.choice[:, kind]
            joint[:, 1, y1[kind]] += chosen
            joint[:, 0, y0[kind]] += self.types[:, kind] - chosen
        return pb.Atoms(joint, np.stack([self.types @ y0, self.types @ y1], axis=1))

    def average(self, estimand, sizes):
        """Returns the identified set of the average over both sources together."""
        law = np.average(self.law, axis=0, weights=sizes)
        bounds = estimand.bounds(self.atoms())
        return law @ bounds.lower, law @ bounds.upper

    def sample(self, rng, num_observational, num_experimental, assignment=0.5):
        """Draws cells, x, y and sources; the assignment may be one for each cell."""
        sizes = (num_observational, num_experimental)
        cell = np.concatenate(
            [
                rng.choice(NUM_CELLS, n, p=p)
                for n, p in zip(sizes, self.law, strict=True)
            ]
        )
        is_experimental = np.repeat([False, True], sizes)
        ladder = np.cumsum(self.types, axis=1)[cell]
        kind = np.minimum((rng.random(len(cell))[:, None] > ladder).sum(axis=1), 3)
        chance = np.where(
            is_experimental,
            np.broadcast_to(assignment, NUM_CELLS)[cell],
            self.choice[cell, kind],
        )
        x = (rng.random(len(cell)) < chance).astype(int)
        y = np.where(x == 1, np.isin(kind, (1, 3)), np.isin(kind, (2, 3))).astype(int)
        return cell, is_experimental, x, y


def make_world(seed=5, law=None):
    """Makes a confounded world whose binding terms change with the cell."""
    rng = np.random.default_rng(seed)
    types = rng.dirichlet(np.full(4, 0.8), NUM_CELLS)
    law = np.full((2, NUM_CELLS), 1 / NUM_CELLS) if law is None else np.asarray(law)
    return World(types, rng.uniform(0.1, 0.9, (NUM_CELLS, 4)), law)


def saturated(cell, is_experimental, x, y, weights=None):
    """Returns the frequencies of each row's cell, as atoms [n] and [cell]."""
    weights = np.ones(len(cell)) if weights is None else weights
    counts = np.zeros((2, NUM_CELLS, 2, 2))
    np.add.at(counts, (is_experimental.astype(int), cell, x, y), weights)
    cells = pb.atoms_from_counts(*counts)
    return pb.Atoms(cells.joint[cell], cells.mu[cell]), cells


def rough_units(rng, world, num_observational, num_experimental, noise=0.1, **options):
    """Draws units whose held-out atoms are the truth with an error in each cell."""
    assignment = options.pop("assignment", 0.5)
    cell, *rows = world.sample(rng, num_observational, num_experimental, assignment)
    truth = world.atoms()
    wrong = np.random.default_rng(1)
    joint = 0.8 * truth.joint + 0.2 * wrong.dirichlet(np.ones(4), NUM_CELLS).reshape(
        -1, 2, 2
    )
    mu = np.clip(truth.mu + noise * wrong.standard_normal((NUM_CELLS, 2)), 0.01, 0.99)
    chance = np.broadcast_to(assignment, NUM_CELLS)[cell]
    atoms = pb.Atoms(joint[cell], mu[cell])
    return cell, pi.make_held_out_units(atoms, *rows, assignment=chance, **options)
