"""Reads and schedules reductions over windows of planes: depthwise convolutions and poolings of images, volumes and
videos whose pixels are contiguous along rows. `plane_emitter.py` generates the code.

    y[n, c, h, w]  max=  x[n, c, 2 * h + i - 1, 2 * w + j - 1]     y[n, c, h, w]  +=  x[n, c, h + i, w + j] * k[c, i, j]

Vectors run along the columns of the result. A task copies the rows of the image that it reads to scratch memory, with
the padding, and separates columns that a stride puts into different vectors. A tile of some rows and vectors of the
result stays in registers; it loops over the columns of the window and reads each image vector once for all rows of the
window. Reductions of the image alone over large windows run along columns first and then along rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from motet.compiler.codegen.cpu.balance import divisors
from motet.compiler.codegen.cpu.gemm.microkernel import MEMORY_TYPES
from motet.compiler.kernels.epilogue import Epilogue, match_epilogue, stored_place
from motet.compiler.kernels.kernel import EXTENT, Kernel, Stage, item_bytes
from motet.compiler.kernels.reduction import Reduction
from motet.compiler.kernels.schedule import PlanesSchedule, Reason, in_range, lanes_reason
from motet.compiler.kernels.strides import ONE, ZERO, Extent, StridedAccess, initial_of, place_of
from motet.compiler.kernels.windows import Axis, Window, WindowReduction, read_axes, read_window_reduction
from motet.compiler.targets.cpu import CpuTarget

_TASK_TERMS = 100_000  # of the reduction in one task, about ten microseconds of one core
_MOST_TASKS = 64
_MOST_ROWS = 64  # of a window: their terms are unrolled
_SEPARATED_TAPS = 12  # of a window from which on columns and rows are reduced one after the other
_MOST_SCRATCH = 256 << 20  # bytes of one thread
_INDEXED = ("linalg.index", "tensor.extract", EXTENT)


@dataclass(frozen=True)
class Planes:
    """A kernel read as a reduction over windows. `image` has no offset; `others` are the further inputs of the stage,
    by number. `outer` are the dimensions of the result except rows and columns, `deep` the windows outside rows."""

    kernel: Kernel
    main: Stage
    combiner: Reduction
    number: int  # of the image among the inputs
    image: StridedAccess
    others: tuple[tuple[int, StridedAccess], ...]
    init: StridedAccess | float | int
    output: StridedAccess
    outer: tuple[tuple[Extent, int], ...]
    deep: tuple[Window, ...]
    rows: Window
    columns: Window
    padding: float | int | None
    epilogue: Epilogue

    @property
    def places(self) -> list[StridedAccess]:
        return [*self.epilogue.places, *([self.init] if isinstance(self.init, StridedAccess) else [])]

    @property
    def depth(self) -> int:
        """The number of planes that a window covers."""
        return math.prod(window.taps for window in self.deep)

    @property
    def terms(self) -> int:
        """Terms per iteration of the outer loops."""
        return self.rows.size * self.columns.size * self.depth * self.rows.taps * self.columns.taps

    @property
    def is_separable(self) -> bool:
        """Whether columns of a window are reduced first, for all rows that contain them."""
        taps = self.rows.taps, self.columns.taps
        return not self.others and min(taps) > 1 and math.prod(taps) >= _SEPARATED_TAPS

    def pitch(self, lanes: int) -> int:
        """The columns of one row of scratch memory, for each residue of columns modulo the stride."""
        last = -(-self.columns.size // lanes) * lanes - 1
        last += (self.columns.taps - 1) * self.columns.dilation // self.columns.stride
        return (last // lanes + 1) * lanes

    def scratch(self, rows: int, lanes: int) -> tuple[int, int]:
        """Bytes of the copied image, and of the reduced columns, for so many rows of the result."""
        lines = self.depth * self.rows.span(rows)
        image = lines * self.columns.stride * self.pitch(lanes) * item_bytes(self.image.dtype)
        reduced = lines * -(-self.columns.size // lanes) * lanes * item_bytes(self.combiner.accumulator)
        return -(-image // 64) * 64, reduced if self.is_separable else 0


# -- matching ------------------------------------------------------------------------------------


def match(kernel: Kernel, target: CpuTarget) -> Planes | None:
    """Read `kernel` as a reduction over windows with two axes or more of an image whose columns are contiguous, with an
    element-wise epilogue; None if it is not one."""
    found = read_window_reduction(kernel, kernel.stages[0]) if kernel.stages else None
    if found is None or len(found.windows) < 2 or len(found.stage.outputs) != 1:
        return None
    stage = found.stage
    windows = [axis.window for axis in found.windows]
    known = [window for window in windows if window is not None and window.stride > 0 and window.dilation > 0]
    epilogue, init = match_epilogue(kernel, stage, kernel.stages[1:]), initial_of(kernel, stage)
    places = [place_of(kernel, access, len(stage.sizes)) for access in (*stage.inputs, stage.outputs[0])]
    read = [place for place in places if place is not None]
    if len(known) != len(windows) or epilogue is None or init is None or len(read) != len(places):
        return None
    if not _is_plain(kernel, found) or known[-2].taps > _MOST_ROWS or any(place.dtype not in MEMORY_TYPES
                                                                          for place in read):
        return None
    *inputs, output = read
    others = tuple((k, place) for k, place in enumerate(inputs) if k != found.image)
    rows, columns = known[-2:]
    dims = [d for d, kind in enumerate(stage.iterators) if kind == "parallel" and stage.sizes[d] != 1]
    outer = tuple((Extent.of(stage.sizes[d]), d) for d in dims if d not in (rows.out, columns.out))
    image = stage.inputs[found.image]
    base = StridedAccess(image.value, inputs[found.image].dtype, (), inputs[found.image].strides)
    planes = Planes(
        kernel, stage, found.combiner, found.image, base, others, init, output, outer, tuple(known[:-2]), rows, columns,
        image.padding, epilogue,
    )
    return planes if _is_contiguous(planes) else None


def _is_plain(kernel: Kernel, found: WindowReduction) -> bool:
    """Whether all tensors are in memory, the body is without indices, and only windows leave the image."""
    stage = found.stage
    if any(scalar.op in _INDEXED for scalar in stage.body):
        return False
    if any(kernel.values[access.value].role == "temporary" for access in stage.inputs):
        return False
    image = stage.inputs[found.image]
    if any(access.padding is not None for access in stage.inputs if access is not image):
        return False
    windows = {axis.number for axis in found.windows}
    rest = [axis for axis in read_axes(kernel, stage, image) if axis.number not in windows]
    return all(_stays_inside(axis) for axis in rest)


def _stays_inside(axis: Axis) -> bool:
    return axis.is_fixed or (axis.plain is not None and axis.plain.size == axis.extent)


def _is_contiguous(c: Planes) -> bool:
    """Whether columns of the image and of all results are contiguous, and other inputs are the same for all points of a
    plane."""
    column, row = c.columns.out, c.rows.out
    if column < 0 or row < 0 or c.columns.step != 1 or c.columns.size < 4:
        return False
    stored = stored_place(c.epilogue) or c.output
    if stored.strides[column] != ONE or any(place.strides[column] not in (ONE, ZERO) for place in c.places):
        return False
    return all(place.strides[d] == ZERO for _, place in c.others for d in (column, row))


# -- schedules -----------------------------------------------------------------------------------


def choose(c: Planes, target: CpuTarget) -> PlanesSchedule | None:
    """Choose the register tile and the tasks from the extents; None if a row of scratch memory does not fit the
    caches."""
    most = _lanes_of(c, target)
    lanes = min(most, 1 << (c.columns.size - 1).bit_length())
    vectors = min(-(-c.columns.size // lanes), 2 if target.vector_registers > 16 else 1)
    rows = max(1, min(8, c.rows.size, (target.vector_registers - 2 - vectors - held(c)) // vectors))
    outer = math.prod(size.known or 1 for size, _ in c.outer)
    wanted = max(1, -(-min(_MOST_TASKS, c.terms * outer // _TASK_TERMS) // outer))
    fitting = [b for b in divisors(c.rows.size) if sum(c.scratch(b, lanes)) <= target.l2 // 4]
    if not fitting:
        return None
    enough = [b for b in fitting if c.rows.size // b >= wanted and b >= min(rows, c.rows.size)]
    block = max(enough) if enough else max(fitting)
    tiles = -(-block // min(rows, block))
    return PlanesSchedule(lanes, vectors, -(-block // tiles), block)


def held(c: Planes) -> int:
    """The values of other inputs that stay in registers, one for each row of a window, if these are few."""
    return min(c.rows.taps, 8) if c.others else 0


def check(c: Planes, schedule: PlanesSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    s = schedule
    reasons = [
        *lanes_reason(s.lanes, _lanes_of(c, target)),
        *in_range("vectors", s.vectors, 1, target.vector_registers),
        *in_range("rows", s.rows, 1, max(1, min(s.block, target.vector_registers // max(1, s.vectors)))),
        *in_range("block", s.block, 1, c.rows.size, "rows of the result"),
    ]
    if not reasons and c.rows.size % s.block:
        reasons.append(Reason("block", s.block, f"a divisor of {c.rows.size} rows"))
    if not reasons and (size := sum(c.scratch(s.block, s.lanes))) > _MOST_SCRATCH:
        text = f"fewer: scratch memory of a thread would take {size} bytes, at most {_MOST_SCRATCH}"
        reasons.append(Reason("block", s.block, text))
    return reasons


def _lanes_of(c: Planes, target: CpuTarget) -> int:
    dtypes = [c.kernel.values[access.value].dtype for access in (*c.main.inputs, *c.main.outputs)]
    dtypes += [scalar.dtype for scalar in c.main.body if scalar.dtype not in ("index", "i1")]
    return max(2, target.lanes(max(max(32, 8 * item_bytes(dtype)) for dtype in dtypes)))
