"""The memory that kernels may access, as entries of RISC-V's physical memory protection (PMP).

Kernels may always read and execute code, and read the lists of commands; without guards they may use the whole heap.
Guards are made for one launch: its buffers, to the word, and a core's stack and scratch memory.

Source: RISC-V Privileged Architecture, section "Physical Memory Protection"; every range is a pair of entries, the
first off and the second of mode TOR.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from motet.runtime.drivers.riscv.memory import RiscvMemory
from motet.runtime.drivers.riscv.protocol import (
    CODE,
    DRAM,
    PMP_EXECUTE,
    PMP_READ,
    PMP_TOP,
    PMP_WRITE,
    PROTECTION_TYPE,
    PROTECTIONS,
)

WORD = 4  # bytes, the granularity of a range
_PRIVATE = 3  # the first two entries after the common ones
_RANGES = (PROTECTIONS - _PRIVATE - 2) // 2

Protection = np.ndarray[Any, np.dtype[np.void]]


def open_protection(memory: RiscvMemory) -> Protection:
    """Access to code, commands, and the whole heap."""
    protection = _common(memory)
    protection["address"][0, 3] = memory.end
    protection["config"][0, 3] = PMP_READ | PMP_WRITE | PMP_TOP
    protection["private"] = -1
    return protection


def guarded(memory: RiscvMemory, ranges: Iterable[tuple[int, int]]) -> Protection:
    """Access to code, commands, the core's private memory, and `ranges` (begin, end); if there are more than _RANGES,
    those with the smallest gaps are merged."""
    protection = _common(memory)
    protection["private"] = _PRIVATE
    protection["config"][0, _PRIVATE + 1] = PMP_READ | PMP_WRITE | PMP_TOP
    for index, (begin, end) in enumerate(_merged(ranges)):
        at = _PRIVATE + 2 + 2 * index
        protection["address"][0, at : at + 2] = begin, end
        protection["config"][0, at + 1] = PMP_READ | PMP_WRITE | PMP_TOP
    return protection


def _common(memory: RiscvMemory) -> Protection:
    protection = np.zeros(1, PROTECTION_TYPE)
    protection["address"][0, :3] = DRAM + CODE, memory.code_end, memory.control_end
    protection["config"][0, 1:3] = PMP_READ | PMP_EXECUTE | PMP_TOP, PMP_READ | PMP_TOP
    return protection


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    whole = sorted((begin // WORD * WORD, -(-end // WORD) * WORD) for begin, end in ranges if begin < end)
    result: list[tuple[int, int]] = []
    for begin, end in whole:
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    while len(result) > _RANGES:
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(result)]
        index = gaps.index(min(gaps))
        result[index : index + 2] = [(result[index][0], result[index + 1][1])]
    return result
