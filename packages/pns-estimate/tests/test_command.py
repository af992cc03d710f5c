"""The command: files it writes, exit codes, one-line errors."""

import json
import os
import re
import subprocess
import sys
from typing import NamedTuple

import pandas as pd
import pns_estimate as pe
import pytest
from absl import flags
from absl.testing import flagsaver
from pns_estimate import _command, _command_run, _flags
from small_tables import LinearSampler, draw_table


def command(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "pns_estimate._command", *map(str, arguments)],
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
            "threshold must be at least 0 and below 1",
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
        ((*FIT, "--weights_are=sampling", "--out=o"), "needs weights"),
        ((*FIT, "--assignment=0.9", "--out=o"), "the data contradict the assignment"),
        ((*FIT, "--gains=1,0,0", "--out=o"), "gains must be four numbers"),
        ((*FIT, "--gains=1,0,0,x", "--out=o"), "gains must be four numbers"),
        ((*FIT, "--gains=1,0,0,-1", "--budget=2", "--out=o"), "budget must be a share"),
        ((*FIT, "--cost=1", "--out=o"), "--cost is for decisions: give --gains"),
        (
            (*FIT, "--method=forest", "--out=o"),
            "--method must be one of bootstrap_full, ",
        ),
        ((*FIT, "--weights_are=foo", "--out=o"), "--weights_are=foo: value should be"),
        (
            (*FIT, "--traget=set", "--out=o"),
            "'traget'. Did you mean: target; see --help",
        ),
        ((*FIT, "--alpha=x", "--out=o"), "--alpha=x: could not convert"),
        ((*FIT, "--out"), "Missing value for flag --out"),
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
    done = in_process(*arguments)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
    ours = [line for line in done.stderr.splitlines() if "pns-estimate:" in line]
    assert len(ours) == 1
    assert not (folder / "o").exists()


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
    calibrate = pe.PnsEstimator.__init__.__kwdefaults__
    monkeypatch.setitem(
        calibrate, "calibrate", False
    )  # its draws are for held-out rows
    done = in_process(*FIT, "--predict=many.parquet", *settings)
    assert done.returncode == 0, done.stderr
    assert sum(asked) == 1500
    assert "All 1,500 people" in (folder / "counted" / "report.html").read_text()


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


def test_the_question_of_the_command_reaches_the_report(folder, in_process):
    done = in_process(
        *(*FIT, "--predict=people.csv", "--method=folded", "--num_draws=200"),
        *("--estimand=harm", "--target=parameter", "--alpha=0.2", "--threshold=0.1"),
        *("--outcome_is_bad", "--out=asked"),
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


def test_help_lists_the_flags_of_this_program_alone_by_section(in_process):
    done = in_process("--out=o", "--help")
    assert done.returncode == 0 and not done.stderr
    assert "--load run/model" in done.stdout and "people who chose" in done.stdout
    listed = re.findall(r"^  --(\w+)", done.stdout, re.MULTILINE)
    defined = flags.FLAGS.flags_by_module_dict()["pns_estimate._flags"]
    assert sorted(listed) == sorted(flag.name for flag in defined)
    decisions = done.stdout.split("Decisions:")[1].split("Output:")[0]
    assert "--criterion maximin|minimax_regret" in decisions
    assert "--seed NUMBER               Decides all randomness. Default: 0." in (
        done.stdout
    )
    assert max(map(len, done.stdout.splitlines())) < 100


def test_methods_of_the_help_are_those_of_the_registry():
    assert {*_flags.METHOD_NAMES, "linear", "folded"} == set(pe.METHODS)


def test_help_and_mistakes_in_flags_import_nothing_heavy():
    for argument, code in (("--help", 0), ("--alpha=x", 2)):
        program = (
            "import sys\n"
            "from pns_estimate import _command\n"
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
