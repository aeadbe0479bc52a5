"""The code generator for processors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.codegen.backend import Objects, launched, whole_operands
from motet.compiler.codegen.cpu.imports import check_imports
from motet.compiler.codegen.cpu.objects import Unit, assembly, compile_units
from motet.compiler.codegen.cpu.select import check, gains, generate, own_target
from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.kernel import Kernel, KernelCode, key_of
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.cpu import CpuTarget, base_of
from motet.compiler.tuning.given import schedule_for
from motet.compiler.tuning.kernels import DEFAULT, Choice


@dataclass(frozen=True)
class CpuBackend:
    """LLVM, for processors."""

    target: CpuTarget
    choice: Choice = DEFAULT

    @property
    def attends(self) -> bool:
        return False

    def fuses(self, kernel: Kernel) -> bool:
        return False

    def joins(self, products: Sequence[ProductShape]) -> bool:
        return False

    def gains(self, kernel: Kernel) -> bool:
        return gains(kernel, self.target)

    def generate(self, kernel: Kernel) -> KernelCode | None:
        target = self.target
        own = own_target(kernel, target)
        given = schedule_for(
            self.choice.schedules, key_of(kernel), kernel.name, (target, own),
            lambda schedule: check(schedule, kernel, target),
        ) if self.choice.schedules.kernels else None
        return generate(kernel, target, given)

    def generic(self, function: ir.Operation, name: str, reason: str) -> Compiled:
        from motet.compiler.codegen.cpu.ext.whole_operations import emit_whole
        from motet.compiler.codegen.cpu.generic.generic import emit_generic
        from motet.compiler.kernels.linalg_ext import is_whole

        if is_whole(function):
            return launched(*emit_whole(function, base_of(self.target)))
        made = emit_generic(function, name, self.target.gathers)
        extents = tuple((f"s{i}", *extent) for i, extent in enumerate(made.extents))
        return whole_operands(function, made.code, extents)

    def begin(self, compiled: Mapping[str, Compiled], jobs: int) -> object | None:
        return None

    def assemble(
        self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes], made: Objects,
        begun: object | None = None,
    ) -> tuple[dict[str, Compiled], list[str]]:
        target = self.target
        units = units_of(compiled)
        fresh = [unit for unit in units if (target.base, unit) not in made]
        for unit, code in zip(fresh, compile_units(fresh, target, jobs), strict=True):
            check_imports(unit.name, code, target)
            path = made[target.name, unit] = f"executables/{target.family}/{target.name}/{unit.name}.o"
            members[path] = code
        return dict(compiled), [made.get((target.base, unit)) or made[target.name, unit] for unit in units]

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        units = units_of(compiled)
        return "\n".join(unit.llvm if stage == "llvm" else assembly(unit, self.target) for unit in units)


def units_of(compiled: Mapping[str, Compiled]) -> list[Unit]:
    """The LLVM IR of kernels, each structure once."""
    units = {
        code.phases[0].symbol: Unit(code.phases[0].symbol, code.llvm, code.kind == "generic")
        for entry in compiled.values()
        if (code := entry.code).phases
    }
    return list(units.values())
