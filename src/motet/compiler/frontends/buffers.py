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
from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.program import DESTINATION, STRIDED
from motet.errors import CompileError

_CONTROL = ("scf.for", "scf.if", "scf.while")
_VIEWS = (
    "memref.cast", "memref.memory_space_cast", "memref.subview", "memref.expand_shape", "memref.collapse_shape",
)  # fmt: skip
_ATOMIC: dict[int, str | None] = {
    0: "arith.addf", 1: "arith.addi", 2: "arith.andi", 3: None, 4: "arith.maximumf", 5: "arith.maxnumf",
    6: "arith.maxsi", 7: "arith.maxui", 8: "arith.minimumf", 9: "arith.minnumf", 10: "arith.minsi",
    11: "arith.minui", 12: "arith.mulf", 13: "arith.muli", 14: "arith.ori", 15: "arith.xori",
}  # by arith::AtomicRMWKind; None assigns


def has_buffers(function: func.FuncOp) -> bool:
    """Whether any value of the function is a memref."""
    found = any(_is_memref(kind) for kind in (*function.type.inputs, *function.type.results))

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = found or any(_is_memref(value.type) for value in op.operation.results)
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


def _is_memref(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.MemRefType, ir.UnrankedMemRefType))


def _tensor_type(kind: ir.Type, location: ir.Location, row_major: bool) -> ir.RankedTensorType:
    if not isinstance(kind, ir.MemRefType):
        raise CompileError(
            f"{kind}: unranked memrefs are not supported; expected a ranked one", locate(location)
        )
    if row_major and not _is_row_major(kind):
        raise CompileError(
            f"{kind}: this memref layout is not supported; expected row-major without an offset, "
            "or of an argument strided<[…], offset: …>",
            locate(location),
        )
    return ir.RankedTensorType.get(kind.shape, kind.element_type)


def _is_row_major(kind: ir.MemRefType) -> bool:
    if kind.affine_map == ir.AffineMap.get_identity(kind.rank):
        return True
    try:
        strides, offset = kind.get_strides_and_offset()
    except RuntimeError:  # not a strided layout
        return False
    expected = 1
    for axis in reversed(range(kind.rank)):
        if strides[axis] != expected:
            return False
        if axis and kind.is_dynamic_dim(axis):
            return False
        expected *= kind.shape[axis]
    return offset == 0


def _is_strided(kind: ir.Type) -> bool:
    """Whether the layout has strides and an offset, static or dynamic, and is not row-major without an offset."""
    if not isinstance(kind, ir.MemRefType) or _is_row_major(kind):
        return False
    try:
        kind.get_strides_and_offset()
    except RuntimeError:
        return False
    return True


@dataclass
class _HeldMemref:
    """A memref: its current tensor, or, for a view of another memref, how to read and write that one."""

    tensor: ir.Value | None = None
    argument: int | None = None
    written: bool = False
    base: _HeldMemref | None = None
    read: Callable[[ir.Value, ir.Operation], ir.Value] | None = None
    write: Callable[[ir.Value, ir.Value, ir.Operation], ir.Value] | None = None

    def load(self, at: ir.Operation) -> ir.Value:
        if self.base is not None and self.read is not None:
            return self.read(self.base.load(at), at)
        if self.tensor is None:
            raise CompileError("a memref is read before it exists", locate(at.location))
        return self.tensor

    def store(self, tensor: ir.Value, at: ir.Operation) -> None:
        if self.base is not None and self.write is not None:
            self.base.store(self.write(self.base.load(at), tensor, at), at)
            return
        if self.tensor is not None:
            tensor = _cast(tensor, self.tensor.type, at)
        self.tensor, self.written = tensor, True


def _create(
    name: str,
    results: list[ir.Type],
    operands: list[ir.Value],
    at: ir.Operation,
    attributes: dict[str, ir.Attribute] | None = None,
    regions: int = 0,
) -> ir.Operation:
    return ir.Operation.create(
        name,
        results=results,
        operands=operands,
        attributes=attributes or {},
        regions=regions,
        loc=at.location,
        ip=ir.InsertionPoint(at),
    )


