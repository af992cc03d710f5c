"""Public trials: readers of their files, on made-up ones of the same columns."""

import json

import numpy as np
import pandas as pd
import pns_bounds as pb
import pns_estimate as pe
import pns_models as pm
import pytest
from pns_experiments import trials


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files with the columns of the three trials, and no real person."""
    where = tmp_path_factory.mktemp("trials")
    rng = np.random.default_rng(0)
    for name in trials.TRIALS:
        (where / name).mkdir()
    count = 3000
    flag = lambda share=0.5: (rng.random(count) < share).astype(int)
    recency = rng.integers(1, 13, count)
    segment = rng.choice(["Mens E-Mail", "No E-Mail", "Womens E-Mail"], count)
    visit = rng.random(count) < 0.2 + 0.2 * (segment == "Mens E-Mail") + recency / 40
    pd.DataFrame(
        {
            "recency": recency,
            "history": rng.gamma(2, 100, count),
            "mens": flag(),
            "womens": flag(),
            "newbie": flag(),
            "zip_code": rng.choice(["Urban", "Rural"], count),
            "channel": rng.choice(["Web", "Phone"], count),
            "segment": segment,
            "visit": visit.astype(int),
        }
    ).to_csv(where / "hillstrom" / "hillstrom.csv.gz", index=False)
    home = np.repeat(np.arange(count // 2), 2)
    arm = rng.choice(["Neighbors", "No Postcard", "Hawthorne"], count // 2)[home]
    votes = ["primary_00", "general_00", "primary_02", "general_02", "primary_04"]
    pd.DataFrame(
        {
            "cluster": home,
            "treatment": arm,
            "sex": rng.choice(["Male", "Female"], count),
        }
        | {"age": rng.integers(18, 90, count), "hh_size": 2, "primary_06": flag(0.3)}
        | {vote: flag() for vote in votes}
    ).to_csv(where / "gotv" / "gotv_shaming.csv.gz", index=False)
    people = pd.DataFrame(
        {name: flag() for name in ("treat", "black", "hispanic", "married", "nodegree")}
        | {"age": rng.integers(18, 50, count), "education": rng.integers(6, 14, count)}
        | {"re75": rng.gamma(1, 4000, count), "re78": flag() * 5000.0}
    )
    people[:600].to_csv(where / "lalonde" / "nsw.csv", index=False)
    controls = people[600:].assign(treat=0)
    controls.to_csv(where / "lalonde" / "psid_controls.csv.gz", index=False)
    return where


def test_blocks_stay_together_and_hidden_columns_are_hidden(folder):
    tables = trials.read_gotv(folder, 0, 0.8)
    first, second = (set(table["block"]) for table in tables[:2])
    assert not first & second and first and second
    assert "primary_04" not in tables.experimental.columns
    assert set(tables.experimental["letter"]) == {0, 1}
    hillstrom = trials.read_hillstrom(folder, 0, 1.0)
    assert "recency" not in hillstrom.observational.columns
    assert len(trials.read_li_1(folder, 0, 0.01).observational) == 200
    lalonde = trials.read_lalonde(folder, 0, 1.0)
    assert lalonde.source == "experimental" and len(lalonde.experimental) == 600


class Constant:
    """Says the same of everybody, and claims not to have seen them."""

    name, sentence, recipe = "constant", "one law for all", None
    has_draws, is_posterior = False, False

    def deal(self, key, part, groups, recipe):
        return np.arange(len(part)) % 2

    def fit(self, key, rows, recipe, progress=False, checkpoint_dir=None):
        folded, place = rows.folded()
        return pe.MethodFit(
            self,
            folded.counts,
            pm.make_standardizer(rows.counts()),
            held_out_atoms=self.atoms(folded.counts.z),
            held_out_place=place,
        )

    def atoms(self, z):
        return pb.atoms_from_counts(*np.ones((2, len(z), *pb.BINARY.joint_shape)))


def test_a_trial_is_fitted_and_shown(folder):
    pe.register_method(Constant())
    result = trials.run_trial("hillstrom", folder, 0, 1.0, "constant")
    json.dumps(result)
    pns = result["averages"]["pns"]["both, by covariates"]
    assert 0 <= pns["lower"] <= pns["upper"] <= 1
    assert result["difference"]["lower"] < 0.2 < result["difference"]["upper"]
    text = trials.format_trial(result)
    assert f"{pns['lower']:.3f} to {pns['upper']:.3f}" in text
    assert text.count("\n| ") == 4 + 5 + 2
