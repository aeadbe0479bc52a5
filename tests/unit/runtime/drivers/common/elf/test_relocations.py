"""Relocations of RISC-V's jumps and branches, decoded as the instruction set's manual says (version 20191213, 2.3), and
the limits of every field."""

from __future__ import annotations

import random
import struct

import pytest

from motet.runtime.drivers.common.elf.relocations import MACHINES, OutOfRangeError

RISCV64 = MACHINES["riscv64"]


def _jump(word: int) -> int:
    return (word >> 31 & 1) << 20 | (word >> 21 & 1023) << 1 | (word >> 20 & 1) << 11 | (word >> 12 & 255) << 12


def _branch(word: int) -> int:
    return (word >> 31 & 1) << 12 | (word >> 25 & 63) << 5 | (word >> 8 & 15) << 1 | (word >> 7 & 1) << 11


FORMS = {"JAL": (_jump, 21, 0xFFF), "BRANCH": (_branch, 13, 0x1FFF07F)}


@pytest.mark.parametrize("form", FORMS)
def test_every_bit_of_a_distance_arrives(form: str) -> None:
    decoded, bits, others = FORMS[form]
    (kind,) = (each for each in RISCV64.kinds.values() if each.name == f"R_RISCV_{form}")
    rng = random.Random(4)
    half = 1 << (bits - 1)
    near = [sign * (1 << bit) for bit in range(1, bits - 1) for sign in (1, -1)]
    for distance in (*near, -half, half - 2, *(2 * rng.randrange(-half // 2, half // 2) for _ in range(200))):
        before = rng.randrange(1 << 32)
        image = bytearray(struct.pack("<I", before))
        kind.patch(memoryview(image), 0, 1 << 30, (1 << 30) + distance)
        (word,) = struct.unpack("<I", image)
        found = decoded(word)
        assert found - (found >> (bits - 1) << bits) == distance
        assert word & others == before & others  # the other fields stay


@pytest.mark.parametrize("machine", MACHINES)
def test_a_value_out_of_range_is_refused_and_leaves_the_code(machine: str) -> None:
    for kind in MACHINES[machine].kinds.values():
        if kind.limits is None or kind.formula(1 << 40, 0) != 1 << 40:
            continue
        least, end, step = kind.limits.start, kind.limits.stop, kind.limits.step
        for distance in (least - step, end, *([step // 2] if step > 1 else [])):
            image = bytearray(b"\xa5" * 8)
            with pytest.raises(OutOfRangeError) as refused:
                kind.patch(memoryview(image), 0, 0, distance)
            assert refused.value.value == distance
            assert image == b"\xa5" * 8
        for distance in (least, end - step):
            kind.patch(memoryview(bytearray(8)), 0, 0, distance)
