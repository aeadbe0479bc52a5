"""Every form that is offered to Intel's GPUs compiles, and launches take forms that spill little."""

from __future__ import annotations

import pytest
from tests.integration.intel_forms import DEVICES, TEXTS, Compiled, compiled_forms

from motet.compiler.codegen.triton.compile import ocloc
from motet.compiler.codegen.triton.compile.native_code import SPILL_THRESHOLD

pytestmark = pytest.mark.usefixtures("intel_compilers")

_SAMPLE = ("product-residual", "attention-one-query", "softmax-1000", "scan")
_LITTLE = 80  # registers that a launch may spill, in its best form


def faults(forms: list[Compiled], device: str) -> list[str]:
    """The forms that have no code. Block pointers need an offline compiler that knows 2-D block loads."""
    known = ocloc.has_block_loads(device)
    return [
        f"{device}: {form.program} {form.label}: {form.made.error}" for form in forms
        if form.made.error and (known or "does not know 2-D block loads" not in form.made.error)
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_a_sample_of_forms_compiles(device: str) -> None:
    forms = compiled_forms(device, lambda name: name in _SAMPLE)
    assert len(forms) > len(_SAMPLE) and not faults(forms, device)


def on_engine(form: Compiled) -> bool:
    return form.made.native is not None and form.made.native.matrix_engine


@pytest.mark.parametrize("device", DEVICES)
def test_rows_compile_in_sub_groups_of_32(device: str) -> None:
    forms = compiled_forms(f"{device}/32", lambda name: name == "softmax-1000")
    assert forms and not faults(forms, device)
    assert {form.made.sub_group for form in forms} == {32}
    for form in forms:
        assert form.made.native is not None and form.made.warps * 32 <= form.made.native.max_work_group


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_all_forms_compile_in_sub_groups_of_32_except_on_matrix_engines(device: str) -> None:
    forms = compiled_forms(f"{device}/32")
    assert not faults(forms, device)
    made = [form for form in forms if not form.made.error]
    assert not any(on_engine(form) and form.made.sub_group != 16 for form in made)
    narrow = {form.program.partition("-")[0] for form in made if form.made.sub_group == 16}
    assert narrow <= ({"product", "attention", "convolution"} if device == "pvc" else set())


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_all_forms_compile_and_one_of_each_launch_spills_little(device: str) -> None:
    forms = compiled_forms(device)
    assert {form.program.partition("/")[0] for form in forms} == TEXTS.keys()
    assert not faults(forms, device)
    least: dict[str, int] = {}
    for form in forms:
        if form.made.native is not None:
            spilled = form.made.native.spilled_registers
            least[form.program] = min(spilled, least.get(form.program, spilled))
    assert max(least.values()) <= _LITTLE, least
    spilling = [name for name, spilled in least.items() if spilled > SPILL_THRESHOLD]
    assert len(spilling) * 16 <= len(least), spilling
