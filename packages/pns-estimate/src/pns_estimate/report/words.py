"""How the report speaks of a treatment, an outcome, and what one does to the other."""

import re
from typing import NamedTuple

import pns_bounds as pb

from pns_estimate._state import FitSummary

_SYMBOL = re.compile(r"mu[01]|p[01][01]|P\(y\)")


class Words(NamedTuple):
    """Names of the two values of treatment and outcome, and verbs."""

    treated: str  # such as 'drug = 1'
    untreated: str
    outcome: str  # such as 'death = 1'
    causes: str  # the verb for PNS
    good: str | None  # what people want, 'pns' or 'harm'; None if that was not said

    def verb(self, name: str) -> str:
        """Says what the treatment does to the outcome in PNS, and in harm."""
        return self.causes if name == "pns" else "prevents"

    def judgment(self, name: str) -> str:
        """Returns 'benefit' or 'harm', or nothing if it was not said which is which."""
        if self.good is None or name not in ("pns", "harm"):
            return ""
        return "benefit" if name == self.good else "harm"

    def judged(self, name: str) -> str:
        """Says what the treatment does to the outcome, and whether that is good."""
        judgment = self.judgment(name)
        return self.verb(name) + (f" ({judgment})" if judgment else "")

    def label(self, estimand: pb.Estimand) -> str:
        """Names an estimand in a few words."""
        name = estimand.name
        if name in ("pns", "harm"):
            judgment = self.judgment(name)
            return (f"{judgment}: " if judgment else "") + (
                f"{self.treated} {self.verb(name)} {self.outcome}"
            )
        return {
            "pn": f"was {self.treated} necessary for {self.outcome} (PN)",
            "ps": f"would {self.treated} suffice for {self.outcome} (PS)",
            "always": f"{self.outcome} either way",
            "never": f"{self.outcome} neither way",
        }.get(name, name)

    def symbols(self) -> dict[str, str]:
        """Explains the six probabilities that bounds are made of, and their sum."""
        no_outcome = f"no {self.outcome}"
        choices = {"1": self.treated, "0": self.untreated}
        arms = {
            f"mu{x}": f"chance of {self.outcome} if assigned {choice}"
            for x, choice in choices.items()
        }
        cells = {
            f"p{x}{y}": f"share of the log with {choice} and {happened}"
            for x, choice in choices.items()
            for y, happened in (("1", self.outcome), ("0", no_outcome))
        }
        return {**arms, **cells, "P(y)": f"share of the log with {self.outcome}"}

    def explain(self, formula: str) -> str:
        """Writes a formula of those probabilities in words."""
        symbols = self.symbols()
        plain = formula.replace(" - ", " − ").replace("<=", "≤")
        return _SYMBOL.sub(lambda found: f"[{symbols[found[0]]}]", plain)


def make_words(summary: FitSummary, outcome_is_bad: bool | None) -> Words:
    """Takes names from the tables, and verbs that suit the outcome."""
    treatment, outcome = summary.treatment, summary.outcome
    return Words(
        treated=f"{treatment.column} = {treatment.one}",
        untreated=f"{treatment.column} = {treatment.zero}",
        outcome=f"{outcome.column} = {outcome.one}",
        causes="causes" if outcome_is_bad else "brings about",
        good={None: None, True: "harm", False: "pns"}[outcome_is_bad],
    )
