"""Contractions and convolutions: sums of products by matrix units, with what follows fused.

Dimensions are classified by where they appear: batch (everywhere), M (left factor and result), N (right factor and
result), K (both factors). Several dimensions of a class are one loop whose number is taken apart again, so that a
convolution is the product of an image, read through its windows, and filters: M are pixels, N filters, K what a window
holds (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014). N is what lies side by side in the
result. Tiles are chosen by what they would take: arithmetic against reading from the second-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.compiler.codegen.triton.conv.tma_conv import image_forms
from motet.compiler.codegen.triton.gemm import gemv as vectors
from motet.compiler.codegen.triton.gemm import small_gemm as spread
from motet.compiler.codegen.triton.gemm.alignment import aligned, columns_last, runs_along
from motet.compiler.codegen.triton.gemm.operand_layout import Matrix, matrix_of
from motet.compiler.codegen.triton.gemm.persistent import ring_cycles, ring_form, rings
from motet.compiler.codegen.triton.gemm.products import ContractionLaunch, product_form
from motet.compiler.codegen.triton.gemm.tiles import GemmShape, choose_tiles, cycles, stored_as
from motet.compiler.codegen.triton.rows.loops import Loop, LoopTask, total
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.writer import is_windowed
from motet.compiler.kernels.kernel import Access, Kernel, Packing, Stage, item_bytes
from motet.compiler.kernels.product import match_product
from motet.compiler.kernels.strides import ONE, StridedAccess
from motet.compiler.targets.gpu import GpuTarget

_LEAST = 8  # of M, N and K, for which matrix units pay
_SIDE = 64  # of the tiles that small results are made of
_LEAST_DEPTH = 128  # of one piece of a product
_LONG = 1024  # products of each result, from which on they are parted
_LONGER = 2049  # the same where there are enough slim tiles of 16-bit floats, as measured on an H100
_SLIM, _ENOUGH = 16, 64  # columns of a slim tile, and how many there are then
_HOPPER = 90
_GUESS = 1024  # a dynamic extent
_FORMS = 8
_HOPED = 1.12  # times as long as the model says take tiles that do not go around a ring, as measured beside rings
_LAUNCH = 5200  # cycles of a launch behind another one, which the model of rings counts, and that of tiles does not
_LOAD = 8  # bytes that a load should have at least
_LINE = 16  # bytes that lines should begin at multiples of
_BYTES = ("i8", "f8E4M3FN", "f8E5M2")
_SUMS = ("f16", "bf16", "f32", "f64")


# -- matching --------------------------------------------------------------------------------------


def takes(kernel: Kernel, stage: Stage) -> bool:
    """Whether `stage` is a contraction that is emitted here."""
    return _worth_matrix_units(kernel, stage) or vectors.takes(kernel, stage, classify(stage))


def _worth_matrix_units(kernel: Kernel, stage: Stage) -> bool:
    classes = classify(stage)
    if classes is None or _factor_dtype(kernel, stage) is None:
        return False
    return all(_known(stage, dims) >= _LEAST for dims in classes[1:])


def _known(stage: Stage, dims: Sequence[int]) -> int:
    count = 1
    for d in dims:
        size = stage.sizes[d]
        count *= size if isinstance(size, int) else _GUESS
    return count


def classify(stage: Stage) -> tuple[list[int], list[int], list[int], list[int]] | None:
    """The dimensions that are batch, M, N and K; M belongs to the product's left factor. Dimensions of extent 1 are
    left out. None for what is no contraction."""
    product = match_product(stage)
    if product is None or not stage.reductions:
        return None
    if any(access.padding not in (None, 0) for access in stage.inputs):
        return None
    used = [_dimensions(stage.inputs[side.input]) for side in (product.lhs, product.rhs)]
    output = _dimensions(stage.outputs[0])
    batch, m, n, k = [], [], [], []
    for d, size in enumerate(stage.sizes):
        if size == 1:
            continue
        left, right = d in used[0], d in used[1]
        if stage.iterators[d] == "reduction":
            if not (left and right) or d in output:
                return None
            k.append(d)
        elif d not in output or not (left or right):
            return None
        else:
            (batch if left and right else m if left else n).append(d)
    return batch, m, n, k


def _dimensions(access: Access) -> set[int]:
    return {d for entry in access.map for d, coefficient in enumerate(entry.coefficients) if coefficient}


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
    """`kernel` with constant filters laid out as their products read them: what a window holds in the order in which
    the image lies, then filter by filter. Constant factors have K last where tensor cores read them along it alone
    (32-bit and 8-bit ones), where they meet a few vectors, and where their lines would begin anywhere otherwise; those
    of f32 in full precision have columns last (`alignment.py`)."""
    orders: dict[int, tuple[int, ...]] = {}
    for stage in kernel.stages:
        if not takes(kernel, stage):
            continue
        factor = _factor_dtype(kernel, stage)
        last = factor in _BYTES or (target.precision != "ieee" and factor == "f32")
        last = last or not _worth_matrix_units(kernel, stage)
        windowed = any(map(is_windowed, stage.inputs))
        columns = None if last else _columns_last(kernel, stage, target)
        for image, filters in (stage.inputs, stage.inputs[::-1]):
            crooked = not windowed and _is_crooked(kernel, stage, filters)
            turned = columns is not None and stage.inputs[columns] is filters
            if (last or windowed or crooked or turned) and _may_move(kernel, filters):
                orders[filters.value] = _filter_order(kernel, stage, image, filters, (last or crooked) and not turned)
    values = tuple(
        replace(value, order=orders[i]) if i in orders else value for i, value in enumerate(kernel.values)
    )
    packings = {
        i: Packing(order, (1,) * len(order), tuple(range(2 * len(order)))) for i, order in orders.items()
        if order != tuple(range(len(order)))
    }
    return replace(kernel, values=values), packings


def _columns_last(kernel: Kernel, stage: Stage, target: GpuTarget) -> int | None:
    """The input of a product of f32 in full precision that threads read faster with its columns side by side, where
    there are rows enough."""
    classes = classify(stage)
    if classes is None or _factor_dtype(kernel, stage) != "f32" or target.precision != "ieee":
        return None
    found = runs_along(kernel, stage, classes)
    if found is None or not target.is_cuda:
        return None
    rows = classes[2] if found[1] == classes[1] else classes[1]
    return found[0] if _known(stage, rows) >= _SIDE else None


def _is_crooked(kernel: Kernel, stage: Stage, access: Access) -> bool:
    """Whether lines of a factor begin at any bytes as it lies, but would not with K last."""
    value = kernel.values[access.value]
    if not value.rank or any(not isinstance(size, int) for size in (*value.shape, *stage.sizes)):
        return False
    along = [d for d in _dimensions(access) if stage.iterators[d] == "reduction"]
    item = item_bytes(value.dtype)
    length = value.shape[value.order[-1]]
    return isinstance(length, int) and length * item % _LINE != 0 and _known(stage, along) * item % _LINE == 0


def _may_move(kernel: Kernel, access: Access) -> bool:
    """Whether what is read is a constant that nothing else reads."""
    uses = [a for stage in kernel.stages for a in stage.inputs if a.value == access.value]
    uses += [i for stage in kernel.stages for i in stage.inits if isinstance(i, Access) and i.value == access.value]
    return kernel.values[access.value].role == "constant" and len(uses) == 1


def _filter_order(
    kernel: Kernel, stage: Stage, image: Access, filters: Access, depth_last: bool
) -> tuple[int, ...]:
    """The axes of a constant factor, those along which products are summed as `image` lies, before or after the
    others."""
    depth = [d for d in _memory_order(kernel, image) if stage.iterators[d] == "reduction"]
    axes = {d: axis for axis, entry in enumerate(filters.map) for d, c in enumerate(entry.coefficients) if c}
    inside = list(dict.fromkeys(axes[d] for d in depth if d in axes))
    outside = [axis for axis in range(len(filters.map)) if axis not in inside]
    return tuple([*outside, *inside] if depth_last else [*inside, *outside])


def _memory_order(kernel: Kernel, access: Access) -> list[int]:
    """The stage's dimensions as `access` walks memory, the fastest last."""
    found: list[int] = []
    for axis in kernel.values[access.value].order:
        found += [d for d, c in enumerate(access.map[axis].coefficients) if c and d not in found]
    return found


