"""Contractions and convolutions on GPUs: matching stages, and the layouts of their operands.

Several dimensions of one role are merged to one loop, from whose index theirs are computed. A convolution is thus the
product of an image, read through windows, and filters: M are pixels, N filters, K the elements of a window (Chetlur et
al., "cuDNN: Efficient Primitives for Deep Learning", 2014). N is contiguous in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.compiler.codegen.gpu.gemm import gemv
from motet.compiler.codegen.gpu.gemm.alignment import aligned, channels_last_sums, columns_last, runs_along
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.tasks import LoopTask
from motet.compiler.kernels.contraction import ContractionDims, read_contraction
from motet.compiler.kernels.kernel import Access, Kernel, Packing, Stage, item_bytes
from motet.compiler.kernels.layout import channels_last, output_channel
from motet.compiler.kernels.packing import reorder_constants
from motet.compiler.kernels.product import match_product
from motet.compiler.kernels.strides import ONE
from motet.compiler.kernels.windows import is_windowed
from motet.compiler.targets.gpu import GpuTarget

_LEAST = 8  # minimum of M, N and K for which tensor cores pay
_SIDE = 64  # of the tiles of small results
_LEAST_DEPTH = 128  # minimum K of one piece of a product
_FEW_PIECES = 8  # of windows of 16-bit floats
_MANY_PIECES = 8  # of windows of f32, from which on their layouts do not matter
_LONG = 1024  # K from which on products are split
_LONG_WITHOUT_UNITS = 512  # the same of f32 in tiles for three of four SMs at most, as measured on an H200
_LONGER = 2049  # the same if there are enough narrow tiles of 16-bit floats, as measured on an H100
_SLIM, _ENOUGH = 16, 64  # columns of a narrow tile, and the number of them that is enough
_HOPPER = 90
_GUESS = 1024  # of a dynamic extent
_LINE = 16  # bytes; alignment of lines
_BYTES = ("i8", "f8E4M3FN", "f8E5M2")
_SUMS = ("f16", "bf16", "f32", "f64")


def takes(kernel: Kernel, stage: Stage) -> bool:
    """Whether `stage` is a contraction for which tensor cores or GEMV programs pay."""
    return worth_matrix_units(kernel, stage) or gemv.takes(kernel, stage, dims_of(stage))


def worth_matrix_units(kernel: Kernel, stage: Stage) -> bool:
    dims = dims_of(stage)
    if dims is None or _factor_dtype(kernel, stage) is None:
        return False
    return all(_known(stage, part) >= _LEAST for part in (dims.m, dims.n, dims.k))


def _known(stage: Stage, dims: Sequence[int]) -> int:
    count = 1
    for d in dims:
        size = stage.sizes[d]
        count *= size if isinstance(size, int) else _GUESS
    return count


def dims_of(stage: Stage) -> ContractionDims | None:
    """The roles of a contraction's dimensions; None if it is not a contraction, or of a form without code."""
    dims = read_contraction(stage)
    if dims is None or dims.broadcast or dims.summed:
        return None
    return None if any(access.padding not in (None, 0) for access in stage.inputs) else dims


def _factor_dtype(kernel: Kernel, stage: Stage) -> str | None:
    product = match_product(stage)
    if product is None:
        return None
    dtypes = {kernel.values[stage.inputs[side.input].value].dtype for side in (product.lhs, product.rhs)}
    output = kernel.values[stage.outputs[0].value].dtype
    casts = {cast for side in (product.lhs, product.rhs) for cast in side.casts}
    if dtypes == {"i8"}:
        return "i8" if output == "i32" and casts <= {"arith.extsi"} else None
    if dtypes == {"f8E4M3FN"} or dtypes == {"f8E5M2"}:
        return dtypes.pop() if product.dtype == "f32" and output in _SUMS and casts <= {"arith.extf"} else None
    if not dtypes <= {"f16", "bf16", "f32", "f64"} or not casts <= {"arith.extf"}:
        return None
    if product.dtype not in ("f32", "f64") or output not in _SUMS:
        return None
    if product.dtype == "f64":
        return "f64"
    return dtypes.pop() if len(dtypes) == 1 else "f32"


def packed(kernel: Kernel, target: GpuTarget) -> tuple[Kernel, dict[int, Packing]]:
    """`kernel` with constant filters in the order in which their products read them: the contents of a window in the
    order of the image, then filter by filter. Constant operands have K last if tensor cores read them along K only
    (32-bit and 8-bit ones), if they are multiplied by a few vectors, and if their lines would be unaligned otherwise;
    those of f32 in full precision have columns last (`alignment.py`)."""
    orders: dict[int, tuple[int, ...]] = {}
    for stage in kernel.stages:
        if not takes(kernel, stage):
            continue
        factor = _factor_dtype(kernel, stage)
        last = factor in _BYTES or (target.precision != "ieee" and factor == "f32")
        last = last or not worth_matrix_units(kernel, stage)
        windowed = any(map(is_windowed, stage.inputs))
        columns = None if last else _columns_last(kernel, stage, target)
        for image, filters in (stage.inputs, stage.inputs[::-1]):
            crooked = not windowed and _is_crooked(kernel, stage, filters)
            turned = columns is not None and stage.inputs[columns] is filters
            if (last or windowed or crooked or turned) and _may_move(kernel, filters):
                orders[filters.value] = _filter_order(kernel, stage, image, filters, (last or crooked) and not turned)
    return reorder_constants(kernel, orders)


def _columns_last(kernel: Kernel, stage: Stage, target: GpuTarget) -> int | None:
    """The input of a full-precision f32 product that threads read faster with contiguous columns; None if there are too
    few rows."""
    dims = dims_of(stage)
    if dims is None or _factor_dtype(kernel, stage) != "f32" or target.precision != "ieee":
        return None
    found = runs_along(kernel, stage, dims)
    if found is None or not target.is_cuda:
        return None
    rows = dims.n if found[1] == dims.m else dims.m
    return found[0] if _known(stage, rows) >= _SIDE else None


