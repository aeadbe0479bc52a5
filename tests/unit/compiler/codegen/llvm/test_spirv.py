"""SPIR-V of many units in one compilation: each module is right, and the same in each compilation."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.families import resolve_target

# Opcodes of the specification, https://registry.khronos.org/SPIR-V/specs/unified1/SPIRV.html: types, labels and imports
# have the result first, the others that are listed have none.
_RESULT_FIRST = {11, 19, 20, 21, 22, 23, 28, 30, 32, 33, 248}
_WITHOUT = {
    2, 3, 4, 5, 6, 7, 8, 10, 14, 15, 16, 17, 56, 62, 63, 64, 71, 72, 246, 247, 249, 250, 251, 253, 254, 255, 256, 257,
    330, 331, 332,
}  # fmt: skip


def _unit(number: int) -> ObjectUnit:
    """A phase with `number` loops, one after the other."""
    loops = "\n".join(
        f"""
  br label %head{i}
head{i}:
  %i{i} = phi i64 [ %begin, %{f"done{i - 1}" if i else "entry"} ], [ %n{i}, %head{i} ]
  %p{i} = getelementptr float, ptr %x, i64 %i{i}
  %v{i} = load float, ptr %p{i}, align 4
  %s{i} = fadd float %v{i}, {i + 1}.0
  store float %s{i}, ptr %p{i}, align 4
  %n{i} = add i64 %i{i}, {i + 1}
  %c{i} = icmp slt i64 %n{i}, %end
  br i1 %c{i}, label %head{i}, label %done{i}
done{i}:"""
        for i in range(number)
    )
    text = f"""
define void @k{number}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %x = load ptr, ptr %buffers, align 8
{loops}
  ret void
}}
"""
    return ObjectUnit(f"k{number}", text, False, entries=((f"k{number}", 1, 0),))


def _results(code: bytes) -> Counter[int]:
    """How often each number is a result."""
    words = struct.unpack(f"<{len(code) // 4}I", code)
    found: Counter[int] = Counter()
    place = 5
    while place < len(words):
        count, opcode = words[place] >> 16, words[place] & 0xFFFF
        if opcode not in _WITHOUT:
            found[words[place + (1 if opcode in _RESULT_FIRST else 2)]] += 1
        place += count
    return found


@pytest.mark.parametrize("jobs", [1, 2])
def test_numbers_are_unique_and_modules_the_same(jobs: int) -> None:
    target = resolve_target("opencl:spirv64")
    assert isinstance(target, CpuTarget)
    units = [_unit(number) for number in (7, 1, 5, 2, 9, 3, 12, 4)]
    first = compile_units(units, target, jobs)
    for code in first:
        assert struct.unpack_from("<I", code) == (0x07230203,)
        assert max(_results(code).values()) == 1
    assert compile_units(units[::-1], target, jobs)[::-1] == first
