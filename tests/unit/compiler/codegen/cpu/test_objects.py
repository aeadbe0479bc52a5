"""Objects: valid ELF for every target, equal bytes however many workers, one clear error per failure."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import threading

import pytest

from motet.compiler.codegen.cpu.objects import ObjectUnit, assembly, compile_units
from motet.compiler.targets.cpu import CPU_TARGETS, X86_64_V3, X86_64_V4
from motet.compiler.targets.native import native_target, resolve_cpu_target
from motet.errors import CompileError, OptionError, WorkerCrash

VECTOR = """
define void @{name}(ptr %a, ptr %b) {{
  %x = load <16 x float>, ptr %a, align 4
  %y = load <16 x float>, ptr %b, align 4
  %z = fadd <16 x float> %x, %y
  store <16 x float> %z, ptr %a, align 4
  ret void
}}
"""
LOOP = """
define void @{name}(ptr noalias %a, ptr noalias %b, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %p = getelementptr float, ptr %a, i64 %i
  %q = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %p
  %z = fadd float %x, 1.0
  store float %z, ptr %q
  %j = add i64 %i, 1
  %c = icmp ult i64 %j, %n
  br i1 %c, label %loop, label %done
done:
  ret void
}}
"""
DEADLY = """
declare i64 @llvm.read_volatile_register.i64(metadata)
define i64 @deadly() {
  %x = call i64 @llvm.read_volatile_register.i64(metadata !0)
  ret i64 %x
}
!0 = !{!"nosuch"}
"""
ELF_MACHINE = {"x86_64": 62, "aarch64": 183, "riscv64": 243}


def units(count: int) -> list[ObjectUnit]:
    return [ObjectUnit(f"k{i}", (LOOP if i % 2 else VECTOR).format(name=f"k{i}"), i % 2 == 1) for i in range(count)]


@pytest.mark.parametrize("name", CPU_TARGETS)
def test_every_target_gives_a_relocatable_elf_object_of_its_machine(name: str) -> None:
    for code in compile_units(units(2), CPU_TARGETS[name], 1):
        assert code[:4] == b"\x7fELF"
        assert int.from_bytes(code[16:18], "little") == 1  # ET_REL
        assert int.from_bytes(code[18:20], "little") == ELF_MACHINE[CPU_TARGETS[name].triple.split("-")[0]]
        assert b"\0k0\0" in code or b"\0k1\0" in code


def test_workers_give_the_same_bytes_as_the_own_process() -> None:
    alone = compile_units(units(7), X86_64_V3, 1)
    assert compile_units(units(7), X86_64_V3, 3) == alone
    assert compile_units(units(7), X86_64_V3, 1) == alone
    assert len(set(alone)) == 7


def test_workers_of_a_process_with_threads_are_fresh_interpreters() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert compile_units(units(3), X86_64_V3, 2) == compile_units(units(3), X86_64_V3, 1)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    ("name", "register", "absent"), [("x86-64-v4", "zmm", ""), ("x86-64-v3", "ymm", "zmm")]
)
def test_vectors_fill_the_registers_of_the_level(name: str, register: str, absent: str) -> None:
    for unit in units(2):
        text = assembly(unit, CPU_TARGETS[name])
        assert re.search(rf"vaddps.*%{register}", text)
        assert not absent or absent not in text


def test_loops_are_left_alone_without_optimise() -> None:
    unit = ObjectUnit("k", LOOP.format(name="k"), optimise=False)
    assert not re.search(r"%[yz]mm", assembly(unit, X86_64_V4))


@pytest.mark.parametrize("jobs", [1, 2])
def test_ir_that_does_not_parse_is_an_error_that_names_the_unit(jobs: int) -> None:
    broken = ObjectUnit("conv_3", "define void @f( {", optimise=True)
    with pytest.raises(CompileError, match=r"kernel conv_3: the generated LLVM IR is not .*expected type"):
        compile_units([*units(2), broken], X86_64_V3, jobs)


def test_ir_that_does_not_verify_is_an_error() -> None:
    text = "define i32 @f() {\n  %x = add i32 %y, 1\n  %y = add i32 %x, 1\n  ret i32 %y\n}"
    broken = ObjectUnit("k", text, optimise=False)
    with pytest.raises(CompileError, match="dominate"):
        compile_units([broken], X86_64_V3, 1)


def test_a_worker_that_dies_names_its_unit_and_leaves_a_reproducer() -> None:
    with pytest.raises(WorkerCrash, match=r"kernel gemm_7: .*x86-64-v3 died.*nosuch") as caught:
        compile_units([*units(2), ObjectUnit("gemm_7", DEADLY, optimise=False)], X86_64_V3, 2)
    command = shlex.split(caught.value.reproducer)
    again = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True)
    assert again.returncode != 0
    assert "nosuch" in again.stderr


WAITS = """
import ctypes, os
from motet.compiler.codegen.cpu import objects
from motet.compiler.targets.cpu import X86_64_V3
from motet.errors import WorkerCrash
c = ctypes.CDLL(None)
c.__cxa_atexit(c.pause, None, None)
try:
    objects.compile_units([objects.ObjectUnit(name, DEADLY, optimise=False) for name in "ab"], X86_64_V3, 2)
except WorkerCrash as crash:
    print(crash, flush=True)
os._exit(0)
"""


def test_a_worker_dies_though_the_caller_has_handlers_that_wait_at_the_end() -> None:
    """As those of libraries with threads, which a fork does not have."""
    done = subprocess.run(
        [sys.executable, "-c", f"DEADLY = {DEADLY!r}\n{WAITS}"], capture_output=True, text=True, timeout=100)
    assert re.search(r"kernel [ab]: .*x86-64-v3 died.*nosuch", done.stdout), done.stderr


ABORTS = """
import os
from motet.compiler.codegen.cpu import objects
from motet.compiler.targets.cpu import X86_64_V3
passes = objects._run_passes
objects._run_passes = lambda module, machine, vectorise: os.abort() if vectorise else passes(module, machine, False)
units = [objects.ObjectUnit(f"k{i}", TEXT.replace("{name}", f"k{i}"), True) for i in range(COUNT)]
plain = [objects.ObjectUnit(each.name, each.llvm, True, vectorise=False) for each in units]
assert objects.compile_units(units, X86_64_V3, 1) == objects.compile_units(plain, X86_64_V3, 1)
"""


@pytest.mark.parametrize("count", [1, 3])
def test_loops_on_which_vectorisers_abort_are_left_as_they_are(count: int) -> None:
    text = f"TEXT = {LOOP.replace('{{', '{').replace('}}', '}')!r}\nCOUNT = {count}\n{ABORTS}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = re.findall(r"kernel (k\d): LLVM died while it vectorised its loops for x86-64-v3; .* \(SIGABRT", done.stderr)
    assert sorted(told) == [f"k{i}" for i in range(count)]


def test_native_reaches_what_the_machine_has() -> None:
    target = native_target()
    assert target.name == "native"
    assert compile_units(units(1), target, 1)[0][:4] == b"\x7fELF"
    assert resolve_cpu_target("native") == target
    for level in (X86_64_V3, X86_64_V4):
        if target.vector_bits >= level.vector_bits:
            assert set(level.requires) <= set(target.requires)


def test_an_unknown_target_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'x86-64-v9'.*known: x86-64-v4, .*riscv64.*, native"):
        resolve_cpu_target("x86-64-v9")
