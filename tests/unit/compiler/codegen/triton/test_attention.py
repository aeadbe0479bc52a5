"""Attention as one kernel, by Triton's interpreter, against numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.attention_texts import FORMS, Form, Mask, expected, inputs_of, text
from tests.unit.compiler.codegen.triton.building import generate, interpret

from motet.compiler.codegen.triton.compile.objects import compile_programs
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget


def gpu(name: str) -> GpuTarget:
    found = resolve_target(name)
    assert isinstance(found, GpuTarget)
    return found


SM_80, SM_90A = gpu("cuda:sm_80"), gpu("cuda:sm_90a")


def agree(form: Form, inputs: list[np.ndarray] | None = None, which: int = 0, target: GpuTarget = SM_90A) -> None:
    inputs = inputs_of(form) if inputs is None else inputs
    made = generate(text(form), target)
    assert made.kinds == ["attention"]
    (got,) = interpret(made, inputs, which)
    wanted = expected(form, inputs)
    tolerance = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}[form.dtype]
    np.testing.assert_allclose(got.astype("f8"), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FORMS)
def test_every_spelling_agrees_with_numpy(name: str) -> None:
    agree(FORMS[name])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["plain", "swapped and collapsed", "causal", "added mask", "grouped", "dynamic"])
def test_short_floats_agree_with_numpy(name: str, dtype: str) -> None:
    form = replace(FORMS[name], dtype=dtype, depth=64, width=64)
    if form.dynamic:  # the interpreter does not know Gluon, in which there is a form for Hopper
        agree(form, target=SM_80)
    else:
        agree(form)
        agree(form, which=1)


@pytest.mark.usefixtures("intel_compilers")
@pytest.mark.parametrize("depth", [17, 31, 48])
def test_heads_are_multiplied_in_parts_where_threads_do_it(depth: int) -> None:
    agree(Form(queries=5, keys=9, depth=depth, width=16), target=gpu("intel:tgllp"))


def test_rows_that_see_no_key_are_not_numbers() -> None:
    form = Form(mask="bool", queries=20, keys=40)
    inputs = inputs_of(form)
    inputs[3][3] = False
    agree(form, inputs)


@pytest.mark.parametrize("way", ["all", "any", "largest", "wide"])
@pytest.mark.parametrize("form", [
    Form(mask="bool", queries=20, keys=40), Form(mask="both", queries=41, keys=41, swapped=True, collapsed=True),
    Form(mask="rows", queries=1, keys=1500, heads=3, dtype="bf16", depth=32, width=32),
], ids=["truth", "truth and causal", "decoding"])
def test_rows_that_see_no_key_are_zeros_where_that_is_said(form: Form, way: Literal["all", "any"]) -> None:
    form = replace(form, safe=way)
    inputs = inputs_of(form)
    if form.mask == "rows":
        inputs[3][0] = -np.inf
        inputs[3][1, ..., ::3] = -np.inf
    else:
        inputs[3][0] = False
    assert (expected(form, inputs) == 0).all(-1).any()
    agree(form, inputs)


def test_zeros_under_another_condition_are_no_attention() -> None:
    wrong = text(Form(mask="bool", safe="all")).replace("cmpf oeq", "cmpf une")
    assert "attention" not in generate(wrong, SM_90A).kinds


def test_masks_with_large_numbers_leave_rows_alike() -> None:
    form = Form(mask="rows", queries=20, keys=40)
    inputs = inputs_of(form)
    inputs[3][0] = np.finfo(np.float32).min
    agree(form, inputs)


def test_infinities_and_numbers_that_are_none_stay_in_their_rows() -> None:
    form = Form(queries=20, keys=40)
    inputs = inputs_of(form)
    inputs[0][0, 0, 3, 0] = np.nan
    inputs[0][1, 1, 5, 1] = np.inf
    inputs[2][0, 1, 7, 2] = np.inf
    agree(form, inputs)


LARGE = Form(batch=2, heads=4, queries=1024, keys=1024, depth=128, width=128, dtype="bf16")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_100a", "cuda:ptx80", "hip:gfx942"])
@pytest.mark.parametrize("form", [
    LARGE, replace(LARGE, mask="causal"), replace(LARGE, mask="float"), replace(LARGE, depth=64, width=64),
    replace(LARGE, depth=80, width=80, mask="causal", swapped=True), replace(LARGE, depth=256, width=256),
    replace(LARGE, queries=1, groups=4), replace(LARGE, dtype="f32", queries=256, keys=256),
    replace(LARGE, dynamic=True, mask="causal"),
])
def test_forms_that_are_taken_do_not_spill(form: Form, target: str) -> None:
    resolved = gpu(target)
    made = generate(text(form), resolved)
    assert made.kinds == ["attention"]
    for taken in compile_programs(list(made.programs.values()), resolved, 1):
        assert taken[0].code
        assert taken[0].spills == 0


@pytest.mark.parametrize("mask", ["causal", "ahead"])
def test_keys_that_positions_hide_are_left_out(mask: Mask) -> None:
    (program,) = generate(text(Form(mask=mask, queries=500, keys=500))).programs.values()
    assert "tl.range(0, 500" not in program.forms[0].source
    (program,) = generate(text(Form(mask="float", queries=500, keys=500))).programs.values()
    assert "tl.range(0, 480" in program.forms[0].source


def test_much_work_in_full_precision_is_not_fused() -> None:
    form = replace(LARGE, dtype="f32")
    assert "attention" not in generate(text(form)).kinds
    assert generate(text(form), replace(SM_90A, precision="tf32")).kinds == ["attention"]


def test_hopper_has_groups_of_warps_where_tensors_lie_in_lines() -> None:
    made = generate(text(replace(LARGE, mask="causal", swapped=True)))
    (program,) = made.programs.values()
    assert program.forms[0].label.startswith("groups")
    (taken,) = compile_programs([program], SM_90A, 1)
    assert (taken[0].form, taken[0].spills, taken[0].warps) == (0, 0, 12)


@pytest.mark.parametrize("change", ["scores", "powers"])
def test_nothing_is_fused_where_what_lies_between_is_also_a_result(change: str) -> None:
    whole = text(Form(queries=12, keys=20))
    name = {"scores": "linalg.generic", "powers": "math.exp"}[change]
    lines = whole.splitlines()
    position = next(i for i, line in enumerate(lines) if name in line)
    start = max(i for i in range(position + 1) if " = linalg.generic" in lines[i])
    made = lines[start].split(" = ")[0].strip()
    kind = "tensor<2x2x12x20xf32>"
    whole = whole.replace("-> tensor<2x2x12x8xf32> {", f"-> (tensor<2x2x12x8xf32>, {kind}) {{", 1)
    last = lines[-2].split()
    whole = whole.replace(lines[-2], f"  return {last[1]}, {made} : tensor<2x2x12x8xf32>, {kind}")
    assert "attention" not in generate(whole).kinds


@pytest.mark.parametrize("hidden", [-np.inf, -1e9, -10.0])
def test_a_triangular_constant_is_a_comparison_of_positions(hidden: float) -> None:
    form = Form(mask="float", batch=1, queries=40, keys=40)
    mask = np.where(np.tri(40, dtype=bool), 0, hidden).astype("f4").reshape(1, 1, 40, 40)
    numbers = str(mask.tolist()).replace("-inf", "0xFF800000")
    source = text(form).replace(", %arg3: tensor<1x1x40x40xf32>", "").replace("%arg3", "%mask")
    head, brace, rest = source.partition("{\n")
    source = f"{head}{brace}  %mask = arith.constant dense<{numbers}> : tensor<1x1x40x40xf32>\n{rest}"
    made = generate(source)
    assert made.kinds == ["attention"]
    assert not made.parameters
    inputs = inputs_of(form)[:3]
    (got,) = interpret(made, inputs)
    np.testing.assert_allclose(got, expected(form, [*inputs, mask]), rtol=2e-5, atol=2e-5)


LONG = Form(heads=2, queries=1024, keys=1024, depth=128, width=128, dtype="bf16", scale=0.1)


@pytest.mark.parametrize("form, first", [
    (LONG, True), (replace(LONG, mask="causal"), True), (replace(LONG, heads=80, mask="causal"), False),
    (replace(LONG, mask="both", safe="all"), True),
    (replace(LONG, mask="causal", groups=2, swapped=True), False), (replace(LONG, keys=1000), None),
    (replace(LONG, dynamic=True), None),
], ids=["plain", "causal", "many heads", "safe", "grouped", "odd", "dynamic"])
def test_programs_that_stay_come_first_where_they_are_faster(form: Form, first: bool | None) -> None:
    """And only where all tiles are whole."""
    made = generate(text(form))
    assert made.kinds == ["attention"]
    (program,) = made.programs.values()
    stays = [f.label.endswith(" stay") for f in program.forms]
    assert stays.count(True) == (0 if first is None else 1)
    if first is not None:
        assert stays[0] is first
        assert program.forms[stays.index(True)].tasks <= SM_90A.processors
    ((found,),) = compile_programs([program], SM_90A, 1)
    assert program.forms[found.form].label.startswith("groups") and found.spills == 0
    assert found.form == 0 or form.mask == "both"  # a mask that is read takes the registers that one form lacks
