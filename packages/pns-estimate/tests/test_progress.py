"""The bar of a whole run: named steps, a share that never falls, time left."""

import io
import sys
import time

import numpy as np
import pns_estimate as pe
import pns_models as pm
import pytest
from pns_estimate import _progress
from pns_estimate._duration import answer_steps, fit_steps
from pns_estimate._progress import Progress, Step, show_seconds, watch
from small_tables import small_recipe

PLAN = [Step("a", 10.0), Step("b", 30.0), Step("a", 5.0), Step("c", 5.0)]


def test_steps_come_in_order_and_some_may_be_left_out():
    progress = Progress(PLAN, 0.0)
    progress.begin("a", 0.0)
    assert progress.look(5.0) == (pytest.approx(0.1), pytest.approx(45.0))
    progress.begin("b", 10.0)
    share, left = progress.look(10.0)
    assert (share, left) == (pytest.approx(0.2), pytest.approx(40.0))
    progress.begin("nobody planned this", 12.0)
    assert progress.name == "b"
    progress.begin("c", 20.0)  # the second "a" was not needed
    assert progress.name == "c" and progress.look(20.0)[0] == pytest.approx(0.9)
    progress.begin("a", 21.0)  # and does not come any more
    assert progress.name == "c"


def test_the_pace_so_far_decides_what_is_left():
    """The first step took three times as long as was expected."""
    progress = Progress(PLAN, 0.0)
    progress.begin("a", 0.0)
    progress.begin("b", 30.0)
    pace = (30 + 5) / (10 + 5)
    assert progress.look(30.0)[1] == pytest.approx(pace * 40)
    # A step that takes longer than that is never taken to be done.
    assert progress.look(1e6)[0] == pytest.approx((10 + 0.95 * 30) / 50)
    progress.advance(0.99)
    assert progress.look(1e6)[0] == pytest.approx((10 + 0.99 * 30) / 50)


def test_every_step_of_a_fit_is_planned_in_its_order(tables, monkeypatch):
    begun = []
    monkeypatch.setattr(
        Progress, "begin", lambda _, name, now: begun.append((name, now))
    )
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    recipe = small_recipe("crossfit")
    with watch([Step("nothing", 1.0)], show=True, lines=True):
        pe.PnsEstimator(recipe=recipe).fit(*tables, treatment="x", outcome="y")
    names = [name for name, _ in begun if name != "fitting crossfit"]
    assert names == [step.name for step in fit_steps("crossfit", recipe, 900, 5)]
    assert names.count("fitting ridge regression") == 3


def test_expected_times_grow_with_the_tables_and_are_positive():
    for method in ("crossfit", "epinet", "plug_in", "bootstrap_full"):
        few, many = (
            sum(step.seconds for step in fit_steps(method, None, rows, 5))
            for rows in (1000, 50_000)
        )
        assert 1 < few < many < 3600
    assert len(fit_steps("crossfit", None, 1000, 5)) == 3 * len(pm.LEARNERS) + 1
    assert all(step.seconds > 0 for step in answer_steps(1))
    twice = fit_steps("crossfit", None, 1000, 5, audit=True)
    assert len(twice) == 2 * (3 * len(pm.LEARNERS) + 1) + 1


def test_without_a_terminal_a_line_says_now_and_then_how_far_the_run_is(
    capsys, monkeypatch
):
    monkeypatch.setattr(_progress, "_HEARTBEAT", 0.05)
    with watch([Step("fitting", 1.0), Step("report", 1.0)], show=True, lines=True):
        _progress.begin("fitting")
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(line.startswith("fitting: ") for line in lines)
    assert "% of the run is done, about a few seconds left" in lines[0]
    with watch([Step("fitting", 1.0)], show=True):  # Python says nothing
        time.sleep(0.1)
    assert not _progress.is_watched() and not capsys.readouterr().err


def test_at_a_terminal_one_bar_is_named_and_never_falls(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(_progress, "_TICK", 0.02)
    with watch([Step("fitting trees", 0.2), Step("report", 0.2)], show=True):
        _progress.begin("fitting trees")
        time.sleep(0.15)
        _progress.say("a note")
        with watch([Step("inner", 1.0)], show=True):  # changes nothing
            time.sleep(0.05)
        _progress.begin("report")
        time.sleep(0.1)
    text = screen.getvalue()
    assert "fitting trees: " in text and "report: " in text and "inner" not in text
    assert "about a few seconds left" in text and "a note\n" in text
    shares = [
        int(part.rsplit(":", 1)[1]) for part in text.split("%|")[:-1] if ":" in part
    ]
    assert np.all(np.diff(shares) >= 0) and shares[-1] >= 50


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (3, "a few seconds"),
        (44, "40 seconds"),
        (100, "2 minutes"),
        (1000, "17 minutes"),
        (9000, "2.5 hours"),
    ],
)
def test_times_are_as_rough_as_they_are_known(seconds, shown):
    assert show_seconds(seconds) == shown
