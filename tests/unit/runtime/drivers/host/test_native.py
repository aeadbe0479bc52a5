"""The host device's native half: objects placed, memory pooled, tasks run once each."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from motet.errors import ArtifactError, OptionError, OutOfMemoryError
from motet.runtime.drivers.common.elf import objects as elf
from motet.runtime.drivers.common.elf.linking import Linker
from motet.runtime.drivers.common.elf.structures import SHN_UNDEF, STB_GLOBAL, STB_WEAK
from motet.runtime.drivers.host import layout
from motet.runtime.drivers.host.loader import load_objects
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.drivers.host.native import NativeCommand, NativeProgram
from motet.runtime.drivers.host.threads import HostThreads, support_object, thread_count

# Adds one to element i of buffers[0] for each task i: a task that ran twice, or never, shows.
COUNT = """
define void @count(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %b = load ptr, ptr %buffers
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %n, %loop ]
  %p = getelementptr i32, ptr %b, i64 %i
  %v = load i32, ptr %p
  %w = add i32 %v, 1
  store i32 %w, ptr %p
  %n = add i64 %i, 1
  %c = icmp slt i64 %n, %end
  br i1 %c, label %loop, label %done
done:
  ret void
}
"""


def compile_ir(text: str) -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small")
    return machine.emit_object(llvm.parse_assembly(text))


EXECUTOR = Path(layout.__file__).parent / "executor"
MACHINES = ["x86_64", "aarch64", "riscv64"]
EXPORTS = {
    "motet_call", "motet_copy", "motet_flow", "motet_run", "motet_run_block", "motet_spin", "motet_stop", "motet_wave",
    "motet_wave_logged", "motet_worker",
}
LIBRARY = {"aligned_alloc", "clock_gettime", "free", "madvise", "memmove", "memset", "sched_yield", "syscall"}
INTERPRETER = {
    "PyEval_RestoreThread", "PyEval_SaveThread", "PyLong_AsVoidPtr", "PyLong_FromVoidPtr", "PyObject_CallNoArgs",
    "PyObject_Vectorcall", "PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem", "Py_DecRef", "Py_IncRef",
}


@pytest.mark.parametrize("machine", MACHINES)
def test_shipped_executor_was_made_from_its_sources(machine: str) -> None:
    names = ("Makefile", "executor.h", "executor.c", "pool.c", "commands.c", "calls.c")
    assert set(names) == {path.name for path in EXECUTOR.iterdir() if path.is_file()}
    digest = hashlib.sha256(b"".join((EXECUTOR / name).read_bytes() for name in names) + layout.header().encode())
    assert digest.hexdigest().encode() in support_object(machine).read_bytes(), "rebuild it: make firmware"


def test_shipped_executor_is_what_the_compiler_makes(tmp_path: Path) -> None:
    clang = shutil.which("clang-19")
    if clang is None:
        pytest.skip("no clang-19, which make firmware needs")
    version = subprocess.run([clang, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    if version.encode() not in support_object(MACHINES[0]).read_bytes():
        pytest.skip(f"the executor was made by another version than {version}")
    subprocess.run(["make", "-C", EXECUTOR, f"FOLDER={tmp_path}", f"PYTHON={sys.executable}"], check=True)
    for machine in MACHINES:
        path = support_object(machine)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("machine", MACHINES)
def test_shipped_executor_needs_only_what_the_loader_provides(machine: str) -> None:
    parsed = elf.read_object(support_object(machine).read_bytes(), machine)
    undefined = {symbol for symbol in parsed.symbols if symbol.section == SHN_UNDEF and symbol.name}
    assert {symbol.name for symbol in undefined if symbol.binding == STB_WEAK} == INTERPRETER
    assert {symbol.name for symbol in undefined if symbol.binding == STB_GLOBAL} == LIBRARY
    assert not any(section.flags & elf.SHF_WRITE for section in parsed.sections.values() if section.size)
    linker = Linker([parsed], [machine], machine)
    image = linker.link(memoryview(bytearray(linker.size)), 1 << 36, dict.fromkeys(LIBRARY, 1 << 46).get)
    assert set(image.symbols) == EXPORTS


@pytest.mark.parametrize("tasks", [0, 1, 2, 7, 64, 1000, 100_003])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_task_runs_exactly_once(tasks: int, threads: int) -> None:
    code = load_objects([compile_ir(COUNT)], {})
    counts = np.zeros(tasks + 1, np.int32)
    command = NativeCommand(code.address("count"), tasks, ((0, 0),), ())
    program = NativeProgram(HostThreads(threads), [command], 1, 0, (code,))
    for _ in range(5):
        program.run([counts.ctypes.data])
    assert (counts[:tasks] == 5).all()
    assert counts[tasks] == 0


def test_several_callers_at_once_do_all_their_own_work() -> None:
    code = load_objects([compile_ir(COUNT)], {})
    threads = HostThreads(3)
    command = NativeCommand(code.address("count"), 50, ((0, 0),), ())
    program = NativeProgram(threads, [command], 1, 0, (code,))
    results = [np.zeros(50, np.int32) for _ in range(8)]

    def call(counts: np.ndarray) -> None:
        for _ in range(200):
            program.run([counts.ctypes.data])

    callers = [threading.Thread(target=call, args=(counts,)) for counts in results]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all((counts == 200).all() for counts in results)


def test_copies_move_all_bytes() -> None:
    source, target = np.arange(1000, dtype=np.uint8), np.zeros(1000, np.uint8)
    program = NativeProgram(HostThreads(2), [NativeCommand(0, 0, ((0, 0), (1, 0)), (), 1000)], 2, 0, ())
    program.run([source.ctypes.data, target.ctypes.data])
    assert (source == target).all()


def test_a_forked_child_has_threads_of_its_own() -> None:
    code = load_objects([compile_ir(COUNT)], {})
    counts = np.zeros(64, np.int32)
    program = NativeProgram(
        HostThreads(2), [NativeCommand(code.address("count"), 64, ((0, 0),), ())], 1, 0, (code,)
    )
    program.run([counts.ctypes.data])
    pid = os.fork()
    if pid == 0:
        program.run([counts.ctypes.data])
        os._exit(0 if (counts == 2).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_undefined_symbols_are_named() -> None:
    text = "declare void @nowhere_to_be_found()\ndefine void @f() {\n call void @nowhere_to_be_found()\n ret void\n}"
    with pytest.raises(ArtifactError, match="nowhere_to_be_found"):
        load_objects([compile_ir(text)], {})


def test_damaged_objects_are_refused_or_harmless() -> None:
    data = compile_ir(COUNT)
    generator = random.Random(7)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            load_objects([bytes(damaged[: generator.randint(0, len(damaged))])], {})
        except ArtifactError:
            refused += 1
    assert refused > 200  # most are shortened


def test_constants_and_library_functions_are_found() -> None:
    text = """
