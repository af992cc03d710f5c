"""Draws the pictures of docs/idea.md; what they show is computed here.

Usage: python docs/figures.py [FOLDER]     the pictures go to docs/figures unless one is named
"""

import sys
from pathlib import Path

import jax
import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
import pns_bounds as pb
import pns_infer as pi
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#2b6cb0", "#c05621", "#2f855a", "#718096"
# The same picture is the same file.
STYLE = {
    "svg.hashsalt": "docs",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

# Shares of people who have the outcome: only if treated, either way, neither way, only if
# untreated. The same trial comes of both worlds.
WORLDS = {"nobody is harmed": (10, 40, 50, 0), "some are harmed": (40, 10, 20, 30)}

# Mueller and Pearl's example: counts [sex, x, y], x = took the drug, y = recovered.
SEXES = ("women", "men")
CHOSE = np.array([[[90, 210], [511, 189]], [[90, 210], [210, 490]]])
ASSIGNED = np.array([[[790, 210], [511, 489]], [[790, 210], [510, 490]]])

# One person's probabilities, joint[x, y] and mu[x].
PERSON = pb.Atoms(joint=np.array([[0.3, 0.2], [0.1, 0.4]]), mu=np.array([0.3, 0.6]))
NUM_TABLES = 1000
SIZES = (500, 400)  # of the log and of the trial, in the picture of the winner's curse


def draw_worlds() -> Figure:
    """Two worlds that no trial can tell apart."""
    figure, axes = plt.subplots(figsize=(7.2, 2.6), layout="constrained")
    names = ("only if treated", "either way", "neither way", "only if untreated")
    colors = (GREEN, "#a0aec0", "#e2e8f0", ORANGE)
    left = np.zeros(len(WORLDS))
    for name, color, shares in zip(
        names, colors, np.transpose(list(WORLDS.values())), strict=True
    ):
        axes.barh(list(WORLDS), shares, left=left, color=color, label=name, height=0.55)
        for place, share in enumerate(shares):
            if share:
                middle = left[place] + share / 2
                axes.text(middle, place, f"{share}", ha="center", va="center")
        left += shares
    axes.set(xlim=(0, 100), xlabel="people in a hundred who have the outcome ...")
    axes.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=10)
    return figure


def draw_sexes() -> Figure:
    """What observation adds to a trial, for women and for men."""
    atoms = pb.atoms_from_counts(observational=CHOSE, experimental=ASSIGNED)
    figure, panels = plt.subplots(
        1, 2, figsize=(7.2, 2.4), layout="constrained", sharey=True
    )
    for axes, title, alone, both in (
        (
            panels[0],
            "benefit",
            pb.experimental_only_bounds(atoms.mu),
            pb.pns_bounds(atoms),
        ),
        (
            panels[1],
            "harm",
            pb.experimental_only_bounds(atoms.mu[..., ::-1]),
            pb.harm_bounds(atoms),
        ),
    ):
        for row, sex in enumerate(SEXES):
            _draw_interval(axes, 3 * row, alone, row, GREY, f"{sex}, trial alone")
            _draw_interval(axes, 3 * row + 1, both, row, BLUE, f"{sex}, both tables")
        axes.set(xlim=(-0.02, 0.6), title=title, xlabel="share of people")
    panels[0].set_yticks(
        [0, 1, 3, 4],
        [
            f"{sex}, {which}"
            for sex in SEXES
            for which in ("trial alone", "both tables")
        ],
    )
    panels[0].set_ylim(4.8, -0.8)
    return figure


def _draw_interval(
    axes: Axes, place: float, interval: pb.Interval, row: int, color: str, name: str
) -> None:
    ends = [float(interval.lower[row]), float(interval.upper[row])]
    axes.plot(ends, [place] * 2, color=color, lw=6, solid_capstyle="butt", label=name)
    axes.plot(ends, [place] * 2, "|", color=color, ms=14, mew=3)


