"""Makes the kernel of a launch a function of its block and thread number.

    func.func @launch(%x: memref<…>) { %n = memref.dim %x …; gpu.launch_func @k … args(%x, %n) }
    gpu.func @k(%x, %n) kernel { %i = gpu.block_id x … }
      →  gpu.func @body(%x: memref<…>, %block: i32, %thread: i32) { %n = memref.dim %x …; %i = <%block modulo …> … }

The driver launches both in one dimension. Threads are numbered x fastest. Blocks may run in any order: the fastest axis
is the one deepest in the indices of stores, so that blocks that run at the same time write neighbouring memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.nvvm.written import Written, constant
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.remap import remap

BODY = "motet_body"
SUBGROUP = 32  # threads
_STORES = ("memref.store", "affine.store", "vector.store")
_DEEP = 64  # greater than the depth of any index
_IDS = (
    "gpu.thread_id", "gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "gpu.global_id", "gpu.lane_id", "gpu.subgroup_id",
    "gpu.num_subgroups", "gpu.subgroup_size",
)  # fmt: skip


class OperationBuilder:
    """Creates operations before a given operation, and folds simple arithmetic on constants."""

    def __init__(self, at: ir.Operation) -> None:
        self.at = at

    def create(
        self, name: str, results: Sequence[ir.Type], operands: Sequence[ir.Value] = (),
        attributes: dict[str, ir.Attribute] | None = None, regions: int = 0,
    ) -> ir.Operation:
        return ir.Operation.create(
            name, results=list(results), operands=list(operands), attributes=attributes or {}, regions=regions,
            loc=self.at.location, ip=ir.InsertionPoint(self.at),
        )

    def constant(self, number: int, kind: ir.Type) -> ir.Value:
        return self.create("arith.constant", [kind], [], {"value": ir.IntegerAttr.get(kind, number)}).result

    def binary(self, name: str, left: ir.Value, right: ir.Value) -> ir.Value:
        return self.create(name, [left.type], [left, right]).result

    def cast(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        return value if value.type == kind else self.create("arith.index_castui", [kind], [value]).result


def make_body(written: Written) -> ir.Operation:
    """Replace the kernel of `written` by its body, a `gpu.func` that is not a kernel."""
    kernel, host = written.kernel, written.host
    first = kernel.regions[0].blocks[0]
    own = len(written.arguments)
    kinds = [argument.type for argument in host.regions[0].blocks[0].arguments]
    number = ir.IntegerType.get_signless(32)
    inputs = [*kinds, number, number]
    attributes: dict[str, ir.Attribute] = {
        "sym_name": ir.StringAttr.get(BODY), "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, [])),
    }
    if "workgroup_attributions" in kernel.attributes:
        attributes["workgroup_attributions"] = kernel.attributes["workgroup_attributions"]
    body = ir.Operation.create(
        "gpu.func", regions=1, attributes=attributes, loc=kernel.location, ip=ir.InsertionPoint(kernel)
    )
    memories = list(first.arguments)[own:]
    kinds = [*inputs, *(memory.type for memory in memories)]
    entry = body.regions[0].blocks.append(*kinds, arg_locs=[kernel.location] * len(kinds))
    values = dict(zip(host.regions[0].blocks[0].arguments, entry.arguments, strict=False))
    for operation in [e.operation for e in host.regions[0].blocks[0].operations]:
        if operation.name not in ("gpu.launch_func", "func.return"):
            with ir.InsertionPoint(entry):
                copy = operation.clone()
            remap(copy, values)
            values.update(zip(operation.results, copy.results, strict=True))
    for argument, value in zip(first.arguments, written.arguments, strict=False):
        argument.replace_all_uses_with(values[value])
    for memory, new in zip(memories, list(entry.arguments)[len(inputs) :], strict=True):
        memory.replace_all_uses_with(new)
    moved = [e.operation for e in first.operations]
    for operation in moved:
        entry.append(operation)
    for block in list(kernel.regions[0].blocks)[1:]:
        block.append_to(body.regions[0])
    numbers = list(entry.arguments)[len(inputs) - 2 : len(inputs)]
    sizes = [values[v] for v in written.grid], [values[v] for v in written.block]
    _ThreadIds(moved[0], *sizes, numbers, _block_order(body)).run(body)
    kernel.erase()
    return body


def _block_order(body: ir.Operation) -> list[int]:
    """The axes of the grid, fastest first."""
    depth = [-_DEEP] * 3

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name in _STORES:
            _, _, *indices = op.operation.operands
            for position, index in enumerate(indices):
                for axis in _block_axes(index, set()):
                    depth[axis] = max(depth[axis], position + 1 - len(indices))
        return ir.WalkResult.ADVANCE

    body.walk(visit)
    return sorted(range(3), key=lambda axis: (-depth[axis], axis))


def _block_axes(value: ir.Value, seen: set[ir.Value]) -> set[int]:
    """The axes of the grid on whose block index `value` depends."""
    if value in seen or isinstance(value.owner, ir.Block):
        return set()
    seen.add(value)
    owner = value.owner.operation
    if owner.name in ("gpu.block_id", "gpu.global_id"):
        return {_axis(owner)}
    if not owner.name.startswith(("arith.", "affine.apply", "index.")):
        return set()
    return set[int]().union(*(_block_axes(operand, seen) for operand in owner.operands))


def _axis(operation: ir.Operation) -> int:
    written = str(operation.attributes["dimension"])
    return next(axis for axis, letter in enumerate("xyz") if f"dim {letter}>" in written)


class _ThreadIds:
    """Computes block and thread indices, before `first`. `order` lists the axes of the grid, fastest first."""

    def __init__(
        self, first: ir.Operation, grid: list[ir.Value], block: list[ir.Value], numbers: Sequence[ir.Value],
        order: Sequence[int],
    ) -> None:
        self.order = {"gpu.block_id": list(order), "gpu.thread_id": [0, 1, 2]}
        self.builder = OperationBuilder(first)
        self.word = numbers[0].type
        self.sizes = {"gpu.grid_dim": grid, "gpu.block_dim": block}
        self.numbers = {"gpu.block_id": numbers[0], "gpu.thread_id": numbers[1]}
        self.made: dict[tuple[str, int], ir.Value] = {}

    def run(self, body: ir.Operation) -> None:
        found = find_operations(body, *_IDS)
        for operation in found:
            operation.results[0].replace_all_uses_with(self._value(operation))
        for operation in found:
            operation.erase()

    def _value(self, operation: ir.Operation) -> ir.Value:
        axis = _axis(operation) if "dimension" in operation.attributes else 0
        key = (operation.name, axis)
        if key not in self.made:
            self.made[key] = self.builder.cast(self._number(*key), operation.results[0].type)
        return self.made[key]

    def _number(self, name: str, axis: int) -> ir.Value:
        build = self.builder
        match name:
            case "gpu.grid_dim" | "gpu.block_dim":
                return self._size(name, axis)
            case "gpu.block_id" | "gpu.thread_id":
                return self._id(name, axis)
            case "gpu.global_id":
                first = build.binary("arith.muli", self._id("gpu.block_id", axis), self._size("gpu.block_dim", axis))
                return build.binary("arith.addi", first, self._id("gpu.thread_id", axis))
            case "gpu.subgroup_size":
                return build.constant(SUBGROUP, self.word)
            case "gpu.num_subgroups":
                threads = self._size("gpu.block_dim", 0)
                for other in (1, 2):
                    threads = build.binary("arith.muli", threads, self._size("gpu.block_dim", other))
                rounded = build.binary("arith.addi", threads, build.constant(SUBGROUP - 1, self.word))
                return build.binary("arith.divui", rounded, build.constant(SUBGROUP, self.word))
            case _:
                operation = "arith.remui" if name == "gpu.lane_id" else "arith.divui"
                return build.binary(operation, self.numbers["gpu.thread_id"], build.constant(SUBGROUP, self.word))

    def _size(self, name: str, axis: int) -> ir.Value:
        size = self.sizes[name][axis]
        number = constant(size)
        return self.builder.cast(size, self.word) if number is None else self.builder.constant(number, self.word)

    def _id(self, name: str, axis: int) -> ir.Value:
        """The digit of a mixed-radix number whose radices are the sizes of the axes, in their order."""
        of = "gpu.grid_dim" if name == "gpu.block_id" else "gpu.block_dim"
        sizes = [constant(size) for size in self.sizes[of]]
        if sizes[axis] == 1:
            return self.builder.constant(0, self.word)
        number, order = self.numbers[name], self.order[name]
        place = order.index(axis)
        for lower in order[:place]:
            if sizes[lower] != 1:
                number = self.builder.binary("arith.divui", number, self._size(of, lower))
        if all(sizes[higher] == 1 for higher in order[place + 1 :]):
            return number
        return self.builder.binary("arith.remui", number, self._size(of, axis))
