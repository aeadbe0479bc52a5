"""Compiles SPIR-V of a kernel for one Intel GPU, in the mode of registers that the user chose, and tells what it has.

In the default mode a kernel is compiled with each larger register file of the device, too, and the code is kept that is
estimated to be fastest (`_Attempt.cycles`). A file twice as large halves the largest work-group and the threads that
hide each other's latency; a thread then spills less and has more messages under way. Without the decoder of
instructions (`iga.py`), only kernels that spill are compiled again, and those that spill less are kept.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from motet.artifact.launch import Native, Retry
from motet.compiler.codegen.triton.compile import iga, ocloc, zebin
from motet.compiler.targets.gpu import XpuDevice

SPILL_THRESHOLD = 16  # registers
_FILE = "-cl-intel-{}-GRF-per-thread"
FLAGS = {
    "default": "", "small": _FILE.format(128), "large": _FILE.format(256),
    "auto": "-cl-intel-enable-auto-large-GRF-mode",
}
_SMALL = 128  # registers
_THREADS = 8  # of a vector engine that have as few
_SERVICE = 8  # cycles in which the first-level cache of as many vector engines takes a message of each
_LATENCY = 128  # cycles that the answer takes


class OutOfResources(Exception):
    """A kernel that needs more than the device has."""


@dataclass(frozen=True)
class _Attempt:
    code: bytes
    instructions: bytes
    facts: zebin.KernelFacts
    spilled: int  # registers
    source: str
    flags: str
    device: XpuDevice

    @functools.cached_property
    def work(self) -> iga.ThreadWork | None:
        return iga.read_work(self.instructions, self.device.isa, self.device.register_bytes)

    @property
    def cycles(self) -> int:
        """An estimate of the cycles in which a vector engine ends one of its threads, as many as their registers leave
        room for: those that issue its instructions, those in which the cache serves its messages, or those that a
        thread takes alone, shared by all, whichever are most. 0 if the instructions are not known."""
        if self.work is None:
            return 0
        threads = max(1, _THREADS * _SMALL // max(self.facts.registers, _SMALL))
        alone = self.work.cycles + _LATENCY * self.work.waits
        return max(self.work.cycles, _SERVICE * self.work.messages, alone // threads)


def make_native(spirv: bytes, kernel: str, device: XpuDevice, items: int) -> tuple[bytes, Native]:
    """The zebin of `kernel`, whose work-groups have `items` work-items, and what it has. Raises OutOfResources, and
    `ocloc.CompilerFailure`."""
    taken = _compile(spirv, kernel, device, FLAGS[device.registers])
    retries: list[Retry] = []
    for registers in device.register_files if device.registers == "default" else ():
        if registers > taken.facts.registers and (taken.spilled or taken.cycles):
            taken, retry = _again(spirv, kernel, device, items, taken, registers)
            retries.append(retry)
    most = _most(device, taken.facts.registers)
    if items > most:
        raise OutOfResources(
            f"work-groups of {items} work-items; {device.device} has at most {most} with {taken.facts.registers} "
            "registers"
        )
    spilled = taken.facts.spilled if taken.facts.spilled is not None else taken.spilled * device.register_bytes
    spill_source = ".ze_info spill_size" if taken.facts.spilled is not None else f"{taken.source} x register_bytes"
    sources = {
        "registers": ".ze_info grf_count", "register_bytes": "table of devices", "spilled_registers": taken.source,
        "spilled_bytes": spill_source, "max_work_group": f"table of devices, for {taken.facts.registers} registers",
        "matrix_engine": ".ze_info has_dpas",
    }
    return taken.code, Native(
        device.device, ocloc.version(), taken.flags, taken.facts.registers, device.register_bytes, taken.spilled,
        spilled, most, taken.facts.matrix_engine, sources, retries,
    )


def _again(
    spirv: bytes, kernel: str, device: XpuDevice, items: int, first: _Attempt, registers: int
) -> tuple[_Attempt, Retry]:
    """`first`, or what the file of `registers` registers gives if that is better; and why."""
    flags = _FILE.format(registers)
    if items > (most := _most(device, registers)):
        return first, Retry(flags, -1, taken=False, reason=f"work-groups of {items} work-items; at most {most} with it")
    try:
        second = _compile(spirv, kernel, device, flags)
    except ocloc.CompilerFailure as error:
        return first, Retry(flags, -1, taken=False, reason=str(error))
    if second.facts.registers != registers:
        return first, Retry(flags, second.spilled, taken=False, reason="the compiler does not honour the flag")
    reason = f"it spills {second.spilled} registers instead of {first.spilled}"
    is_better = second.spilled < first.spilled
    if first.cycles and second.cycles:
        cycles = round(second.cycles * _unrolled(first, second))
        is_better = (cycles, second.spilled) < (first.cycles, first.spilled)
        reason += f" and takes an estimated {cycles} cycles instead of {first.cycles}"
    return second if is_better else first, Retry(flags, second.spilled, is_better, reason)


def _unrolled(first: _Attempt, second: _Attempt) -> float:
    """What the cycles of `second` are worth in those of `first`: the compiler unrolls loops more often with more
    registers, and either executes as many multiplications as the other."""
    done = [attempt.work.products if attempt.work is not None else 0 for attempt in (first, second)]
    return done[0] / done[1] if all(done) else 1.0


def _compile(spirv: bytes, kernel: str, device: XpuDevice, flags: str) -> _Attempt:
    built = ocloc.compile_spirv(spirv, device.device, flags)
    try:
        facts = zebin.read_kernel(built.zebin, kernel)
        instructions = zebin.section(built.zebin, f".text.{kernel}")
    except ValueError as error:
        raise ocloc.CompilerFailure(str(error)) from error
    spilled, source = built.spilled.get(kernel, 0), "compiler log"
    if facts.spilled is not None:
        spilled, source = -(-facts.spilled // device.register_bytes), ".ze_info spill_size / register_bytes"
    return _Attempt(built.zebin, instructions, facts, spilled, source, flags, device)


def _most(device: XpuDevice, registers: int) -> int:
    return device.work_group * _SMALL // max(registers, _SMALL)
