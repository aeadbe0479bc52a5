"""The protocol between the host and the device's firmware: the memory map of the device and its structures.

`python -m motet.runtime.drivers.riscv.protocol` prints it as a C header, from which the firmware is built
(`firmware/Makefile`). The image contains `DIGEST` and writes it to the mailbox when it starts, so that a host detects
firmware that was built from another version of this module.

The host puts *batches* in a ring, numbered from 0; the device runs them in that order. A batch is an array of commands.
A command may run when as many others have ended as it `needs`: those with it among their `readers`. An idle core takes
the next *part*, a range of tasks, of the first command that may run. Commands are therefore in order of priority, each
after its dependences.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum

import numpy as np

# -- the memory map ----------------------------------------------------------------------------------

DRAM = 0x8000_0000  # of QEMU's machine `virt`; the offsets below are relative to it
FIRMWARE_BYTES = 0x10_0000  # image, data and the firmware's own stacks
MAILBOX = 0x10_0000
RING = 0x10_1000
CODE = 0x20_0000  # memory that kernels may execute; the control area and the heap follow
TRAMPOLINE = CODE  # an ecall, to which kernels return
LIBRARY = CODE + 0x1000  # functions that kernels may call, linked at this address
CODE_FIRST = CODE + 0x3_0000

SLOTS = 256  # batches in the ring
MOST_HARTS = 64
FIRMWARE_STACK = 4096
STACK = 256 << 10  # of a kernel, below its scratch memory
COPY_CHUNK = 256 << 10  # bytes of a copy that one core takes at once
PROTECTIONS = 16  # entries of physical memory protection (PMP)
FOREVER = 0xFFFF_FFFF
TICKS = 10_000_000  # of the device's clock, per second


class Op(IntEnum):
    LAUNCH = 0
    COPY = 1  # buffers[0] to buffers[1], `bytes` bytes, a task per COPY_CHUNK
    LOAD = 2  # the same, of code: the device alone sees to it that no stale translation is run


class Status(IntEnum):
    PENDING = 0
    RUNNING = 1
    OK = 2
    FAULT = 3
    TIMEOUT = 4
    ABORTED = 5


class Bell(IntEnum):
    """Bytes sent by the device."""

    READY = ord("B")
    DONE = ord("D")
    PANIC = ord("!")


# -- the structures ----------------------------------------------------------------------------------

Fields = tuple[tuple[str, str, int], ...]  # name, numpy's type code, count

MAILBOX_FIELDS: Fields = (
    # the host writes
    ("head", "u8", 1),  # batches submitted
    ("abort_before", "u8", 1),  # batches with smaller numbers end as aborted
    ("harts", "u4", 1),
    ("spin", "u4", 1),  # ticks to look for work before sleep; FOREVER: never sleep
    ("base", "u8", 1),  # the Protection without guards
    ("count", "u4", 1),  # whether to count the instructions of kernels
    ("unused0", "u4", 1),
    ("unused1", "u8", 3),
    # the device writes
    ("completed", "u8", 1),  # batches ended
    ("digest", "u4", 1),
    ("sleeping", "u4", 1),  # ring the bell when there is work
    ("vector_bytes", "u8", 1),
    ("panic", "u4", 1),  # the firmware itself has failed
    ("panic_hart", "u4", 1),
    ("panic_cause", "u8", 1),
    ("panic_pc", "u8", 1),
    ("panic_value", "u8", 1),
    ("unused2", "u8", 1),
)

BATCH_FIELDS: Fields = (
    ("commands", "u8", 1),
    ("count", "u4", 1),
    ("unused0", "u4", 1),
    ("ready", "u8", 1),  # a bit for each command, in words of 64: it may run and has free parts
    ("limit", "u8", 1),  # ticks a command may take; 0: any
    ("private", "u8", 1),  # for each core: STACK bytes, then scratch memory
    ("private_stride", "u8", 1),
    ("status", "u4", 1),
    ("hart", "u4", 1),
    ("command", "u8", 1),  # the failed command
    ("cause", "u8", 1),
    ("pc", "u8", 1),
    ("value", "u8", 1),
    ("begin", "u8", 1),
    ("end", "u8", 1),
    ("unused1", "u8", 3),
)

COMMAND_FIELDS: Fields = (
    ("op", "u4", 1),
    ("parts", "u4", 1),  # 1 at least; each but the last has `grain` tasks
    ("entry", "u8", 1),
    ("buffers", "u8", 1),
    ("sizes", "u8", 1),
    ("tasks", "u8", 1),
    ("grain", "u8", 1),
    ("bytes", "u8", 1),
    ("protection", "u8", 1),
    ("readers", "u8", 1),  # numbers of the commands that need this one, u4 each
    ("reader_count", "u4", 1),
    ("needs", "u4", 1),  # how many commands have this one among their readers
    ("pieces", "u8", 1),  # a Piece for each part, where cores note what they did; 0: none
    # the device writes
    ("missing", "u4", 1),  # of those that it needs, how many have not ended
    ("next", "u4", 1),  # first part not taken yet
    ("left", "u4", 1),  # parts that have not ended
    ("poisoned", "u4", 1),  # it has failed, or one that it needs has: its parts end without running
    ("begin", "u8", 1),
    ("end", "u8", 1),
    ("instructions", "u8", 1),  # that kernels retired, where they are counted
)

PIECE_FIELDS: Fields = (
    ("begin", "u8", 1),
    ("end", "u8", 1),
    ("hart", "u8", 1),
    ("unused", "u8", 1),
)

# `private` is the first of two entries that each core sets to its own stack and scratch memory; -1: none.
PROTECTION_FIELDS: Fields = (
    ("address", "u8", PROTECTIONS),
    ("config", "u1", PROTECTIONS),
    ("private", "i8", 1),
    ("unused", "u8", 5),
)


def _structure(fields: Fields) -> np.dtype[np.void]:
    return np.dtype([(name, f"<{code}", () if count == 1 else (count,)) for name, code, count in fields])


MAILBOX_TYPE = _structure(MAILBOX_FIELDS)
BATCH_TYPE = _structure(BATCH_FIELDS)
COMMAND_TYPE = _structure(COMMAND_FIELDS)
PROTECTION_TYPE = _structure(PROTECTION_FIELDS)
PIECE_TYPE = _structure(PIECE_FIELDS)

# Of PMP's configuration bytes (RISC-V Privileged Architecture, section "Physical Memory Protection").
PMP_READ, PMP_WRITE, PMP_EXECUTE, PMP_TOP = 1, 2, 4, 8

_STRUCTURES = (
    ("mailbox", MAILBOX_FIELDS, MAILBOX_TYPE), ("batch", BATCH_FIELDS, BATCH_TYPE),
    ("command", COMMAND_FIELDS, COMMAND_TYPE), ("protection", PROTECTION_FIELDS, PROTECTION_TYPE),
    ("piece", PIECE_FIELDS, PIECE_TYPE),
)
_NUMBERS = {
    "DRAM": DRAM, "FIRMWARE_BYTES": FIRMWARE_BYTES, "MAILBOX": DRAM + MAILBOX, "RING": DRAM + RING,
    "TRAMPOLINE": DRAM + TRAMPOLINE, "SLOTS": SLOTS, "MOST_HARTS": MOST_HARTS,
    "FIRMWARE_STACK": FIRMWARE_STACK, "STACK": STACK, "FOREVER": FOREVER, "COPY_CHUNK": COPY_CHUNK,
    "PROTECTIONS": PROTECTIONS,
}
_C_TYPES = {"u1": "unsigned char", "u4": "unsigned int", "u8": "unsigned long", "i8": "long"}


def _body() -> str:
    lines = [f"#define {name} {value:#x}" for name, value in _NUMBERS.items()]
    for kind in (Op, Status, Bell):
        lines += [f"#define {kind.__name__.upper()}_{item.name} {item.value}" for item in kind]
    lines += ["#ifndef __ASSEMBLER__"]
    for name, fields, structure in _STRUCTURES:
        lines += [f"struct {name} {{"]
        lines += [f"    {_C_TYPES[code]} {field}{f'[{count}]' if count > 1 else ''};" for field, code, count in fields]
        lines += ["};", f'_Static_assert(sizeof(struct {name}) == {structure.itemsize}, "{name}");']
    return "\n".join([*lines, "#endif", ""])


DIGEST = int.from_bytes(hashlib.sha256(_body().encode()).digest()[:4], "little")


def header() -> str:
    """The C header that the firmware includes."""
    return f"/* Made by motet.runtime.drivers.riscv.protocol; change that. */\n{_body()}#define DIGEST {DIGEST:#x}u\n"


if __name__ == "__main__":
    print(header(), end="")
