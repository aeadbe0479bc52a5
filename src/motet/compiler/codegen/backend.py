"""The protocol of back ends: how the pipeline requests code for the targets of a family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.kernel import Kernel, Size, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.kernels.reader.reading import element_bytes
from motet.compiler.kernels.recurrence import Recurrence
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.family import Target
from motet.compiler.tuning.kernels import DEFAULT, Choice
from motet.errors import CompileError, Location

Extents = tuple[tuple[str, str, int, int], ...]  # see `Compiled`
Objects = dict[tuple[str, object], str]  # by target and unit: the member with the unit's code


class Backend(Protocol):
    """A back end opened for one target."""

    @property
    def target(self) -> Target: ...

    @property
    def choice(self) -> Choice:
        """The choice of forms and schedules that the back end was opened with."""
        ...

    @property
    def fuses_attention(self) -> bool:
        """Whether programs for this back end are rewritten by `fuse-for-gpu`, into larger kernels than other back ends
        have."""
        ...

    def attention_pays(self, kernel: Kernel) -> bool:
        """Whether the attention `kernel` has code, and is expected to be faster than its unfused parts
        (`passes/fuse/fuse_attention.py`)."""
        ...

    def multi_gemm_pays(self, products: Sequence[ProductShape]) -> bool:
        """Whether `products` with a combined result are faster as one kernel (`passes/fuse/fuse_multi_gemm.py`)."""
        ...

    def recurrence_pays(self, found: Recurrence) -> bool:
        """Whether the loop `found` has code as one launch that is expected to be faster than launches for each
        iteration (`passes/fuse/unroll_loops.py`)."""
        ...

    def improves_on_base(self, kernel: Kernel) -> bool:
        """Whether `kernel` is faster than with the base target that this target extends."""
        ...

    @property
    def complete(self) -> bool:
        """Whether every kernel has code, so that `obstacle` need not be called."""
        ...

    def obstacle(self, function: ir.Operation, kernel: Kernel | None, reason: str) -> str | None:
        """Why a kernel has no code, as far as this is known without making machine code; None if it has. `kernel` is
        None if `function` could not be read, for `reason`."""
        ...

    def generate(self, kernel: Kernel) -> KernelCode | None:
        """Code for a kernel; None if only `generic` supports it."""
        ...

    def generic(self, function: ir.Operation, name: str, reason: str) -> Compiled:
        """Code for a kernel's function that no class supports; `reason` is why it could not be read, if so. Raises
        CompileError if there is none."""
        ...

    def begin(self, compiled: Mapping[str, Compiled], jobs: int) -> object | None:
        """Start to make machine code in other processes, if the back end uses any; the result is for `assemble`."""
        ...

    def assemble(
        self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes], made: Objects,
        begun: object | None = None,
    ) -> tuple[dict[str, Compiled], list[str]]:
        """Make machine code and add it to `members`; returns the kernels as launched, and the names of their objects.
        Objects made for other targets, listed in `made`, may be shared. Raises UnloadableCode."""
        ...

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        """The kernels as text for `--emit` at stage `llvm` or `assembly`."""
        ...


class PlainBackend:
    """A base class for back ends that get programs by `fuse-for-cpu`, fuse neither attention nor products unless they
    say so, and make machine code in one step."""

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

    def recurrence_pays(self, found: Recurrence) -> bool:
        return False

    def improves_on_base(self, kernel: Kernel) -> bool:
        return False

    def begin(self, compiled: Mapping[str, Compiled], jobs: int) -> object | None:
        return None


class CodeGenerator(Protocol):
    """Opens back ends: an object or a module. `api` is the version of the protocol that it implements, the value of
    `API_VERSION` in `codegen/backends.py` at that time.

    It is registered in the entry-point group `motet.codegen`, under the name that a `Family` gives as `codegen`, and is
    loaded when code for such a family is first requested.

    It may also define `prepare(targets)`, which starts to load the tools for these targets in another process.
    """

    api: int

    def open(self, target: Target, choice: Choice) -> Backend:
        """The back end for one target; `choice` selects forms of kernels. Raises OptionError for a target without code,
        or if a package that it needs is not installed; the message then contains the command that installs it."""
        ...


class NoCode(CompileError):
    """A kernel without code, and the `reason`; `places` are the locations of its operations, as text."""

    def __init__(
        self, message: str, location: Location | None = None, places: frozenset[str] = frozenset(), reason: str = ""
    ) -> None:
        super().__init__(message, location)
        self.places = places
        self.reason = reason


class UnloadableCode(CompileError):
    """Machine code of the kernels `symbols` that no device of the target can load; `message` describes the first."""

    def __init__(self, message: str, *symbols: str) -> None:
        super().__init__(message)
        self.symbols = symbols


def all_of(refusals: Sequence[NoCode]) -> NoCode:
    """The first of `refusals`, with the places of all, so that a retry without these operations succeeds."""
    first = refusals[0]
    places = frozenset[str]().union(*(refusal.places for refusal in refusals))
    return NoCode(first.message, first.location, places, first.reason)


def places_of(function: ir.Operation) -> frozenset[str]:
    """The locations of a kernel's operations, except those that only compute extents and scalars."""
    operations = [entry.operation for entry in function.regions[0].blocks[0].operations]
    named = ("tensor.empty", "tensor.dim", "arith.constant", "func.return")
    return frozenset(str(each.location) for each in operations if each.name not in named) - {"loc(unknown)"}


def launched(kernel: Kernel, code: KernelCode) -> Compiled:
    """`code` of a kernel that could be read, with the sources of its buffers and extents."""
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
    are all dynamic extents, by symbol."""
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
