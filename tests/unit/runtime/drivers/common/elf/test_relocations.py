"""Relocations of RISC-V's jumps and branches, decoded as the instruction set's manual says (version 20191213, 2.3)."""

from __future__ import annotations

import random
import struct

import pytest

from motet.runtime.drivers.common.elf import relocations as relocate


def _jump(word: int) -> int:
    return (word >> 31 & 1) << 20 | (word >> 21 & 1023) << 1 | (word >> 20 & 1) << 11 | (word >> 12 & 255) << 12


def _branch(word: int) -> int:
    return (word >> 31 & 1) << 12 | (word >> 25 & 63) << 5 | (word >> 8 & 15) << 1 | (word >> 7 & 1) << 11


FORMS = {"jump": (relocate._riscv_jump, _jump, 21, 0xFFF), "branch": (relocate._riscv_branch, _branch, 13, 0x1FFF07F)}


@pytest.mark.parametrize("form", FORMS)
def test_every_bit_of_a_distance_arrives(form: str) -> None:
    relocated, decoded, bits, others = FORMS[form]
    rng = random.Random(4)
    half = 1 << (bits - 1)
    near = [sign * (1 << bit) for bit in range(1, bits - 1) for sign in (1, -1)]
    for distance in (*near, -half, half - 2, *(2 * rng.randrange(-half // 2, half // 2) for _ in range(200))):
        before = rng.randrange(1 << 32)
        image = bytearray(struct.pack("<I", before))
        relocated(memoryview(image), 0, 1 << 30, (1 << 30) + distance)
        (word,) = struct.unpack("<I", image)
        found = decoded(word)
        assert found - (found >> (bits - 1) << bits) == distance
        assert word & others == before & others  # the other fields stay
