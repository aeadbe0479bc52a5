"""Runs an artifact's code for another processor: a static ELF executable for it, started by qemu's user mode.

There is neither a linker nor a C library for these machines here, so the executable is built from what Motet
has: the loader's `Linker` relocates the variant's objects to fixed addresses, the schedule is made concrete as
a session does it, and tables of absolute addresses take the place of what a call fills in.

    stub         _start and one system call, as machine words
    code         the variant's objects, and `DRIVER`: the schedule's commands in order, then the results to
                 standard output
    tables       commands; for each its buffers and sizes
    memory       arena, parameters, inputs, results: each ends where an unmapped page begins, so that reading or
                 writing beyond its end (up to the alignment that it must have) is a fault

What is not yet written holds 0xCB bytes, so that a result left out shows.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from motet import cpu_features
from motet.artifact import Artifact
from motet.artifact.schema import Signature, Variant
from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.targets.cpu import CPU_TARGETS
from motet.runtime.drivers.common.elf import objects as elf
from motet.runtime.drivers.common.elf.executables import write_executable
from motet.runtime.drivers.common.elf.linking import Linker
from motet.runtime.drivers.common.elf.structures import LoadedSegment
from motet.runtime.instantiate import Concrete, make_concrete

PAGE = 1 << 16  # the largest page that Linux has on these machines
STUB, CODE, MEMORY = 0x1000000, 0x2000000, 0x40000000
SYSTEM_CALL = 32
UNWRITTEN = 0xCB
ARENA_ALIGNMENT = 64  # what sessions give arenas, parameters and scratch memory
COMMAND = struct.Struct("<6Q")  # function (0: a copy), buffers, sizes, tasks, tasks at once, bytes of a copy
RESULT = struct.Struct("<2Q")  # address, bytes


@dataclass(frozen=True)
class Machine:
    """A processor family: code, and Linux's numbers of two calls.

    `start` calls the address that stands 16 bytes after its own beginning; `system_call` is a function of C's
    convention, `long system_call(number, a, b, c)`.
    """

    start: bytes
    system_call: bytes
    write: int
    exit: int
    emulator: tuple[str, ...]

    def stub(self, main: int) -> bytes:
        """What stands at STUB: `start`, the address of `main`, and after SYSTEM_CALL bytes `system_call`."""
        return (self.start.ljust(16, b"\0") + struct.pack("<Q", main)).ljust(SYSTEM_CALL, b"\0") + self.system_call


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


MACHINES = {
    "x86_64": Machine(
        bytes.fromhex("ff150a000000"),  # call [rip + 10]
        # mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; syscall; ret
        bytes.fromhex("4889f8 4889f7 4889d6 4889ca 0f05 c3"),
        1, 231, ("qemu-x86_64-static", "-cpu", "max"),
    ),
    "aarch64": Machine(
        _words(0x58000090, 0xD63F0200),  # ldr x16, .+16; blr x16
        # mov x8, x0; mov x0, x1; mov x1, x2; mov x2, x3; svc #0; ret
        _words(0xAA0003E8, 0xAA0103E0, 0xAA0203E1, 0xAA0303E2, 0xD4000001, 0xD65F03C0),
        64, 94, ("qemu-aarch64-static", "-cpu", "cortex-a57"),
    ),
    "riscv64": Machine(
        _words(0x00000297, 0x0102B283, 0x000280E7),  # auipc t0, 0; ld t0, 16(t0); jalr t0
        # mv a7, a0; mv a0, a1; mv a1, a2; mv a2, a3; ecall; ret
        _words(0x00050893, 0x00058513, 0x00060593, 0x00068613, 0x00000073, 0x00008067),
        64, 94, ("qemu-riscv64-static", "-cpu", "rv64,v=false"),
    ),
}

# Runs the commands of `table` in order, each over its tasks in pieces of `at once`, and leaves with the results
# written to standard output. `memcpy` and its like are what instruction selection may call for.
DRIVER = """
define void @motet_driver() noreturn {{
entry:
  br label %commands
commands:
  %i = phi i64 [0, %entry], [%i1, %done]
  %more = icmp ult i64 %i, {commands}
  br i1 %more, label %command, label %results
command:
  %row = mul i64 %i, 48
  %a0 = add i64 %row, {table}
  %p0 = inttoptr i64 %a0 to ptr
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %p4 = getelementptr i64, ptr %p0, i64 4
  %p5 = getelementptr i64, ptr %p0, i64 5
  %function = load ptr, ptr %p0
  %buffers = load ptr, ptr %p1
  %sizes = load ptr, ptr %p2
  %tasks = load i64, ptr %p3
  %step = load i64, ptr %p4
  %bytes = load i64, ptr %p5
  %iscopy = icmp eq ptr %function, null
  br i1 %iscopy, label %copy, label %run
copy:
  %target0 = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %target0
  %source = load ptr, ptr %buffers
  %unused = call ptr @memcpy(ptr %target, ptr %source, i64 %bytes)
  br label %done
run:
  %begin = phi i64 [0, %command], [%end, %piece]
  %left = icmp ult i64 %begin, %tasks
  br i1 %left, label %piece, label %done
piece:
  %end0 = add i64 %begin, %step
  %over = icmp ugt i64 %end0, %tasks
  %end = select i1 %over, i64 %tasks, i64 %end0
  call void %function(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr inttoptr (i64 {scratch} to ptr))
  br label %run
done:
  %i1 = add i64 %i, 1
  br label %commands
results:
  %r = phi i64 [0, %commands], [%r1, %written]
  %rmore = icmp ult i64 %r, {results}
  br i1 %rmore, label %result, label %leave
result:
  %rrow = mul i64 %r, 16
  %ra = add i64 %rrow, {result_table}
  %rp = inttoptr i64 %ra to ptr
  %rq = getelementptr i64, ptr %rp, i64 1
  %address = load i64, ptr %rp
  %length = load i64, ptr %rq
  br label %write
write:
  %at = phi i64 [%address, %result], [%at1, %wrote]
  %rest = phi i64 [%length, %result], [%rest1, %wrote]
  %finished = icmp eq i64 %rest, 0
  br i1 %finished, label %written, label %call
call:
  %count = call i64 inttoptr (i64 {system_call} to ptr)(i64 {write}, i64 1, i64 %at, i64 %rest)
  %failed = icmp slt i64 %count, 1
  br i1 %failed, label %fail, label %wrote
wrote:
  %at1 = add i64 %at, %count
  %rest1 = sub i64 %rest, %count
  br label %write
written:
  %r1 = add i64 %r, 1
  br label %results
leave:
  %gone = call i64 inttoptr (i64 {system_call} to ptr)(i64 {exit}, i64 0, i64 0, i64 0)
  unreachable
fail:
  %gone2 = call i64 inttoptr (i64 {system_call} to ptr)(i64 {exit}, i64 1, i64 0, i64 0)
  unreachable
}}

