"""Exports a function as firmware: one ELF file with code, constants and a static memory plan, which runs at start-up.

The file is the accelerator's memory (`motet.runtime.drivers.riscv`) as it would be after the host had loaded and
submitted the function: Motet's firmware, the program's kernels and constants, the commands, and space for all other
data, at fixed addresses. Its cores start at the beginning of DRAM, run the function once, and wait. To run it again,
increment the mailbox's `head` and wake core 0, for instance by a byte on the serial line; `completed` follows.

Symbols give addresses: `motet_input_NAME`, `motet_result_NAME`, `motet_head`, `motet_completed`, `motet_status` (of the
first run; 2 is success), and the kernels. On QEMU:

    qemu-system-riscv64 -M virt -smp 2 -m 64M -cpu rv64,v=true,vlen=256 -bios none -nographic -kernel model.elf
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.errors import OptionError
from motet.exporting.static import StaticFunction, check_inputs, exported_symbols, place_externals
from motet.runtime.drivers.common.elf.executables import write_executable
from motet.runtime.drivers.common.elf.structures import LoadedSegment
from motet.runtime.drivers.common.recording import bytes_of, offset_of
from motet.runtime.drivers.riscv.installing import install, write
from motet.runtime.drivers.riscv.memory import RiscvBuffer, RiscvMemory, anonymous_file
from motet.runtime.drivers.riscv.options import RiscvOptions
from motet.runtime.drivers.riscv.program import MACHINE, BatchInstance, Cores, RiscvCommandBuffer, load_riscv
from motet.runtime.drivers.riscv.protocol import BATCH_TYPE, DRAM, MAILBOX, MAILBOX_TYPE, RING, SLOTS, STACK, Status

_PAGE = 4096


@dataclass(frozen=True)
class Firmware:
    """An ELF file, and the addresses of its symbols."""

    image: bytes
    symbols: Mapping[str, int]
    memory: int


def export_firmware(
    function: StaticFunction, harts: int, memory: int, inputs: Sequence[np.ndarray[Any, Any]] = ()
) -> Firmware:
    """`function` for `harts` cores with `memory` bytes (a multiple of 1 MiB), with the contents of `inputs` if given.

    Raises OptionError for code of another family, DeviceError for code that cannot be loaded, OutOfMemoryError if it
    does not fit, CallError for inputs of other shapes.
    """
    if function.variant.family != "riscv":
        raise OptionError(
            f"{function.signature.name}: code for {function.variant.family}:{function.variant.target}; "
            "expected a target of the family riscv"
        )
    check_inputs(function, inputs)
    descriptor = anonymous_file(memory, "firmware")
    try:
        layout = RiscvMemory(descriptor, memory, "firmware")
    finally:
        os.close(descriptor)
    install(layout, RiscvOptions(harts=harts, memory=memory, arch=function.variant.target))
    symbols, end = _fill(layout, function, harts, inputs)
    image = write_executable(MACHINE, DRAM, _segments(layout, end), symbols, _PAGE)
    return Firmware(image, symbols, memory)


def _fill(
    memory: RiscvMemory, function: StaticFunction, harts: int, inputs: Sequence[np.ndarray[Any, Any]]
) -> tuple[dict[str, int], int]:
    """Write all data to memory; returns the addresses of symbols, and the end of the used memory."""
    concrete = function.concrete
    executable = load_riscv(
        memory, function.objects, function.names, lambda code, content: write(memory, code.address, content),
        errata=True,  # the emulator's version is unknown
    )
    stride = -(-(STACK + concrete.scratch) // 64) * 64
    cores = Cores(harts, RiscvBuffer(memory, memory.heap, harts * stride), stride)
    commands = RiscvCommandBuffer(
        memory, executable, concrete.work, concrete.externals, cores, guard=False
    )
    externals = place_externals(function, lambda size: RiscvBuffer(memory, memory.heap, size))
    constants = externals[concrete.externals - len(function.parameters) :]
    for buffer, array in (*zip(externals, inputs, strict=False), *zip(constants, function.parameters, strict=True)):
        buffer.array[:] = bytes_of(np.ascontiguousarray(array))
    instance = commands.take()
    instance.prepare(commands, [buffer.address for buffer in externals])
    _submit(memory, commands, instance)
    symbols = exported_symbols(function, externals, executable.addresses)
    for name in ("head", "completed"):
        symbols[f"motet_{name}"] = DRAM + MAILBOX + offset_of(MAILBOX_TYPE, name)
    symbols["motet_status"] = DRAM + RING + offset_of(BATCH_TYPE, "status")
    return symbols, max(buffer.address + buffer.bytes for buffer in (cores.private, *externals))


def _submit(memory: RiscvMemory, commands: RiscvCommandBuffer, instance: BatchInstance) -> None:
    """Fill every slot of the ring with the function, and submit the first."""
    ring = memory.part(DRAM + RING, SLOTS * BATCH_TYPE.itemsize).view(BATCH_TYPE)
    ring["commands"], ring["count"] = instance.memory.address, len(commands.work)
    ring["ready"] = instance.ready
    ring["private"], ring["private_stride"] = commands.cores.private.address, commands.cores.stride
    ring["status"] = Status.PENDING
    memory.part(DRAM + MAILBOX, MAILBOX_TYPE.itemsize).view(MAILBOX_TYPE)["head"] = 1


def _segments(memory: RiscvMemory, end: int) -> list[LoadedSegment]:
    """The pages that are not zero, each followed by zeros, up to `end`."""
    used = memory.bytes.reshape(-1, _PAGE).any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], used, [False])).astype(np.int8)))
    runs: list[tuple[int, int]] = [(int(begin) * _PAGE, int(end) * _PAGE) for begin, end in edges.reshape(-1, 2)]
    begins = [begin for begin, _ in runs[1:]] + [max(runs[-1][1], end - DRAM)]
    return [
        LoadedSegment(DRAM + begin, memory.bytes[begin:end].tobytes(), following - begin)
        for (begin, end), following in zip(runs, begins, strict=True)
    ]
