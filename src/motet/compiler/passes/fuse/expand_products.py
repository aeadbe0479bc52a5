"""expand-products: runs a product of collapsed operands, whose result is expanded again, on the expanded shape.

    %x2 = tensor.collapse_shape %x … 4x7x64 into 28x64       %w3 = broadcast of %w
    %p  = product of %x2 and %w, 28x128                →     %g = product of %x and %w, 4x7x128
    %e  = tensor.expand_shape %p … into 4x7x128              … relu of %g
    … relu of %e

The operations that follow then join the kernel of the product, and operands that were broadcast before they were
collapsed are read in place. Frontends collapse the leading dimensions of every product; code generation merges the
loops of a kernel again that access memory consecutively. Element-wise operations between the product and the expansion
run on the expanded shape, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.schema import Expr
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation, reassociation_attribute
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.sizes import extent_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.scheduling.shapes import Shapes

_OWN = ("indexing_maps", "iterator_types", "operandSegmentSizes")


@dataclass(frozen=True)
class ExpandProducts(FunctionPass):
    """A dimension is expanded if the extents of an operand before it was collapsed are those of the result, as
    expressions over the inputs' extents; other dimensions are still expanded after the product."""

    name = "expand-products"

    def run_on(self, function: ir.Operation) -> bool:
        if len(function.regions[0].blocks) != 1:
            return False
        shapes, changed = Shapes(function), False
        for each in list(function.regions[0].blocks[0].operations):
            operation = each.operation
            shapes.note(operation)
            if operation.name == "tensor.expand_shape":
                changed |= _expand_product(operation, shapes)
        if changed:
            erase_unused(function)
        return changed


@dataclass(frozen=True)
class _Extent:
    """The extent of a dimension: a number, or a value available at the expansion; also as an expression."""

    expression: Expr
    value: int | ir.Value


# The dimensions that each dimension of a tensor, or each loop, is split into; None for an unsplit one.
_Split = Mapping[int, Sequence[_Extent]]


def _expand_product(expansion: ir.Operation, shapes: Shapes) -> bool:
    chain = _product_of(expansion.operands[0])
    if chain is None or expansion.operands[0] not in shapes.tensors:
        return False
    extents = _extents(expansion, shapes)
    groups = reassociation(expansion)
    wanted = {axis: [extents[a] for a in group] for axis, group in enumerate(groups) if len(group) > 1}
    product = chain[-1]
    loops = _loops_of(_maps(product)[-1])
    split = {axis: group for axis, group in wanted.items() if _is_collapsed(product, loops[axis], group, shapes)}
    if not split:
        return False
    value = _expanded_operation(chain, split, expansion, shapes)
    first = _first_of(split, len(groups))
    left = {first[axis]: group for axis, group in wanted.items() if axis not in split}
    expansion.results[0].replace_all_uses_with(_expanded(value, left, expansion, shapes))
    return True


def _product_of(value: ir.Value) -> list[ir.Operation] | None:
    """The product that computes `value`, possibly followed by element-wise operations: the operations from the last
    one back to the product, each with the next one as its only reader. None if there is none."""
    operation = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if operation is None or operation.name != "linalg.generic" or len(operation.results) != 1:
        return None
    if len(list(value.uses)) != 1 or not _is_plain(operation):
        return None
    if "reduction" in str(operation.attributes["iterator_types"]):
        return [operation]
    *inputs, output = _maps(operation)
    if output != ir.AffineMap.get_identity(output.n_dims, operation.context):
        return None
    chains = (_product_of(operand) for operand, each in zip(operation.operands, inputs, strict=False) if each == output)
    found = next((chain for chain in chains if chain is not None), None)
    return None if found is None else [operation, *found]


def _is_plain(operation: ir.Operation) -> bool:
    """Whether operands are indexed by loops and numbers alone, results by loops, and the body does not read loop
    indices."""
    maps = _maps(operation)
    indices = [index for each in maps for index in each.results]
    plain = all(isinstance(index, (ir.AffineDimExpr, ir.AffineConstantExpr)) for index in indices)
    return plain and None not in _loops_of(maps[-1]) and all(
        entry.operation.name.startswith(("arith.", "math.", "linalg.yield"))
        for entry in operation.regions[0].blocks[0].operations
    )


