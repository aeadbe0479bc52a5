"""Every end that a case can have becomes its own result, and costs no other case."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conformance import ratchet
from conformance.results import Result, read_results, write_results
from conformance.runner import Child, run_cases


def test_every_end_is_a_result() -> None:
    child = Child(sys.executable, "tests.unit.conformance.failing_cases", "suite")
    found: dict[str, Result] = {}
    try:
        names = child.names()
        run_cases([child], names, 4.0, lambda result: found.update({result.name: result}))
    finally:
        child.stop()
    assert list(found) == names  # those that end the process come last: a start may take longer than the limit
    assert {name: result.outcome for name, result in found.items()} == {
        "passes": "ok", "differs": "wrong", "refused": "refused", "raises": "crash", "dies": "crash", "hangs": "crash",
        "prints": "ok",
    }
    assert found["differs"].reason == "result 0: 1 of 2 elements differ"
    assert found["raises"].reason.startswith("ZeroDivisionError: integer modulo by zero (raised in tests.unit")
    assert found["dies"].reason.startswith("the process died with SIGABRT")
    assert found["hangs"].reason == "no result after 4 s"
    assert found["prints"].reason == "a note"


def test_a_line_cut_short_is_left_out_and_the_last_of_a_name_counts(tmp_path: Path) -> None:
    path = tmp_path / "suite.jsonl"
    lines = [Result("a", "refused", "why").to_line(), Result("a", "ok").to_line(), Result("b", "ok").to_line()[:-5]]
    path.write_text("\n".join(lines))
    assert read_results(path) == {"a": Result("a", "ok")}


def test_the_ratchet_gains_names_and_loses_none_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratchet, "PASSING", tmp_path / "passing")
    write_results(tmp_path / "s.jsonl", [Result("b", "ok"), Result("a", "ok"), Result("c", "refused")])
    assert ratchet.update("s", tmp_path, drop=False) == 0 and ratchet.passing("s") == ["a", "b"]
    write_results(tmp_path / "s.jsonl", [Result("b", "wrong"), Result("c", "ok")])  # and a was not run
    assert ratchet.update("s", tmp_path, drop=False) == 1 and ratchet.passing("s") == ["a", "b", "c"]
    assert ratchet.update("s", tmp_path, drop=True) == 0 and ratchet.passing("s") == ["a", "c"]


def test_a_tenth_does_not_move_where_cases_are_added() -> None:
    cases = [f"test_{number}" for number in range(2000)]
    chosen = ratchet.tenth(cases)
    assert 150 < len(chosen) < 250
    assert [case for case in ratchet.tenth([*cases, "test_more"]) if case in cases] == chosen
