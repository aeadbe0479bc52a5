"""Chooses the physical order of the dimensions of intermediate tensors.

Convolutions are fastest on channels-last data. A convolution's result is stored channels-last, and so are results of
element-wise and pooling kernels on it, as long as all readers support that: function results, reshapes that would split
channels, and kernels on the generic path need row-major data. A transposition before a convolution keeps the layout of
its source; if it then moves no data, as at the borders of a function whose images are channels-last, it becomes a new
name for the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation
from motet.compiler.kernels.kernel import Access, Kernel, Stage, row_major
from motet.compiler.kernels.roles import ALIASES
from motet.compiler.kernels.strides import Extent, memory_strides
from motet.compiler.kernels.windows import is_windowed

Order = tuple[int, ...]


def choose_orders(
    block: ir.Block, kernels: Mapping[str, Kernel], row_major_only: frozenset[str]
) -> dict[ir.Value, Order]:
    """The physical order of every tensor of a public function that is not row-major. `kernels` are the readable kernels
    by name; those in `row_major_only` have row-major arguments and results only."""
    orders: dict[ir.Value, Order] = {}
    for entry in block.operations:
        operation = entry.operation
        if operation.name in ALIASES and operation.operands[0] in orders:
            order = alias_order(operation, orders[operation.operands[0]])
            if order is not None and order != row_major(len(order)):
                orders[operation.results[0]] = order
        elif operation.name == "func.call":
            name = callee(operation)
            if name in kernels and name not in row_major_only:
                _choose_results(operation, kernels[name], kernels, row_major_only, orders)
    return orders


def _choose_results(
    call: ir.Operation,
    kernel: Kernel,
    kernels: Mapping[str, Kernel],
    row_major_only: frozenset[str],
    orders: dict[ir.Value, Order],
) -> None:
    results = [number for number, value in enumerate(kernel.values) if value.role == "result"]
    for result, number in zip(call.results, results, strict=True):
        order = _wanted(kernel, call, number, orders, kernels)
        if order is None or order == row_major(len(order)):
            continue
        if all(_accepts(use.owner.operation, order, kernels, row_major_only) for use in result.uses):
            orders[result] = order


def _wanted(
    kernel: Kernel, call: ir.Operation, result: int, orders: Mapping[ir.Value, Order], kernels: Mapping[str, Kernel]
) -> Order | None:
    """The order of the value `result` that is best for a kernel; None: row-major."""
    rank = kernel.values[result].rank
    for stage in kernel.stages:
        channel = output_channel(stage)
        if channel is not None and len(stage.outputs[0].map) == rank:
            return channels_last(rank, channel)
    for value, argument in enumerate(kernel.arguments):
        order = orders.get(call.operands[argument])
        if order is not None and len(order) == rank:
            return _as_written(kernel, value, result, order)
    if _is_movement(kernel) and _convolved(call, kernels):
        return _as_written(kernel, 0, result, row_major(rank))
    return None


def _is_movement(kernel: Kernel) -> bool:
    """Whether a kernel only moves elements from its one argument to its one result."""
    if len(kernel.stages) != 1:
        return False
    stage = kernel.stages[0]
    return (
        len(kernel.values) == 2 and kernel.values[0].dtype == kernel.values[1].dtype and len(stage.inputs) == 1
        and not stage.body and not stage.reductions and stage.inputs[0].padding is None
    )


def _convolved(call: ir.Operation, kernels: Mapping[str, Kernel]) -> bool:
    """Whether a convolution reads the result of a call."""
    users = [use.owner.operation for result in call.results for use in result.uses]
    readers = [kernels[callee(user)] for user in users if user.name == "func.call" and callee(user) in kernels]
    return any(output_channel(stage) is not None for kernel in readers for stage in kernel.stages) or any(
        _convolved(user, kernels) for user in users if user.name in ALIASES
    )


def is_renaming(kernel: Kernel) -> bool:
    """Whether a kernel's result has the same elements in memory as its argument."""
    if not _is_movement(kernel):
        return False
    stage = kernel.stages[0]
    strides: list[list[Extent]] = []
    for access in (*stage.inputs, *stage.outputs):
        value = kernel.values[access.value]
        axes = {entry.single: axis for axis, entry in enumerate(access.map) if entry.single is not None}
        walked = [d for d, size in enumerate(stage.sizes) if size != 1]
        if any(d not in axes or value.shape[axes[d]] != stage.sizes[d] for d in walked):
            return False
        if any(size != 1 and axis not in axes.values() for axis, size in enumerate(value.shape)):
            return False
        own = memory_strides(value)
        strides.append([own[axes[d]] for d in walked])
    return strides[0] == strides[1]


