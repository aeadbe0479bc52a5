"""Kernels that wait, at their beginning, for what they depend on."""

from __future__ import annotations

from tests.unit.compiler.codegen.triton.building import generate
from tests.unit.compiler.codegen.triton.texts import product, softmax

from motet.compiler.codegen.triton.compile.objects import compile_programs
from motet.compiler.codegen.triton.compile.programmatic_launch import waiting
from motet.compiler.codegen.triton.compile.worker import Made
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
    assert code[:2] == ["griddepcontrol.launch_dependents;", "griddepcontrol.wait;"] and code[2].startswith("ld.param")
    assert [line for line in changed.splitlines() if "griddepcontrol" not in line] == PTX.splitlines()


def test_modules_without_one_kernel_stay_as_they_are() -> None:
    assert waiting(PTX + PTX) is None
    assert waiting(".version 8.7\n") is None


def ring(before: str = "", worker: str = "") -> str:
    """A kernel that makes a descriptor in a thread of its own, and whose second half of warps waits for work."""
    body = f"""
\tmov.u32 \t%r1, %tid.x;
\t@!%p1 bra \t$L__BB0_1;
{before}
\t@%p13 bra \t$L__BB0_15;
\ttensormap.replace.tile.rank.shared::cta.b1024.b32 [ %rd15 + 0 ], 0x1;
$L__BB0_15:
\t@%p14 tensormap.cp_fenceproxy.global.shared::cta [ %rd18 + 0 ], [ %rd19 ], 0x80;
\t@%p14 cp.async.bulk.wait_group.read 0 ;
\t@%p15 mbarrier.init.shared::cta.b64 [%r78], 1;
\tld.global.b32 \t%r2, [%rd1];
\tret;
$L__BB0_1:
{worker}
\tbarrier.sync \t1;
\tret;
"""
    return PTX[: PTX.index("\tld.param")] + body + "}\n"


def test_descriptors_are_made_before_waiting() -> None:
    changed = waiting(ring())
    assert changed is not None
    lines = [line.strip() for line in changed.splitlines()]
    assert lines[lines.index("griddepcontrol.wait;") + 1].startswith("@%p15 mbarrier.init")
    assert lines.index("griddepcontrol.launch_dependents;") < lines.index("mov.u32 \t%r1, %tid.x;")


def test_nothing_else_is_done_before_waiting() -> None:
    others = (
        ring(before="\tld.global.b32 \t%r2, [%rd1];"), ring(before="\tcp.async.cg.shared.global [%r1], [%rd1], 16;"),
        ring(worker="\tst.global.b32 \t[%rd1], 1;"), ring(before="\t@%p2 bra \t$L__BB0_9;"),
    )
    for text in others:
        changed = waiting(text)
        assert changed is not None
        assert changed.index("griddepcontrol.wait") < changed.index("%tid.x")


def test_what_the_text_of_a_kernel_says_itself_is_left_to_it() -> None:
    wait, begin = "\tgriddepcontrol.wait;\n", "\tgriddepcontrol.launch_dependents;\n"
    waits = PTX.replace("\tret;", wait + "\tret;")
    changed = waiting(waits)
    assert changed is not None and changed.count(wait) == 1
    assert changed.index(begin) < changed.index("ld.param")
    both = waits.replace("\tret;", begin + "\tret;")
    assert waiting(both) == both


def made_for(name: str, text: str) -> Made:
    target = resolve_target(name)
    assert isinstance(target, GpuTarget)
    generated = generate(text, target)
    ((made,),) = compile_programs(list(generated.programs.values()), target, 1)
    return made


def test_from_hopper_on_kernels_wait() -> None:
    new, old = (made_for(name, softmax(64, 128)) for name in ("cuda:sm_90a", "cuda:sm_80"))
    assert new.waits and new.assembly.count("griddepcontrol.wait") == 1
    assert not old.waits and "griddepcontrol" not in old.assembly


def test_products_by_tiles_are_launched_behind_what_they_depend_on() -> None:
    made = made_for("cuda:sm_90a", product(128, 128, 64, "f16", "f32"))
    assert not made.waits and "griddepcontrol" not in made.assembly
