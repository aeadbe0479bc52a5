"""Operators that only move elements: transpose, reshape, broadcast, pad, concat, slice.

Functions raise CompileError, with the shapes, for operands that do not fit.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Sequence
from typing import Any

from motet.builder.operation import Operation, literal
from motet.builder.tensor import Dim, GraphText, Shape, Tensor, shape_text, type_text


def transpose(x: Any, permutation: Sequence[int] | None = None, device: str | None = None) -> Tensor:
    """Axis i of the result is axis `permutation[i]` of x; without a permutation all axes are reversed."""
    op = Operation("transpose", device, x)
    tensor = op.tensor(x)
    order = (
        list(range(tensor.rank))[::-1]
        if permutation is None
        else [op.axis(a, tensor.rank) for a in permutation]
    )
    if sorted(order) != list(range(tensor.rank)):
        raise op.error(
            f"permutation {list(permutation or [])} of {shape_text(tensor.shape)}; expected each axis once"
        )
    if order == list(range(tensor.rank)):
        return tensor
    shape = tuple(tensor.shape[axis] for axis in order)
    out = op.empty(shape, tensor.dtype)
    return op.value(
        f"linalg.transpose ins({tensor.name} : {tensor.type}) outs({out.name} : {out.type}) "
        f"permutation = {order} @@",
        shape,
        tensor.dtype,
    )


def broadcast_to(x: Any, shape: Sequence[Dim], device: str | None = None) -> Tensor:
    """x repeated along new axes, and along those of extent 1, by numpy's rules."""
    op = Operation("broadcast_to", device, x)
    tensor, target = op.tensor(x), tuple(shape)
    _known(op, target)
    fits = tensor.rank <= len(target) and all(
        have in (1, want) for have, want in zip(tensor.shape[::-1], target[::-1], strict=False)
    )
    if not fits:
        raise op.error(f"{shape_text(tensor.shape)} does not broadcast to {shape_text(target)}")
    if tensor.shape == target:
        return tensor
    offset = len(target) - tensor.rank
    reads = ", ".join(
        f"d{axis + offset}" if extent == target[axis + offset] else "0"
        for axis, extent in enumerate(tensor.shape)
    )
    dims = ", ".join(f"d{i}" for i in range(len(target)))
    return op.generic(
        [tensor],
        [reads],
        op.empty(target, tensor.dtype),
        dims,
        ["parallel"] * len(target),
        lambda body: body.inputs[0],
    )


def _known(op: Operation, shape: Shape) -> None:
    """Checks that names of extents come from an input of the graph."""
    for extent in shape:
        if isinstance(extent, str):
            try:
                op.graph.extent(extent)
            except KeyError:
                raise op.error(
                    f"extent {extent!r} is unknown; expected an int, or the name of an input's extent"
                ) from None


# -- reshape ---------------------------------------------------------------------------------------


def reshape(x: Any, shape: Sequence[Dim], device: str | None = None) -> Tensor:
    """The same elements, in row-major order, as `shape`; one extent may be -1, which is then inferred."""
    op = Operation("reshape", device, x)
    tensor = op.tensor(x)
    target = _resolve(op, tensor, tuple(shape))
    _known(op, target)
    if _product(op.graph, tensor.shape) != _product(op.graph, target):
        raise op.error(
            f"{shape_text(tensor.shape)} has not as many elements as {shape_text(target)}; "
            "expected equal products"
        )
    if target == tensor.shape:
        return tensor
    groups = _groups(op.graph, tensor.shape, target)
    middle = tuple(_extent_of(op.graph, [tensor.shape[axis] for axis in source]) for source, _ in groups)
    value = tensor
    if len(middle) != tensor.rank:
        text = f"tensor.collapse_shape {value.name} {_reassociation([s for s, _ in groups])} @@"
        value = op.value(
            f"{text} : {value.type} into {type_text(middle, tensor.dtype)}", middle, tensor.dtype
        )
    if len(middle) != len(target):
        extents = ", ".join(op.graph.extent(e) if isinstance(e, str) else str(e) for e in target)
        axes = _reassociation([t for _, t in groups])
        text = f"tensor.expand_shape {value.name} {axes} output_shape [{extents}] @@"
        return op.value(f"{text} : {value.type} into {type_text(target, tensor.dtype)}", target, tensor.dtype)
    return Tensor(op.graph, value.name, target, tensor.dtype)


