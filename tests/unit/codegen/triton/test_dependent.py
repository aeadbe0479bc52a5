"""Kernels that wait, at their beginning, for what they depend on."""

from __future__ import annotations

from tests.unit.codegen.triton.building import generate
from tests.unit.codegen.triton.texts import product

from motet.compiler.codegen.triton.dependent import waiting
from motet.compiler.codegen.triton.objects import compile_programs
from motet.compiler.codegen.triton.worker import Made
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget

PTX = """
.version 8.7
.target sm_90a
.visible .entry add(
\t.param .u64 .ptr .global .align 1 add_param_0
)
.reqntid 128
{
\t.reg .pred \t%p<2>;
\t.reg .b64 \t%rd<3>;

// %bb.0:
\tld.param.b64 \t%rd1, [add_param_0];
\tst.global.b32 \t[%rd1], 1;
\tret;
}
"""


def test_waiting_comes_before_the_first_instruction() -> None:
    changed = waiting(PTX)
    assert changed is not None
    body = [line.strip() for line in changed.split("{", 1)[1].splitlines()]
    code = [line for line in body if line and not line.startswith((".reg", "//"))]
    assert code[:2] == ["griddepcontrol.wait;", "griddepcontrol.launch_dependents;"] and code[2].startswith("ld.param")
    assert [line for line in changed.splitlines() if "griddepcontrol" not in line] == PTX.splitlines()


def test_modules_without_one_kernel_stay_as_they_are() -> None:
    assert waiting(PTX + PTX) is None
    assert waiting(".version 8.7\n") is None


def made_for(name: str) -> Made:
    target = resolve_target(name)
    assert isinstance(target, GpuTarget)
    generated = generate(product(128, 128, 64, "f16", "f32"), target)
    ((made,),) = compile_programs(list(generated.programs.values()), target, 1)
    return made


def test_from_hopper_on_kernels_wait() -> None:
    new, old = made_for("cuda:sm_90a"), made_for("cuda:sm_80")
    assert new.waits and new.assembly.count("griddepcontrol.wait") == 1
    assert not old.waits and "griddepcontrol" not in old.assembly
