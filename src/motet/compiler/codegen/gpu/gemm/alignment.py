"""Copies operands of large products to a layout that tensor cores and TMA can read.

    32-bit and 8-bit operands    tensor cores read them along K only: others are transposed, except one 32-bit operand,
                                 which can be loaded through registers
    f32 in full precision        threads read lines of the right operand like those of the result: one that is
                                 contiguous along K is transposed
    f32 convolutions             the same is true of images and results, which are channels-last then
    lines of any length          TMA needs strides that are multiples of 16 bytes: others are copied

The copy is a separate stage before the product, to a temporary. It pays if every element is used often enough.
Constants are stored in these layouts from the beginning (`contraction.packed`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from motet.compiler.codegen.gpu.accesses import source_of
from motet.compiler.codegen.gpu.gemm.operand_layout import matrix_of
from motet.compiler.codegen.gpu.tasks import LoopTask, power_of_two
from motet.compiler.ir.affine import Affine, identity_map
from motet.compiler.kernels.contraction import ContractionDims
from motet.compiler.kernels.kernel import Access, Kernel, Size, Stage, Value, item_bytes, row_major
from motet.compiler.kernels.layout import channels_last, output_channel
from motet.compiler.kernels.windows import is_windowed, read_axes
from motet.compiler.targets.gpu import GpuTarget

_ALIGNMENT = 16  # bytes
_OFTEN = 256  # uses of each element
_MANY_READS = 1 << 20  # elements of all windows, which a copy of the image makes faster to read
_WORTH_IMAGE = 150_000_000  # products for which a copy of the image pays, as measured on an H200
_WORTH_RESULT = 20_000_000  # the same for a copy of the result
_CHANNELS = 16  # minimum channels of an image for which another layout pays
_FEW = 8  # channels that one access loads
_TOGETHER = 4  # minimum number of 16-bit elements that a thread copies asynchronously
_LARGE = 25  # points of a window
_HOPPER = 90


def aligned(kernel: Kernel, stage: Stage, target: GpuTarget, dims: ContractionDims, factor: str) -> Kernel:
    """`kernel` with the operands of its product `stage` copied where that pays; `dims` are the roles of its dimensions,
    `factor` is the dtype in which operands are multiplied."""
    if target.architecture != _HOPPER or not all(isinstance(size, int) for size in stage.sizes):
        return kernel
    batch, k, product = dims.batch, dims.k, dims.product
    sides = ((product.lhs.input, dims.m, dims.n), (product.rhs.input, dims.n, dims.m))
    windowed = [is_windowed(stage.inputs[number]) for number, *_ in sides]
    if any(windowed):
        image = sides[windowed.index(True)][0]
        return kernel if all(windowed) else _channels_last(kernel, stage, image, dims, factor)
    if any(stage.inputs[number].padding is not None for number, *_ in sides):
        return kernel
    spared = _through_registers(kernel, stage, sides, batch, k) if item_bytes(factor) == 4 else None
    for number, own, other in sides:
        access = stage.inputs[number]
        value = kernel.values[access.value]
        often = _count(stage, other)
        if value.dtype != factor or often < _OFTEN or value.role == "constant" or number == spared:
            continue
        short = item_bytes(factor) != 2
        if _lies_well(kernel, stage, access, batch, own, k, short):
            continue
        kernel, stage = _copied(kernel, stage, number, [*batch, *own, *k])
    return kernel


def columns_last(kernel: Kernel, stage: Stage, target: GpuTarget, dims: ContractionDims) -> Kernel:
    """`kernel` with the operand of its f32 product `stage` in full precision that `runs_along` found copied, if each
    element is used often."""
    found = runs_along(kernel, stage, dims)
    if found is None or target.architecture != _HOPPER or not all(isinstance(size, int) for size in stage.sizes):
        return kernel
    number, own = found
    often = _count(stage, dims.n if own == dims.m else dims.m)
    if often < _OFTEN or kernel.values[stage.inputs[number].value].role == "constant":
        return kernel
    return _copied(kernel, stage, number, [*dims.batch, *dims.k, *own])[0]


def runs_along(kernel: Kernel, stage: Stage, dims: ContractionDims) -> tuple[int, tuple[int, ...]] | None:
    """The input and the dimensions of the operand that is contiguous along K although its own dimensions are contiguous
    in the result; None if there is none."""
    side_by_side = _fastest(kernel, stage.outputs[0])
    for number, own in ((dims.product.lhs.input, dims.m), (dims.product.rhs.input, dims.n)):
        access = stage.inputs[number]
        if side_by_side in own and _fastest(kernel, access) in dims.k and not is_windowed(access):
            return number, own
    return None


def _fastest(kernel: Kernel, access: Access) -> int | None:
    """The dimension along which `access` is contiguous."""
    order = kernel.values[access.value].order
    return access.map[order[-1]].single if order else None


def _through_registers(
    kernel: Kernel, stage: Stage, sides: Sequence[tuple[int, Sequence[int], Sequence[int]]], batch: Sequence[int],
    k: Sequence[int],
) -> int | None:
    """The input whose 32-bit numbers `persistent.py` loads through registers, across K: the larger of two."""
    if batch:
        return None
    found = [
        (_count(stage, own), number) for number, own, _ in sides
        if not _lies_well(kernel, stage, stage.inputs[number], batch, own, k, True)
        and _lies_well(kernel, stage, stage.inputs[number], batch, own, k, False)
    ]
    return max(found)[1] if found else None


def _channels_last(
    kernel: Kernel, stage: Stage, image: int, dims: ContractionDims, factor: str
) -> Kernel:
    """`kernel` with the image and the filters of a convolution copied to channels-last layout with lines aligned for
    TMA: tensor cores read 32-bit and 8-bit operands along K only, and threads load others element by element if windows
    move along their lines."""
    access = stage.inputs[image]
    value = kernel.values[access.value]
    channel = _channel(kernel, stage, access)
    if channel is None or value.dtype != factor or value.order[-1] == channel[0]:
        return kernel
    axis, dim = channel
    pixels = access.dims | set(dims.batch)
    window = [d for d in dims.k if d != dim]
    often = _count(stage, [d for d in (*dims.m, *dims.n) if d not in pixels]) * _count(stage, window)
    if _count(stage, [dim]) < _CHANNELS:
        return _few_channels(kernel, stage, image, channel, window) if item_bytes(factor) == 2 else kernel
    if item_bytes(factor) == 2 and often < _OFTEN and _count(stage, sorted(access.dims)) < _MANY_READS:
        return kernel
    kernel, stage = _reordered(kernel, stage, image, _with_last(value, axis))
    other = 1 - image
    filters = stage.inputs[other]
    if kernel.values[filters.value].role == "constant" or filters.padding is not None:
        return kernel
    order = [*(d for d in (*dims.m, *dims.n) if d in filters.dims), *window, dim]
    return _copied(kernel, stage, other, order)[0]


def channels_last_sums(kernel: Kernel, stage: Stage, target: GpuTarget, dims: ContractionDims) -> Kernel:
    """`kernel` with the image of its f32 convolution `stage` in full precision copied to channels-last layout, and its
    result computed in it and copied back, where that pays: threads then read lines of both operands like those of the
    result."""
    if target.architecture != _HOPPER or not all(isinstance(size, int) for size in stage.sizes) or dims.batch:
        return kernel
    sides = (dims.product.lhs.input, dims.product.rhs.input)
    images = [number for number in sides if is_windowed(stage.inputs[number])]
    channel = _channel(kernel, stage, stage.inputs[images[0]]) if len(images) == 1 else None
    work = _count(stage, range(len(stage.sizes)))
    if channel is None or _count(stage, [channel[1]]) < _CHANNELS or work < _WORTH_RESULT:
        return kernel
    value = kernel.values[stage.inputs[images[0]].value]
    if value.order[-1] != channel[0]:
        if work < _WORTH_IMAGE:
            return kernel
        kernel, stage = _reordered(kernel, stage, images[0], _with_last(value, channel[0]))
    return _result_channels_last(kernel, stage)


def _channel(kernel: Kernel, stage: Stage, image: Access) -> tuple[int, int] | None:
    """The axis of an image that runs over channels, and its dimension."""
    axes = read_axes(kernel, stage, image, units=True)
    return next(((axis.number, axis.plain.dim) for axis in axes if axis.plain is not None and axis.taps), None)


def _with_last(value: Value, axis: int) -> tuple[int, ...]:
    return (*(other for other in range(value.rank) if other != axis), axis)


def _result_channels_last(kernel: Kernel, stage: Stage) -> Kernel:
    """`kernel` with its only result, of the shape of the convolution `stage`, stored channels-last, then copied."""
    results = [number for number, value in enumerate(kernel.values) if value.role == "result"]
    channel = output_channel(stage)
    after = kernel.stages[kernel.stages.index(stage) + 1 :]
    if len(results) != 1 or channel is None or any(each.reductions for each in after):
        return kernel
    value = kernel.values[results[0]]
    order = channels_last(value.rank, channel)
    if value.shape != kernel.values[stage.outputs[0].value].shape or value.order == order:
        return kernel
    index, here = len(kernel.values), identity_map(value.rank)

    def moved(access: Access) -> Access:
        return replace(access, value=index) if access.value == results[0] else access

    stages = [replace(each, inputs=tuple(map(moved, each.inputs)), outputs=tuple(map(moved, each.outputs)))
              for each in kernel.stages]
    copy = _copy(stage, value.shape, Access(index, here), Access(results[0], here))
    temporary = replace(value, role="temporary", order=order)
    return replace(kernel, values=(*kernel.values, temporary), stages=(*stages, copy))


def _few_channels(
    kernel: Kernel, stage: Stage, image: int, channel: tuple[int, int], window: Sequence[int]
) -> Kernel:
    """`kernel` with an image of few channels copied to channels-last layout, padded with zero channels to the size of
    one access, if windows are large and overlap: one access instead of one per channel."""
    access = stage.inputs[image]
    value = kernel.values[access.value]
    axis, dim = channel
    count = _count(stage, [dim])
    wanted = max(_TOGETHER, power_of_two(count))
    last = read_axes(kernel, stage, access, units=True)[value.order[-1]]
    taps = [walk.dim for walk in last.taps if walk.dim in window]
    overlap = _count(stage, taps) > max((walk.by for walk in last.outs), default=1)
    if not 1 < count <= _FEW or _count(stage, window) < _LARGE or not overlap or access.padding not in (None, 0):
        return kernel
    shape = tuple(wanted if a == axis else size for a, size in enumerate(value.shape))
    order = _with_last(value, axis)
    here = identity_map(value.rank)
    index = len(kernel.values)
    copy = _copy(stage, shape, Access(access.value, here, 0), Access(index, here))
    other = 1 - image
    filters = stage.inputs[other]
    wide = replace(
        stage, sizes=tuple(wanted if d == dim else size for d, size in enumerate(stage.sizes)),
        inputs=tuple(replace(a, padding=0) if a is filters else a for a in stage.inputs),
    )
    kernel = replace(kernel, stages=tuple(wide if each is stage else each for each in kernel.stages))
    temporary = Value(shape, value.dtype, "temporary", order)
    return _before(kernel, wide, copy, temporary, image, replace(access, value=index))[0]


def _reordered(kernel: Kernel, stage: Stage, number: int, order: tuple[int, ...]) -> tuple[Kernel, Stage]:
    """`kernel` with the tensor read by input `number` of `stage` copied to a temporary in another order, whose lines
    are aligned for TMA."""
    access = stage.inputs[number]
    value = kernel.values[access.value]
    index = len(kernel.values)
    here = identity_map(value.rank)
    copy = _copy(stage, value.shape, Access(access.value, here), Access(index, here))
    shape = list(value.shape)
    shape[order[-1]] = _padded([shape[order[-1]]], value.dtype)[0]
    temporary = Value(tuple(shape), value.dtype, "temporary", order)
    return _before(kernel, stage, copy, temporary, number, replace(access, value=index))


def _count(stage: Stage, dims: Sequence[int]) -> int:
    return math.prod(size for d in dims if isinstance(size := stage.sizes[d], int))


def _lies_well(
    kernel: Kernel, stage: Stage, access: Access, batch: Sequence[int], own: Sequence[int], k: Sequence[int],
    along_k: bool,
) -> bool:
    """Whether TMA can load an operand from its layout and tensor cores can read it."""
    source = source_of(kernel, access, stage.sizes)
    task = LoopTask(kernel, stage, None, {}, (), "", "")
    loops, depth, others = ([*task.merged(dims)] for dims in (own, k, batch))
    found = matrix_of(source, loops, depth, others)
    return found is not None and not (along_k and found.across)


def _copied(kernel: Kernel, stage: Stage, number: int, dims: Sequence[int]) -> tuple[Kernel, Stage]:
    """`kernel` with input `number` of `stage` copied before it, to a temporary over the loops `dims`."""
    access = stage.inputs[number]
    value = kernel.values[access.value]
    sizes = [stage.sizes[d] for d in dims]
    depth = sum(stage.iterators[d] == "reduction" for d in dims)
    shape = _padded(sizes, value.dtype) if depth == 1 else tuple(sizes)
    temporary = Value(shape, value.dtype, "temporary", row_major(len(dims)))
    index = len(kernel.values)
    where = {old: new for new, old in enumerate(dims)}
    remapped = tuple(entry.renumber(where) for entry in access.map)
    copy = _copy(stage, tuple(sizes), Access(access.value, remapped), Access(index, identity_map(len(dims))))
    return _before(kernel, stage, copy, temporary, number, Access(index, tuple(map(Affine.dim, dims))))


def _copy(stage: Stage, sizes: tuple[Size, ...], source: Access, target: Access) -> Stage:
    """The stage that copies a tensor of `stage` to another layout."""
    said = f"a layout for {stage.source}" if stage.source else ""
    return Stage(sizes, ("parallel",) * len(sizes), (source,), (target,), (None,), (), (0,), said)


def _before(
    kernel: Kernel, stage: Stage, copy: Stage, temporary: Value, number: int, own: Access
) -> tuple[Kernel, Stage]:
    """`kernel` with the stage `copy` before `stage`, whose input `number` then reads its result by `own`."""
    changed = replace(stage, inputs=tuple(own if i == number else a for i, a in enumerate(stage.inputs)))
    stages: list[Stage] = []
    for each in kernel.stages:
        stages += [copy, changed] if each is stage else [each]
    return replace(kernel, values=(*kernel.values, temporary), stages=tuple(stages)), changed


def _padded(sizes: Sequence[Size], dtype: str) -> tuple[Size, ...]:
    """`sizes` with the last one rounded up, so that lines are aligned for TMA."""
    multiple = _ALIGNMENT // item_bytes(dtype)
    last = sizes[-1]
    return (*sizes[:-1], -(-last // multiple) * multiple if isinstance(last, int) else last)