def _resolve(op: Operation, tensor: Tensor, shape: Shape) -> Shape:
    """`shape` with its -1 computed."""
    unknown = [axis for axis, extent in enumerate(shape) if extent == -1]
    if not unknown:
        return shape
    if len(unknown) > 1:
        raise op.error(f"shape {shape_text(shape)}: -1 stands twice; expected it once at most")
    number, names = _product(op.graph, tensor.shape)
    others, other_names = _product(op.graph, [extent for extent in shape if extent != -1])
    missing = Counter(names)
    missing.subtract(other_names)
    if others == 0 or number % others or any(count < 0 for count in missing.values()):
        raise op.error(
            f"{shape_text(tensor.shape)} cannot be {shape_text(shape)}: no whole extent is left for -1"
        )
    extent: Dim = 1
    for name in missing.elements():
        extent = op.graph.derive("*", extent, name)
    extent = op.graph.derive("*", extent, number // others)
    return (*shape[: unknown[0]], extent, *shape[unknown[0] + 1 :])


def _factors(graph: GraphText, extent: Dim) -> tuple[int, tuple[str, ...]]:
    """An extent as a number times names: derived products (`(a*4)`) are factored."""
    if isinstance(extent, int):
        return extent, ()
    if extent.startswith("(") and "*" in extent:
        depth = 0
        for i, char in enumerate(extent):
            depth += (char == "(") - (char == ")")
            if char == "*" and depth == 1:
                left, right = extent[1:i], extent[i + 1 : -1]
                return _product(graph, [int(e) if e.isdigit() else e for e in (left, right)])
    return 1, (extent,)


def _product(graph: GraphText, shape: Sequence[Dim]) -> tuple[int, tuple[str, ...]]:
    number, names = 1, list[str]()
    for extent in shape:
        factor, more = _factors(graph, extent)
        number *= factor
        names += more
    return number, tuple(sorted(names))


def _extent_of(graph: GraphText, extents: Sequence[Dim]) -> Dim:
    result: Dim = 1
    for extent in extents:
        result = graph.derive("*", result, extent)
    return result


def _groups(graph: GraphText, source: Shape, target: Shape) -> list[tuple[list[int], list[int]]]:
    """The finest runs of source and target axes with equal products, in order."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) and j < len(target):
        left, right = [i], [j]
        i, j = i + 1, j + 1
        while (a := _product(graph, [source[k] for k in left])) != (
            b := _product(graph, [target[k] for k in right])
        ):
            # Grow the side that lacks factors; zero extents, and names in another order, end up in one group.
            grow_left = i < len(source) and (j == len(target) or (len(a[1]), a[0]) <= (len(b[1]), b[0]))
            if grow_left:
                left.append(i)
                i += 1
            else:
                right.append(j)
                j += 1
        groups.append((left, right))
    if not groups:  # from or to rank 0: all extents are 1
        return []
    groups[-1][0].extend(range(i, len(source)))  # the remaining extents are 1
    groups[-1][1].extend(range(j, len(target)))
    return groups


def _reassociation(groups: Sequence[Sequence[int]]) -> str:
    return str([list(group) for group in groups])


# -- pad, concat, slice ----------------------------------------------------------------------------


def pad(
    x: Any, low: Sequence[int], high: Sequence[int], value: float = 0.0, device: str | None = None
) -> Tensor:
    """x with `low[i]` elements before and `high[i]` after axis i, all equal to `value`."""
    op = Operation("pad", device, x)
    tensor = op.tensor(x)
    if len(low) != tensor.rank or len(high) != tensor.rank or any(amount < 0 for amount in (*low, *high)):
        raise op.error(
            f"low {list(low)} and high {list(high)} for {shape_text(tensor.shape)}; "
            "expected a non-negative number per axis"
        )
    if not any((*low, *high)):
        return tensor
    shape = tuple(
        op.graph.derive("+", extent, before + after)
        for extent, before, after in zip(tensor.shape, low, high, strict=True)
    )
    scalar = op.graph.scalar(literal(value, tensor.dtype), tensor.dtype)
    indices = ", ".join(f"%i{axis}: index" for axis in range(tensor.rank))
    return op.value(
        f"tensor.pad {tensor.name} low{list(low)} high{list(high)} {{\n    ^bb0({indices}):\n"
        f"      tensor.yield {scalar} : {tensor.dtype}\n    }} @@ : "
        f"{tensor.type} to {type_text(shape, tensor.dtype)}",
        shape,
        tensor.dtype,
    )


def concat(tensors: Sequence[Any], axis: int = 0, device: str | None = None) -> Tensor:
    """The concatenation of tensors along `axis`; their other extents must be equal."""
    op = Operation("concat", device, *tensors)
    parts = op.tensors(*tensors)
    along = op.axis(axis, parts[0].rank)
    extent: Dim = 0
    for part in parts:
        rest = [e for i, e in enumerate(part.shape) if i != along]
        if part.rank != parts[0].rank or rest != [e for i, e in enumerate(parts[0].shape) if i != along]:
            raise op.error(
                f"shapes {shape_text(parts[0].shape)} and {shape_text(part.shape)} differ "
                f"outside axis {along}; expected equal extents there"
            )
        extent = op.graph.derive("+", extent, part.shape[along])
    shape = (*parts[0].shape[:along], extent, *parts[0].shape[along + 1 :])
    return op.value(
        f"tensor.concat dim({along}) {', '.join(p.name for p in parts)} @@ : "
        f"({', '.join(p.type for p in parts)}) -> {type_text(shape, parts[0].dtype)}",
        shape,
        parts[0].dtype,
    )


def slice(
    x: Any,
    starts: Sequence[int],
    stops: Sequence[int | None],
    steps: Sequence[int] | None = None,
    device: str | None = None,
) -> Tensor:
    """Elements `starts[i]`, `starts[i] + steps[i]`, … below `stops[i]` of axis i, for the leading axes.

    On axes of static extent, negative numbers count from the end and stops are clamped; `None` is the
    end. On axes of dynamic extent starts and steps are literal, and a stop must not exceed the
    extent.
    """
    op = Operation("slice", device, x)
    tensor = op.tensor(x)
    strides = list(steps) if steps is not None else [1] * len(starts)
    if not len(starts) == len(stops) == len(strides) <= tensor.rank:
        raise op.error(
            f"{len(starts)} starts, {len(stops)} stops, {len(strides)} steps for {shape_text(tensor.shape)}; "
            "expected as many of each, at most one per axis"
        )
    offsets: list[int] = []
    shape: list[Dim] = []
    for axis, extent in enumerate(tensor.shape):
        if axis >= len(starts):
            offsets.append(0)
            strides.append(1)
            shape.append(extent)
            continue
        if strides[axis] < 1:
            raise op.error(f"step {strides[axis]} on axis {axis}; expected a positive number")
        start, size = _range(op, axis, extent, starts[axis], stops[axis], strides[axis])
        offsets.append(start)
        shape.append(size)
    sizes = ", ".join(op.graph.extent(e) if isinstance(e, str) else str(e) for e in shape)
    result = tuple(shape)
    return op.value(
        f"tensor.extract_slice {tensor.name}{offsets} [{sizes}] {strides} @@ : "
        f"{tensor.type} to {type_text(result, tensor.dtype)}",
        result,
        tensor.dtype,
    )


def _range(op: Operation, axis: int, extent: Dim, start: int, stop: int | None, step: int) -> tuple[int, Dim]:
    """The offset and size of a slice of one axis."""
    if isinstance(extent, int):
        begin, end, _ = builtins.slice(start, stop).indices(extent)
        return begin, max(0, -(-(end - begin) // step))
    if start < 0 or (stop is not None and stop < 0):
        raise op.error(
            f"axis {axis} has the dynamic extent {extent}; expected a start and stop that are not negative"
        )
    if stop is not None:
        return start, max(0, -(-(stop - start) // step))
    length = op.graph.derive("-", extent, start)
    return start, op.graph.derive("//", op.graph.derive("+", length, step - 1), step)


def index(x: Tensor, key: Any) -> Tensor:
    """`x[key]` with integers, slices with positive steps, `...` and `None` (a new axis of extent 1)."""
    op = Operation("index", None, x)
    keys = list(key) if isinstance(key, tuple) else [key]
    consumed = sum(k is not None and k is not Ellipsis for k in keys)
    if consumed > x.rank:
        raise op.error(f"{consumed} indices for {shape_text(x.shape)}; expected {x.rank} at most")
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [builtins.slice(None)] * (x.rank - consumed)
    starts, stops, steps = list[int](), list["int | None"](), list[int]()
    for k in keys:
        if isinstance(k, builtins.slice):
            starts.append(k.start or 0)
            stops.append(k.stop)
            steps.append(k.step if k.step is not None else 1)
        elif isinstance(k, int) and not isinstance(k, bool):
            axis = len(starts)
            extent = x.shape[axis]
            if isinstance(extent, int) and not -extent <= k < extent:
                raise op.error(
                    f"index {k} on axis {axis} of {shape_text(x.shape)}; expected {-extent} to {extent - 1}"
                )
            starts.append(k)
            stops.append(k + 1 if k != -1 else None)
            steps.append(1)
        elif k is not None:
            raise op.error(f"index {k!r}; expected integers, slices, ... and None")
    sliced = slice(x, starts, stops, steps)
    shape: list[Dim] = []
    axis = 0
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        if isinstance(k, builtins.slice):
            shape.append(sliced.shape[axis])
        axis += 1
    return reshape(sliced, [*shape, *sliced.shape[axis:]])
