"""Reads kernels with dynamic extents that are not those of an argument.

    %p = tensor.pad %x low[1] high[1] : tensor<?xf32> to tensor<?xf32>     an extent of its own, which a loop over it
    %y = linalg.generic … ins(%p), outs(%e : tensor<?xf32>)                takes from the result, and may be unused
    tensor.extract_slice %x[0] [%n] [1]                                   a computed size

Each extent is a symbol: of an argument (`a0_1`), else of a result (`r0_1`). One that is neither makes the kernel
unreadable. That extents fit each other is a condition of the call (`Signature.constraints`), not of the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import static_or_none
from motet.compiler.kernels.compose import compose
from motet.compiler.kernels.kernel import EXTENT, Kernel, Scalar, Size
from motet.compiler.kernels.reader.function_reader import Reader
from motet.compiler.kernels.reader.reading import Source, Unreadable, View
from motet.compiler.kernels.verify import checked


@dataclass(frozen=True)
class ExtentPlace:
    """Axis `axis` of an argument or result of a kernel's function."""

    number: int
    axis: int
    is_result: bool = False


def read_composed(function: ir.Operation, equal: Sequence[Sequence[ExtentPlace]] = ()) -> Kernel:
    """The composed `Kernel` that `function` computes. `equal` are groups of extents that are equal in
    every call, the first of each an argument's. Raises `Unreadable` if it has no such form."""
    return ExtentReader(function, equal).composed()


class ExtentReader(Reader):
    """A kernel while it is read, with symbols for extents that no argument has."""

    def __init__(self, function: ir.Operation, equal: Sequence[Sequence[ExtentPlace]] = ()) -> None:
        super().__init__(function)
        self._first = {place: group[0] for group in equal for place in group[1:]}
        self._grown_extents: dict[tuple[Size, int], str] = {}
        self._fresh = 0

    def composed(self) -> Kernel:
        kernel = compose(checked(self.read(), "reading"))
        names = self._argument_extents()
        results = [value for value in kernel.values if value.role == "result"]
        for number, value in enumerate(results):
            for axis, size in enumerate(value.shape):
                if isinstance(size, str):
                    names.setdefault(size, f"r{number}_{axis}")
        return checked(_renamed(kernel, names), "compose")

    def _read_argument(self, argument: ir.Value, index: int, attributes: set[str]) -> None:
        super()._read_argument(argument, index, attributes)
        for place, first in self._first.items():
            if place.number == index and not place.is_result:
                self.unify(self.values[first.number].shape[first.axis], self.values[index].shape[place.axis])

    def _finish(self, results: list[int]) -> Kernel:
        for place, first in self._first.items():
            if place.is_result:
                extent = self.values[results[place.number]].shape[place.axis]
                self.unify(self.values[first.number].shape[first.axis], extent)
        return super()._finish(results)

    def _argument_extents(self) -> dict[str, str]:
        """The names of the arguments' extents, by the symbols that they are unified with."""
        found: dict[str, str] = {}
        for name in self.symbols:
            root = self.find(name)
            if name.startswith("a") and isinstance(root, str):
                found.setdefault(root, name)
        return found

    def _new_extent(self) -> str:
        name = f"e{self._fresh}"
        self._fresh += 1
        self.symbols[name] = name
        return name

    def _given_extent(self, value: ir.Value) -> Size | None:
        known = self.sources.get(value)
        if isinstance(known, int):
            return known
        return self.extents.setdefault(value, self._new_extent())

    def _slice_extent(self, value: ir.Value) -> Size:
        extent = self._given_extent(value)
        assert extent is not None
        return extent

    def _grown(self, size: Size, by: int) -> Size:
        if isinstance(size, int):
            return size + by
        key = (self.find(size), by)
        if key not in self._grown_extents:
            self._grown_extents[key] = self._new_extent()
        return self._grown_extents[key]

    def _shape_at(self, operand: ir.Value) -> tuple[Size, ...]:
        made = self.shapes.get(operand)
        if not made or any(size is None for size in made):
            return super()._shape_at(operand)
        return tuple(size for size in made if size is not None)

    def _inserted_sizes(self, operation: ir.Operation, source: Source) -> Sequence[Size]:
        sizes = static_or_none(operation, "static_sizes")
        dynamic = [size for size in source.shape if isinstance(size, str)] if isinstance(source, View) else []
        if sizes.count(None) != len(dynamic):
            return super()._inserted_sizes(operation, source)
        if any(map(_depends_on_data, list(operation.operands)[2:])):
            raise Unreadable("an insertion of a size that depends on data")
        given = iter(dynamic)
        return [next(given) if size is None else size for size in sizes]


def _depends_on_data(value: ir.Value) -> bool:
    """Whether an index is computed from more than extents and constants, so that the call cannot check it."""
    todo, seen = [value], set[ir.Value]()
    while todo:
        if (value := todo.pop()) in seen:
            continue
        seen.add(value)
        if isinstance(value.owner, ir.Block) or value.owner.name == "tensor.extract":
            return True
        todo += value.owner.operands if value.owner.name != "tensor.dim" else ()
    return False


def _renamed(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """`kernel` with its extents renamed."""
    used: dict[str, None] = {}

    def named(size: Size) -> Size:
        if isinstance(size, int):
            return size
        if size not in names:
            raise Unreadable("an extent of no argument or result")
        used[names[size]] = None
        return names[size]

    def scalar(one: Scalar) -> Scalar:
        return replace(one, predicate=str(named(one.predicate))) if one.op == EXTENT else one

    stages = tuple(
        replace(stage, sizes=tuple(map(named, stage.sizes)), body=tuple(map(scalar, stage.body)))
        for stage in kernel.stages
    )
    values = tuple(replace(value, shape=tuple(map(named, value.shape))) for value in kernel.values)
    return replace(kernel, values=values, stages=stages, symbols=tuple(used))
