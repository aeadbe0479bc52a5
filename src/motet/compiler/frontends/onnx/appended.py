"""Gives what the iterations of a Scan append the extent that their number has.

    %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %one) {        %new = tensor.empty(%n) : tensor<?x2xf32>
      …                                                                %r = scf.for … iter_args(%a = %new) {
      tensor.insert_slice %o into %a[%j, 0] [1, 2] [1, 1]         →      tensor.insert_slice %o into %a[%i, 0] …
    } -> tensor<1x2xf32>                                               } -> tensor<?x2xf32>
    tensor.cast %r : tensor<1x2xf32> to tensor<?x2xf32>

torch-mlir's wheel makes room for one slice where their number is not known.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.create import create, index_constant
from motet.compiler.ir.find import find_operations


def give_room(module: ir.Module) -> None:
    """Rewrites the loops of a module in place."""
    for loop in find_operations(module, "scf.for"):
        for number in range(len(loop.results)):
            insertion = _appending(loop, number)
            if insertion is not None:
                _give_room(loop, number, insertion)


def _appending(loop: ir.Operation, number: int) -> ir.Operation | None:
    """The insertion of an iteration's slice into result `number`, if that has room for one, and its readers expect any
    number."""
    kind = loop.results[number].type
    if not isinstance(kind, ir.RankedTensorType) or not kind.rank:
        return None
    begin = _uncast(loop.operands[3 + number]).type
    if begin.is_dynamic_dim(0) or begin.shape[0] != 1:
        return None
    readers = [use.owner for use in loop.results[number].uses]
    if not kind.is_dynamic_dim(0) and not (readers and all(_is_of_any_length(each.operation) for each in readers)):
        return None
    block = loop.regions[0].blocks[0]
    made = list(block.operations)[-1].operation.operands[number].owner
    if isinstance(made, ir.Block) or made.name != "tensor.insert_slice":
        return None
    offsets = ir.DenseI64ArrayAttr(made.attributes["static_offsets"])
    dynamic = offsets[0] == ir.ShapedType.get_dynamic_stride_or_offset()
    return made if dynamic and made.operands[1] == block.arguments[1 + number] else None


def _uncast(value: ir.Value) -> ir.Value:
    made = value.owner
    return value if isinstance(made, ir.Block) or made.name != "tensor.cast" else made.operands[0]


def _is_of_any_length(reader: ir.Operation) -> bool:
    return reader.name == "tensor.cast" and ir.RankedTensorType(reader.result.type).is_dynamic_dim(0)


def _give_room(loop: ir.Operation, number: int, insertion: ir.Operation) -> None:
    before = loop.operands[3 + number]
    kind = ir.RankedTensorType(before.type)
    rest = range(1, kind.rank)
    dynamic = [d for d in rest if kind.is_dynamic_dim(d)]
    index = ir.IndexType.get()
    extents = [create("tensor.dim", [index], [before, index_constant(d, loop)], loop).result for d in dynamic]
    unknown = ir.ShapedType.get_dynamic_size()
    shape = [unknown, *(unknown if d in dynamic else kind.shape[d] for d in rest)]
    room = ir.RankedTensorType.get(shape, kind.element_type)
    loop.operands[3 + number] = create("tensor.empty", [room], [loop.operands[1], *extents], loop).result
    counter, *carried = loop.regions[0].blocks[0].arguments
    insertion.operands[2] = counter
    for value in (carried[number], insertion.result, loop.results[number]):
        value.set_type(room)
