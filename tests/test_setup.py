"""tools/setup brings a browser where it can, and never fails when it cannot."""

import importlib.util
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parent.parent / "tools" / "setup"


@pytest.fixture
def setup(monkeypatch):
    """The program as a module, as root on a machine with nothing but apt-get."""
    loader = SourceFileLoader("setup_program", str(SETUP))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader)
    )
    loader.exec_module(module)
    monkeypatch.setattr(
        module.shutil, "which", lambda name: name if name == "apt-get" else None
    )
    monkeypatch.setattr(module.os, "geteuid", lambda: 0, raising=False)
    return module


def test_chromium_is_installed_from_debian(setup, monkeypatch, capsys):
    commands = []
    monkeypatch.setattr(
        setup.subprocess, "run", lambda command, **_: commands.append(command)
    )
    setup.bring_browser()
    assert [command[0] for command in commands] == ["apt-get", "apt-get"]
    assert "update" in commands[0] and commands[1][-1] == "chromium"
    assert "SKIPPED" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [
        subprocess.CalledProcessError(100, "apt-get"),
        subprocess.TimeoutExpired("apt-get", 600),
        PermissionError(),
    ],
)
def test_a_failure_is_told_and_goes_on(setup, monkeypatch, capsys, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(setup.subprocess, "run", fail)
    setup.bring_browser()
    assert "will be SKIPPED" in capsys.readouterr().out


def test_nobody_but_root_installs_and_nothing_is_installed_twice(
    setup, monkeypatch, capsys
):
    def never(*_, **__):
        raise AssertionError("nothing is to be run")

    monkeypatch.setattr(setup.subprocess, "run", never)
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000, raising=False)
    setup.bring_browser()
    assert "will be SKIPPED" in capsys.readouterr().out
    monkeypatch.setattr(setup.shutil, "which", lambda name: name)
    setup.bring_browser()
    assert capsys.readouterr().out == ""
