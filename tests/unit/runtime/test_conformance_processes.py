"""Checks that leave a process unable to use a device are made in processes of their own."""

from __future__ import annotations

import subprocess

import pytest

from motet.runtime.conformance import run_checks, suite
from motet.runtime.drivers import null


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The processes that are started for `fill`, which the driver names; all others run here."""
    monkeypatch.setattr(null, "conformance_in_processes", ("fill",), raising=False)
    started: list[list[str]] = []
    run = subprocess.run

    def noted(command: list[str], **named: object) -> object:
        started.append(command)
        return run(command, **named)  # pyright: ignore[reportCallIssue, reportArgumentType]

    monkeypatch.setattr(subprocess, "run", noted)
    return started


def test_only_what_the_driver_names_gets_a_process(commands: list[list[str]]):
    outcomes = list(run_checks("null?view=1", ["fill", "copy", "view"]))
    assert [(outcome.check.name, outcome.verdict) for outcome in outcomes] == [
        ("fill", "pass"), ("copy", "pass"), ("view", "pass"),
    ]
    [command] = commands
    assert command[-3:-1] == ["null?view=1", "fill"]


@pytest.mark.parametrize(("code", "verdict", "reason"), [
    ("print('skip it has no fill')", "skip", "it has no fill"),
    ("print('fail 3 of 4 bytes differ')", "fail", "3 of 4 bytes differ"),
    ("import os, sys; print('out of paper', file=sys.stderr, flush=True); os._exit(7)", "fail",
     "its process ended with status 7, and said: out of paper"),
    ("import time; time.sleep(60)", "fail", "its process did not end within 1 s"),
])
def test_what_the_process_says_is_the_outcome(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, code: str, verdict: str, reason: str
):
    monkeypatch.setattr(suite, "_ALONE", code)
    [outcome] = run_checks("null", ["fill"], 0.5 if "sleep" in code else 30)
    assert (outcome.verdict, outcome.reason) == (verdict, reason)
    assert len(commands) == 1 and outcome.seconds < 30


def test_a_process_of_its_own_runs_the_check_itself():
    outcome = suite.run_alone("null", "fill", "30")
    assert (outcome.check.name, outcome.verdict) == ("fill", "pass")
