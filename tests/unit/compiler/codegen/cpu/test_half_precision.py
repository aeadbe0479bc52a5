"""Objects convert 16-bit floats by themselves: they import no function of a compiler's run-time library."""

from __future__ import annotations

import pytest

from motet.compiler.codegen.cpu.objects import Unit, compile_units
from motet.compiler.targets.cpu import CPU_TARGETS
from motet.runtime.devices.host import elf

CONVERSIONS = {
    "half to float": ("half", "float", "fpext"),
    "float to half": ("float", "half", "fptrunc"),
    "half to double": ("half", "double", "fpext"),
    "double to half": ("double", "half", "fptrunc"),
    "half to int": ("half", "i32", "fptosi"),
    "int to half": ("i32", "half", "sitofp"),
    "long to half": ("i64", "half", "uitofp"),
}


def function(name: str, given: str, wanted: str, operation: str) -> str:
    return (
        f"define void @{name}(ptr %from, ptr %to) {{\n  %x = load {given}, ptr %from\n"
        f"  %y = {operation} {given} %x to {wanted}\n  store {wanted} %y, ptr %to\n  ret void\n}}\n"
    )


def imports(target: str, text: str, optimise: bool) -> set[str]:
    (data,) = compile_units([Unit("unit", text, optimise)], CPU_TARGETS[target], 1)
    item = elf.read_object(data, "unit")
    used = {entry.symbol for entries in item.relocations.values() for entry in entries}
    return {item.symbols[number].name for number in used if item.symbols[number].section == elf.SHN_UNDEF} - {""}


@pytest.mark.parametrize("target", CPU_TARGETS)
@pytest.mark.parametrize("optimise", [False, True])
def test_conversions_import_nothing(target: str, optimise: bool) -> None:
    for name, (given, wanted, operation) in CONVERSIONS.items():
        assert not imports(target, function("f", given, wanted, operation), optimise), name
        vectors = function("f", f"<8 x {given}>", f"<8 x {wanted}>", operation)
        assert not imports(target, vectors, optimise), f"{name}, vectors"


@pytest.mark.parametrize("target", CPU_TARGETS)
def test_arithmetic_on_halves_imports_nothing(target: str) -> None:
    lines = [
        "define void @f(ptr %a, ptr %b) {", "  %x = load <4 x half>, ptr %a", "  %y = load <4 x half>, ptr %b",
        "  %s = fadd <4 x half> %x, %y", "  %q = fdiv <4 x half> %s, %y", "  %c = fcmp olt <4 x half> %q, %x",
        "  %r = select <4 x i1> %c, <4 x half> %q, <4 x half> %s", "  store <4 x half> %r, ptr %a", "  ret void", "}",
    ]
    assert not imports(target, "\n".join(lines), False)
