"""How many treatments and outcome levels there are, and what follows for shapes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Layout:
    """The treatments 0..K-1 and the ordered outcome levels 0..M-1.

    Every package asks here for the lengths of its axes; none writes them down.

    Attributes:
      num_treatments: K.
      num_levels: M.
    """

    num_treatments: int = 2
    num_levels: int = 2

    @property
    def joint_shape(self) -> tuple[int, int]:
        """Shape of the law of (X, Y), by treatment and level."""
        return self.num_treatments, self.num_levels

    @property
    def num_cells(self) -> int:
        """Pairs of treatment and level: entries of a joint law, or of one source."""
        return self.num_treatments * self.num_levels

    @property
    def num_free(self) -> int:
        """Free numbers of the laws of the outcome under each treatment."""
        return self.num_treatments * (self.num_levels - 1)

    @property
    def num_raw(self) -> int:
        """Numbers that a learner answers with: logits of the cells, and the anchors'."""
        return self.num_cells + self.num_free

    @property
    def num_counts(self) -> int:
        """Counts of one covariate vector: the cells of both sources."""
        return 2 * self.num_cells


BINARY = Layout()
"""Two treatments and two outcome levels, as in the paper."""
