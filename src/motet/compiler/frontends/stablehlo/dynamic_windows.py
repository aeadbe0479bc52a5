"""Rewrites StableHLO's pads and windows of dynamic extents, which upstream does not lower.

    stablehlo.dynamic_pad %x, %v, %low, %high, %k  →  tensor.insert_slice into %v; tensor.pad; tensor.extract_slice
    stablehlo.reduce_window %x, %v { … }           →  %w = linalg.generic { %padded[i · stride + k · dilation] }
                                                      stablehlo.reduce %w, %v across [k] { … }
    stablehlo.convolution %x, %f                   →  linalg.generic { + %padded[i · stride + k · dilation, c] · %f[k] }

`stablehlo.dynamic_conv` and JAX's custom call `stablehlo.dynamic_reduce_window` are the same with amounts of padding,
and windows, that are computed. An extent is an int if it is constant.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from motet.compiler.frontends.locations import locate
from motet.compiler.frontends.stablehlo.dynamic import Extent, numbers_of
from motet.compiler.frontends.stablehlo.writing import is_static
from motet.compiler.ir import nests
from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.loops import copy_body
from motet.compiler.ir.sizes import constant_index, element_at, extent_of, on_indices
from motet.compiler.operators.pointwise import Read, WindowRead, merged, pointwise, split
from motet.errors import CompileError

_REDUCED = "stablehlo.dynamic_reduce_window"


def write_dynamic_windows(module: ir.Module) -> None:
    """Rewrites the module in place. Raises CompileError for strides and dilations that are not constant."""
    for op in find_operations(module, *_WRITTEN):
        if is_static(op) or (op.name == "stablehlo.custom_call" and _target(op) != _REDUCED):
            continue
        with op.context, op.location, ir.InsertionPoint(op):
            for result, value in zip(op.results, _WRITTEN[op.name](op), strict=True):
                if value.type != result.type:
                    value = create("tensor.cast", result.type, [value])
                result.replace_all_uses_with(value)
        op.erase()


def name_reducers(module: ir.Module) -> None:
    """Makes the functions private that the bodies of dynamic_reduce_window are, so that they are not entry points."""
    for op in find_operations(module, "stablehlo.custom_call"):
        if _target(op) == _REDUCED:
            _reducer(op).operation.attributes["sym_visibility"] = ir.StringAttr.get("private", op.context)


def _target(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["call_target_name"]).value


def _reducer(op: ir.Operation) -> func.FuncOp:
    name = ir.FlatSymbolRefAttr(ir.ArrayAttr(op.attributes["called_computations"])[0]).value
    root = op
    while root.parent is not None:
        root = root.parent
    return next(e for e in root.regions[0].blocks[0].operations if isinstance(e, func.FuncOp) and e.name.value == name)


# -- extents ---------------------------------------------------------------------------------------

_ON_INTS: Mapping[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add, "arith.subi": operator.sub, "arith.muli": operator.mul,
    "arith.floordivsi": operator.floordiv, "arith.maxsi": max, "arith.minsi": min,
}  # fmt: skip


def _on(name: str, a: Extent, b: Extent) -> Extent:
    if isinstance(a, int) and isinstance(b, int):
        return _ON_INTS[name](a, b)
    return on_indices(name, *(constant_index(value) if isinstance(value, int) else value for value in (a, b)))


def _sum(*terms: Extent) -> Extent:
    total: Extent = 0
    for term in terms:
        total = term if total == 0 else total if term == 0 else _on("arith.addi", total, term)
    return total


def _extents(tensor: ir.Value) -> list[Extent]:
    shape = ir.RankedTensorType(tensor.type).shape
    return [extent_of(tensor, axis) if size == DYNAMIC else size for axis, size in enumerate(shape)]


def _static(values: Sequence[Extent]) -> list[int]:
    return [value if isinstance(value, int) else DYNAMIC for value in values]


def _dynamic(values: Sequence[Extent]) -> list[ir.Value]:
    return [value for value in values if not isinstance(value, int)]


def _type(extents: Sequence[Extent], like: ir.Value) -> ir.RankedTensorType:
    return ir.RankedTensorType.get(_static(extents), ir.RankedTensorType(like.type).element_type)


def _spread(extent: Extent, step: Extent) -> Extent:
    """How far `extent` elements reach, each `step` after the last."""
    if step == 1:
        return extent
    last = _on("arith.muli", _sum(extent, -1), step)
    return _on("arith.maxsi", _sum(last, 1), 0)


def _steps(extent: Extent, reach: Extent, stride: int) -> Extent:
    """How many windows that reach over `reach` elements begin in `extent`."""
    last = _on("arith.floordivsi", _on("arith.subi", extent, reach), stride)
    return _on("arith.maxsi", _sum(last, 1), 0)


# -- pads ------------------------------------------------------------------------------------------


def _slice(
    name: str,
    kind: ir.Type,
    tensors: Sequence[ir.Value],
    offsets: Sequence[Extent],
    sizes: Sequence[Extent],
    strides: Sequence[Extent],
) -> ir.Value:
    parts = {"static_offsets": offsets, "static_sizes": sizes, "static_strides": strides}
    counts = [*[1] * len(tensors), *(len(_dynamic(values)) for values in parts.values())]
    return create(name, kind, [*tensors, *(value for values in parts.values() for value in _dynamic(values))], {
        **{side: ir.DenseI64ArrayAttr.get(_static(values)) for side, values in parts.items()},
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get(counts),
    })  # fmt: skip


def _padded(
    x: ir.Value, value: ir.Value, low: Sequence[Extent], high: Sequence[Extent], steps: Sequence[Extent]
) -> ir.Value:
    """`x`, its elements `steps` apart, between `low` and `high` times the scalar `value`; negative amounts crop."""
    extents, rank = _extents(x), len(low)
    if any(step != 1 for step in steps):
        spread = [_spread(extent, step) for extent, step in zip(extents, steps, strict=True)]
        kind = _type(spread, x)
        into = pointwise(kind, _dynamic(spread), [Read(value, ())], lambda values, _: values[0])
        x, extents = _slice("tensor.insert_slice", kind, [x, into], [0] * rank, extents, steps), spread
    before, after = ([_on("arith.maxsi", amount, 0) for amount in side] for side in (low, high))
    grown = [_sum(*terms) for terms in zip(before, extents, after, strict=True)]
    if any(amount != 0 for amount in (*before, *after)):
        element = element_at(value, [])
        made = ir.Operation.create(
            "tensor.pad",
            results=[_type(grown, x)],
            operands=[x, *_dynamic(before), *_dynamic(after)],
            regions=1,
            attributes={
                "static_low": ir.DenseI64ArrayAttr.get(_static(before)),
                "static_high": ir.DenseI64ArrayAttr.get(_static(after)),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(_dynamic(before)), len(_dynamic(after))]),
            },
        )
        block = made.regions[0].blocks.append(*[ir.IndexType.get()] * rank, arg_locs=[made.location] * rank)
        with ir.InsertionPoint(block):
            ir.Operation.create("tensor.yield", operands=[element])
        x = made.results[0]
    if before == list(low) and after == list(high):
        return x
    sizes = [_on("arith.maxsi", _sum(*terms), 0) for terms in zip(low, extents, high, strict=True)]
    removed = [_on("arith.subi", more, amount) for more, amount in zip(before, low, strict=True)]
    # An empty slice, too, begins inside its source.
    offsets = [_on("arith.minsi", amount, most) for amount, most in zip(removed, grown, strict=True)]
    return _slice("tensor.extract_slice", _type(sizes, x), [x], offsets, sizes, [1] * rank)


def _pad(op: ir.Operation) -> list[ir.Value]:
    x, value, *given = op.operands
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (
        [numbers_of(one) for one in given]
        if given
        else [list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in names]
    )
    return [_padded(x, value, low, high, [_sum(amount, 1) for amount in interior])]


# -- windows ---------------------------------------------------------------------------------------


def _attribute(op: ir.Operation, name: str, count: int, missing: int = 1) -> list[int]:
    if name not in op.attributes:
        return [missing] * count
    if isinstance(values := op.attributes[name], ir.DenseIntElementsAttr):
        return [values[number] for number in range(count)]
    return [int(value) for value in values]


def _constants(op: ir.Operation, what: str, values: Sequence[Extent]) -> list[int]:
    if _dynamic(values):
        raise CompileError(
            f"{_target(op)}: the {what} depend on symbolic extents; expected constants, for each of which the function "
            "is to be exported once", locate(op.location),
        )  # fmt: skip
    return _static(values)


def _reduce_window(op: ir.Operation) -> list[ir.Value]:
    count = len(op.results)
    inputs, initial = list(op.operands)[:count], list(op.operands)[count : 2 * count]
    rank = ir.RankedTensorType(inputs[0].type).rank
    if op.name == "stablehlo.custom_call":
        window, strides, steps, dilations, pads = (numbers_of(value) for value in list(op.operands)[2 * count :])
        body = _reducer(op).regions[0].blocks[0]
    else:
        names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
        window, strides, steps, dilations = (_attribute(op, name, rank) for name in names)
        pads, body = _attribute(op, "padding", 2 * rank, 0), op.regions[0].blocks[0]
    strides, dilations = _constants(op, "strides", strides), _constants(op, "dilations of windows", dilations)
    taken = [axis for axis in range(rank) if window[axis] != 1] or [0]
    windows: list[ir.Value] = []
    results: list[ir.Type] = []
    for x, value in zip(inputs, initial, strict=True):
        image = _padded(x, value, pads[::2], pads[1::2], steps)
        sizes = [
            _steps(extent, _spread(window[axis], dilations[axis]), strides[axis])
            for axis, extent in enumerate(_extents(image))
        ]
        results.append(_type(sizes, x))
        sizes += [window[axis] for axis in taken]
        places = [{axis: strides[axis]} for axis in range(rank)]
        for loop, axis in enumerate(taken, rank):
            places[axis][loop] = dilations[axis]
        kind = _type(sizes, x)
        windows.append(pointwise(kind, _dynamic(sizes), [WindowRead(image, places)], lambda values, _: values[0]))
    made = ir.Operation.create(
        "stablehlo.reduce", results=results, operands=[*windows, *initial], regions=1,
        attributes={"dimensions": ir.DenseI64ArrayAttr.get(list(range(rank, rank + len(taken))))},
    )  # fmt: skip
    block = made.regions[0].blocks.append(
        *(argument.type for argument in body.arguments), arg_locs=[op.location] * len(body.arguments)
    )
    with ir.InsertionPoint(block):
        ir.Operation.create("stablehlo.return", operands=copy_body(body, list(block.arguments)))
    return list(made.results)


# -- convolutions ----------------------------------------------------------------------------------


def _convolution(op: ir.Operation) -> list[ir.Value]:
    kind = ir.RankedTensorType(op.results[0].type)
    lhs, rhs, out = (
        found.split(", ") for found in re.findall(r"\[([^\]]*)\]", str(op.attributes["dimension_numbers"]))
    )
    count = kind.rank - 2
    strides, steps, dilations = (
        {str(at): number for at, number in enumerate(_attribute(op, name, count))}
        for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    image, filters = (_in_type_of(op.results[0], value) for value in list(op.operands)[:2])
    if turned := [rhs.index(str(at)) for at, on in enumerate(_attribute(op, "window_reversal", count, 0)) if on]:
        dims = {"dimensions": ir.DenseI64ArrayAttr.get(turned)}
        filters = create("stablehlo.reverse", filters.type, [filters], dims)
    pads = numbers_of(op.operands[2]) if len(op.operands) == 3 else _attribute(op, "padding", 2 * count, 0)
    low, high = ([pads[2 * int(name) + side] if name in strides else 0 for name in lhs] for side in range(2))
    image = _padded(image, _zero(image), low, high, [steps.get(name, 1) for name in lhs])
    for attribute, axis in (("feature_group_count", "f"), ("batch_group_count", "b")):
        if (groups := ir.IntegerAttr(op.attributes[attribute]).value) > 1:
            image, filters = _grouped(image, lhs, axis, groups), _grouped(filters, rhs, "o", groups)
            out.insert(out.index("f"), "g")
    made = _products((image, filters), (lhs, rhs, out), strides, dilations)
    made = merged(made, out.index("g"), 2) if "g" in out else made
    signed = ir.RankedTensorType(made.type).element_type == kind.element_type
    return [made if signed else create("stablehlo.bitcast_convert", _with(made, kind.element_type), [made])]


def _products(
    operands: tuple[ir.Value, ir.Value], names: tuple[list[str], list[str], list[str]], strides: Mapping[str, int],
    dilations: Mapping[str, int],
) -> ir.Value:
    """The sums of products, by one loop for each dimension of the result, then one for each of the filters' that is
    summed over. `names` are StableHLO's of the dimensions of the image, the filters and the result; groups are `g`."""
    lhs, rhs, out = names
    own, window = (
        dict(zip(labels, _extents(tensor), strict=True)) for labels, tensor in zip((lhs, rhs), operands, strict=True)
    )
    sizes = {"b": own["b"], "f": window["o"], "g": own.get("g", 1)} | {
        name: _steps(own[name], _spread(window[name], dilations[name]), stride) for name, stride in strides.items()
    }
    loops = {name: at for at, name in enumerate([*out, *(f"k{name}" for name in strides), "i"])}
    slid = {name: {loops[name]: stride, loops[f"k{name}"]: dilations[name]} for name, stride in strides.items()}
    places = slid | {"b": {loops["b"]: 1}, "f": {loops["i"]: 1}, "g": {loops.get("g", 0): 1}}
    inner = {name: {loops[f"k{name}"]: 1} for name in strides}
    inner |= {"i": {loops["i"]: 1}, "o": {loops["f"]: 1}, "g": places["g"]}
    extents = [sizes[name] for name in out]
    result = _type(extents, operands[0])
    begun = pointwise(result, _dynamic(extents), [Read(_zero(operands[0]), ())], lambda values, _: values[0])
    reads = [
        WindowRead(operands[0], [places[name] for name in lhs]), WindowRead(operands[1], [inner[name] for name in rhs]),
        Read(begun, range(len(out))),
    ]  # fmt: skip
    maps = [ir.AffineMap.get(len(loops), 0, read.places()) for read in reads]
    element = result.element_type
    family = _FAMILIES.get(type(element), "arith.{}f")

    def body(block: ir.Block) -> ir.Value:
        a, b, total = block.arguments
        return create(family.format("add"), element, [total, create(family.format("mul"), element, [a, b])])

    return nests.loops([read.tensor for read in reads[:2]], begun, maps, body)