def _cast(value: ir.Value, kind: ir.Type, at: ir.Operation) -> ir.Value:
    return value if value.type == kind else _create("tensor.cast", [kind], [value], at).result


def _attributes(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}


class _Rewriter:
    """Visits the operations of one block in order. Replaced operations are erased at the end, users first."""

    def __init__(self, function: func.FuncOp, block: ir.Block) -> None:
        self.function = function
        self.block = block
        self.buffers: dict[ir.Value, _HeldMemref] = {}
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
            "memref.cast": self._cast_view,
            "memref.memory_space_cast": self._cast_view,
            "memref.subview": self._subview,
            "memref.expand_shape": self._reshape_view,
            "memref.collapse_shape": self._reshape_view,
        }

    def run(self) -> None:
        operations = [op.operation for op in self.block.operations]
        for index, argument in enumerate(self.block.arguments):
            if _is_memref(argument.type):
                if strided := _is_strided(argument.type):
                    self.strided.append(index)
                argument.set_type(_tensor_type(argument.type, argument.location, row_major=not strided))
                # Uses of the argument are uses of the buffer; the buffer's content is a separate value.
                held = _create("tensor.cast", [argument.type], [argument], operations[0]).result
                self.buffers[argument] = _HeldMemref(tensor=held, argument=index)
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
        elif any(_is_memref(result.type) for result in op.results):
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
                    _is_memref(value.type) or value in self.buffers
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
            if not _is_memref(memref.type)
            else _tensor_type(memref.type, at.location, row_major=False)
        )
        return _cast(tensor, kind, at)

    # -- operations ------------------------------------------------------------------------------

    def _to_tensor(self, op: ir.Operation) -> None:
        op.result.replace_all_uses_with(_cast(self._read(op.operands[0], op), op.result.type, op))
        self.dead.append(op)

    def _to_buffer(self, op: ir.Operation) -> None:
        self._own(op, op.operands[0])

    def _to_buffer_of_buffer(self, op: ir.Operation) -> None:
        self._own(op, self._read(op.operands[0], op))

    def _own(self, op: ir.Operation, tensor: ir.Value) -> None:
        """Makes the memref that `op` defines a new buffer that holds `tensor`."""
        kind = _tensor_type(op.result.type, op.location, row_major=True)
        self.buffers[op.result] = _HeldMemref(tensor=_cast(tensor, kind, op))
        self.dead.append(op)

    def _materialize(self, op: ir.Operation) -> None:
        source, destination = op.operands
        if destination in self.buffers:
            self.buffers[destination].store(source, op)
        else:
            op.result.replace_all_uses_with(_cast(source, op.result.type, op))
        self.dead.append(op)

    def _alloc(self, op: ir.Operation) -> None:
        kind = _tensor_type(op.result.type, op.location, row_major=True)
        sizes = list(op.operands)[: sum(kind.is_dynamic_dim(axis) for axis in range(kind.rank))]
        self._own(op, _create("tensor.empty", [kind], sizes, op).result)

    def _alloc_tensor(self, op: ir.Operation) -> None:
        segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        operands = list(op.operands)
        if segments[1]:  # a copy of another tensor
            tensor = operands[segments[0]]
        else:
            tensor = _create("tensor.empty", [op.result.type], operands[: segments[0]], op).result
        op.result.replace_all_uses_with(_cast(tensor, op.result.type, op))
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
        kind = _tensor_type(op.result.type, op.location, row_major=True)
        self._own(
            op, _create("arith.constant", [kind], [], op, {"value": held.attributes["initial_value"]}).result
        )

    def _copy(self, op: ir.Operation) -> None:
        source, destination = op.operands
        self.buffers[destination].store(self._read(source, op), op)
        self.dead.append(op)

    def _load(self, op: ir.Operation) -> None:
        tensor = self._read(op.operands[0], op)
        loaded = _create("tensor.extract", [op.result.type], [tensor, *list(op.operands)[1:]], op)
        op.result.replace_all_uses_with(loaded.result)
        self.dead.append(op)

    def _store(self, op: ir.Operation) -> None:
        value, memref, *indices = op.operands
        tensor = self._read(memref, op)
        self.buffers[memref].store(
            _create("tensor.insert", [tensor.type], [value, tensor, *indices], op).result, op
        )
        self.dead.append(op)

    def _dim(self, op: ir.Operation) -> None:
        tensor = self._read(op.operands[0], op)
        op.result.replace_all_uses_with(
            _create("tensor.dim", [op.result.type], [tensor, op.operands[1]], op).result
        )
        self.dead.append(op)

    def _call(self, op: ir.Operation) -> None:
        """Replaces a call of a function that is already on tensors: its operands are the contents of its arguments.
        Scalars become tensors of rank 0 if the function takes these."""
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        callee = ir.SymbolTable(self.function.operation.parent)[name].operation
        kind = ir.FunctionType(ir.TypeAttr(callee.attributes["function_type"]).value)
        operands = [
            _cast(self._read(value, op), wanted, op) if value in self.buffers
            else value if value.type == wanted
            else _create("tensor.from_elements", [wanted], [value], op).result
            for value, wanted in zip(op.operands, kind.inputs, strict=True)
        ]
        new = _create(op.name, list(kind.results), operands, op, _attributes(op))
        for result, named in zip(new.results, ir.ArrayAttr(callee.attributes["res_attrs"]), strict=True):
            written = ir.IntegerAttr(ir.DictAttr(named)[DESTINATION]).value
            self.buffers[op.operands[written]].store(result, op)
        self.dead.append(op)

    def _linalg(self, op: ir.Operation) -> None:
        """Rewrites the operation to the tensors that its buffers hold; its outputs become results."""
        operands = [self._read(v, op) if v in self.buffers else v for v in op.operands]
        outputs = list(op.operands)[-_output_count(op) :]
        results = [value.type for value in operands[len(operands) - len(outputs) :]]
        new = _create(op.name, results, operands, op, _attributes(op), regions=len(op.regions))
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
        before = _create("tensor.extract", [value.type], [tensor, *indices], op).result
        name = _ATOMIC[kind]
        after = value if name is None else _create(name, [value.type], [before, value], op).result
        self.buffers[memref].store(_create("tensor.insert", [tensor.type], [after, tensor, *indices], op).result, op)
        op.result.replace_all_uses_with(before)
        self.dead.append(op)

    # -- control flow ----------------------------------------------------------------------------

    def _control(self, op: ir.Operation) -> None:
        """Rewrites a loop or branch to carry in addition the contents of the buffers that it writes."""
        if any(_is_memref(value.type) for value in (*op.operands, *op.results)):
            raise CompileError(
                f"{op.name}: memrefs that loops and branches hand on are not supported; expected them to be "
                "written in place", locate(op.location),
            )
        carried = self._written_inside(op)
        held = [buffer.load(op) for buffer in carried]
        operands = list(op.operands) if op.name == "scf.if" else [*op.operands, *held]
        kinds = [*(result.type for result in op.results), *(tensor.type for tensor in held)]
        new = _create(op.name, kinds, operands, op, _attributes(op), regions=len(op.regions))
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

    def _visit_body(self, block: ir.Block, branch: bool, carried: list[_HeldMemref], held: list[ir.Value]) -> None:
        """Rewrites the block of a loop or branch: a loop's block begins with the contents of the buffers as arguments;
        each block yields the contents at its end."""
        for buffer, tensor in zip(carried, held, strict=True):
            buffer.tensor = tensor if branch else block.add_argument(tensor.type, tensor.location)
        operations = [entry.operation for entry in block.operations]
        for nested in operations[:-1]:
            self._visit(nested)
        last = operations[-1]
        handed = [
            _cast(buffer.load(last), tensor.type, last) for buffer, tensor in zip(carried, held, strict=True)
        ]
        if handed:
            _create(last.name, [], [*last.operands, *handed], last, _attributes(last))
            self.dead.append(last)

    def _written_inside(self, op: ir.Operation) -> list[_HeldMemref]:
        """The buffers defined outside `op` that operations inside it write, in the order of the writes."""
        found: list[_HeldMemref] = []

        def visit(nested: ir.Operation) -> ir.WalkResult:
            for memref in _writes(nested.operation):
                while memref not in self.buffers and not isinstance(memref.owner, ir.Block):
                    owner = memref.owner.operation
                    if owner.name not in _VIEWS:
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

    # -- views -----------------------------------------------------------------------------------

    def _view(
        self,
        op: ir.Operation,
        read: Callable[[ir.Value, ir.Operation], ir.Value],
        write: Callable[[ir.Value, ir.Value, ir.Operation], ir.Value],
    ) -> None:
        self.buffers[op.result] = _HeldMemref(base=self.buffers[op.operands[0]], read=read, write=write)
        self.dead.append(op)

    def _cast_view(self, op: ir.Operation) -> None:
        kind = _tensor_type(op.result.type, op.location, row_major=False)
        self._view(
            op, lambda whole, at: _cast(whole, kind, at), lambda whole, part, at: _cast(part, whole.type, at)
        )

    def _subview(self, op: ir.Operation) -> None:
        kind = _tensor_type(op.result.type, op.location, row_major=False)
        places = list(op.operands)[1:]
        named = _attributes(op)
        segments = list(ir.DenseI32ArrayAttr(named["operandSegmentSizes"]))

        def read(whole: ir.Value, at: ir.Operation) -> ir.Value:
            return _create("tensor.extract_slice", [kind], [whole, *places], at, named).result

        def write(whole: ir.Value, part: ir.Value, at: ir.Operation) -> ir.Value:
            sizes = {**named, "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, *segments])}
            return _create("tensor.insert_slice", [whole.type], [part, whole, *places], at, sizes).result

        self._view(op, read, write)

    def _reshape_view(self, op: ir.Operation) -> None:
        kind = _tensor_type(op.result.type, op.location, row_major=False)
        if not kind.has_static_shape:
            raise CompileError(
                f"{op.name}: a dynamic reshape of a memref is not supported", locate(op.location)
            )
        groups = {"reassociation": op.attributes["reassociation"]}
        expands = op.name == "memref.expand_shape"

        def reshape(value: ir.Value, to: ir.Type, expand: bool, at: ir.Operation) -> ir.Value:
            if not expand:
                return _create("tensor.collapse_shape", [to], [value], at, groups).result
            shape = {"static_output_shape": ir.DenseI64ArrayAttr.get(ir.RankedTensorType(to).shape)}
            return _create("tensor.expand_shape", [to], [value], at, {**groups, **shape}).result

        self._view(
            op,
            lambda whole, at: reshape(whole, kind, expands, at),
            lambda whole, part, at: reshape(part, whole.type, not expands, at),
        )

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
        _create("func.return", [], values, op)
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


def _output_count(op: ir.Operation) -> int:
    """The number of trailing operands of a linalg operation that it writes."""
    if "operandSegmentSizes" in op.attributes:
        return list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))[-1]
    return len(op.operands) // 2 if op.name == "linalg.reduce" else 1


def _writes(op: ir.Operation) -> list[ir.Value]:
    """The memrefs among the operands of `op` that it writes."""
    if op.name in ("memref.store", "memref.atomic_rmw", "memref.copy", "bufferization.materialize_in_destination"):
        return [op.operands[1]]
    if op.name.startswith("linalg.") and len(op.operands):
        return [value for value in list(op.operands)[-_output_count(op) :] if _is_memref(value.type)]
    return []
