"""Converts functions on memrefs into functions on tensors.

    func @f(%x: memref<4xf32>, %y: memref<4xf32>) {        func @f(%x: tensor<4xf32>, %y: tensor<4xf32>)
      linalg.exp ins(%x : …) outs(%y : …)             →        -> (tensor<4xf32> {motet.destination = 1}) {
      return                                                 %0 = linalg.exp ins(%x : …) outs(%y : …) -> …
    }                                                        return %0 }

The operations of a block are visited in order, and every buffer is mapped to the tensor that it holds at that point.
Loops and branches (`scf.for`, `scf.if`, `scf.while`) carry the tensors of the buffers that they write. Arguments keep
their order; each one that is written is also a result, written in place. Memref arguments are assumed not to overlap,
as with `restrict`. Arguments with a strided layout become tensors of the same extents; callers give the strides of
each tensor.
"""

from __future__ import annotations

from collections.abc import Callable

from motet.compiler.frontends.held_memrefs import (
    HeldMemref,
    attributes_of,
    cast,
    is_memref,
    is_strided,
    output_count,
    tensor_type,
    written_memrefs,
)
from motet.compiler.frontends.locations import locate
from motet.compiler.frontends.memref_views import VIEWS
from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.create import create
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.program import DESTINATION, STRIDED
from motet.errors import CompileError

_CONTROL = ("scf.for", "scf.if", "scf.while")
_ATOMIC: dict[int, str | None] = {
    0: "arith.addf", 1: "arith.addi", 2: "arith.andi", 3: None, 4: "arith.maximumf", 5: "arith.maxnumf",
    6: "arith.maxsi", 7: "arith.maxui", 8: "arith.minimumf", 9: "arith.minnumf", 10: "arith.minsi",
    11: "arith.minui", 12: "arith.mulf", 13: "arith.muli", 14: "arith.ori", 15: "arith.xori",
}  # by arith::AtomicRMWKind; None assigns


def has_buffers(function: func.FuncOp) -> bool:
    """Whether any value of the function is a memref."""
    found = any(is_memref(kind) for kind in (*function.type.inputs, *function.type.results))

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = found or any(is_memref(value.type) for value in op.operation.results)
        return ir.WalkResult.ADVANCE

    if not found:
        function.operation.walk(visit)
    return found


def debufferise(function: func.FuncOp) -> None:
    """Rewrites `function` in place, its signature included.

    Raises CompileError, at the operation, for what has no tensor form: layouts other than row-major,
    memrefs in control flow, unknown operations on memrefs.
    """
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        raise CompileError(
            f"@{function.name.value}: memrefs across branches are not supported; "
            "use scf.for and scf.if on tensors",
            locate(function.location),
        )
    _Rewriter(function, blocks[0]).run()
    _drop_identities(blocks[0])


def _drop_identities(block: ir.Block) -> None:
    """Removes casts that stood for arguments while these were memrefs."""
    for operation in [entry.operation for entry in block.operations]:
        if operation.name == "tensor.cast" and operation.operands[0].type == operation.results[0].type:
            operation.results[0].replace_all_uses_with(operation.operands[0])
            operation.erase()