def _is_crooked(kernel: Kernel, stage: Stage, access: Access) -> bool:
    """Whether the lines of an operand are unaligned, but would be aligned with K last."""
    value = kernel.values[access.value]
    if not value.rank or any(not isinstance(size, int) for size in (*value.shape, *stage.sizes)):
        return False
    along = [d for d in access.dims if stage.iterators[d] == "reduction"]
    item = item_bytes(value.dtype)
    length = value.shape[value.order[-1]]
    return isinstance(length, int) and length * item % _LINE != 0 and _known(stage, along) * item % _LINE == 0


def _may_move(kernel: Kernel, access: Access) -> bool:
    """Whether `access` reads a constant that has no other readers."""
    uses = [a for stage in kernel.stages for a in stage.inputs if a.value == access.value]
    uses += [i for stage in kernel.stages for i in stage.inits if isinstance(i, Access) and i.value == access.value]
    return kernel.values[access.value].role == "constant" and len(uses) == 1


def _filter_order(
    kernel: Kernel, stage: Stage, image: Access, filters: Access, depth_last: bool
) -> tuple[int, ...]:
    """The axes of a constant operand, with those of K, in the order of `image`, after the others (`depth_last`) or
    before."""
    depth = [d for d in _memory_order(kernel, image) if stage.iterators[d] == "reduction"]
    axes = {d: axis for axis, entry in enumerate(filters.map) for d in entry.dims}
    inside = list(dict.fromkeys(axes[d] for d in depth if d in axes))
    outside = [axis for axis in range(len(filters.map)) if axis not in inside]
    return tuple([*outside, *inside] if depth_last else [*inside, *outside])


def _memory_order(kernel: Kernel, access: Access) -> list[int]:
    """The stage's dimensions by their strides in memory, the fastest last."""
    found: list[int] = []
    for axis in kernel.values[access.value].order:
        found += [d for d in access.map[axis].dims if d not in found]
    return found


def laid_out(kernel: Kernel, target: GpuTarget) -> Kernel:
    """`kernel` with operands copied to faster layouts where that pays (`alignment.py`)."""
    for stage in kernel.stages:
        dims, factor = dims_of(stage), _factor_dtype(kernel, stage)
        if dims is None or factor is None or not worth_matrix_units(kernel, stage):
            continue
        if factor not in ("f64", "f32") or (factor == "f32" and target.precision == "tf32"):
            kernel = aligned(kernel, stage, target, dims, factor)
        elif factor == "f32" and target.precision == "ieee":
            if not any(map(is_windowed, stage.inputs)):
                kernel = columns_last(kernel, stage, target, dims)
            elif pieces(kernel, stage, target) < _MANY_PIECES:
                kernel = channels_last_sums(kernel, stage, target, dims)
    return kernel


def pieces(kernel: Kernel, stage: Stage, target: GpuTarget) -> int:
    """The number of pieces along K that keep all SMs busy if the result is too small for that; 1 if it is not."""
    dims = dims_of(stage)
    if dims is None or not worth_matrix_units(kernel, stage):
        return 1
    if any(not isinstance(size, int) for size in stage.sizes):
        return 1
    batch, m, n, k = (_known(stage, part) for part in (dims.batch, dims.m, dims.n, dims.k))
    factor, windowed = _factor_dtype(kernel, stage), any(map(is_windowed, stage.inputs))
    fast = target.architecture == _HOPPER and factor in ("f16", "bf16")
    enough = fast and batch * -(-m // _SIDE) * -(-n // _SLIM) >= _ENOUGH
    tiles = -(-m // _SIDE) * -(-n // _SIDE) * batch
    slow = factor == "f32" and target.precision == "ieee" and not windowed and 4 * tiles <= 3 * target.processors
    if k < (_LONGER if enough else _LONG_WITHOUT_UNITS if slow else _LONG):
        return 1
    most = _FEW_PIECES if windowed and factor != "f32" else k
    return min(k // _LEAST_DEPTH, (4 if slow else 2) * target.processors // tiles, most)


def sums_channels_last(kernel: Kernel, stage: Stage) -> Kernel:
    """`kernel` with the sums of its convolution channels-last, if others compute the result from them."""
    number = stage.outputs[0].value
    value, channel = kernel.values[number], output_channel(stage)
    if value.role != "temporary" or channel is None:
        return kernel
    values = list(kernel.values)
    values[number] = replace(value, order=channels_last(value.rank, channel))
    return replace(kernel, values=tuple(values))


def match(task: LoopTask, target: GpuTarget) -> ContractionLaunch | None:
    stage, kernel = task.stage, task.kernel
    dims, factor = dims_of(stage), _factor_dtype(kernel, stage)
    if dims is None or factor is None or not takes(kernel, stage):
        return None
    sources, product = task.sources, dims.product
    left, right = sources[product.lhs.input], sources[product.rhs.input]
    batch, m, n, k = (task.merged(part) for part in (dims.batch, dims.m, dims.n, dims.k))
    output = next(iter(task.stored.values()))
    if any(output.strides[dim] == ONE for _, dim in m):
        left, right, m, n = right, left, n, m
    leading = [left, right]
    if factor == "f32":
        factor = {"ieee": "f32", "tf32": "tf32", "tf32x3": "tf32x3"}[target.precision]
    return ContractionLaunch(
        task, left, right, factor, product.dtype, task.by_memory(batch, [output]), task.by_memory(m, [output]),
        task.by_memory(n, [output]), task.by_memory(k, leading),
    )