def _as_written(kernel: Kernel, argument: int, result: int, order: Order) -> Order:
    """`order` of an argument as it is passed on to a result of the same rank: transpositions on the way change it.
    Axes of extent 1 that no loop walks along are matched in order."""
    axes: dict[int, list[int | None]] = {argument: list(range(len(order)))}  # of the argument, by value
    for stage in kernel.stages:
        along: dict[int, int] = {}
        for access in stage.inputs:
            for entry, axis in zip(access.map, axes.get(access.value, ()), strict=False):
                running = [d for d in entry.dims if stage.iterators[d] == "parallel"]
                if axis is not None and len(running) == 1:
                    along.setdefault(running[0], axis)
        for access in stage.outputs if along else ():
            dims = [replace(entry, constant=0).single for entry in access.map]
            axes.setdefault(access.value, [None if d is None else along.get(d) for d in dims])
    found = axes.get(result, [])
    rest = [axis for axis in range(len(order)) if axis not in found]
    if len(found) != len(order) or found.count(None) != len(rest):
        return order
    unmatched = iter(rest)
    place = [order.index(next(unmatched) if axis is None else axis) for axis in found]
    return tuple(sorted(range(len(order)), key=place.__getitem__))


def order_temporaries(kernel: Kernel) -> Kernel:
    """`kernel` with temporaries in the order of the values computed from them, so that vectors run along both."""
    orders: dict[int, Order] = {}
    for stage in reversed(kernel.stages):
        output = stage.outputs[-1]
        order = orders.get(output.value, kernel.values[output.value].order)
        if order == row_major(len(order)):
            continue
        place = {output.map[axis].single: position for position, axis in enumerate(order)}
        for access in (*stage.inputs, *stage.inits):
            if not isinstance(access, Access) or kernel.values[access.value].role != "temporary":
                continue
            dims = [entry.single for entry in access.map]
            if all(d in place and d is not None for d in dims):
                positions = [place[d] for d in dims]
                orders.setdefault(access.value, tuple(sorted(range(len(dims)), key=positions.__getitem__)))
    values = [replace(value, order=orders.get(index, value.order)) for index, value in enumerate(kernel.values)]
    return replace(kernel, values=tuple(values))


def output_channel(stage: Stage) -> int | None:
    """The axis of a convolution's result that runs over filters; None if `stage` is not a convolution."""
    if len(stage.inputs) != 2 or not stage.reductions:
        return None
    image, filters = (access.dims for access in stage.inputs)
    output = [e.single for e in stage.outputs[0].map]
    if not any(map(is_windowed, stage.inputs)):
        return _upsampled_channel(output, image, filters)
    if not is_windowed(stage.inputs[0]):
        image, filters = filters, image
    candidates = [axis for axis, d in enumerate(output) if d is not None and d in filters]
    # The last of several adjacent axes: a group's axis comes before it, the phases of an upsampling come after pixels.
    return next((axis for axis in candidates if axis + 1 not in candidates), None)


def _upsampled_channel(output: Sequence[int | None], image: frozenset[int], filters: frozenset[int]) -> int | None:
    """The axis over filters of a product that upsamples two axes or more, with phases between pixels."""
    for own in (filters - image, image - filters):
        found = [axis for axis, d in enumerate(output) if d in own]
        if len(found) > 2 and all(axis + 1 not in found for axis in found):
            return found[0]
    return None


def channels_last(rank: int, channel: int) -> Order:
    """Spatial dimensions before the channel dimension; a group dimension just left of the channels moves with it."""
    moved = [channel - 1, channel] if channel >= 2 else [channel]
    return (*(axis for axis in range(rank) if axis not in moved), *moved)


def _accepts(
    user: ir.Operation,
    order: Order,
    kernels: Mapping[str, Kernel],
    row_major_only: frozenset[str],
) -> bool:
    if user.name == "func.call":
        return callee(user) in kernels and callee(user) not in row_major_only
    if user.name == "tensor.dim":
        return True
    if user.name in ALIASES:
        renamed = alias_order(user, order)
        if renamed is None:
            return False
        if renamed == row_major(len(renamed)):
            return True
        result = user.results[0]
        return all(_accepts(use.owner.operation, renamed, kernels, row_major_only) for use in result.uses)
    return False


def alias_order(operation: ir.Operation, order: Order) -> Order | None:
    """The order of a reshaped tensor whose source has `order`; None if the reshape would then move data. Unit
    dimensions may be anywhere."""
    if operation.name == "tensor.cast":
        return order
    groups = reassociation(operation)
    source_shape = list(ir.RankedTensorType(operation.operands[0].type).shape)
    if operation.name == "tensor.expand_shape":
        return tuple(axis for position in order for axis in groups[position])
    units = {axis for axis, size in enumerate(source_shape) if size == 1}
    physical = [axis for axis in order if axis not in units]
    placed: list[int] = []
    for axis in physical:
        group = next(i for i, g in enumerate(groups) if axis in g)
        wanted = [a for a in groups[group] if a not in units]
        if axis == wanted[0]:
            start = physical.index(axis)
            if physical[start : start + len(wanted)] != wanted:
                return None
            placed.append(group)
        elif group not in placed:
            return None
    rest = [group for group in range(len(groups)) if group not in placed]
    return _row_major_if_equal(tuple(rest + placed), groups, units)


def _row_major_if_equal(order: Order, groups: list[list[int]], units: set[int]) -> Order:
    """Row-major order if `order` differs from it in unit dimensions only."""
    real = [group for group in order if any(axis not in units for axis in groups[group])]
    return row_major(len(order)) if real == sorted(real) else order


def callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value