class _Rewriter:
    """Visits the operations of one block in order. Replaced operations are erased at the end, users first."""

    def __init__(self, function: func.FuncOp, block: ir.Block) -> None:
        self.function = function
        self.block = block
        self.buffers: dict[ir.Value, HeldMemref] = {}
        self.dead: list[ir.Operation] = []
        self.strided: list[int] = []  # arguments
        self.rules: dict[str, Callable[[ir.Operation], None]] = {
            "bufferization.to_tensor": self._to_tensor,
            "bufferization.to_buffer": self._to_buffer,
            "bufferization.clone": self._to_buffer_of_buffer,
            "bufferization.materialize_in_destination": self._materialize,
            "bufferization.alloc_tensor": self._alloc_tensor,
            "bufferization.dealloc_tensor": self.dead.append,
            "memref.alloc": self._alloc,
            "memref.alloca": self._alloc,
            "memref.dealloc": self.dead.append,
            "memref.get_global": self._get_global,
            "memref.copy": self._copy,
            "memref.load": self._load,
            "memref.store": self._store,
            "memref.atomic_rmw": self._atomic,
            "memref.dim": self._dim,
            "func.call": self._call,
            **dict.fromkeys(VIEWS, self._view),
        }

    def run(self) -> None:
        operations = [op.operation for op in self.block.operations]
        for index, argument in enumerate(self.block.arguments):
            if is_memref(argument.type):
                if strided := is_strided(argument.type):
                    self.strided.append(index)
                argument.set_type(tensor_type(argument.type, argument.location, row_major=not strided))
                # Uses of the argument are uses of the buffer; the buffer's content is a separate value.
                held = create("tensor.cast", [argument.type], [argument], operations[0]).result
                self.buffers[argument] = HeldMemref(tensor=held, argument=index)
        for op in operations[:-1]:
            self._visit(op)
        self._return(operations[-1])
        for op in reversed(self.dead):
            op.erase()

    def _visit(self, op: ir.Operation) -> None:
        if rule := self.rules.get(op.name):
            rule(op)
            return
        if op.name in _CONTROL:
            self._control(op)
            return
        for region in op.regions:
            self._visit_nested(region)
        if any(operand in self.buffers for operand in op.operands):
            if not op.name.startswith("linalg."):
                raise CompileError(
                    f"{op.name}: this operation on memrefs is not supported; expected linalg operations, "
                    "copies, views, or bufferization.to_tensor and materialize_in_destination around "
                    "a tensor program",
                    locate(op.location),
                )
            self._linalg(op)
        elif any(is_memref(result.type) for result in op.results):
            raise CompileError(
                f"{op.name}: a memref made by this operation is not supported", locate(op.location)
            )

    def _visit_nested(self, region: ir.Region) -> None:
        """Bodies of other operations may read buffers, but not write them."""
        for block in region.blocks:
            for nested in [op.operation for op in block.operations]:
                for inner in nested.regions:
                    self._visit_nested(inner)
                if nested.name in ("memref.load", "memref.dim", "bufferization.to_tensor"):
                    self.rules[nested.name](nested)
                elif any(
                    is_memref(value.type) or value in self.buffers
                    for value in (*nested.operands, *nested.results)
                ):
                    raise CompileError(
                        f"{nested.name}: memrefs cannot be written in the body of this operation; expected loops and "
                        "branches of scf or affine, or linalg operations",
                        locate(nested.location),
                    )

    def _read(self, memref: ir.Value, at: ir.Operation) -> ir.Value:
        """The content of `memref`, with as much of its shape static as the memref's type has."""
        tensor = self.buffers[memref].load(at)
        kind = (
            memref.type
            if not is_memref(memref.type)
            else tensor_type(memref.type, at.location, row_major=False)
        )
        return cast(tensor, kind, at)

    # -- operations ------------------------------------------------------------------------------

    def _to_tensor(self, op: ir.Operation) -> None:
        op.result.replace_all_uses_with(cast(self._read(op.operands[0], op), op.result.type, op))
        self.dead.append(op)

    def _to_buffer(self, op: ir.Operation) -> None:
        self._own(op, op.operands[0])

    def _to_buffer_of_buffer(self, op: ir.Operation) -> None:
        self._own(op, self._read(op.operands[0], op))

    def _own(self, op: ir.Operation, tensor: ir.Value) -> None:
        """Makes the memref that `op` defines a new buffer that holds `tensor`."""
        kind = tensor_type(op.result.type, op.location, row_major=True)
        self.buffers[op.result] = HeldMemref(tensor=cast(tensor, kind, op))
        self.dead.append(op)

    def _materialize(self, op: ir.Operation) -> None:
        source, destination = op.operands
        if destination in self.buffers:
            self.buffers[destination].store(source, op)
        else:
            op.result.replace_all_uses_with(cast(source, op.result.type, op))
        self.dead.append(op)

    def _alloc(self, op: ir.Operation) -> None:
        kind = tensor_type(op.result.type, op.location, row_major=True)
        sizes = list(op.operands)[: sum(kind.is_dynamic_dim(axis) for axis in range(kind.rank))]
        self._own(op, create("tensor.empty", [kind], sizes, op).result)

    def _alloc_tensor(self, op: ir.Operation) -> None:
        segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        operands = list(op.operands)
        if segments[1]:  # a copy of another tensor
            tensor = operands[segments[0]]
        else:
            tensor = create("tensor.empty", [op.result.type], operands[: segments[0]], op).result
        op.result.replace_all_uses_with(cast(tensor, op.result.type, op))
        self.dead.append(op)

    def _get_global(self, op: ir.Operation) -> None:
        name = ir.FlatSymbolRefAttr(op.attributes["name"]).value
        module = self.function.operation.parent
        held = next(
            (
                other.operation
                for other in module.regions[0].blocks[0].operations
                if other.operation.name == "memref.global" and symbol_name(other.operation) == name
            ),
            None,
        )
        if held is None or "constant" not in held.attributes or "initial_value" not in held.attributes:
            raise CompileError(
                f"memref.get_global @{name}: only constants with a value are supported; expected "
                f"`memref.global constant @{name} : … = dense<…>`",
                locate(op.location),
            )
        kind = tensor_type(op.result.type, op.location, row_major=True)
        self._own(
            op, create("arith.constant", [kind], [], op, {"value": held.attributes["initial_value"]}).result
        )

    def _copy(self, op: ir.Operation) -> None:
        source, destination = op.operands
        self.buffers[destination].store(self._read(source, op), op)
        self.dead.append(op)

    def _load(self, op: ir.Operation) -> None:
        tensor = self._read(op.operands[0], op)
        loaded = create("tensor.extract", [op.result.type], [tensor, *list(op.operands)[1:]], op)
        op.result.replace_all_uses_with(loaded.result)
        self.dead.append(op)

    def _store(self, op: ir.Operation) -> None:
        value, memref, *indices = op.operands
        tensor = self._read(memref, op)
        self.buffers[memref].store(
            create("tensor.insert", [tensor.type], [value, tensor, *indices], op).result, op
        )
        self.dead.append(op)

    def _dim(self, op: ir.Operation) -> None:
        tensor = self._read(op.operands[0], op)
        op.result.replace_all_uses_with(
            create("tensor.dim", [op.result.type], [tensor, op.operands[1]], op).result
        )
        self.dead.append(op)

    def _call(self, op: ir.Operation) -> None:
        """Replaces a call of a function that is already on tensors: its operands are the contents of its arguments.
        Scalars become tensors of rank 0 if the function takes these."""
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        callee = ir.SymbolTable(self.function.operation.parent)[name].operation
        kind = ir.FunctionType(ir.TypeAttr(callee.attributes["function_type"]).value)
        operands = [
            cast(self._read(value, op), wanted, op) if value in self.buffers
            else value if value.type == wanted
            else create("tensor.from_elements", [wanted], [value], op).result
            for value, wanted in zip(op.operands, kind.inputs, strict=True)
        ]
        new = create(op.name, list(kind.results), operands, op, attributes_of(op))
        for result, named in zip(new.results, ir.ArrayAttr(callee.attributes["res_attrs"]), strict=True):
            written = ir.IntegerAttr(ir.DictAttr(named)[DESTINATION]).value
            self.buffers[op.operands[written]].store(result, op)
        self.dead.append(op)

    def _linalg(self, op: ir.Operation) -> None:
        """Rewrites the operation to the tensors that its buffers hold; its outputs become results."""
        operands = [self._read(v, op) if v in self.buffers else v for v in op.operands]
        outputs = list(op.operands)[-output_count(op) :]
        results = [value.type for value in operands[len(operands) - len(outputs) :]]
        new = create(op.name, results, operands, op, attributes_of(op), regions=len(op.regions))
        for region, target in zip(op.regions, new.regions, strict=True):
            for block in list(region.blocks):
                block.append_to(target)
        kept = iter(op.results)
        for output, result in zip(outputs, new.results, strict=True):
            if output in self.buffers:
                self.buffers[output].store(result, op)
            else:
                next(kept).replace_all_uses_with(result)
        self.dead.append(op)

    def _atomic(self, op: ir.Operation) -> None:
        """Becomes a load, the operation and a store: the threads of one processor run one after the other."""
        value, memref, *indices = op.operands
        kind = ir.IntegerAttr(op.attributes["kind"]).value
        if kind not in _ATOMIC:
            raise CompileError(f"{op.name}: this kind of operation is not supported", locate(op.location))
        tensor = self._read(memref, op)
        before = create("tensor.extract", [value.type], [tensor, *indices], op).result
        name = _ATOMIC[kind]
        after = value if name is None else create(name, [value.type], [before, value], op).result
        self.buffers[memref].store(create("tensor.insert", [tensor.type], [after, tensor, *indices], op).result, op)
        op.result.replace_all_uses_with(before)
        self.dead.append(op)

    def _view(self, op: ir.Operation) -> None:
        self.buffers[op.result] = VIEWS[op.name](self.buffers[op.operands[0]], op)
        self.dead.append(op)

    # -- control flow ----------------------------------------------------------------------------

    def _control(self, op: ir.Operation) -> None:
        """Rewrites a loop or branch to carry in addition the contents of the buffers that it writes."""
        if any(is_memref(value.type) for value in (*op.operands, *op.results)):
            raise CompileError(
                f"{op.name}: memrefs that loops and branches hand on are not supported; expected them to be "
                "written in place", locate(op.location),
            )
        carried = self._written_inside(op)
        held = [buffer.load(op) for buffer in carried]
        operands = list(op.operands) if op.name == "scf.if" else [*op.operands, *held]
        kinds = [*(result.type for result in op.results), *(tensor.type for tensor in held)]
        new = create(op.name, kinds, operands, op, attributes_of(op), regions=len(op.regions))
        for region, target in zip(op.regions, new.regions, strict=True):
            for block in list(region.blocks):
                block.append_to(target)
        if op.name == "scf.if" and held and not list(new.regions[1].blocks):
            otherwise = new.regions[1].blocks.append()
            ir.Operation.create("scf.yield", loc=op.location, ip=ir.InsertionPoint(otherwise))
        for region in new.regions:
            for block in region.blocks:
                self._visit_body(block, op.name == "scf.if", carried, held)
        for buffer, tensor in zip(carried, list(new.results)[len(op.results) :], strict=True):
            buffer.tensor, buffer.written = tensor, True
        for old, result in zip(op.results, new.results, strict=False):
            old.replace_all_uses_with(result)
        self.dead.append(op)

    def _visit_body(self, block: ir.Block, branch: bool, carried: list[HeldMemref], held: list[ir.Value]) -> None:
        """Rewrites the block of a loop or branch: a loop's block begins with the contents of the buffers as arguments;
        each block yields the contents at its end."""
        for buffer, tensor in zip(carried, held, strict=True):
            buffer.tensor = tensor if branch else block.add_argument(tensor.type, tensor.location)
        operations = [entry.operation for entry in block.operations]
        for nested in operations[:-1]:
            self._visit(nested)
        last = operations[-1]
        handed = [
            cast(buffer.load(last), tensor.type, last) for buffer, tensor in zip(carried, held, strict=True)
        ]
        if handed:
            create(last.name, [], [*last.operands, *handed], last, attributes_of(last))
            self.dead.append(last)

    def _written_inside(self, op: ir.Operation) -> list[HeldMemref]:
        """The buffers defined outside `op` that operations inside it write, in the order of the writes."""
        found: list[HeldMemref] = []

        def visit(nested: ir.Operation) -> ir.WalkResult:
            for memref in written_memrefs(nested.operation):
                while memref not in self.buffers and not isinstance(memref.owner, ir.Block):
                    owner = memref.owner.operation
                    if owner.name not in VIEWS:
                        break
                    memref = owner.operands[0]
                buffer = self.buffers.get(memref)
                while buffer is not None and buffer.base is not None:
                    buffer = buffer.base
                if buffer is not None and not any(buffer is other for other in found):
                    found.append(buffer)
            return ir.WalkResult.ADVANCE

        op.walk(visit)
        return found

    # -- the signature ---------------------------------------------------------------------------

    def _return(self, op: ir.Operation) -> None:
        """Returns the contents of memref results, and every argument that was written as a further result."""
        function = self.function
        attributes = [dict[str, ir.Attribute]() for _ in op.operands]
        if "res_attrs" in function.attributes:
            attributes = [{e.name: e.attr for e in ir.DictAttr(a)} for a in function.attributes["res_attrs"]]
        values: list[ir.Value] = []
        for value, named in zip(op.operands, attributes, strict=True):
            buffer = self.buffers.get(value)
            if buffer is not None and buffer.argument is not None:
                named[DESTINATION] = _integer(buffer.argument)
            values.append(self._read(value, op) if buffer is not None else value)
        returned = {self.buffers[v].argument for v in op.operands if v in self.buffers}
        for argument in self.block.arguments:
            buffer = self.buffers.get(argument)
            if buffer is not None and buffer.written and buffer.argument not in returned:
                values.append(buffer.load(op))
                attributes.append({DESTINATION: _integer(buffer.argument or 0)})
        create("func.return", [], values, op)
        self.dead.append(op)
        inputs = [argument.type for argument in self.block.arguments]
        kind = ir.FunctionType.get(inputs, [value.type for value in values])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        function.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(named) for named in attributes])
        if self.strided:
            self._mark_strided()

    def _mark_strided(self) -> None:
        attributes = self.function.attributes
        known = [ir.DictAttr.get({})] * len(self.block.arguments)
        if "arg_attrs" in attributes:
            known = [ir.DictAttr(one) for one in ir.ArrayAttr(attributes["arg_attrs"])]
        attributes["arg_attrs"] = ir.ArrayAttr.get([
            ir.DictAttr.get({e.name: e.attr for e in one} | {STRIDED: ir.UnitAttr.get()}) if i in self.strided else one
            for i, one in enumerate(known)
        ])


def _integer(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