_FAMILIES = {ir.IntegerType: "arith.{}i", ir.ComplexType: "complex.{}"}


def _zero(like: ir.Value) -> ir.Value:
    element = ir.RankedTensorType(like.type).element_type
    number = {ir.IntegerType: "0", ir.ComplexType: "(0.0, 0.0)"}.get(type(element), "0.0")
    value = ir.Attribute.parse(f"dense<{number}> : tensor<{element}>")
    return create("arith.constant", ir.RankedTensorType.get([], element), [], {"value": value})


def _with(tensor: ir.Value, element: ir.Type) -> ir.RankedTensorType:
    return ir.RankedTensorType.get(ir.RankedTensorType(tensor.type).shape, element)


def _in_type_of(result: ir.Value, value: ir.Value) -> ir.Value:
    """`value` in the element type of `result`, without sign."""
    element = ir.RankedTensorType(result.type).element_type
    if element != ir.RankedTensorType(value.type).element_type:
        value = create("stablehlo.convert", _with(value, element), [value])
    if isinstance(element, ir.IntegerType) and element.is_unsigned:
        signless = ir.IntegerType.get_signless(element.width)
        value = create("stablehlo.bitcast_convert", _with(value, signless), [value])
    return value


def _grouped(tensor: ir.Value, names: list[str], axis: str, groups: int) -> ir.Value:
    """`tensor` with the dimension `axis` split into `g`, which is inserted into `names`, and what is in each group."""
    at, extents = names.index(axis), _extents(tensor)
    names.insert(at, "g")
    extents[at : at + 1] = [groups, _on("arith.floordivsi", extents[at], groups)]
    return split(tensor, _type(extents, tensor), at, 2, _dynamic(extents))


_WRITTEN: Mapping[str, Callable[[ir.Operation], list[ir.Value]]] = {
    "stablehlo.pad": _pad, "stablehlo.dynamic_pad": _pad,
    "stablehlo.convolution": _convolution, "stablehlo.dynamic_conv": _convolution,
    "stablehlo.reduce_window": _reduce_window, "stablehlo.custom_call": _reduce_window,
}  # fmt: skip
