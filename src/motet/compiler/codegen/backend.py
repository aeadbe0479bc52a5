"""How code is made for the targets of a family: what the pipeline asks of a code generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from motet.compiler.codegen.cpu.objects import Unit, assembly, compile_units
from motet.compiler.codegen.cpu.select import gains, generate
from motet.compiler.codegen.joined import ProductShape
from motet.compiler.codegen.kernel import Kernel, KernelCode
from motet.compiler.ir._mlir import ir
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.cpu import CpuTarget, base_of
from motet.compiler.targets.family import Target
from motet.compiler.tuning.kernels import DEFAULT, Choice
from motet.errors import CompileError, Location

Objects = dict[tuple[str, object], str]  # by target and unit: the member that holds the unit's code


class Backend(Protocol):
    """The code generator for one target."""

    @property
    def target(self) -> Target: ...

    @property
    def attends(self) -> bool:
        """Whether attention may be one kernel here (`partition/attention.py`)."""
        ...

    def fuses(self, kernel: Kernel) -> bool:
        """Whether the attention that `kernel` would be is faster than its parts."""
        ...

    def joins(self, products: Sequence[ProductShape]) -> bool:
        """Whether `products` whose results meet are faster as one kernel (`partition/joined_products.py`)."""
        ...

    def gains(self, kernel: Kernel) -> bool:
        """Whether `kernel` is faster than with the target that this one extends."""
        ...

    def generate(self, kernel: Kernel) -> KernelCode | None:
        """Code for a kernel, or None where only `generic` has some."""
        ...

    def generic(self, function: ir.Operation, name: str, reason: str) -> Compiled:
        """Code for a kernel's function that no class takes; `reason` says why it could not be read, if so.
        Raises CompileError where there is none."""
        ...

    def begin(self, compiled: Mapping[str, Compiled], jobs: int) -> object | None:
        """Have other processes begin to make machine code, where that is how it is made; for `assemble`."""
        ...

    def assemble(
        self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes], made: Objects,
        begun: object | None = None,
    ) -> tuple[dict[str, Compiled], list[str]]:
        """Machine code, added to `members`; the kernels as they are then launched, and the names of their objects.
        Objects that another target has made, which `made` tells of, may be shared."""
        ...

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        """The kernels as `--emit` shows them at `llvm` or `assembly`."""
        ...


def backend_of(target: Target, choice: Choice = DEFAULT) -> Backend:
    """The code generator for `target`; `choice` says which forms of kernels are kept. Raises OptionError where what it
    is built on is not installed."""
    if isinstance(target, CpuTarget):
        return CpuBackend(target)
    from motet.compiler.codegen.triton.backend import TritonBackend
    from motet.compiler.codegen.triton.objects import require_triton

    require_triton(target)
    return TritonBackend(target, choice)


@dataclass(frozen=True)
class CpuBackend:
    """LLVM, for processors."""

    target: CpuTarget

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
        return generate(kernel, self.target)

    def generic(self, function: ir.Operation, name: str, reason: str) -> Compiled:
        from motet.compiler.codegen.cpu.generic import emit_generic
        from motet.compiler.codegen.cpu.wholes import emit_whole
        from motet.compiler.codegen.whole import is_whole

        if is_whole(function):
            return launched(*emit_whole(function, base_of(self.target)))
        made = emit_generic(function, name)
        count = len(function.regions[0].blocks[0].arguments)
        extents = tuple((f"s{i}", *extent) for i, extent in enumerate(made.extents))
        return Compiled(made.code, tuple(range(count)), (None,) * count, extents)

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
            path = made[target.name, unit] = f"executables/{target.family}/{target.name}/{unit.name}.o"
            members[path] = code
        return dict(compiled), [made.get((target.base, unit)) or made[target.name, unit] for unit in units]

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        units = units_of(compiled)
        return "\n".join(unit.llvm if stage == "llvm" else assembly(unit, self.target) for unit in units)


class NoCode(CompileError):
    """A kernel that no code can be made for; `places` are the locations of its operations, as text."""

    def __init__(self, message: str, location: Location | None = None, places: frozenset[str] = frozenset()) -> None:
        super().__init__(message, location)
        self.places = places


def places_of(function: ir.Operation) -> frozenset[str]:
    """Where the operations of a kernel's function are from, without those that only name extents and numbers."""
    operations = [entry.operation for entry in function.regions[0].blocks[0].operations]
    named = ("tensor.empty", "tensor.dim", "arith.constant", "func.return")
    return frozenset(str(each.location) for each in operations if each.name not in named) - {"loc(unknown)"}


def launched(kernel: Kernel, code: KernelCode) -> Compiled:
    """`code` of a kernel that could be read, with where its buffers and extents come from."""
    packings = tuple(
        code.packings.get(i) for i, value in enumerate(kernel.values) if value.role in ("argument", "constant")
    )
    extents: list[tuple[str, str, int, int]] = []
    for symbol in kernel.symbols:
        number, axis = symbol[1:].split("_")
        extents.append((symbol, "argument" if symbol[0] == "a" else "result", int(number), int(axis)))
    return Compiled(code, kernel.arguments, packings, tuple(extents))


def units_of(compiled: Mapping[str, Compiled]) -> list[Unit]:
    """The LLVM IR of kernels, each structure once."""
    units = {
        code.phases[0].symbol: Unit(code.phases[0].symbol, code.llvm, code.kind == "generic")
        for entry in compiled.values()
        if (code := entry.code).phases
    }
    return list(units.values())