def draw_terms() -> Figure:
    """The terms of one person: the greatest lower and the least upper one bind."""
    terms = pb.PNS.terms(PERSON)
    interval = pb.pns_bounds(PERSON)
    figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    axes.axvspan(*map(float, interval), color=BLUE, alpha=0.15, lw=0)
    labels = [*pb.PNS.lower_labels, *pb.PNS.upper_labels]
    values = [*terms.lower, *terms.upper]
    for place, value in enumerate(values):
        is_lower = place < len(terms.lower)
        binds = np.isclose(value, interval.lower if is_lower else interval.upper)
        marker, color = (">", GREEN) if is_lower else ("<", ORANGE)
        fill = color if binds else "white"
        axes.plot(value, place, marker, color=color, mfc=fill, ms=10, mew=1.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set(xlim=(-0.03, 1), xlabel="PNS of one person")
    for words, color, height in (("at least", GREEN, 1), ("at most", ORANGE, 4.5)):
        axes.text(0.98, height, words, color=color, ha="right", va="center")
    return figure


def draw_anchor() -> Figure:
    """Any number becomes a probability of the trial that the log admits."""
    delta = np.linspace(-6, 6, 121)
    joint = np.repeat(PERSON.joint[None], len(delta), axis=0)
    mu = pb.anchor(joint, np.stack([delta, delta], axis=-1))
    figure, axes = plt.subplots(figsize=(7.2, 2.8), layout="constrained")
    low, high = PERSON.joint[1, 1], 1 - PERSON.joint[1, 0]
    axes.axhspan(0, low, color=GREY, alpha=0.15, lw=0)
    axes.axhspan(high, 1, color=GREY, alpha=0.15, lw=0)
    axes.plot(delta, mu[:, 1], color=BLUE, lw=2)
    axes.text(
        -5.8, low / 2, "these people had the outcome with the treatment", va="center"
    )
    axes.text(-5.8, (1 + high) / 2, "these did not", va="center")
    axes.set(
        xlim=(-6, 6),
        ylim=(0, 1),
        xlabel="what the network says (any number)",
        ylabel="mu1",
    )
    return figure


def simulate_tables() -> tuple[pb.Atoms, np.ndarray, np.ndarray]:
    """Draws many pairs of small tables of the same person.

    Returns:
      The true atoms, and counts [NUM_TABLES, x, y] of log and trial.
    """
    rng = np.random.default_rng(0)
    log = rng.multinomial(SIZES[0], PERSON.joint.ravel(), NUM_TABLES)
    successes = rng.binomial(SIZES[1] // 2, PERSON.mu, (NUM_TABLES, 2))
    trial = np.stack([SIZES[1] // 2 - successes, successes], axis=-1)
    return PERSON, log.reshape(-1, 2, 2), trial


def estimate_bounds() -> tuple[pb.Interval, pb.Interval, pb.Interval]:
    """Returns the true interval, and plug-in and corrected ones of every pair of tables."""
    atoms, log, trial = simulate_tables()
    estimates = pb.atoms_from_counts(log, trial)
    covariance = pi.frequency_covariance(log, trial)
    corrected = pi.intervals_from_estimates(
        jax.random.key(0), estimates, covariance, sample_size=sum(SIZES)
    )
    terms = pb.PNS.terms(estimates)
    return (
        pb.pns_bounds(atoms),
        pb.Interval(terms.lower.max(axis=-1), terms.upper.min(axis=-1)),
        pb.Interval(np.asarray(corrected.lower), np.asarray(corrected.upper)),
    )


def draw_curse() -> Figure:
    """Plug-in bounds lie inside the truth; corrected ones around it."""
    truth, plug_in, corrected = estimate_bounds()
    figure, panels = plt.subplots(
        2, 1, figsize=(7.2, 4.4), layout="constrained", sharex=True
    )
    bins = np.linspace(0, 1, 81)
    for axes, found, title in (
        (panels[0], plug_in, "plug-in"),
        (panels[1], corrected, "corrected"),
    ):
        covers = (found.lower <= truth.lower) & (found.upper >= truth.upper)
        for values, end, color, name in (
            (found.lower, truth.lower, GREEN, "lower end"),
            (found.upper, truth.upper, ORANGE, "upper end"),
        ):
            axes.hist(
                values, bins, histtype="stepfilled", fc=color, alpha=0.6, label=name
            )
            axes.axvline(float(end), color="black", lw=1.2)
        axes.set(ylabel="pairs of tables")
        axes.set_title(
            f"{title}: {100 * covers.mean():.0f}% contain both true ends", loc="left"
        )
        axes.legend(frameon=False, loc="upper right")
    panels[1].set(xlim=(0, 1), xlabel="PNS; black lines are the true bounds")
    return figure


FIGURES = {
    "worlds": draw_worlds,
    "sexes": draw_sexes,
    "terms": draw_terms,
    "anchor": draw_anchor,
    "curse": draw_curse,
}


def main(arguments: list[str]) -> None:
    """Draws every picture."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        for name, draw in FIGURES.items():
            figure = draw()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1:])
