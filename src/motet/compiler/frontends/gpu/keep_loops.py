"""keep-loops: a loop over memrefs whose turns are independent keeps how a GPU runs it.

    affine.parallel (%i, %j) = (0, 0) to (64, %n) { … }
      →  call @loop_launch_0(%x, %y)
         func.func private @loop_launch_0(…) attributes {motet.launch = "<a launch of blocks of 256>", no_inline} {
           affine.parallel … }

The function is as that of a launch (`keep_launches.py`), but for its body, which is the loop as it stands. Loops that
become operations of `linalg` are left alone: a trial on a copy says which these are. Loops that are parallel by name
are taken at their word; `affine.for` where upstream's analysis of dependences proves it (`affine-parallelize`). A
thread does one turn of all loops that stand directly in one another, the innermost fastest.
"""

from __future__ import annotations

from collections.abc import Callable

from motet.compiler.frontends.gpu.keep_launches import closure, fresh_name, keep_function
from motet.compiler.frontends.gpu.kernels import within
from motet.compiler.frontends.raising.raise_loops import raise_loops
from motet.compiler.ir._mlir import func, ir, run_pipeline
from motet.compiler.ir.remap import remap
from motet.compiler.partition.group import captured_values

_LOOPS = ("affine.for", "affine.parallel", "scf.parallel")
_THREADS = 256
_KERNEL = "loop"
_STACK_BYTES = 1024  # that memory of a turn may take of a thread's own
_PARALLEL = "func.func(affine-parallelize),lower-affine,canonicalize"


def keep_loops(module: ir.Module, lower: Callable[[ir.Module], None]) -> None:
    """Rewrite the parallel loops that stand directly in the public functions of `module`, in place; `lower` brings
    loops to the form in which they are raised."""
    loops = [loop for function in _public(module) for loop in _loops(function)]
    stays = _staying(module, lower) if loops else set()
    for loop in loops:
        if str(loop.location) in stays:
            _keep(module, loop)


def _public(module: ir.Module) -> list[func.FuncOp]:
    return [
        entry for entry in module.body.operations
        if isinstance(entry, func.FuncOp) and "sym_visibility" not in entry.attributes
    ]


def _loops(function: func.FuncOp) -> list[ir.Operation]:
    blocks = list(function.regions[0].blocks)
    operations = [entry.operation for entry in blocks[0].operations] if len(blocks) == 1 else []
    return [
        operation for operation in operations
        if operation.name in _LOOPS and not len(operation.results)
        and any(isinstance(value.type, ir.MemRefType) for value in captured_values(operation))
    ]


def _staying(module: ir.Module, lower: Callable[[ir.Module], None]) -> set[str]:
    """The places of loops that are still there when those that can be raised are."""
    trial = ir.Module.create(loc=module.operation.location)
    for entry in module.body.operations:
        trial.body.append(entry.operation.clone())
    lower(trial)
    places: set[str] = set()
    for function in _public(trial):
        raise_loops(function)
        places.update(str(op.location) for op in within(function.operation) if op.name.startswith("scf."))
    return places


def _keep(module: ir.Module, loop: ir.Operation) -> None:
    moved, leaves = closure(list(dict.fromkeys(captured_values(loop))))
    if any(not isinstance(leaf.type, ir.MemRefType) and not isinstance(leaf.owner, ir.Block) for leaf in leaves):
        return
    name = fresh_name(module, _KERNEL)
    function = keep_function(module, name, leaves, loop.location)
    block = function.regions[0].blocks[0]
    values = dict(zip(leaves, block.arguments, strict=True))
    last = block.operations[0].operation
    for operation in [*moved, loop]:
        with ir.InsertionPoint(last):
            copy = operation.clone()
        remap(copy, values)
        values.update(zip(operation.results, copy.results, strict=True))
    text = _launch_text(function)
    if text is None:
        function.erase()
        return
    named = {a: loop.attributes[a] for a in loop.attributes if a.startswith("motet.")}
    keep_function(module, name, leaves, loop.location, made=function, text=text)
    ir.Operation.create(
        "func.call", operands=leaves, attributes={**named, "callee": ir.FlatSymbolRefAttr.get(name)},
        loc=loop.location, ip=ir.InsertionPoint(loop),
    )  # fmt: skip
    loop.erase()


def _launch_text(function: ir.Operation) -> str | None:
    """A module in which the loop of `function` is a launch; None where its turns depend on one another."""
    holder = ir.Module.create(loc=function.location)
    holder.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
    copy = function.clone()
    copy.attributes["sym_name"] = ir.StringAttr.get("launch")
    del copy.attributes["sym_visibility"]
    holder.body.append(copy)
    run_pipeline(holder, _PARALLEL)
    host = holder.body.operations[0].operation
    found = [entry.operation for entry in host.regions[0].blocks[0].operations]
    loops = [operation for operation in found if len(operation.regions)]
    if len(loops) != 1 or loops[0].name != "scf.parallel" or len(loops[0].results):
        return None
    if not all(map(_is_small, [op for op in within(loops[0]) if op.name in ("memref.alloc", "memref.alloca")])):
        return None
    _Launch(holder, loops[0]).make()
    holder.operation.verify()
    return holder.operation.get_asm(enable_debug_info=True, assume_verified=True)


def _is_small(allocation: ir.Operation) -> bool:
    kind = ir.MemRefType(allocation.results[0].type)
    if not kind.has_static_shape:
        return False
    elements = 1
    for extent in kind.shape:
        elements *= extent
    return elements * 8 <= _STACK_BYTES


