"""The command: files it writes, exit codes, one-line errors."""

import collections
import errno
import gc
import hashlib
import importlib.metadata
import inspect
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pns_estimate as pe
import pns_infer as pi
import pns_models as pm
import pytest
from absl import flags
from absl.testing import flagsaver
from pns_estimate._errors import InterruptedFitError, Setting
from pns_estimate.command import flags as _flags
from pns_estimate.command import main as _command
from pns_estimate.command import run as _command_run
from pns_estimate.command import run_folder as _run_folder
from small_tables import LinearSampler, draw_table


def command(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "pns_estimate.command.main", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def in_process(folder, monkeypatch, capsys):
    """Runs the command without a process of its own."""

    def run(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(_command_run, "use_compilation_cache", lambda: None)
        capsys.readouterr()
        with flagsaver.flagsaver(), pytest.raises(SystemExit) as caught:
            flags.FLAGS.unparse_flags()
            _command.run(["pns-estimate", *map(str, arguments)])
        return Done(caught.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def folder(tables, people, tmp_path_factory):
    where = tmp_path_factory.mktemp("command")
    tables[0].to_csv(where / "log.csv", index=False)
    tables[1].to_parquet(where / "trial.parquet")
    people.to_csv(where / "people.csv", index=False)
    return where


FIT = (
    "--observational=log.csv",
    "--experimental=trial.parquet",
    "--treatment=x",
    "--outcome=y",
)


INTERRUPTED = "pns-estimate: interrupted"
JOB = ("--num_processes=2",)
WORDS = ("--observational=words0.csv", "--experimental=words1.csv")


@pytest.mark.slow
def test_a_fit_writes_everything_and_its_model_predicts_the_same(folder, in_process):
    done = command(
        *FIT,
        *("--predict=people.csv", "--out=run", "--num_draws=300", "--method=epinet"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (folder / "run").iterdir()}
    assert written == {
        "intervals.parquet",
        "intervals.csv",
        "report.html",
        "summary.json",
        "model",
        "config.json",
    }
    first = pd.read_parquet(folder / "run" / "intervals.parquet")
    assert len(first) == 40 and "report.html" in done.stdout
    names = {"binding_lower": str, "binding_upper": str}  # all of them may be "0"
    text = pd.read_csv(folder / "run" / "intervals.csv", index_col="row", dtype=names)
    pd.testing.assert_frame_equal(text, first, check_names=False, check_dtype=False)
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["treatment"] == "x" and config["num_draws"] == 300
    again = command(
        "--load=run/model", "--predict=people.csv", "--out=again", cwd=folder
    )
    assert again.returncode == 0, again.stderr
    second = pd.read_parquet(folder / "again" / "intervals.parquet")
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert not (folder / "again" / "model").exists()
    full = in_process(*FIT, "--out=run")
    assert full.returncode == 2 and "not an empty folder" in full.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out=o",), "--observational, --experimental, --treatment, --outcome must"),
        (FIT, "say where to write with --out"),
        ((*FIT, "--out=o", "extra"), "only flags are taken"),
        ((*FIT, "--out=o", "--alpha=2"), "--alpha must lie in"),
        (
            (*FIT, "--out=o", "--threshold=1"),
            "pns-estimate: --threshold must be at least 0 and below 1",
        ),
        ((*FIT[1:], "--observational=none.csv", "--out=o"), "is not a file"),
        ((*FIT[1:], "--observational=empty.csv", "--out=o"), "cannot be read"),
        (
            (*FIT[:1], "--experimental=cut.parquet", *FIT[2:], "--out=o"),
            "cannot be read",
        ),
        ((*FIT[1:], "--observational=twice.csv", "--out=o"), "more than once"),
        ((*FIT[1:], "--observational=log.txt", "--out=o"), "must end in .csv"),
        ((*FIT[:3], "--outcome=z", "--out=o"), "has no column 'z'"),
        (("--load=nowhere", "--predict=people.csv", "--out=o"), "holds no model"),
        (("--load=nowhere", "--out=o"), "--load needs --predict"),
        (("--load=m", *FIT, "--out=o"), "--load fits nothing"),
        ((*FIT, "--out=log.csv/o"), "cannot be written"),
        (
            ("--load=m", "--predict=people.csv", "--seed=3", "--out=o"),
            "leave out --seed",
        ),
        ((*FIT[1:], "--observational=wide.csv", "--out=o"), "more fields than"),
        ((*FIT, "--groups=home", "--out=o"), "no table has the column 'home'"),
        ((*FIT, "--weights_are=sampling", "--out=o"), "--weights_are=sampling needs"),
        ((*FIT, "--assignment=0.9", "--out=o"), "assignment contradicts the data"),
        ((*FIT, "--gains=1,0,0", "--out=o"), "--gains must be four numbers"),
        ((*FIT, "--gains=1,0,0,x", "--out=o"), "--gains must be four numbers"),
        (
            (*FIT, "--gains=1,0,0,-1", "--budget=2", "--out=o"),
            "--budget must be a share",
        ),
        ((*FIT, "--process_id=1", "--out=o"), "--process_id belongs together"),
        (
            (*FIT, *JOB, "--coordinator_address=host", "--process_id=0", "--out=o"),
            "--coordinator_address must be host and port, 10.0.0.1:8476 for example",
        ),
        (
            (*FIT, *JOB, "--coordinator_address=a:1", "--process_id=2", "--out=o"),
            "must be below the number of processes, 2, got 2",
        ),
        (
            ("--load=m", "--predict=people.csv", "--distributed", "--out=o"),
            "--load fits nothing, so one process is enough",
        ),
        ((*FIT, "--cost=1", "--out=o"), "--cost is for decisions: give --gains"),
        (
            (*FIT, "--method=forest", "--out=o"),
            "--method must be one of ",
        ),
        (
            (*FIT, "--learners=ridge,forest", "--out=o"),
            "of ridge, splines, kernel, trees, random_trees, networks, networks_2, ",
        ),
        ((*FIT, "--learners=ridge,ridge", "--out=o"), "each once, got 'ridge'."),
        ((*FIT, "--learners=", "--out=o"), "each once, got none."),
        (
            (*FIT, "--learners=ridge", "--method=epinet", "--out=o"),
            "--learners is for --method=crossfit.",
        ),
        (
            ("--load=m", "--predict=people.csv", "--learners=ridge", "--out=o"),
            "leave out --learners",
        ),
        ((*FIT, "--weights_are=foo", "--out=o"), "--weights_are=foo: value should be"),
        (
            (*FIT, "--traget=set", "--out=o"),
            "'traget'. Did you mean: target; see --help",
        ),
        ((*FIT, "--alpha=x", "--out=o"), "--alpha=x: not a number; see --help"),
        ((*FIT, "--seed=x", "--out=o"), "--seed=x: not a whole number; see"),
        (
            (*FIT, "--outcome_is_bad=maybe", "--out=o"),
            "--outcome_is_bad=maybe: neither true nor false; see",
        ),
        ((*FIT, "--out"), "Missing value for flag --out"),
        ((*FIT, "--seed=-1", "--out=o"), "--seed=-1: -1 is not an integer in the"),
        ((*FIT, f"--seed={2**32}", "--out=o"), "--seed=4294967296: 4294967296 is not"),
        ((*FIT, "--num_draws=50", "--out=o"), "--num_draws=50: 50 is not"),
        (
            (*FIT, "--alpha=0.001", "--num_draws=300", "--out=o"),
            "fit with a larger --num_draws, or take a larger --alpha.",
        ),
        (
            (*FIT, "--alpha=0.001", "--method=bootstrap_full", "--out=o"),
            "the 200 draws of the method 'bootstrap_full' are too few for --alpha=0.001,",
        ),
        (
            (*FIT, "--predict=no_region.csv", "--out=o"),
            "the prediction table has no column 'region'",
        ),
        (
            (*FIT, "--predict=east.csv", "--out=o"),
            "['east']; fit with --unseen=unknown to allow them.",
        ),
        (
            (*FIT, "--predict=gaps.csv", "--out=o"),
            "complete them, or fit with --missing=indicator.",
        ),
        (
            (*WORDS, *FIT[2:], "--out=o"),
            "is the reference: --treatment_reference=no or --treatment_reference=yes.",
        ),
        (
            (*WORDS, "--treatment=m", FIT[3], "--weights=w", "--out=o"),
            "the weights 'w' of the observational table must be positive numbers",
        ),
        (
            (*FIT, "--assignment=age", "--out=o"),
            "assignment must lie strictly between 0 and 1",
        ),
        ((*FIT, "--assignment=chance", "--out=o"), "has no column 'chance'"),
        (
            ("--load=m", "--predict=people.csv", "--covariates=age", "--out=o"),
            "leave out --covariates",
        ),
        ((*FIT, "--out=people.csv"), "is not an empty folder"),
        (
            (*FIT, "--subgroups=region,height", "--out=o"),
            "--subgroups: ['height'] are not covariates of the fit",
        ),
        (
            (*FIT, "--audit", "--method=epinet", "--out=o"),
            "--audit is for --method=crossfit.",
        ),
        ((*FIT, "--audit", *JOB, "--out=o"), "--audit runs in one process"),
        (
            ("--load=m", "--predict=people.csv", "--audit", "--out=o"),
            "leave out --audit",
        ),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing_behind(
    folder, in_process, arguments, message
):
    (folder / "empty.csv").write_text("")
    (folder / "twice.csv").write_text("a,a,x,y\n1,2,0,1\n")
    (folder / "log.txt").write_text("a\n")
    (folder / "wide.csv").write_text("region,x,y\nnorth,1,0,9\nsouth,0,1,9\n")
    whole = (folder / "trial.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    _write_odd_tables(folder)
    done = in_process(*arguments)
    assert done.returncode == 2
    assert "fitting:" not in done.stderr  # all of it is found before
    assert message in done.stderr and "Traceback" not in done.stderr
    ours = [line for line in done.stderr.splitlines() if "pns-estimate:" in line]
    assert len(ours) == 1
    assert not (folder / "o").exists()


def _write_odd_tables(folder):
    people = pd.read_csv(folder / "people.csv")
    people.drop(columns="region").to_csv(folder / "no_region.csv", index=False)
    people.assign(region="east").to_csv(folder / "east.csv", index=False)
    people.assign(age=[None] * 3 + [40] * 37).to_csv(folder / "gaps.csv", index=False)
    for randomized in (False, True):
        table = draw_table(100, randomized, 3)
        table = table.assign(m=table["x"], w=randomized - 0.5).sort_values("x")
        table["x"] = table["x"].map({0: "no", 1: "yes"})
        table.to_csv(folder / f"words{randomized:d}.csv", index=False)


def test_compiled_programs_are_kept_once_flags_are_right(folder, monkeypatch):
    def stop():
        raise pe.UserError("asked for")

    monkeypatch.setattr(_command_run, "use_compilation_cache", stop)
    monkeypatch.chdir(folder)
    with flagsaver.flagsaver():
        flags.FLAGS(["pns-estimate", *FIT, "--out=o"])
        with pytest.raises(pe.UserError, match="asked for"):
            _command_run.answer(["pns-estimate"])
        with pytest.raises(pe.UserError, match="only flags are taken"):
            _command_run.answer(["pns-estimate", "extra"])


def test_debug_shows_where_an_error_came_from(in_process):
    shown = in_process("--load=nowhere", "--predict=people.csv", "--out=o", "--debug")
    assert "Traceback" in shown.stderr and shown.returncode == 2


def test_one_run_makes_each_draw_once(folder, in_process, monkeypatch):
    """1,500 people: intervals for all, and a report on all of them."""
    draw_table(1500, True, 6).to_parquet(folder / "many.parquet")
    asked = []
    original = LinearSampler.draws

    def counted(self, key, z, num_draws):
        asked.append(len(z))
        return original(self, key, z, num_draws)

    monkeypatch.setattr(LinearSampler, "draws", counted)
    settings = ("--method=linear", "--num_draws=200", "--out=counted")
    defaults = inspect.unwrap(pe.PnsEstimator.__init__).__kwdefaults__
    monkeypatch.setitem(defaults, "calibrate", False)  # whose draws are held out
    done = in_process(*FIT, "--predict=many.parquet", *settings)
    assert done.returncode == 0, done.stderr
    assert sum(asked) == 300  # people who share covariates share draws
    assert (
        "includes all 1,500 people" in (folder / "counted" / "report.html").read_text()
    )


def test_one_run_computes_each_answer_once(folder, in_process, monkeypatch):
    """CSV, Parquet, JSON, the report and what is printed share the same answers."""
    asked = collections.Counter()

    def count(kind, name):
        original = getattr(kind, name)

        def counted(self, *arguments, **options):
            values = [getattr(v, "name", v) for v in (*arguments, *options.values())]
            asked[f"{name} {values}"] += 1
            return original(self, *arguments, **options)

        monkeypatch.setattr(kind, name, counted)

    for name in ("intervals", "band"):
        count(pe.Prediction, name)
    for name in (
        *("average", "comparison", "difference", "subgroups", "sorted_groups"),
        *("value", "value_curve"),
    ):
        count(pe.Population, name)
    done = in_process(
        *(*QUICK, "--gains=1,0,0,-1", "--threshold=0.1", "--out=once"),
    )
    assert done.returncode == 0, done.stderr
    assert set(asked.values()) == {1}, asked
    kinds = collections.Counter(key.split(" ")[0] for key in asked)
    assert kinds == {
        "intervals": 3,
        "band": 2,
        "average": 2,
        "comparison": 2,
        "difference": 1,
        "subgroups": 2,
        "sorted_groups": 1,
        "value": 1,
        "value_curve": 1,
    }


def test_one_run_fits_the_model_of_the_source_once(
    folder, tables, in_process, monkeypatch
):
    """Checks, compatibility, averages, groups and values share it where laws differ."""
    trial, rng = tables[1], np.random.default_rng(0)
    older = trial[rng.random(len(trial)) < (trial["age"] - 15) / 60]
    older.to_parquet(folder / "older.parquet")
    fits = []
    for name, module in list(sys.modules.items()):
        if name.startswith("pns_infer") and (fit := vars(module).get("fit_logistic")):

            def counted(*arguments, fit=fit, **options):
                fits.append(arguments)
                return fit(*arguments, **options)

            monkeypatch.setattr(module, "fit_logistic", counted)
    done = in_process(
        *(*QUICK, "--experimental=older.parquet", "--gains=1,0,0,-1", "--out=older"),
    )
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (folder / "older").iterdir()}
    parts = ("averages", "subgroups", "sorted_groups", "values", "decisions")
    assert {f"{part}.csv" for part in parts} <= written
    report = (folder / "older" / "report.html").read_text()
    assert "each table was reweighted to both" in report
    assert len(fits) == 3  # once for each fold
    seen = {np.flatnonzero(weights).tobytes() for _, _, weights in fits}
    assert len(seen) == 3  # each without its own fold


def test_weights_and_groups_reach_the_fit(folder, in_process):
    for name, size in (("log", 3000), ("trial", 2000)):
        table = draw_table(size, name == "trial", 7)
        table.assign(w=20.0, home=range(size)).to_csv(folder / f"{name}_w.csv")
    done = in_process(
        *("--observational=log_w.csv", "--experimental=trial_w.csv", *FIT[2:]),
        *("--covariates=age,member", "--weights=w", "--weights_are=sampling"),
        *("--groups=home", "--method=folded", "--num_draws=200", "--out=weighted"),
    )
    assert done.returncode == 0, done.stderr
    loaded = pe.PnsEstimator.load(folder / "weighted" / "model")
    assert loaded.sample_size_ == 5000
    assert "counted as people" in (folder / "weighted" / "report.html").read_text()


def test_a_key_is_carried_to_every_file_with_a_row_per_person(folder, in_process):
    """Leading zeros are kept, and the key is no covariate although both tables have it."""
    keys = [f"{1000 - number:05d}" for number in range(40)]
    for name, source in (("log", "log.csv"), ("people", "people.csv")):
        table = pd.read_csv(folder / source)
        table.assign(customer=[keys[i % 40] for i in range(len(table))]).to_csv(
            folder / f"{name}_keyed.csv", index=False
        )
    trial = pd.read_parquet(folder / "trial.parquet")
    trial.assign(customer=range(len(trial))).to_parquet(folder / "trial_keyed.parquet")
    (folder / "keyed").mkdir()
    people = pd.read_csv(folder / "people_keyed.csv", dtype={"customer": str})
    people.to_parquet(folder / "keyed" / "people.parquet")
    tables = ("--observational=log_keyed.csv", "--experimental=trial_keyed.parquet")
    quick = ("--method=folded", "--num_draws=200", "--id=customer")
    done = in_process(
        *(*tables, *FIT[2:], *quick, "--predict=people_keyed.csv"),
        *("--gains=1,0,0,-1", "--out=keyed_run"),
    )
    assert done.returncode == 0, done.stderr
    out = folder / "keyed_run"
    for name in ("intervals", "decisions"):
        written = pd.read_csv(out / f"{name}.csv", dtype={"customer": str})
        assert list(written.columns[:2]) == ["customer", "lower"]
        assert written["customer"].tolist() == keys
    assert pd.read_parquet(out / "intervals.parquet").index.tolist() == keys
    assert keys[0] in done.stdout
    assert "customer" not in pe.PnsEstimator.load(out / "model").summary_.covariates
    page = (out / "report.html").read_text()
    assert "Value of customer, as in intervals.csv" in page and f'"{keys[0]}"' in page
    again = in_process(
        *("--load=keyed_run/model", "--predict=keyed/", "--id=customer"),
        "--out=keyed_stream",
    )
    assert again.returncode == 0, again.stderr
    streamed = pd.read_parquet(folder / "keyed_stream" / "intervals.parquet")
    text = pd.read_csv(
        folder / "keyed_stream" / "intervals.csv", dtype={"customer": str}
    )
    assert streamed["customer"].tolist() == text["customer"].tolist() == keys
    asked = in_process(*tables, *FIT[2:], *quick, "--out=keyed_trial")
    assert asked.returncode == 0, asked.stderr  # the trial is asked about, with its key
    written = pd.read_csv(folder / "keyed_trial" / "intervals.csv")
    assert written["customer"].tolist() == list(range(len(trial)))


def test_keys_that_repeat_are_told_and_those_that_are_missing_refused(
    folder, in_process
):
    people = pd.read_csv(folder / "people.csv")
    twice = people.assign(key=[f"k{number // 2}" for number in range(len(people))])
    twice.to_csv(folder / "twice_key.csv", index=False)
    twice.assign(key=[None, *twice["key"][1:]]).to_csv(
        folder / "gap_key.csv", index=False
    )
    people.assign(lower=1).to_csv(folder / "lower_key.csv", index=False)
    for name, key, message in (
        (
            "gap_key.csv",
            "key",
            "--id: the column 'key' of the prediction table is miss",
        ),
        ("lower_key.csv", "lower", "the column 'lower' cannot be the --id, because"),
        ("people.csv", "key", "the prediction table has no column 'key'"),
    ):
        done = in_process(*QUICK, f"--predict={name}", f"--id={key}", "--out=o")
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert "fitting" not in done.stderr and not (folder / "o").exists()
    done = in_process(*QUICK, "--predict=twice_key.csv", "--id=key", "--out=twice_key")
    assert done.returncode == 0, done.stderr
    assert "the 40 rows to answer for have 20 different values of 'key'" in done.stderr


def test_a_run_is_run_again_from_its_config_and_flags_beside_it_win(folder, in_process):
    asked = ("--alpha=0.1", "--estimand=harm", "--covariates=age,member")
    first = in_process(*QUICK, *asked, "--seed=3", "--out=once_more")
    assert first.returncode == 0, first.stderr
    path = folder / "once_more" / "config.json"
    again = in_process(f"--config={path}", "--out=once_again")
    assert again.returncode == 0, again.stderr
    assert "warning" not in again.stderr
    for name in ("intervals.csv", "averages.csv", "subgroups.csv"):
        runs = [folder / run / name for run in ("once_more", "once_again")]
        assert runs[0].read_bytes() == runs[1].read_bytes(), name
    other = in_process(
        f"--config={path}", "--seed=4", "--covariates=", "--out=once_other"
    )
    assert other.returncode == 0, other.stderr
    config = json.loads((folder / "once_other" / "config.json").read_text())
    assert config["seed"] == 4 and config["alpha"] == 0.1 and not config["covariates"]


def test_the_config_holds_versions_hashes_and_resolved_columns(folder, in_process):
    done = in_process(*QUICK, "--out=told")
    assert done.returncode == 0, done.stderr
    path = folder / "told" / "config.json"
    config = json.loads(path.read_text())
    assert config["covariates"] == ["age", "member", "region"]  # none was named
    resolved = config["resolved"]
    assert resolved["covariates"]["region"] == ["north", "south", "west"]
    assert resolved["treatment"] == {"0": 0, "1": 1}
    assert resolved["rows"] == {"observational": 3000, "experimental": 2000}
    entry = config["files"]["observational"]
    whole = hashlib.sha256((folder / "log.csv").read_bytes()).hexdigest()
    assert entry == {"path": "log.csv", "sha256": whole}
    assert config["versions"]["pns-estimate"] == importlib.metadata.version(
        "pns-estimate"
    )
    changed = {
        **config,
        "files": {"observational": {**entry, "sha256": "0"}},
        "versions": {**config["versions"], "jax": "0.0.1"},
    }
    path.write_text(json.dumps(changed))
    again = in_process("--config=told/config.json", "--out=told_again")
    assert again.returncode == 0, again.stderr
    assert (
        "warning: log.csv has changed since told/config.json was written."
        in again.stderr
    )
    assert "warning: told/config.json was written with jax 0.0.1; num" in again.stderr


def test_a_config_that_cannot_be_used_is_one_line(folder, in_process):
    for text, message in (
        ("{", "bad.json is not valid JSON; give another file."),
        ("[]", "bad.json is not the config.json of a run; give another file."),
        *(
            (text, "bad.json is not the config.json of a run; give another file.")
            for text in (
                '{"files": 3}',
                '{"files": {"predict": 3}}',
                '{"versions": []}',
            )
        ),
        ('{"sed": 1}', "bad.json has the setting 'sed', which this version does not"),
        ('{"seed": "x"}', "--seed in bad.json cannot be 'x'; see --help."),
        ('{"seed": -1}', "--seed in bad.json cannot be -1; see --help."),
        ('{"target": "all"}', "--target in bad.json cannot be 'all'; see --help."),
        ('{"covariates": "age"}', "--covariates in bad.json cannot be 'age'; see"),
        ('{"treatment": ["x"]}', "--treatment in bad.json cannot be ['x']; see"),
        ("{}", "--observational, --experimental, --treatment, --outcome must"),
    ):
        (folder / "bad.json").write_text(text)
        done = in_process("--config=bad.json", "--out=o")
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1 and not (folder / "o").exists()
    done = in_process("--config=none.json", "--out=o")
    assert done.stderr == (
        "pns-estimate: none.json cannot be read: No such file or directory.\n"
    )


def test_a_check_says_what_a_fit_would_do_and_writes_nothing(
    folder, in_process, monkeypatch
):
    monkeypatch.setattr(pe.PnsEstimator, "_fit_prepared", pytest.fail)
    pd.read_csv(folder / "log.csv").assign(note="a").to_csv(
        folder / "noted.csv", index=False
    )
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = in_process(
        *(*FIT[1:], "--observational=noted.csv", "--predict=people.csv", "--check"),
        "--out=unwritten",
    )
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()
    assert lines[:8] == [
        "observational table: 3,000 rows",
        "experimental table: 2,000 rows",
        "treatment: x = 1 against 0",
        "outcome: y = 1 against 0",
        "covariates: 3, encoded as 5 columns",
        "  age: a number, 20 to 69 in both tables",
        "  member: a number, 0 to 1 in both tables",
        "  region: 3 categories: north, south, west",
    ]
    assert "method: crossfit, 5 folds" in lines
    assert "people to answer for: 40" in lines
    (learners,) = [line for line in lines if line.startswith("learners: ")]
    assert "boosted trees" in learners and "networks" not in learners
    assert any("left out: networks of" in line and "6,000" in line for line in lines)
    (warning,) = [line for line in lines if line.startswith("warning: ")]
    assert "'note' of the observational table" in warning
    assert re.fullmatch(r"about \d+ (to|seconds to) \d+ \w+ on two cores", lines[-2])
    assert lines[-1] == "nothing was fitted, and nothing was written"
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
    assert in_process(*FIT, "--check", "--learners=ridge").returncode == 0  # no --out


def test_a_check_finds_the_mistakes_that_a_run_finds(folder, in_process):
    _write_odd_tables(folder)
    done = in_process(*FIT, "--predict=no_region.csv", "--check")
    assert done.returncode == 2 and "has no column 'region'" in done.stderr
    full = in_process(*FIT, "--check", "--out=people.csv")
    assert full.returncode == 2 and "is not an empty folder" in full.stderr
    done = in_process("--load=nowhere", "--predict=people.csv", "--check")
    assert done.returncode == 2 and "holds no model" in done.stderr


@pytest.mark.slow  # nothing is compiled before
def test_stderr_holds_our_own_lines_alone_where_home_cannot_be_written(folder):
    home = {"HOME": "/dev/null", "PATH": os.environ["PATH"]}
    code = (
        "import sys, threading, errno\n"
        "sys.path.insert(0, sys.argv.pop())\n"
        "import small_tables\n"
        "from pns_estimate.command import main\n"
        "def fail(): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "def quiet(quiet=main._quiet):\n"
        "    quiet()\n"
        "    thread = threading.Thread(target=fail)\n"  # as those of Orbax
        "    thread.start(); thread.join()\n"
        "main._quiet = quiet\n"
        "main.run()"
    )
    arguments = (*QUICK, "--out=homeless", str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "reading tables",
        "fitting: folded, 3,000 + 2,000 rows",
        "intervals for 40 people",
        "report",
    ]


def test_the_version_is_printed_whatever_else_is_given(in_process):
    done = in_process("--version", "--alpha=x")
    version = importlib.metadata.version("pns-estimate")
    assert done == (0, f"pns-estimate {version}\n", "")


def test_averages_groups_and_decisions_are_files(folder, in_process):
    done = in_process(
        *(*FIT, "--predict=people.csv", "--method=folded", "--num_draws=200"),
        *("--gains=1,0,0,-1", "--cost=0.1", "--budget=0.5", "--assignment=0.5"),
        "--out=decided",
    )
    assert done.returncode == 0, done.stderr
    out = folder / "decided"
    averages = pd.read_csv(out / "averages.csv", index_col="pns")
    assert f"{averages.loc['both, by covariates', 'upper']:.3f}" in done.stdout
    groups = pd.read_csv(out / "sorted_groups.csv", index_col="group")
    assert len(groups) == 5 and (groups["harm_lower"] >= 0).all()
    assert "region = south" in set(pd.read_csv(out / "subgroups.csv")["group"])
    values = pd.read_csv(out / "values.csv", index_col="policy")
    assert values.loc["rule", "share_treated"] <= 0.5 + 1e-9
    decisions = pd.read_csv(out / "decisions.csv", index_col="row")
    assert len(decisions) == 40 and decisions["treat"].sum() <= 20
    page = (out / "report.html").read_text()
    assert "<h2>In short</h2>" in page and "<h2>Whom to treat</h2>" in page


def test_a_part_that_cannot_be_given_says_why_and_the_rest_is_written(
    folder, in_process
):
    """Three treated people of the trial: of five sorted groups two have none."""
    trial = draw_table(30, True, 1).assign(x=np.arange(30) < 3)
    trial.to_csv(folder / "few.csv", index=False)
    done = in_process(
        *(FIT[0], "--experimental=few.csv", *FIT[2:], "--predict=people.csv"),
        *("--method=folded", "--num_draws=200", "--gains=1,0,0,-1", "--out=part"),
    )
    assert done.returncode == 0, done.stderr
    out = folder / "part"
    written = {path.name for path in out.iterdir()}
    assert {"averages.csv", "values.csv", "decisions.csv", "report.html"} <= written
    assert not written & {"sorted_groups.csv", "subgroups.csv"}
    numbers = json.loads((out / "summary.json").read_text())
    reason = numbers["sorted_groups"]["not_given"]
    assert "arm 1" in reason and numbers["averages"]["pns"]
    assert f"no sorted_groups.csv: {reason}" in done.stdout
    assert "no subgroups.csv: no subgroup has people of the log" in done.stdout
    page = (out / "report.html").read_text()
    assert f"<h2>Sorted by prediction</h2>\n<p>Not given: {reason}</p>" in page
    assert "<h2>Whom to treat</h2>" in page and "The last fifth" not in page


def test_the_question_of_the_command_reaches_the_report(folder, in_process):
    done = in_process(
        *(*FIT, "--predict=people.csv", "--method=folded", "--num_draws=200"),
        *("--estimand=harm", "--target=parameter", "--alpha=0.2", "--threshold=0.1"),
        *("--outcome_is_bad", "--subgroups=region", "--out=asked"),
    )
    assert done.returncode == 0, done.stderr
    page = (folder / "asked" / "report.html").read_text()
    assert "the rows of people.csv" in page and "benefit: x = 1 prevents y = 1" in page
    summary = json.loads((folder / "asked" / "summary.json").read_text())
    table = pd.read_csv(folder / "asked" / "intervals.csv")
    width = (table["upper"] - table["lower"]).clip(lower=0).mean()
    assert summary["mean_width"]["harm"] == pytest.approx(width)
    assert summary["made"]["alpha"] == 0.2 and summary["made"]["estimand"] == "harm"
    assert summary["people"] == 40 and 0 <= summary["surely_above"] <= 40
    groups = pd.read_csv(folder / "asked" / "subgroups.csv")["group"]
    assert groups.tolist() == [
        f"region = {name}" for name in ("north", "south", "west")
    ]


def test_labels_of_the_command_reach_the_report_and_stdout(folder, in_process):
    done = in_process(
        *(*QUICK, "--treatment_label=e-mail", "--outcome_label=a visit"),
        *("--unit=customer", "--gains=2,0,0,-2", "--gains_in=EUR", "--out=labels"),
    )
    assert done.returncode == 0, done.stderr
    page = (folder / "labels" / "report.html").read_text()
    assert "Does e-mail make the difference for a visit?" in page
    assert "all 40 customers" in page and "2 EUR for one who responds" in page
    assert "averages (the trial alone: its own customers; " in done.stdout
    assert "intervals for 40 customers" in done.stderr
    long = in_process(*QUICK, "--unit=" + "x" * 61, "--out=o")
    assert long.returncode == 2
    assert "--unit must be one line of 1 to 60 letters, got" in long.stderr
    alone = in_process(*QUICK, "--gains_in=EUR", "--out=o")
    assert "--gains_in is for decisions: give --gains, too." in alone.stderr


def test_an_audit_is_in_the_report_the_numbers_and_on_stdout(folder, in_process):
    done = in_process(
        *(*FIT, "--predict=people.csv", "--method=folded", "--num_draws=300"),
        *("--audit", "--alpha=0.1", "--estimand=harm", "--out=audited"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "audited" / "summary.json").read_text())["audit"]
    assert found["alpha"] == 0.1 and found["estimand"] == "harm"
    assert found["num_people"] == 1000
    assert f"{found['coverage']:.1%} of the intervals" in done.stdout
    assert "An audit of" in (folder / "audited" / "report.html").read_text()


def test_a_trial_that_looks_stratified_is_warned_of_in_one_line(folder, in_process):
    trial = draw_table(3000, True, 8)
    odd = (trial["x"] == 1) | ~trial["member"] | (trial.index % 2 == 0)
    trial[odd].to_csv(folder / "odd.csv", index=False)
    done = in_process(
        *(FIT[0], "--experimental=odd.csv", *FIT[2:], "--predict=people.csv"),
        *("--method=folded", "--num_draws=200", "--out=warned"),
    )
    assert done.returncode == 0, done.stderr
    assert "warning: covariates predict the arm of the experiment" in done.stderr


QUICK = (*FIT, "--predict=people.csv", "--method=folded", "--num_draws=200")


def _fail_in(monkeypatch, name, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(_command_run, name, fail)


@pytest.mark.parametrize("name", ["intervals_from_draws", "sorted_groups"])
def test_a_fault_of_ours_does_not_read_as_a_mistake_of_the_user(
    folder, in_process, monkeypatch, name
):
    """NumPy raises a ValueError, which is neither told of as bad input nor left out."""
    monkeypatch.setattr(pi, name, lambda *_, **__: np.zeros(2) + np.zeros(3))
    done = in_process(*QUICK, f"--out=fault_{name}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "pns-estimate: unexpected ValueError: operands could not be broadcast"
    )


def test_a_full_disk_keeps_the_model_alone_and_a_rerun_works(
    folder, in_process, monkeypatch
):
    with monkeypatch.context() as patch:
        error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _fail_in(patch, "write_report", error)
        done = in_process(*QUICK, "--out=full")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "pns-estimate: a file cannot be written: No space left on device."
    )
    assert "the fitted model is kept: --load full/model" in done.stderr
    assert {p.name for p in (folder / "full").iterdir()} == {"model", ".unfinished"}
    loaded = in_process("--load=full/model", "--predict=people.csv", "--out=from_full")
    assert loaded.returncode == 0, loaded.stderr
    again = in_process(*QUICK, "--out=full")
    assert again.returncode == 0, again.stderr
    written = {p.name for p in (folder / "full").iterdir()}
    assert "report.html" in written and ".unfinished" not in written
    pd.testing.assert_frame_equal(
        pd.read_parquet(folder / "full" / "intervals.parquet"),
        pd.read_parquet(folder / "from_full" / "intervals.parquet"),
    )


def test_a_file_that_may_not_grow_is_a_full_disk(folder, in_process):
    """A real write fails, in the midst of the report, then of the model."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size, left in ((30_000, {"model", ".unfinished"}), (100, set())):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            done = in_process(*QUICK, f"--out=limit{size}")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert done.returncode == 2, done.stderr
        assert "cannot be written: File too large." in done.stderr.splitlines()[-1]
        out = folder / f"limit{size}"
        assert {p.name for p in out.iterdir()} == left if left else not out.exists()


def test_ctrl_c_is_one_line_and_leaves_nothing(folder, in_process, monkeypatch):
    _fail_in(monkeypatch, "prepare_tables", KeyboardInterrupt())
    done = in_process(*QUICK, "--out=stopped")
    assert done.returncode == 130
    assert done.stderr == "reading tables\npns-estimate: interrupted\n"
    assert not (folder / "stopped").exists()


def test_ctrl_c_in_a_callback_of_the_garbage_collector_is_not_lost(
    in_process, monkeypatch
):
    """Python prints and drops what is raised there, as in JAX's own callback."""

    def interrupt(phase, info):
        if threading.current_thread() is threading.main_thread():
            gc.callbacks.remove(interrupt)
            signal.raise_signal(signal.SIGINT)

    def prepare(*_):
        gc.callbacks.append(interrupt)
        while interrupt in gc.callbacks:  # another thread may collect meanwhile
            gc.collect()
        time.sleep(60)
        slept.append(True)

    slept = []
    assert _end_by_ctrl_c(in_process, monkeypatch, prepare) == 130
    assert not slept


def test_ctrl_c_that_becomes_another_error_is_ctrl_c(in_process, monkeypatch):
    def prepare(*_):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise pe.UserError("the file cannot be read.") from error

    assert _end_by_ctrl_c(in_process, monkeypatch, prepare) == 130


def _end_by_ctrl_c(in_process, monkeypatch, prepare):
    """Runs the command, whose tables are prepared so, up to its end; returns its code."""
    monkeypatch.setattr(_command_run, "prepare_tables", prepare)
    monkeypatch.setattr(os, "_exit", sys.exit)  # the process is that of the tests
    # Tests that a shell starts in the background ignore Ctrl-C, and so would the command.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = in_process(*QUICK, "--out=ended").returncode
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return code
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0])
def test_ctrl_c_ends_the_first_seconds_of_a_run(folder, after):
    # Programs that a shell starts in the background ignore Ctrl-C: not this one.
    program = (
        "import signal, pns_estimate.command.main as main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('ready', flush=True)\n"
        "main.run()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, *FIT, f"--out=early{after}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 130 and said[-1] == INTERRUPTED
    assert not [line for line in said if "Error" in line or "ignored" in line]


def test_a_folder_is_locked_while_a_run_writes_to_it(folder, in_process):
    with _run_folder.run_folder(folder / "busy"):
        done = in_process(*QUICK, "--out=busy")
        assert done.returncode == 2 and "another run is writing to busy" in done.stderr
    assert not list((folder / "busy").iterdir())


def test_a_file_system_without_locks_is_written_all_the_same(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with _run_folder.run_folder(tmp_path / "run"):
        (tmp_path / "run" / "report.html").write_text("x")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["report.html"]


def test_a_rerun_after_kill_9_works(folder, in_process):
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from pns_estimate.command.run_folder import run_folder\n"
        "out = Path('killed')\n"
        "with run_folder(out):\n"
        "    (out / 'model').mkdir()\n"
        "    (out / '.report.html-x1').write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=False)
    left = {p.name for p in (folder / "killed").iterdir()}
    assert left == {".unfinished", "model", ".report.html-x1"}
    (folder / "killed" / "thesis.tex").write_text("not ours")
    kept = in_process(*QUICK, "--out=killed")
    assert kept.returncode == 2 and "is not an empty folder" in kept.stderr
    assert len(list((folder / "killed").iterdir())) == 4
    (folder / "killed" / "thesis.tex").unlink()
    done = in_process(*QUICK, "--out=killed")
    assert done.returncode == 0, done.stderr
    written = {p.name for p in (folder / "killed").iterdir()}
    assert "report.html" in written and not left - {"model"} & written


def test_a_run_that_lost_a_process_goes_on_from_its_checkpoints(
    folder, in_process, monkeypatch
):
    seen = []

    def lose(estimator, prepared):
        kept = Path(estimator.checkpoint_dir)
        seen.append(kept.exists())
        kept.mkdir(exist_ok=True)
        raise InterruptedFitError("another process of this run has ended")

    with monkeypatch.context() as context:
        context.setattr(pe.PnsEstimator, "_fit_prepared", lose)
        for _ in range(2):
            done = in_process(*QUICK, "--out=lost")
            assert done.returncode == 2
            assert done.stderr.endswith(": another process of this run has ended\n")
            left = {p.name for p in (folder / "lost").iterdir()}
            assert left == {".unfinished", "checkpoints"}
    assert seen == [False, True]
    done = in_process(*QUICK, "--out=lost")
    assert done.returncode == 0, done.stderr
    written = {p.name for p in (folder / "lost").iterdir()}
    assert "model" in written and not left & written


def test_settings_in_messages_are_written_as_each_door_writes_them():
    error = pe.UserError(
        *(Setting("alpha"), " is odd; fit with ", Setting("missing", "indicator")),
        *(" or ", Setting("outcome_reference", "did not"), "; mind the ", "recipe."),
    )
    assert str(error) == (
        "alpha is odd; fit with missing='indicator' or outcome_reference='did not'; mind "
        "the recipe."
    )
    assert _flags.in_flags(error) == (
        "--alpha is odd; fit with --missing=indicator or --outcome_reference='did not'; "
        "mind the recipe."
    )
    assert error.argument == "alpha"
    mask = pe.UserError(Setting("mask"), " must be booleans, not alpha=0.1")
    assert _flags.in_flags(mask) == str(mask) == "mask must be booleans, not alpha=0.1"
    assert pickle.loads(pickle.dumps(error)).parts == error.parts
    assert pe.UserError("the tables differ").argument is None


def test_help_lists_the_flags_of_this_program_alone_by_section(in_process):
    done = in_process("--out=o", "--help")
    assert done.returncode == 0 and not done.stderr
    assert "--load run/model" in done.stdout and "people who chose" in done.stdout
    listed = re.findall(r"^  --(\w+)", done.stdout, re.MULTILINE)
    defined = flags.FLAGS.flags_by_module_dict()["pns_estimate.command.flags"]
    assert sorted(listed) == sorted(flag.name for flag in defined)
    decisions = done.stdout.split("Decisions:")[1].split("Output:")[0]
    assert "--criterion maximin|minimax_regret" in decisions
    assert "--seed NUMBER               Decides all randomness. Default: 0." in (
        done.stdout
    )
    assert max(map(len, done.stdout.splitlines())) < 100


def test_methods_of_the_help_are_those_of_the_registry():
    assert {*_flags.METHOD_NAMES, "linear", "folded"} == set(pe.METHODS)


def test_learners_of_the_help_are_those_of_the_registry_in_its_order():
    assert list(_flags.LEARNER_NAMES) == list(pm.LEARNERS)


def test_the_learners_that_are_asked_for_are_stacked_and_no_others(folder, in_process):
    done = in_process(
        *(*FIT, "--predict=people.csv", "--num_draws=200", "--out=two"),
        "--learners=splines,ridge",
    )
    assert done.returncode == 0, done.stderr
    config = json.loads((folder / "two" / "config.json").read_text())
    assert config["learners"] == ["splines", "ridge"]
    notes = list(pe.PnsEstimator.load(folder / "two" / "model").summary_.notes)
    assert notes[:3] == ["additive splines", "ridge regression", "the stack of these"]
    others = {each.name for each in pm.LEARNERS.values()} - set(notes)
    assert len(others) == 6
    report = (folder / "two" / "report.html").read_text()
    assert notes[0] in report and not any(name in report for name in others)


def test_help_and_mistakes_in_flags_import_nothing_heavy():
    for argument, code in (("--help", 0), ("--version", 0), ("--alpha=x", 2)):
        program = (
            "import sys\n"
            "from pns_estimate.command import main as _command\n"
            f"try: _command.run(['pns-estimate', '{argument}'])\n"
            f"except SystemExit as ended: assert ended.code == {code}\n"
            "assert not {'jax', 'flax', 'pandas', 'matplotlib'} & set(sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_told(folder):
    closed = folder / "closed"
    closed.mkdir(mode=0o500)
    done = command(*FIT, "--out=closed/run", cwd=folder)
    assert done.returncode == 2 and "cannot be written" in done.stderr
