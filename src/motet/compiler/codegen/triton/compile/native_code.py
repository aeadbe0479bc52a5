"""Compiles SPIR-V of a kernel for one Intel GPU, in the mode of registers that the user chose, and tells what it has.

In the default mode a kernel that spills more than `SPILL_THRESHOLD` registers is compiled again with the large register
file. That halves the largest work-group; it is taken if the kernel can still be launched and spills less.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.artifact.launch import Native, Retry
from motet.compiler.codegen.triton.compile import ocloc, zebin
from motet.compiler.targets.gpu import XpuDevice

SPILL_THRESHOLD = 16  # registers
FLAGS = {
    "default": "", "small": "-cl-intel-128-GRF-per-thread", "large": "-cl-intel-256-GRF-per-thread",
    "auto": "-cl-intel-enable-auto-large-GRF-mode",
}
_SMALL, _LARGE = 128, 256


class OutOfResources(Exception):
    """A kernel that needs more than the device has."""


@dataclass(frozen=True)
class _Attempt:
    code: bytes
    facts: zebin.KernelFacts
    spilled: int  # registers
    source: str
    flags: str


def make_native(spirv: bytes, kernel: str, device: XpuDevice, items: int) -> tuple[bytes, Native]:
    """The zebin of `kernel`, whose work-groups have `items` work-items, and what it has. Raises OutOfResources, and
    `ocloc.CompilerFailure`."""
    first = _compile(spirv, kernel, device, FLAGS[device.registers])
    retry: Retry | None = None
    taken = first
    if device.registers == "default" and first.spilled > SPILL_THRESHOLD and first.facts.registers < _LARGE:
        taken, retry = _again(spirv, kernel, device, items, first)
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
        spilled, most, taken.facts.matrix_engine, sources, retry,
    )


def _again(
    spirv: bytes, kernel: str, device: XpuDevice, items: int, first: _Attempt
) -> tuple[_Attempt, Retry]:
    """`first`, or what the large register file gives if that is better; and why."""
    flags = FLAGS["large"]
    if not device.large_registers:
        return first, Retry(flags, -1, taken=False, reason=f"{device.device} has no large register file")
    if items > (most := _most(device, _LARGE)):
        return first, Retry(flags, -1, taken=False, reason=f"work-groups of {items} work-items; at most {most} with it")
    try:
        second = _compile(spirv, kernel, device, flags)
    except ocloc.CompilerFailure as error:
        return first, Retry(flags, -1, taken=False, reason=str(error))
    if second.facts.registers != _LARGE:
        return first, Retry(flags, second.spilled, taken=False, reason="the compiler does not honour the flag")
    if second.spilled >= first.spilled:
        reason = f"it spills {second.spilled} registers, not fewer than {first.spilled}"
        return first, Retry(flags, second.spilled, taken=False, reason=reason)
    reason = f"it spills {second.spilled} registers instead of {first.spilled}"
    return second, Retry(flags, second.spilled, taken=True, reason=reason)


def _compile(spirv: bytes, kernel: str, device: XpuDevice, flags: str) -> _Attempt:
    built = ocloc.compile_spirv(spirv, device.device, flags)
    try:
        facts = zebin.read_kernel(built.zebin, kernel)
    except ValueError as error:
        raise ocloc.CompilerFailure(str(error)) from error
    if facts.spilled is not None:
        registers = -(-facts.spilled // device.register_bytes)
        return _Attempt(built.zebin, facts, registers, ".ze_info spill_size / register_bytes", flags)
    return _Attempt(built.zebin, facts, built.spilled.get(kernel, 0), "compiler log", flags)


def _most(device: XpuDevice, registers: int) -> int:
    return device.work_group * _SMALL // max(registers, _SMALL)