@table = internal constant [2 x double] [double 0.5, double 1.5]
declare double @exp(double)
define double @f(i64 %i) {
  %p = getelementptr [2 x double], ptr @table, i64 0, i64 %i
  %x = load double, ptr %p
  %y = call double @exp(double %x)
  ret double %y
}"""
    code = load_objects([compile_ir(text)], {})
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(code.address("f"))
    assert function(1) == pytest.approx(np.exp(1.5), rel=1e-15)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4097, 1 << 20, (5 << 20) + 3])
def test_memory_is_aligned_and_comes_back_to_the_pool(size: int) -> None:
    pool = Pool()
    allocation = pool.allocate(size)
    address = allocation.address
    assert address % 64 == 0
    allocation.array(np.dtype(np.uint8), (size,))[...] = 7
    del allocation
    assert pool.allocate(size).address == address


def test_arrays_keep_their_memory() -> None:
    pool = Pool()
    array = pool.allocate(1 << 20).array(np.dtype(np.float32), (1 << 18,))
    array[...] = 3.0
    other = pool.allocate(1 << 20).array(np.dtype(np.float32), (1 << 18,))
    other[...] = 4.0
    assert (array == 3.0).all()
    assert pool.statistics.in_use >= 2 << 20


def test_too_much_memory_is_an_error_with_its_size() -> None:
    with pytest.raises(OutOfMemoryError, match="1,152,921,504,606,846,976"):
        Pool().allocate(1 << 60)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_thread_count_must_be_a_positive_number(text: str) -> None:
    with pytest.raises(OptionError, match="MOTET_THREADS"):
        thread_count({"MOTET_THREADS": text})


def test_the_thread_count_is_taken_from_the_environment() -> None:
    assert thread_count({"MOTET_THREADS": "3"}) == 3
    assert 1 <= thread_count({}) <= len(os.sched_getaffinity(0))