define weak ptr @memcpy(ptr %to, ptr %from, i64 %size) {{
  %r = call ptr @memmove(ptr %to, ptr %from, i64 %size)
  ret ptr %r
}}

define weak ptr @memmove(ptr %to, ptr %from, i64 %size) {{
entry:
  %t = ptrtoint ptr %to to i64
  %f = ptrtoint ptr %from to i64
  %ahead = sub i64 %t, %f
  %backwards = icmp ult i64 %ahead, %size
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %byte]
  %more = icmp ult i64 %i, %size
  br i1 %more, label %byte, label %done
byte:
  %i1 = add i64 %i, 1
  %last = sub i64 %size, %i1
  %k = select i1 %backwards, i64 %last, i64 %i
  %p = getelementptr i8, ptr %from, i64 %k
  %q = getelementptr i8, ptr %to, i64 %k
  %b = load volatile i8, ptr %p
  store volatile i8 %b, ptr %q
  br label %loop
done:
  ret ptr %to
}}

define weak ptr @memset(ptr %to, i32 %value, i64 %size) {{
entry:
  %b = trunc i32 %value to i8
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %byte]
  %more = icmp ult i64 %i, %size
  br i1 %more, label %byte, label %done
byte:
  %i1 = add i64 %i, 1
  %q = getelementptr i8, ptr %to, i64 %i
  store volatile i8 %b, ptr %q
  br label %loop
done:
  ret ptr %to
}}
"""


@dataclass
class Memory:
    """Blocks of data at fixed addresses, with an unmapped page behind each."""

    end: int = MEMORY
    segments: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])

    def add(self, data: bytes, alignment: int) -> int:
        """The address of `data`, a multiple of `alignment`; what stands before it on its first page is UNWRITTEN."""
        span = -(-max(len(data), 1) // PAGE) * PAGE
        first = self.end
        address = (first + span - len(data)) // alignment * alignment
        head, tail = address - first, first + span - address - len(data)
        self.segments.append((first, bytes([UNWRITTEN]) * head + data + bytes([UNWRITTEN]) * tail))
        self.end = first + span + PAGE
        return address


@dataclass(frozen=True)
class Foreign:
    """What a run on the other machine gave."""

    results: list[np.ndarray[Any, Any]]
    relocations: frozenset[int]  # the types that occur in the objects


def emulator(target: str, vector_bits: int = 256) -> list[str] | None:
    """The command that runs a program for `target` here; None if there is none.

    What this processor can run is run as it is: qemu (7.2) takes masked loads for whole ones, which fault where
    memory ends, and knows no 512-bit vectors.
    """
    level = CPU_TARGETS[target]
    name = level.triple.split("-", 1)[0]
    if name == cpu_features.machine() and set(level.requires) <= set(cpu_features.host_features()):
        return []
    if level.vector_bits == 512:
        return None
    command = list(MACHINES[name].emulator)
    if "v" in level.requires:
        command[-1] = f"rv64,v=true,vext_spec=v1.0,vlen={vector_bits}"
    return command if shutil.which(command[0]) else None


def run_foreign(
    artifact: Artifact, target: str, inputs: Sequence[np.ndarray[Any, Any]], folder: Path, *,
    function: str = "main", at_once: int = 1 << 40, vector_bits: int = 256,
) -> Foreign:
    """Runs `function` of the artifact's variant for `target` on `inputs`, `at_once` tasks in one call of a kernel.

    Raises: RuntimeError: the program failed, by a signal for instance.
    """
    command = emulator(target, vector_bits)
    if command is None:
        raise RuntimeError(f"nothing here runs {target}")
    variant = next(variant for variant in artifact.manifest.variants if variant.target == target)
    signature = artifact.functions[function]
    symbols = {symbol.name: inputs[symbol.input].shape[symbol.axis] for symbol in signature.symbols}
    concrete = make_concrete(
        signature, variant.schedules[function], symbols, lambda index: artifact.parameter(index).nbytes, function
    )
    image, relocations = _build(artifact, variant, signature, concrete, inputs, at_once)
    file = folder / f"{target}.elf"
    file.write_bytes(image)
    file.chmod(0o700)
    outcome = subprocess.run([*command, str(file)], stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    file.unlink()
    if outcome.returncode:
        raise RuntimeError(f"{target}: status {outcome.returncode}: {outcome.stderr.decode(errors='replace')}")
    results, at = [], 0
    for shape in concrete.results:
        results.append(np.frombuffer(outcome.stdout, shape.dtype, shape.bytes // shape.dtype.itemsize, at))
        results[-1] = results[-1].reshape(shape.extents)
        at += shape.bytes
    if at != len(outcome.stdout):
        raise RuntimeError(f"{target}: {len(outcome.stdout)} bytes written, {at} expected")
    return Foreign(results, relocations)


def _build(
    artifact: Artifact, variant: Variant, signature: Signature, concrete: Concrete,
    inputs: Sequence[np.ndarray[Any, Any]], at_once: int,
) -> tuple[bytes, frozenset[int]]:
    name = variant.triple.split("-", 1)[0]
    machine = MACHINES[name]
    memory = Memory()
    externals = _place_externals(artifact, signature, concrete, inputs, memory)
    results = [RESULT.pack(externals[len(inputs) + i], shape.bytes) for i, shape in enumerate(concrete.results)]
    scratch = memory.add(bytes([UNWRITTEN]) * (concrete.scratch + -concrete.scratch % ARENA_ALIGNMENT), ARENA_ALIGNMENT)
    result_table = memory.add(b"".join(results), 8)
    # Where commands lie is part of the driver's code, where code lies part of the commands: room first, then words.
    rows, tables = len(concrete.work) * COMMAND.size, len(memory.segments)
    table = memory.add(bytes(rows), 8)
    driver = DRIVER.format(
        commands=len(concrete.work), table=table, results=len(results), result_table=result_table, scratch=scratch,
        system_call=STUB + SYSTEM_CALL, write=machine.write, exit=machine.exit,
    )
    objects = [bytes(artifact.member(name)) for name in variant.objects]
    objects += compile_units([ObjectUnit("driver", driver, False)], CPU_TARGETS[variant.target], 1)
    parsed = [elf.read_object(data, f"object {i}") for i, data in enumerate(objects)]
    linker = Linker(parsed, [], name)
    code = bytearray(linker.size)
    linked = linker.link(memoryview(code), CODE, lambda name: None)
    symbols = {name: CODE + offset for name, offset in linked.symbols.items()}
    commands = _commands(concrete, externals, symbols, at_once, memory)
    first, held = memory.segments[tables]
    memory.segments[tables] = (first, held[: table - first] + commands + held[table - first + rows :])
    segments = [(STUB, machine.stub(symbols["motet_driver"])), (CODE, bytes(code)), *memory.segments]
    loaded = [LoadedSegment(address, data, len(data)) for address, data in segments]
    used = {entry.type for item in parsed for entries in item.relocations.values() for entry in entries}
    return write_executable(name, STUB, loaded, {}, PAGE), frozenset(used)


def _place_externals(
    artifact: Artifact, signature: Signature, concrete: Concrete, inputs: Sequence[np.ndarray[Any, Any]], memory: Memory
) -> list[int]:
    """Addresses in the order in which work refers to memory: inputs, results, arena, parameters."""
    addresses = [memory.add(np.ascontiguousarray(array).tobytes(), array.dtype.itemsize) for array in inputs]
    for spec, shape in zip(signature.results, concrete.results, strict=True):
        if spec.destination is not None:
            addresses.append(addresses[spec.destination])
        else:
            addresses.append(memory.add(bytes([UNWRITTEN]) * shape.bytes, shape.dtype.itemsize))
    addresses.append(memory.add(bytes([UNWRITTEN]) * concrete.arena, ARENA_ALIGNMENT))
    for index in concrete.parameters:
        addresses.append(memory.add(artifact.parameter(index).tobytes(), ARENA_ALIGNMENT))
    return addresses


def _commands(
    concrete: Concrete, externals: Sequence[int], symbols: Mapping[str, int], at_once: int, memory: Memory
) -> bytes:
    rows: list[bytes] = []
    for work in concrete.work:
        places = [externals[reference.external] + reference.offset for reference in work.references]
        buffers = memory.add(struct.pack(f"<{len(places)}Q", *places), 8)
        sizes = memory.add(struct.pack(f"<{len(work.sizes)}q", *work.sizes), 8)
        if work.op == "copy":
            rows.append(COMMAND.pack(0, buffers, sizes, 0, 1, work.references[0].bytes))
        else:
            rows.append(COMMAND.pack(symbols[work.kernel], buffers, sizes, work.tasks, at_once, 0))
    return b"".join(rows)