def laid_out(kernel: Kernel, target: GpuTarget) -> Kernel:
    """`kernel` with factors copied to where the GPU takes them fastest from, where that pays (`alignment.py`)."""
    for stage in kernel.stages:
        classes, factor = classify(stage), _factor_dtype(kernel, stage)
        if classes is None or factor is None or not _worth_matrix_units(kernel, stage):
            continue
        if factor not in ("f64", "f32") or (factor == "f32" and target.precision == "tf32"):
            kernel = aligned(kernel, stage, target, classes, factor)
        elif factor == "f32" and target.precision == "ieee":
            kernel = columns_last(kernel, stage, target, classes)
    return kernel


def pieces(kernel: Kernel, stage: Stage, target: GpuTarget) -> int:
    """In how many pieces along K a product keeps all processors busy, whose result is too small for it."""
    classes = classify(stage)
    if classes is None or not _worth_matrix_units(kernel, stage) or any(map(is_windowed, stage.inputs)):
        return 1
    if any(not isinstance(size, int) for size in stage.sizes):
        return 1
    batch, m, n, k = (_known(stage, dims) for dims in classes)
    fast = target.architecture == _HOPPER and _factor_dtype(kernel, stage) in ("f16", "bf16")
    enough = fast and batch * -(-m // _SIDE) * -(-n // _SLIM) >= _ENOUGH
    if k < (_LONGER if enough else _LONG):
        return 1
    tiles = -(-m // _SIDE) * -(-n // _SIDE) * batch
    return min(k // _LEAST_DEPTH, 2 * target.processors // tiles)


def match(task: LoopTask, target: GpuTarget) -> ContractionLaunch | None:
    stage, kernel = task.stage, task.kernel
    classes = classify(stage)
    product, factor = match_product(stage), _factor_dtype(kernel, stage)
    if classes is None or product is None or factor is None or not takes(kernel, stage):
        return None
    sources = task.sources
    left, right = sources[product.lhs.input], sources[product.rhs.input]
    batch, m, n, k = (task.merged(dims) for dims in classes)
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


# -- tiles -----------------------------------------------------------------------------------------


def emit(task: LoopTask, target: GpuTarget) -> tuple[Form, ...]:
    """Forms with the best tiles for the shapes; none where the launch is no contraction. Raises `Unsupported`."""
    found = match(task, target)
    if found is None:
        return ()
    if not _worth_matrix_units(task.kernel, task.stage):
        return vectors.emit(found, target)
    left, right = _described(found)
    m, n, k, batch = (total(loops).known or _GUESS for loops in (found.m, found.n, found.k, found.batch))
    narrow = _is_narrow(found.left, found.m, found.k) or _is_narrow(found.right, found.k, found.n)
    described = left is not None and right is not None
    problem = GemmShape(m, n, k, batch, found.factor, described, narrow)
    tiles = choose_tiles(problem, target, _FORMS)
    forms = [*spread.emit(found, target), *(product_form(found, tile, left, right) for tile in tiles)]
    expected, images = image_forms(found, target)
    if images:
        return (*images, *forms) if expected < cycles(problem, tiles[0], target) else (*forms[:2], *images, *forms[2:])
    turned = _through_registers(found)
    if turned is not None:
        way, left, right = turned
        problem = replace(problem, m=total(way.m).known or _GUESS, n=total(way.n).known or _GUESS)
        around = rings(way, left, right, problem, target)
        return (*(ring_form(way, left, right, ring, target) for ring in around), *forms)
    around = rings(found, left, right, problem, target)
    if left is None or right is None or not around:
        return tuple(forms)
    first = ring_cycles(around[0], problem, target) < _HOPED * cycles(problem, tiles[0], target) + _LAUNCH
    own = [ring_form(found, left, right, ring, target) for ring in around]
    return (*own, *forms) if first else (*forms[:1], *own, *forms[1:])


def _is_narrow(source: StridedAccess, first: Sequence[Loop], second: Sequence[Loop]) -> bool:
    """Whether threads have to load a factor element by element, since its lines begin and end anywhere."""
    strides = source.strides
    item = item_bytes(source.dtype)
    along = [size for size, dim in (*first, *second) if strides[dim] == ONE]
    apart = [strides[dim].factor for _, dim in (*first, *second) if strides[dim] != ONE]
    lengths = [size.factor for size in along] or [1]
    return any(count * item % _LOAD for count in (*lengths, *apart))


def _described(c: ContractionLaunch) -> tuple[Matrix | None, Matrix | None]:
    """The factors as matrices that the copy engine can bring, where both are what tensor cores take from its hands,
    16-bit numbers as they lie, others along K, or what threads multiply."""
    left, right = matrix_of(c.left, c.m, c.k, c.batch), matrix_of(c.right, c.k, c.n, c.batch)
    dtype = stored_as(c.factor)
    if left is None or right is None or {left.place.dtype, right.place.dtype} != {dtype}:
        return None, None
    if item_bytes(dtype) != 2 and c.factor != "f32" and (left.across or not right.across):
        return None, None
    return left, right


def _through_registers(c: ContractionLaunch) -> tuple[ContractionLaunch, Matrix, Matrix] | None:
    """`c` and its factors, turned so that the left one alone lies across its sum, where that can be for 32-bit factors:
    from registers tensor cores take them so."""
    dtype = stored_as(c.factor)
    if item_bytes(dtype) != 4 or c.factor == "f32":
        return None
    for way in (c, replace(c, left=c.right, right=c.left, m=c.n, n=c.m)):
        left, right = matrix_of(way.left, way.m, way.k, way.batch), matrix_of(way.right, way.k, way.n, way.batch)
        if left is None or right is None or {left.place.dtype, right.place.dtype} != {dtype}:
            continue
        if left.across and right.across:
            return way, left, right
    return None
