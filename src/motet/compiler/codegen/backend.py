"""How code is made for the targets of a family: what the pipeline asks of a code generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from motet.compiler.codegen.kernel_code import KernelCode
from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.kernel import Kernel, Size, item_bytes
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.kernels.reader.reading import element_bytes
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.family import Target
from motet.compiler.tuning.kernels import DEFAULT, Choice
from motet.errors import CompileError, Location

Extents = tuple[tuple[str, str, int, int], ...]  # see `Compiled`
Objects = dict[tuple[str, object], str]  # by target and unit: the member that holds the unit's code


class Backend(Protocol):
    """The code generator for one target."""

    @property
    def target(self) -> Target: ...

    @property
    def choice(self) -> Choice:
        """What is known and given of forms and schedules."""
        ...

    @property
    def fuses_attention(self) -> bool:
        """Whether attention may be one kernel here (`passes/fuse/fuse_attention.py`)."""
        ...

    def attention_pays(self, kernel: Kernel) -> bool:
        """Whether the attention that `kernel` would be is faster than its parts."""
        ...

    def multi_gemm_pays(self, products: Sequence[ProductShape]) -> bool:
        """Whether `products` whose results meet are faster as one kernel (`passes/fuse/fuse_multi_gemm.py`)."""
        ...

    def improves_on_base(self, kernel: Kernel) -> bool:
        """Whether `kernel` is faster than with the target that this one extends."""
        ...

    @property
    def complete(self) -> bool:
        """Whether there is code for every kernel, so that `obstacle` need not be asked."""
        ...

    def obstacle(self, function: ir.Operation, kernel: Kernel | None, reason: str) -> str | None:
        """Why there is no code for a kernel, as far as it is known without making machine code; None if there is.
        `kernel` is None if `function` could not be read, for `reason`."""
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
        Objects that another target has made, which `made` tells of, may be shared. Raises UnloadableCode."""
        ...

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        """The kernels as `--emit` shows them at `llvm` or `assembly`."""
        ...


class PlainBackend:
    """What a back end answers that fuses no attention and no products, and makes machine code in one go: to inherit."""

    choice: Choice = DEFAULT

    @property
    def complete(self) -> bool:
        return False

    @property
    def fuses_attention(self) -> bool:
        return False

    def attention_pays(self, kernel: Kernel) -> bool:
        return False

    def multi_gemm_pays(self, products: Sequence[ProductShape]) -> bool:
        return False

    def improves_on_base(self, kernel: Kernel) -> bool:
        return False

    def begin(self, compiled: Mapping[str, Compiled], jobs: int) -> object | None:
        return None


class CodeGenerator(Protocol):
    """What makes back ends: an object, a module will do. `api` is the version of the contract that it was written for,
    `API_VERSION` of `codegen/backends.py` as it was then.

    The entry-point group `motet.codegen` names it, under the name that a `Family` has as `codegen`. It is loaded when
    code for such a family is first asked for.

    It may also have `prepare(targets)`, which has loaded meanwhile, in another process, what code for these is made by.
    """

    api: int

    def open(self, target: Target, choice: Choice) -> Backend:
        """The back end for one target; `choice` says which forms of kernels are kept. Raises OptionError for a target
        that it has no code for, and where a package that it is built on is not installed: its text then has the
        command that installs it."""
        ...


class NoCode(CompileError):
    """A kernel that no code can be made for, and the `reason`; `places` are the locations of its operations, as
    text."""

    def __init__(
        self, message: str, location: Location | None = None, places: frozenset[str] = frozenset(), reason: str = ""
    ) -> None:
        super().__init__(message, location)
        self.places = places
        self.reason = reason


class UnloadableCode(CompileError):
    """Machine code of the kernels `symbols` that no device of the target can load; `message` is about the first."""

    def __init__(self, message: str, *symbols: str) -> None:
        super().__init__(message)
        self.symbols = symbols


def all_of(refusals: Sequence[NoCode]) -> NoCode:
    """The first of `refusals`, with the places of all: what is done again without these operations has code then."""
    first = refusals[0]
    places = frozenset[str]().union(*(refusal.places for refusal in refusals))
    return NoCode(first.message, first.location, places, first.reason)


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
    outside = [kernel.values[number] for number in kernel.externals]
    return Compiled(
        code, kernel.arguments, packings, tuple(extents), tuple(value.shape for value in outside),
        tuple(item_bytes(value.dtype) for value in outside),
    )


def whole_operands(function: ir.Operation, code: KernelCode, extents: Extents) -> Compiled:
    """`code` that takes every argument of a kernel's function and writes every result, dense and row-major; `extents`
    are all that are dynamic, by symbol."""
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    symbols = {(which, number, axis): symbol for symbol, which, number, axis in extents}
    shapes: list[tuple[Size, ...]] = []
    for which, types in (("argument", kind.inputs), ("result", kind.results)):
        for number, each in enumerate(map(ir.RankedTensorType, types)):
            shapes.append(tuple(
                symbols[which, number, axis] if each.is_dynamic_dim(axis) else each.shape[axis]
                for axis in range(each.rank)
            ))
    items = tuple(map(element_bytes, (*kind.inputs, *kind.results)))
    count = len(kind.inputs)
    return Compiled(code, tuple(range(count)), (None,) * count, extents, tuple(shapes), items)