class _Launch:
    """Makes a launch, before it, of a `scf.parallel`, and erases that."""

    def __init__(self, holder: ir.Module, loop: ir.Operation) -> None:
        self.holder, self.loop = holder, loop
        self.index = ir.IndexType.get()
        count = len(loop.regions[0].blocks[0].arguments)
        operands = list(loop.operands)
        self.lower, self.upper, self.steps = (operands[i * count : (i + 1) * count] for i in range(3))

    def make(self) -> None:
        captured = list(dict.fromkeys(captured_values(self.loop)))
        self._kernel(captured)
        total = self._product(self._extents(self.loop, {}), self.loop)
        blocks = self._binary("arith.ceildivui", total, self._constant(_THREADS, self.loop), self.loop)
        one, threads = self._constant(1, self.loop), self._constant(_THREADS, self.loop)
        operands = [blocks, one, one, threads, one, one, *captured]
        sizes = [0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, len(captured), 0]
        ir.Operation.create(
            "gpu.launch_func", operands=operands, attributes={
                "kernel": ir.SymbolRefAttr.get([f"{_KERNEL}s", _KERNEL]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get(sizes),
            }, loc=self.loop.location, ip=ir.InsertionPoint(self.loop),
        )  # fmt: skip
        self.loop.erase()

    def _kernel(self, captured: list[ir.Value]) -> None:
        location = self.loop.location
        container = ir.Operation.create(
            "gpu.module", attributes={"sym_name": ir.StringAttr.get(f"{_KERNEL}s")}, regions=1, loc=location,
            ip=ir.InsertionPoint(self.holder.body),
        )  # fmt: skip
        kinds = [value.type for value in captured]
        kernel = ir.Operation.create(
            "gpu.func", regions=1, loc=location,
            ip=ir.InsertionPoint(container.regions[0].blocks.append()), attributes={
                "sym_name": ir.StringAttr.get(_KERNEL), "gpu.kernel": ir.UnitAttr.get(),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(kinds, [])),
                "workgroup_attributions": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0),
            },
        )  # fmt: skip
        block = kernel.regions[0].blocks.append(*kinds, arg_locs=[location] * len(kinds))
        last = ir.Operation.create("gpu.return", loc=location, ip=ir.InsertionPoint(block))
        values = dict(zip(captured, block.arguments, strict=True))
        dimension = ir.Attribute.parse("#gpu<dim x>")
        number = ir.Operation.create(
            "gpu.global_id", results=[self.index], attributes={"dimension": dimension}, loc=location,
            ip=ir.InsertionPoint(last),
        ).result  # fmt: skip
        extents = self._extents(last, values)
        inside = ir.Operation.create(
            "arith.cmpi", results=[ir.IntegerType.get_signless(1)], operands=[number, self._product(extents, last)],
            attributes={"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 6)}, loc=location,
            ip=ir.InsertionPoint(last),
        ).result  # fmt: skip
        branch = ir.Operation.create(
            "scf.if", operands=[inside], regions=2, loc=location, ip=ir.InsertionPoint(last)
        )
        end = ir.Operation.create(
            "scf.yield", loc=location, ip=ir.InsertionPoint(branch.regions[0].blocks.append())
        )
        self._turn(number, extents, values, end)

    def _turn(
        self, number: ir.Value, extents: list[ir.Value], values: dict[ir.Value, ir.Value], end: ir.Operation
    ) -> None:
        """The body of the loop for turn `number`, before `end`."""
        body = self.loop.regions[0].blocks[0]
        for axis in reversed(range(len(extents))):
            place = number
            if axis:
                place = self._binary("arith.remui", number, extents[axis], end)
                number = self._binary("arith.divui", number, extents[axis], end)
            scaled = self._binary("arith.muli", place, values[self.steps[axis]], end)
            values[body.arguments[axis]] = self._binary("arith.addi", scaled, values[self.lower[axis]], end)
        for operation in [entry.operation for entry in body.operations][:-1]:
            with ir.InsertionPoint(end):
                copy = operation.clone()
            remap(copy, values)
            values.update(zip(operation.results, copy.results, strict=True))
        for operation in within(end.parent.operation):
            if operation.name == "memref.alloc":
                local = ir.Operation.create(
                    "memref.alloca", results=[operation.results[0].type], loc=operation.location,
                    attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])},
                    ip=ir.InsertionPoint(operation),
                )  # fmt: skip
                operation.results[0].replace_all_uses_with(local.results[0])
        for operation in within(end.parent.operation):
            if operation.name in ("memref.dealloc", "memref.alloc"):
                operation.erase()

    def _extents(self, at: ir.Operation, values: dict[ir.Value, ir.Value]) -> list[ir.Value]:
        """How many turns each dimension has, computed before `at` from `values` of what the loop captures."""
        found: list[ir.Value] = []
        zero = self._constant(0, at)
        for lower, upper, step in zip(self.lower, self.upper, self.steps, strict=True):
            lower, upper, step = (values.get(value, value) for value in (lower, upper, step))
            whole = self._binary("arith.subi", upper, lower, at)
            turns = self._binary("arith.ceildivsi", whole, step, at)
            found.append(self._binary("arith.maxsi", turns, zero, at))
        return found

    def _product(self, factors: list[ir.Value], at: ir.Operation) -> ir.Value:
        total = factors[0]
        for factor in factors[1:]:
            total = self._binary("arith.muli", total, factor, at)
        return total

    def _constant(self, number: int, at: ir.Operation) -> ir.Value:
        return ir.Operation.create(
            "arith.constant", results=[self.index], attributes={"value": ir.IntegerAttr.get(self.index, number)},
            loc=at.location, ip=ir.InsertionPoint(at),
        ).result  # fmt: skip

    def _binary(self, name: str, left: ir.Value, right: ir.Value, at: ir.Operation) -> ir.Value:
        return ir.Operation.create(
            name, results=[self.index], operands=[left, right], loc=at.location, ip=ir.InsertionPoint(at)
        ).result
