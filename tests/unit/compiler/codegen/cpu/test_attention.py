"""Attention as one kernel for CPUs, against numpy in double precision, with guarded memory."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from tests.unit.compiler.codegen.cpu.attention_kernels import AttentionKernel, attention_kernel
from tests.unit.compiler.codegen.cpu.harness import levels, native_target
from tests.unit.compiler.codegen.triton.attention_texts import FORMS, Form, expected, inputs_of, text

from motet.compiler.codegen.cpu.attention.attention import CLASS
from motet.compiler.kernels.schedule import AttentionSchedule
from motet.compiler.targets.cpu import X86_64_V3, CpuTarget

TOLERANCE = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
LENGTHS = (2, 3, 7, 15, 16, 17, 31, 33, 64, 77, 129, 197, 300, 515)
HEADS = (2, 3, 8, 15, 16, 17, 33, 40, 64, 72, 130, 256)


def agree(form: Form, inputs: list[np.ndarray] | None = None, target: CpuTarget | None = None) -> None:
    found = attention_kernel(form)
    inputs = inputs_of(form) if inputs is None else inputs
    close(found, form, inputs, target or native_target())


def close(found: AttentionKernel, form: Form, inputs: list[np.ndarray], target: CpuTarget, **schedule: Any) -> None:
    nest = CLASS.match(found.kernel, target)
    assert nest is not None
    chosen = CLASS.choose(nest, target)
    assert chosen is not None
    made = found.build(target, structs.replace(chosen, **schedule))
    wanted = expected(form, inputs)
    for split in (1, 3):
        got = found.run(made, inputs, split).reshape(wanted.shape)
        allowed = TOLERANCE[form.dtype]
        np.testing.assert_allclose(got, wanted, rtol=allowed, atol=allowed, err_msg=f"{form} {chosen}")


@pytest.mark.parametrize("name", [
    "swapped and collapsed", "grouped and collapsed", "causal with a large number", "causal and grouped", "added row",
    "truth and causal", "decoding in groups", "decoding some", "many fresh keys",
])
def test_every_spelling_agrees_with_numpy(name: str) -> None:
    agree(FORMS[name], target=native_target() if len(name) % 2 else X86_64_V3)


@pytest.mark.parametrize("seed", range(8))
def test_odd_shapes_agree_with_numpy(seed: int) -> None:
    random = Random(seed)
    queries, keys = random.choice((1, *LENGTHS)), random.choice(LENGTHS)
    form = Form(
        batch=random.choice((1, 3)), groups=random.choice((1, 1, 3)), queries=queries, keys=keys,
        depth=random.choice(HEADS), width=random.choice(HEADS), dtype=random.choice(("f32", "f32", "f16", "bf16")),
        mask=random.choice(("none", "causal", "float", "rows", "bool", "both")), swapped=random.random() < 0.4,
        past=max(0, keys - queries),
    )
    form = replace(form, scale=round(form.depth**-0.5, 4))
    target = random.choice(levels())
    print(seed, form, target.name)
    agree(form, target=target)


@pytest.mark.parametrize("form", [
    Form(queries=20, keys=33, factor=0.6), Form(queries=5, keys=70, groups=2, swapped=True, collapsed=True, factor=0.3),
    Form(queries=9, keys=40, factor=-0.5, mask="float"),
], ids=["plain", "grouped", "negative"])
def test_factors_of_queries_and_keys_are_part_of_the_kernel(form: Form) -> None:
    """`torch.onnx` multiplies both by the square root of the scale, keys after their transposition."""
    agree(form)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_short_floats_agree_with_numpy(dtype: str) -> None:
    form = Form(queries=50, keys=197, depth=40, width=24, dtype=dtype, mask="causal", past=147)
    found = attention_kernel(form)
    for target in levels():
        if target.name.endswith(("v3", "bf16")):
            close(found, form, inputs_of(form), target)


@pytest.mark.parametrize("schedule", [
    {"keys": 5}, {"keys": 16, "rows": 10, "tile": 5}, {"key_mode": "along_depth", "pack_values": False},
    {"pack_values": False, "value_vectors": 1, "keys": 64}, {"score_vectors": 3, "tile": 7, "rows": 7},
])
def test_every_schedule_gives_the_same_numbers(schedule: dict[str, Any]) -> None:
    form = Form(queries=23, keys=77, depth=19, width=35, mask="causal", past=60)
    close(attention_kernel(form), form, inputs_of(form), native_target(), **schedule)


@pytest.mark.every
@pytest.mark.parametrize("depth", [7, 15, 23, 31])
def test_heads_that_end_within_a_vector(depth: int) -> None:
    form = Form(queries=2, keys=37, depth=depth, width=24)
    close(attention_kernel(form), form, inputs_of(form), native_target(), key_mode="along_depth", pack_values=False)


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_one_code_serves_all_extents(mask: Any) -> None:
    form = Form(dynamic=True, mask=mask, depth=24, width=40)
    found = attention_kernel(form)
    made = found.build(native_target())
    for batch, queries, keys in ((2, 7, 7), (1, 1, 600), (3, 300, 31), (1, 64, 257), (2, 0, 5), (0, 3, 5)):
        here = replace(form, batch=batch, queries=queries, keys=keys)
        inputs = inputs_of(here)
        wanted = expected(here, inputs)
        got = found.run(made, inputs, 2).reshape(wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5, err_msg=str(here))


def test_no_keys_give_zeros() -> None:
    form = Form(dynamic=True)
    found = attention_kernel(form)
    inputs = inputs_of(replace(form, keys=0))
    assert (found.run(found.build(native_target()), inputs) == 0).all()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_that_see_no_key_are_not_numbers(dtype: str) -> None:
    form = Form(mask="bool", queries=20, keys=700, dtype=dtype)
    inputs = inputs_of(form)
    inputs[3][3] = False
    assert np.isnan(expected(form, inputs)[:, :, 3]).all()
    agree(form, inputs, levels()[-1])


@pytest.mark.parametrize("safe", ["all", "largest"])
def test_rows_that_see_no_key_are_zeros_where_that_is_said(safe: Any) -> None:
    form = Form(mask="bool", queries=20, keys=300, safe=safe)
    inputs = inputs_of(form)
    inputs[3][3] = False
    assert (expected(form, inputs)[:, :, 3] == 0).all()
    agree(form, inputs)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_numbers_that_are_not_finite_spread_as_in_numpy(operand: int, value: float) -> None:
    form = Form(mask="float", queries=20, keys=33, depth=16)
    inputs = inputs_of(form)
    inputs[operand][1, 1, 5, 3] = value
    inputs[3][0, 0, 2, 7] = value
    agree(form, inputs)


def test_weights_that_are_not_numbers_become_zeros_where_that_is_said() -> None:
    form = Form(mask="float", queries=20, keys=300, safe="weights")
    inputs = inputs_of(form)
    inputs[3][:, :, 3] = -np.inf
    inputs[3][0, 0, 4, 7], inputs[3][0, 0, 5, 7] = np.nan, np.inf
    assert (expected(form, inputs)[0, 0, 3:6] == 0).all()
    agree(form, inputs)


def test_a_repair_of_other_numbers_is_no_attention() -> None:
    wrong = text(Form(safe="weights")).replace("cmpf une", "cmpf ueq")
    with pytest.raises(ValueError, match="unpack"):
        attention_kernel(wrong)


def test_schedules_that_are_not_legal_have_a_reason() -> None:
    found = CLASS.match(attention_kernel(Form(swapped=True)).kernel, X86_64_V3)
    assert found is not None
    chosen = CLASS.choose(found, X86_64_V3)
    assert isinstance(chosen, AttentionSchedule)
    for change, field in (
        ({"way": "tiles"}, "way"), ({"tile": 5, "rows": 12}, "rows"), ({"key_mode": "place"}, "key_mode"),
        ({"keys": 0}, "keys"), ({"lanes": 16}, "lanes"),
    ):
        reasons = CLASS.check(found, structs.replace(chosen, **change), X86_64_V3)
        assert [reason.field for reason in reasons] == [field], change
