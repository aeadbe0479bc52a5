"""Attention by groups of warps: pieces of heads, which tiles are whose, and what is compiled."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.compiler.codegen.triton.attention_texts import Form, text
from tests.unit.compiler.codegen.triton.building import generate
from tests.unit.compiler.codegen.triton.test_attention import SM_90A

from motet.compiler.codegen.triton.attention.operand_layout import pieces_of
from motet.compiler.codegen.triton.compile.objects import compile_programs
from motet.compiler.codegen.triton.text.program import TritonProgram

NARROW = Form(batch=1, heads=4, queries=1024, keys=1024, depth=64, width=64, dtype="bf16", swapped=True, scale=0.125)


def program_of(form: Form) -> TritonProgram:
    made = generate(text(form))
    assert made.kinds == ["attention"]
    (program,) = made.programs.values()
    return program


@pytest.mark.parametrize(("width", "pieces"), [
    (16, (64,)), (40, (64,)), (64, (64,)), (65, (64, 16)), (72, (64, 16)), (80, (64, 16)), (96, (64, 32)),
    (112, (128,)), (128, (128,)), (160, (128, 32)), (192, (128, 64)), (200, (256,)), (256, (256,)),
])
def test_heads_are_moved_in_few_pieces(width: int, pieces: tuple[int, ...]) -> None:
    assert pieces_of(width) == pieces
    assert sum(pieces) >= width


@pytest.mark.parametrize(("form", "label"), [
    (NARROW, "groups 64x128 stages=2"),
    (replace(NARROW, heads=12, queries=2048, keys=2048, mask="causal"), "groups 64x128 stages=2 apart=2 stay"),
    (replace(NARROW, heads=12, queries=2000, keys=2000, mask="causal"), "groups 128x128 stages=2"),
    (replace(NARROW, batch=8, heads=12, mask="causal"), "groups 64x128 stages=2 apart=2 stay"),
    (replace(NARROW, batch=8, heads=12, queries=1000, keys=1000, mask="causal"), "64x32 pointers warps=4 stages=4"),
    (replace(NARROW, batch=16, heads=16, queries=512, keys=512), "64x64 pointers warps=4 stages=3"),
    (replace(NARROW, batch=4, heads=32, queries=4096, keys=4096), "groups 192x128 stages=2"),
    (replace(NARROW, batch=8, heads=8, queries=1500, keys=1500), "groups 192x128 stages=2"),
    (replace(NARROW, heads=8, queries=1500, keys=1500), "groups 128x128 stages=2"),
    (replace(NARROW, heads=8, queries=1024, keys=1024, batch=2, depth=80, width=80), "groups 128x128 stages=2 stay"),
    (replace(NARROW, batch=64, heads=12, queries=197, keys=197), "64x32 pointers warps=4 stages=4"),
    (replace(NARROW, batch=32, heads=12, queries=128, keys=128), "64x128 pointers warps=4 stages=2"),
    (replace(NARROW, dynamic=True), "128x64 pointers warps=4 stages=3"),
])
def test_the_best_form_follows_from_the_shape_and_does_not_spill(form: Form, label: str) -> None:
    program = program_of(form)
    assert program.forms[0].label == label
    ((taken, *_),) = compile_programs([program], SM_90A, 1)
    assert (taken.form, taken.spills) == (0, 0)


class _Number(int):
    """A whole number as programs have it."""

    def to(self, _: Any) -> _Number:
        return self


def _taken(source: str, function: str, programs: int, groups: int) -> list[int]:
    """The tiles that all programs take, by the lines of `function` that say which."""
    body = source.split(f"def {function}(")[1].split("\n\n\n")[0].splitlines()
    start = next(i for i, line in enumerate(body) if line.strip().startswith("slot = "))
    stop = next(i for i, line in enumerate(body) if line.strip().startswith("number = "))
    lines = [line[4:] for line in body[start : stop + 1]] + ["    taken.append(int(number))"]
    text_ = "\n".join(lines).replace("(turns * slots + own < ", "_Number(turns * slots + own < ")
    taken: list[int] = []
    for program, which in itertools.product(range(programs), range(groups)):
        language = SimpleNamespace(program_id=lambda _, at=program: at, num_programs=lambda _: programs)
        where = SimpleNamespace(where=lambda yes, a, b: a if yes else b, int32=None)
        exec(text_, {"gl": language, "tl": where, "WHICH": which, "taken": taken, "_Number": _Number})
    return taken


@pytest.mark.parametrize("width", [64, 80])
@pytest.mark.parametrize(("heads", "mask"), [(5, "causal"), (12, "causal"), (12, "none"), (17, "causal")])
def test_every_tile_is_taken_once(heads: int, mask: Any, width: int) -> None:
    """By whoever attends, and by those that move what it needs alike."""
    program = program_of(replace(NARROW, heads=heads, mask=mask, queries=2048, keys=2048, depth=width, width=width))
    form = next(form for form in program.forms if form.label.endswith(" stay"))
    groups = 2 if "apart=2" in form.label else 1
    rows = int(form.label.split()[1].split("x")[0])
    assert isinstance(form.tasks, int) and form.tasks <= SM_90A.processors
    moving = ["attend", "fetch_keys", "fetch_values", "put"]
    taken = [_taken(form.source, function, form.tasks, groups) for function in moving]
    assert all(sorted(each) == list(range(heads * 2048 // rows)) for each in taken)
    assert all(each == taken[0] for each in taken)
