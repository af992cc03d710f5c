"""What the command line says about a run."""

from pathlib import Path

import pytest
from absl import app, flags
from pns_experiments import options
from pns_experiments.options import Options


def test_the_first_preset_is_the_default_and_unknown_ones_list_the_known():
    presets = {"a": 1, "b": 2}
    assert Options(Path("x")).pick(presets) == 1
    assert Options(Path("x"), preset="b").pick(presets) == 2
    with pytest.raises(
        app.UsageError, match=r"no such preset: c; there are \['a', 'b'"
    ):
        Options(Path("x"), preset="c").pick(presets)


def test_replicates_are_those_of_the_preset_unless_given():
    assert Options(Path("x")).replicates(3) == range(3)
    given = Options(Path("x"), replicate_start=2, replicate_end=7)
    assert given.replicates(3) == range(2, 7)
    with pytest.raises(app.UsageError, match="no replicate from 4 to before 3"):
        Options(Path("x"), replicate_start=4).replicates(3)


def test_flags_are_read_into_options_and_anything_else_is_refused(monkeypatch):
    values = flags.FlagValues()
    monkeypatch.setattr(options.flags, "FLAGS", values)
    for define in ("DEFINE_string", "DEFINE_integer", "DEFINE_bool"):
        original = getattr(flags, define)
        monkeypatch.setattr(
            options.flags,
            define,
            lambda *args, original=original, **kwargs: original(
                *args, flag_values=values, **kwargs
            ),
        )
    options.define_flags()
    values(["program", "--out=here", "--seed=3", "--shard=two"])
    read = options.read_flags(["program"])
    assert read == Options(Path("here"), seed=3, shard="two")
    with pytest.raises(app.UsageError, match=r"bias takes flags only, got \['x'\]"):
        options.read_flags(["experiments/bias.py", "x"])
