"""The regression test by instruction counts: what it counts, and what it takes for slower."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("onnx")

from benchmarks.instructions.__main__ import REFERENCE, ROOT, compare
from benchmarks.instructions.counting import Counted, count, kernel_counts, missing_tools
from benchmarks.instructions.programs import PROGRAMS

PROFILE = """fn=main
0 7
cfn=k_1
calls=1 0
0 500

fn=k_1
0 100
cfn=k_1.tile
calls=3 0
0 60
cfn=memmove
calls=1 0
0 11
0 5

fn=k_1.tile'2
0 60

fn=k_10
0 9

fn=memmove
0 11
"""


def counted(**kernels: int) -> Counted:
    return Counted(kernels, dict.fromkeys(kernels, "rows"))


def test_kernels_own_functions_are_counted_and_nothing_they_call():
    assert kernel_counts(PROFILE, {"k_1": "rows", "k_10": "rows"}) == {"k_1": 165, "k_10": 9}


@pytest.mark.parametrize(("now", "slower"), [(10_000, 0), (10_290, 0), (10_310, 1), (5_000, 0)])
def test_three_percent_more_fail(now: int, slower: int):
    assert compare({"p": {"k": 10_000}}, {"p": counted(k=now)}) == slower


def test_a_slower_kernel_is_named(capsys: pytest.CaptureFixture[str]):
    assert compare({"p": {"a": 90_000, "b": 1_000}}, {"p": counted(a=90_000, b=1_100)}) == 1
    assert "error: p: b (rows): 1,000 -> 1,100 instructions (+10.0%)" in capsys.readouterr().out


def test_programs_cut_otherwise_are_compared_by_their_sums():
    assert compare({"p": {"a": 5_000, "b": 5_000}}, {"p": counted(c=10_100)}) == 0
    assert compare({"p": {"a": 5_000, "b": 5_000}}, {"p": counted(c=10_400)}) == 1


def test_every_program_has_a_stored_count():
    assert json.loads(REFERENCE.read_text())["programs"].keys() == {program.name for program in PROGRAMS}


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_tools()), reason="needs valgrind and a C compiler")
def test_counts_do_not_differ_from_run_to_run(tmp_path: Path):
    chosen = [program for program in PROGRAMS if program.name in ("softmax-dynamic", "dense-f32")]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = (
        {program.name: found for program, found in count(chosen, ROOT, tmp_path / name)} for name in ("a", "b")
    )
    assert first == second
    # A product of 33×64 by 64×50 takes at least so many multiply-adds of eight elements.
    dense = first["dense-f32"]
    assert isinstance(dense, Counted) and dense.total > 33 * 64 * 50 / 8