def _is_collapsed(product: ir.Operation, loop: int | None, group: Sequence[_Extent], shapes: Shapes) -> bool:
    """Whether an input of `product` is a tensor collapsed along `loop` whose extents were those of `group`."""
    for operand, each in zip(product.operands, _maps(product)[:-1], strict=False):
        if not isinstance(operand.owner, ir.Block) and operand.owner.operation.name == "tensor.collapse_shape":
            collapse = operand.owner.operation
            source = shapes.tensors.get(collapse.operands[0])
            for axis, index in enumerate(_loops_of(each)):
                if index == loop and source is not None:
                    before = [source[a] for a in reassociation(collapse)[axis]]
                    if before == [extent.expression for extent in group]:
                        return True
    return False


def _expanded_operation(
    chain: Sequence[ir.Operation], split: _Split, expansion: ir.Operation, shapes: Shapes
) -> ir.Value:
    """The result of the first operation of `chain`, which depends on the others, with the dimensions in `split`
    split; `split` is over the dimensions of that result."""
    operation, *others = chain
    maps = _maps(operation)
    results = enumerate(_loops_of(maps[-1]))
    of_loops = {loop: split[axis] for axis, loop in results if loop is not None and axis in split}
    first = _first_of(of_loops, maps[0].n_dims)
    operands: list[ir.Value] = []
    for operand, each in zip(operation.operands, maps, strict=True):
        own = {axis: of_loops[loop] for axis, loop in enumerate(_loops_of(each)) if loop in of_loops}
        if others and operand == others[0].results[0]:
            operands.append(_expanded_operation(others, own, expansion, shapes))
        else:
            operands.append(_expanded(operand, own, expansion, shapes))
    context, rank = operation.context, first[maps[0].n_dims]
    new_maps = [
        ir.AffineMap.get(rank, 0, [
            index if loop is None else ir.AffineDimExpr.get(first[loop] + part, context)
            for index, loop in zip(each.results, _loops_of(each), strict=True)
            for part in range(1 if loop is None else len(of_loops.get(loop, (0,))))
        ], context) for each in maps
    ]  # fmt: skip
    kinds = list(ir.ArrayAttr(operation.attributes["iterator_types"]))
    iterators = [kind for loop, kind in enumerate(kinds) for _ in of_loops.get(loop, (0,))]
    attributes = {name: operation.attributes[name] for name in operation.attributes if name not in _OWN}
    made = ir.Operation.create(
        "linalg.generic", results=[operands[-1].type], operands=operands, regions=1,
        attributes={
            **attributes,
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in new_maps], context),
            "iterator_types": ir.ArrayAttr.get(iterators, context),
            "operandSegmentSizes": operation.attributes["operandSegmentSizes"],
        },
        loc=operation.location, ip=ir.InsertionPoint(expansion),
    )  # fmt: skip
    operation.regions[0].blocks[0].append_to(made.regions[0])
    shapes.note(made)
    return made.result


def _expanded(value: ir.Value, split: _Split, expansion: ir.Operation, shapes: Shapes) -> ir.Value:
    """`value` with its dimensions split: its value before it was collapsed, a broadcast to the new shape, or an
    expansion."""
    if not split:
        return value
    operation = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if operation is not None and operation.name == "tensor.collapse_shape":
        source = shapes.tensors.get(operation.operands[0])
        groups = reassociation(operation)
        before = {
            axis: [source[a] for a in group] for axis, group in enumerate(groups) if len(group) > 1
        } if source is not None else None  # fmt: skip
        if before == {axis: [extent.expression for extent in group] for axis, group in split.items()}:
            return operation.operands[0]
    if operation is not None and operation.name == "tensor.empty":
        return _empty(value, split, expansion, shapes)
    if operation is not None and operation.name == "linalg.generic" and _is_broadcast(operation, split):
        return _expanded_copy(operation, split, expansion, shapes)
    return _expansion_of(value, split, expansion, shapes)


