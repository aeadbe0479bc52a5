"""SPIR-V of many units in one compilation: the module is right, and the same in each compilation."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from motet.compiler.codegen.backend import UnloadableCode
from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.codegen.cpu.programs import join
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


def _target() -> CpuTarget:
    target = resolve_target("opencl:spirv64")
    assert isinstance(target, CpuTarget)
    return target


def _joined(units: list[ObjectUnit], jobs: int = 1) -> bytes:
    codes = compile_units(units, _target(), jobs)
    return join({unit.name: code for unit, code in zip(units, codes, strict=True)}, _target())[1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_numbers_are_unique_and_programs_the_same(jobs: int) -> None:
    units = [_unit(number) for number in (7, 1, 5, 2, 9, 3, 12, 4)]
    first = _joined(units, jobs)
    assert struct.unpack_from("<I", first) == (0x07230203,)
    assert max(_results(first).values()) == 1
    assert all(f"k{number}__1b0s".encode() in first for number in (7, 1, 5, 2, 9, 3, 12, 4))
    assert _joined(units, jobs) == first


def test_functions_of_one_name_in_two_units_stay_two() -> None:
    """Each unit has its own definition of `add`, of other linkages in each."""
    units: list[ObjectUnit] = []
    for number, linkage in enumerate(("", "internal ", "linkonce_odr hidden ", "")):
        text = f"""
@table = {linkage}constant [1 x float] [float {number}.0]
define {linkage}float @add(float %x) noinline {{
  %t = load float, ptr @table, align 4
  %r = fadd float %x, %t
  ret float %r
}}
define void @k{number}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {{
  %x = load ptr, ptr %buffers, align 8
  %v = load float, ptr %x, align 4
  %r = call float @add(float %v)
  store float %r, ptr %x, align 4
  ret void
}}
"""
        units.append(ObjectUnit(f"k{number}", text, False, entries=((f"k{number}", 1, 0),)))
    code = _joined(units)
    assert all(struct.pack("<f", number) in code for number in range(1, 4))


def test_all_kernels_without_spirv_are_refused_by_name() -> None:
    """LLVM ends its process for assembly text, and no OpenCL has a function `missing`."""
    bodies = {"good": "", "assembly": 'call void asm sideeffect "nop", ""()', "calls": "call void @missing()"}
    units = [
        ObjectUnit(name, f"""
declare void @missing()
define void @{name}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {{
  {body}
  ret void
}}
""", False, entries=((name, 0, 0),)) for name, body in bodies.items()
    ]  # fmt: skip
    with pytest.raises(UnloadableCode, match=r"kernel assembly: .*LLVM ends with .*nline assembly") as refusal:
        _joined(units)
    assert refusal.value.symbols == ("assembly", "calls")
    with pytest.raises(UnloadableCode, match=r"kernel calls: .* calls missing, which OpenCL lacks") as refusal:
        _joined([units[0], units[2]])
    assert refusal.value.symbols == ("calls",)
