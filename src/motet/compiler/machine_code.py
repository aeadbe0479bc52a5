"""Machine code of LLVM IR for the devices of a family: what the checks of drivers run, without a program around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from motet.artifact.schema import Variant
from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.families import families
from motet.compiler.targets.family import Target
from motet.errors import MotetError


@dataclass(frozen=True)
class MachineCode:
    """An object of each unit, by name, for `target`, which its family has under the name `name`. `is_own`: the family's
    code generator is Motet's for processors, so that the family's devices are known to load such objects."""

    name: str
    target: Target
    objects: Mapping[str, bytes]
    is_own: bool


def machine_code(
    family: str, units: Mapping[str, str], obstacle: Callable[[Variant], str | None]
) -> MachineCode | str:
    """The objects of `units`, texts of LLVM IR, for the first target of `family` without an `obstacle`, or why there
    are none. For the targets of other code generators, Motet's for processors makes them for the target's triple."""
    known = families().get(family)
    if known is None or not known.targets:
        return f"no code can be made for {family} devices: no entry point of motet.targets describes that family"
    reasons: list[str] = []
    for name, target in known.targets.items():
        processor = target if isinstance(target, CpuTarget) else _processor(target.triple)
        if processor is None:
            reasons.append(f"{name}: the checks' kernels are written for processors, not for {target.triple}")
            continue
        reason = obstacle(Variant(family, name, target.triple, list(target.requires), [], {}))
        if reason is not None:
            reasons.append(f"{name}: {reason}")
            continue
        try:
            objects = compile_units([ObjectUnit(unit, text, False) for unit, text in units.items()], processor, 1)
        except MotetError as error:
            return f"target {name}: {error}"
        return MachineCode(name, target, dict(zip(units, objects, strict=True)), processor is target)
    return f"the device takes the code of no target: {'; '.join(reasons)}"


def _processor(triple: str) -> CpuTarget | None:
    """The least of the processors with this triple that Motet has code for; None if there is none."""
    alike = [
        target for family in families().values() for target in family.targets.values()
        if isinstance(target, CpuTarget) and target.triple == triple
    ]
    return min(alike, key=lambda target: len(target.requires), default=None)