def _is_broadcast(operation: ir.Operation, split: _Split) -> bool:
    """Whether no input of an element-wise operation is indexed by the split dimensions."""
    if len(operation.results) != 1 or not _is_plain(operation):
        return False
    *inputs, output = _maps(operation)
    identity = ir.AffineMap.get_identity(output.n_dims, operation.context)
    body = operation.regions[0].blocks[0]
    unread = not list(list(body.arguments)[-1].uses)
    parallel = "reduction" not in str(operation.attributes["iterator_types"])
    return output == identity and unread and parallel and not any(
        loop in split for each in inputs for loop in _loops_of(each)
    )


def _expanded_copy(
    operation: ir.Operation, split: _Split, expansion: ir.Operation, shapes: Shapes
) -> ir.Value:
    # `shapes` does not learn of the copy, which is erased: a later value may have its address, by which it is found.
    copy = operation.clone(ir.InsertionPoint(expansion)).operation
    made = _expanded_operation([copy], split, expansion, shapes)
    copy.erase()
    return made


def _empty(value: ir.Value, split: _Split, expansion: ir.Operation, shapes: Shapes) -> ir.Value:
    operation = value.owner.operation
    kind = ir.RankedTensorType(value.type)
    given = iter(operation.operands)
    sizes: list[ir.Value] = []
    for axis in range(kind.rank):
        own = next(given) if kind.is_dynamic_dim(axis) else None
        if axis in split:
            sizes += [extent.value for extent in split[axis] if not isinstance(extent.value, int)]
        elif own is not None:
            sizes.append(own)
    made = ir.Operation.create(
        "tensor.empty", results=[_split_type(kind, split)], operands=sizes, loc=operation.location,
        ip=ir.InsertionPoint(expansion),
    )
    shapes.note(made)
    return made.result


def _expansion_of(value: ir.Value, split: _Split, expansion: ir.Operation, shapes: Shapes) -> ir.Value:
    kind = ir.RankedTensorType(value.type)
    after = _split_type(kind, split)
    first = _first_of(split, kind.rank)
    at, place = ir.InsertionPoint(expansion), expansion.location
    sizes: list[ir.Value] = []
    with at, place:
        for axis in range(kind.rank):
            if axis in split:
                sizes += [extent.value for extent in split[axis] if not isinstance(extent.value, int)]
            elif kind.is_dynamic_dim(axis):
                sizes.append(extent_of(value, axis))
        groups = [range(first[axis], first[axis + 1]) for axis in range(kind.rank)]
        made = ir.Operation.create(
            "tensor.expand_shape", results=[after], operands=[value, *sizes],
            attributes={
                "reassociation": reassociation_attribute(groups),
                "static_output_shape": ir.DenseI64ArrayAttr.get(list(after.shape)),
            },
        )
    shapes.note(made)
    return made.result


def _extents(expansion: ir.Operation, shapes: Shapes) -> list[_Extent]:
    kind = ir.RankedTensorType(expansion.results[0].type)
    given = iter(list(expansion.operands)[1:])
    return [
        _Extent(expression, next(given) if kind.is_dynamic_dim(axis) else kind.shape[axis])
        for axis, expression in enumerate(shapes.tensors[expansion.results[0]])
    ]


def _split_type(kind: ir.RankedTensorType, split: _Split) -> ir.RankedTensorType:
    unknown = ir.ShapedType.get_dynamic_size()
    shape: list[int] = []
    for axis, extent in enumerate(kind.shape):
        parts = split.get(axis)
        shape += [extent] if parts is None else [p.value if isinstance(p.value, int) else unknown for p in parts]
    return ir.RankedTensorType.get(shape, kind.element_type, loc=ir.Location.unknown(kind.context))


def _first_of(split: _Split, count: int) -> list[int]:
    """The first new dimension of each of `count` dimensions after the split, and the total number."""
    first = [0]
    for axis in range(count):
        first.append(first[-1] + len(split.get(axis, (0,))))
    return first


def _maps(operation: ir.Operation) -> list[ir.AffineMap]:
    return [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(operation.attributes["indexing_maps"])]


def _loops_of(each: ir.AffineMap) -> list[int | None]:
    """The loop of each result; None for a number."""
    return [
        ir.AffineDimExpr(result).position if isinstance(result, ir.AffineDimExpr) else None for result in each.results
    ]
