"""resolve-reshapes: rewrites reshapes to computed extents as merges and splits of dimensions.

    %s = tensor.from_elements %b_times_l, 16        →   %1 = tensor.collapse_shape %x [[0, 1], [2]]
    %1 = tensor.reshape %x(%s)   // of b×l×16

Frontends write this form for dynamic extents. The dimensions to merge and split follow from the extents as expressions
over the inputs' extents: dimensions form a group as soon as their products are equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from motet.artifact.schema import Expr
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation_attribute
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.normalise.reassociation import Monomial, match_groups
from motet.compiler.scheduling.shapes import Shapes


@dataclass(frozen=True)
class ResolveReshapes(FunctionPass):
    """Keeps reshapes to extents that depend on data."""

    name = "resolve-reshapes"

    def run_on(self, function: ir.Operation) -> bool:
        shapes = Shapes(function)
        changed = [
            _visit(each.operation, shapes) for block in function.regions[0].blocks for each in list(block.operations)
        ]
        return any(changed)


def _visit(operation: ir.Operation, shapes: Shapes) -> bool:
    """Resolves an operation, or records the shape of its result in `shapes`."""
    if operation.name == "cf.assert" and shapes.numbers.get(operation.operands[0]) == 1:
        operation.erase()  # an assertion about extents that holds
        return True
    elements = _elements(operation)
    if elements is not None and operation.operands[0] in shapes.tensors:
        target = [shapes.numbers.get(element) for element in elements]
        known = [extent for extent in target if extent is not None]
        if len(known) == len(elements):
            _resolve(operation, operation.operands[0], shapes, known, dict(enumerate(elements)))
            return True
    shapes.note(operation)
    merged = _merged_to_be_split(operation)
    if merged is None or not _falls_apart(merged, operation, shapes):
        return False
    target = list(shapes.tensors[operation.results[0]])
    _resolve(operation, merged.operands[0], shapes, target, _given(operation))
    return True


def _elements(operation: ir.Operation) -> list[ir.Value] | None:
    """The scalars that a reshape takes as extents; None for other operations."""
    if operation.name != "tensor.reshape":
        return None
    shape = operation.operands[1].owner
    if isinstance(shape, ir.Block) or shape.name != "tensor.from_elements":
        return None
    return list(shape.operands)


def _merged_to_be_split(operation: ir.Operation) -> ir.Operation | None:
    """The merge of dimensions that `operation` splits again; None for other operations."""
    if operation.name != "tensor.expand_shape" or isinstance(operation.operands[0].owner, ir.Block):
        return None
    merged = operation.operands[0].owner
    return merged if merged.name == "tensor.collapse_shape" else None


def _given(split: ir.Operation) -> dict[int, ir.Value]:
    kind = ir.RankedTensorType(split.results[0].type)
    dynamic = [axis for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
    return dict(zip(dynamic, list(split.operands)[1:], strict=True))


def _falls_apart(merged: ir.Operation, split: ir.Operation, shapes: Shapes) -> bool:
    """Whether a smaller merge and split suffices."""
    if merged.operands[0] not in shapes.tensors or split.results[0] not in shapes.tensors:
        return False
    source, target = shapes.tensors[merged.operands[0]], shapes.tensors[split.results[0]]
    groups = match_groups([monomial(extent) for extent in source], [monomial(extent) for extent in target])
    return len(groups) > ir.RankedTensorType(split.operands[0].type).rank


def _resolve(
    operation: ir.Operation, source: ir.Value, shapes: Shapes, target: list[Expr], elements: Mapping[int, ir.Value]
) -> None:
    """Replaces it by merges and splits of `source`; `elements` has at least the dynamic extents of the target by
    axis."""
    extents = shapes.tensors[source]
    groups = match_groups([monomial(extent) for extent in extents], [monomial(extent) for extent in target])
    merged = [prod_static([extents[axis] for axis in before]) for before, _ in groups]
    kind = ir.RankedTensorType(operation.results[0].type)
    build = _ReshapeBuilder(operation, kind.element_type)
    value = build.cast(source, build.type(extents))
    if any(len(before) != 1 for before, _ in groups):
        value = build.reassociate("tensor.collapse_shape", value, build.type(merged), [before for before, _ in groups])
    split = [_of_parts([target[axis] for axis in after], own) for (_, after), own in zip(groups, merged, strict=True)]
    value = build.cast(value, build.type(split))
    if any(len(after) != 1 for _, after in groups):
        given = [build.index(elements[axis]) for axis, extent in enumerate(target) if not isinstance(extent, int)]
        value = build.reassociate(
            "tensor.expand_shape", value, build.type(target), [after for _, after in groups], given, target
        )
    result = build.cast(value, kind)
    shapes.tensors[result] = tuple(target)
    operation.results[0].replace_all_uses_with(result)
    operation.erase()


def _of_parts(parts: Sequence[Expr], merged: Expr) -> Expr:
    """The extent of a dimension that is split into `parts`; a number if all of them are."""
    return merged if len(parts) == 1 else prod_static(parts)


class _ReshapeBuilder:
    """Creates operations before an operation."""

    def __init__(self, at: ir.Operation, element: ir.Type) -> None:
        self._at = at
        self._element = element

    def type(self, extents: Sequence[Expr]) -> ir.RankedTensorType:
        sizes = [extent if isinstance(extent, int) else ir.ShapedType.get_dynamic_size() for extent in extents]
        return ir.RankedTensorType.get(sizes, self._element, loc=self._at.location)

    def cast(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        return value if value.type == kind else self._create("tensor.cast", kind, [value], {})

    def index(self, number: ir.Value) -> ir.Value:
        kind = ir.IndexType.get(self._at.context)
        return number if number.type == kind else self._create("arith.index_cast", kind, [number], {})

    def reassociate(
        self, name: str, value: ir.Value, kind: ir.RankedTensorType, groups: Sequence[Sequence[int]],
        given: Sequence[ir.Value] = (), target: Sequence[Expr] = (),
    ) -> ir.Value:
        context = self._at.context
        attributes: dict[str, ir.Attribute] = {"reassociation": reassociation_attribute(groups, context)}
        if name == "tensor.expand_shape":
            sizes = [extent if isinstance(extent, int) else ir.ShapedType.get_dynamic_size() for extent in target]
            attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(sizes, context)
        return self._create(name, kind, [value, *given], attributes)

    def _create(
        self, name: str, kind: ir.Type, operands: list[ir.Value], attributes: dict[str, ir.Attribute]
    ) -> ir.Value:
        return ir.Operation.create(
            name, results=[kind], operands=operands, attributes=attributes, loc=self._at.location,
            ip=ir.InsertionPoint(self._at),
        ).result


def prod_static(extents: Sequence[Expr]) -> Expr:
    """The product of static extents; an expression that is not a number otherwise."""
    numbers = [extent for extent in extents if isinstance(extent, int)]
    if len(numbers) == len(extents):
        return prod(numbers)
    return extents[0] if len(extents) == 1 else "?"


def monomial(extent: Expr) -> Monomial:
    if isinstance(extent, int):
        return Monomial(extent)
    if isinstance(extent, list) and extent[0] == "*":
        return monomial(extent[1]).times(monomial(extent[2]))
    return Monomial(1, ((json.dumps(extent), 1),))
