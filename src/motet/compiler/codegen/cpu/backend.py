"""The back end for CPUs, which generates LLVM IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from motet.compiler.codegen.backend import Objects, PlainBackend, UnloadableCode, launched, whole_operands
from motet.compiler.codegen.cpu.imports import check_imports
from motet.compiler.codegen.cpu.objects import ObjectUnit, assembly, compile_units
from motet.compiler.codegen.cpu.programs import is_joined, join, joined_assembly
from motet.compiler.codegen.cpu.select import check, generate, improves_on_base, own_target
from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.kernel import Kernel, key_of
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.reader.written_schedules import refuse_scheduled
from motet.compiler.schedule_text.written import refuse_illegal, schedule_written_for
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.cpu import CpuTarget, bases_of, lowest_base
from motet.compiler.targets.family import Target
from motet.compiler.tuning.given import schedule_for, target_name
from motet.compiler.tuning.kernels import DEFAULT, Choice
from motet.errors import OptionError

api = 1  # the version of the back-end protocol that this module implements


@dataclass(frozen=True)
class CpuBackend(PlainBackend):
    """Generates LLVM IR for CPUs."""

    target: CpuTarget
    choice: Choice = DEFAULT

    def improves_on_base(self, kernel: Kernel) -> bool:
        return improves_on_base(kernel, self.target)

    def attention_pays(self, kernel: Kernel) -> bool:
        from motet.compiler.codegen.cpu.attention.plan import pays

        return pays(kernel, lowest_base(self.target))

    @property
    def complete(self) -> bool:
        return True

    def obstacle(self, function: ir.Operation, kernel: Kernel | None, reason: str) -> str | None:
        return None

    def generate(self, kernel: Kernel) -> KernelCode | None:
        target = self.target
        own = own_target(kernel, target)
        given, origin = schedule_for(
            self.choice.schedules, kernel, key_of(kernel), (target, own),
            lambda schedule: check(schedule, kernel, target),
        )
        if given is None and (given := schedule_written_for(kernel)) is not None:
            refuse_illegal(kernel, check(given, kernel, target), target_name(target))
        code = generate(kernel, target, given)
        return None if code is None else replace(code, origin=origin)

    def generic(self, function: ir.Operation, name: str, reason: str) -> Compiled:
        from motet.compiler.codegen.cpu.ext.whole_operations import emit_whole
        from motet.compiler.codegen.cpu.generic.generic import emit_generic
        from motet.compiler.kernels.linalg_ext import is_whole

        refuse_scheduled(function, reason)
        if is_whole(function):
            return launched(*emit_whole(function, lowest_base(self.target)))
        base = lowest_base(self.target)
        made = emit_generic(function, name, self.target.gathers, lambda kernel: generate(kernel, base))
        extents = tuple((f"s{i}", *extent) for i, extent in enumerate(made.extents))
        whole = whole_operands(function, made.code, extents)
        results = len(whole.shapes) - len(whole.operands)
        taken = (*made.operands, *range(len(whole.operands), len(whole.operands) + results))
        return replace(
            whole, operands=made.operands, packings=made.packings,
            shapes=tuple(whole.shapes[number] for number in taken),
            items=tuple(whole.items[number] for number in taken),
        )

    def assemble(
        self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes], made: Objects,
        begun: object | None = None,
    ) -> tuple[dict[str, Compiled], list[str]]:
        target = self.target
        units = units_of(compiled)
        below = bases_of(target)
        shared = {unit: made[name, unit] for unit in units for name in reversed(below) if (name, unit) in made}
        fresh = [unit for unit in units if unit not in shared]
        codes = dict(zip(fresh, compile_units(fresh, target, jobs), strict=True))
        refusals = _refusals(codes, target)
        refused = {symbol for each in refusals for symbol in each.symbols}
        folder = f"executables/{target.family}/{target.name}"
        if is_joined(target):
            parts = {unit.name: code for unit, code in codes.items() if unit.name not in refused}
            try:
                joined = [join(parts, target)] if parts else []
            except UnloadableCode as refusal:
                refusals.append(refusal)
                joined = []
            produced = {f"{folder}/{name}": code for name, code in joined}
            paths = list(produced)
        else:
            produced = {f"{folder}/{unit.name}.o": code for unit, code in codes.items()}
            made.update({(target.name, unit): path for unit, path in zip(fresh, produced, strict=True)})
            paths = [shared.get(unit) or made[target.name, unit] for unit in units]
        if refusals:
            raise UnloadableCode(refusals[0].message, *(symbol for each in refusals for symbol in each.symbols))
        members.update(produced)
        return dict(compiled), paths

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        units = units_of(compiled)
        if stage != "llvm" and is_joined(self.target):
            return joined_assembly(units, self.target)
        return "\n".join(
            "\n".join((unit.llvm, *unit.parts)) if stage == "llvm" else assembly(unit, self.target) for unit in units
        )


def open(target: Target, choice: Choice) -> CpuBackend:
    """See `motet.compiler.codegen.backend.CodeGenerator`."""
    if not isinstance(target, CpuTarget):
        where = f"target {target.family}:{target.name}"
        raise OptionError(f"{where}: a {type(target).__name__}; the code generator cpu expects a CpuTarget")
    return CpuBackend(target, choice)


def _refusals(codes: Mapping[ObjectUnit, bytes], target: CpuTarget) -> list[UnloadableCode]:
    """The units whose code no device of `target` can load."""
    found: list[UnloadableCode] = []
    for unit, code in codes.items():
        try:
            check_imports(unit.name, code, target)
        except UnloadableCode as refusal:
            found.append(refusal)
    return found


def units_of(compiled: Mapping[str, Compiled]) -> list[ObjectUnit]:
    """The LLVM IR of `compiled` kernels; kernels of equal structure share one unit."""
    units = {
        code.phases[0].symbol: ObjectUnit(
            code.phases[0].symbol, code.llvm, code.kind == "generic", code.parts, tuple(_entries(entry))
        )
        for entry in compiled.values()
        if (code := entry.code).phases
    }
    return list(units.values())


def _entries(compiled: Compiled) -> Iterator[tuple[str, int, int]]:
    """The phases of a kernel with the numbers of their buffers and sizes."""
    code = compiled.code
    buffers = len(compiled.shapes) + len(code.workspaces) + bool(code.checks)
    for phase in code.phases:
        yield phase.symbol, buffers if phase.buffers is None else len(phase.buffers), len(compiled.extents)
