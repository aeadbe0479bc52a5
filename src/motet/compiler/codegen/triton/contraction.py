"""Contractions and convolutions: sums of products by matrix units, with what follows fused.

Dimensions are classified by where they appear: batch (everywhere), M (left factor and result), N (right factor and
result), K (both factors). Several dimensions of a class are one loop whose number is taken apart again, so that a
convolution is the product of an image, read through its windows, and filters: M are pixels, N filters, K what a window
holds (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014). N is what lies side by side in the
result. Tiles are chosen by what they would take: arithmetic against reading from the second-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.extents import ONE, Extent
from motet.compiler.codegen.cpu.micro import match_product
from motet.compiler.codegen.kernel import Access, Kernel, Packing, Stage, item_bytes
from motet.compiler.codegen.triton.loops import Loop, Task, ceiling, power_of_two, total
from motet.compiler.codegen.triton.matrices import Matrix, matrix_of
from motet.compiler.codegen.triton.program import Form
from motet.compiler.codegen.triton.ring import Parts, Ring, RingWriter, tasks_of
from motet.compiler.codegen.triton.ring import module as ring_module
from motet.compiler.codegen.triton.scalars import carried_type, constant, rounded
from motet.compiler.codegen.triton.writer import Coordinate, Source, Writer, is_windowed
from motet.compiler.targets.gpu import GpuTarget

_LEAST = 8  # of M, N and K, for which matrix units pay
_SIDE = 64  # of the tiles that small results are made of
_LEAST_DEPTH = 128  # of one piece of a product
_GUESS = 1024  # a dynamic extent
_GROUP = 8  # rows of tiles that share columns in the cache
_FORMS = 4
_CACHE_BYTES = 40  # that one processor reads from the second-level cache in a cycle
_PRECISIONS = {"f32": "ieee", "tf32": "tf32", "tf32x3": "tf32x3"}
_RATES = {  # products in a cycle
    "f16": 2048, "bf16": 2048, "tf32": 1024, "tf32x3": 340, "f32": 128, "f64": 64, "i8": 4096,
}
_DEPTHS = {"f16": 64, "bf16": 64, "tf32": 32, "tf32x3": 32, "f32": 16, "f64": 16, "i8": 128}


RINGS = (Ring(128, 256, 64, 4, 4), Ring(128, 256, 64, 3, 2), Ring(128, 128, 64, 5, 2, True))
_LEAVING = ("f16", "bf16", "f32", "i32", "i8", "f8E4M3FN", "f8E5M2")  # dtypes of results that the engine stores


@dataclass(frozen=True)
class Contraction:
    """A launch read as a contraction; `left` and `right` are the inputs that have M and N. `factor` is the dtype in
    which the factors are multiplied (`tf32` and `tf32x3` for f32 of that precision), `sum` the one of their products'
    sum."""

    task: Task
    left: Source
    right: Source
    factor: str
    sum: str
    batch: tuple[Loop, ...]
    m: tuple[Loop, ...]
    n: tuple[Loop, ...]
    k: tuple[Loop, ...]


@dataclass(frozen=True)
class Tile:
    m: int
    n: int
    k: int
    warps: int
    stages: int


# -- matching --------------------------------------------------------------------------------------


def takes(kernel: Kernel, stage: Stage) -> bool:
    """Whether `stage` is a contraction that is worth matrix units."""
    classes = classify(kernel, stage)
    if classes is None or _factor_dtype(kernel, stage) is None:
        return False
    return all(_known(stage, dims) >= _LEAST for dims in classes[1:])


def _known(stage: Stage, dims: Sequence[int]) -> int:
    count = 1
    for d in dims:
        size = stage.sizes[d]
        count *= size if isinstance(size, int) else _GUESS
    return count


def classify(kernel: Kernel, stage: Stage) -> tuple[list[int], list[int], list[int], list[int]] | None:
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
    if not dtypes <= {"f16", "bf16", "f32", "f64"} or not casts <= {"arith.extf"}:
        return None
    if product.dtype not in ("f32", "f64") or output not in ("f16", "bf16", "f32", "f64"):
        return None
    if product.dtype == "f64":
        return "f64"
    return dtypes.pop() if len(dtypes) == 1 else "f32"


def packed(kernel: Kernel, target: GpuTarget) -> tuple[Kernel, dict[int, Packing]]:
    """`kernel` with constant filters laid out as their products read them: what a window holds in the order in which
    the image lies, then filter by filter. Where tensor cores take 32-bit factors, which they read along K alone, every
    constant factor has K last."""
    orders: dict[int, tuple[int, ...]] = {}
    for stage in kernel.stages:
        short = target.precision != "ieee" and _factor_dtype(kernel, stage) == "f32"
        if not (short or any(map(is_windowed, stage.inputs))) or not takes(kernel, stage):
            continue
        for image, filters in (stage.inputs, stage.inputs[::-1]):
            if _may_move(kernel, filters):
                orders[filters.value] = _filter_order(kernel, stage, image, filters, short)
    values = tuple(
        replace(value, order=orders[i]) if i in orders else value for i, value in enumerate(kernel.values)
    )
    packings = {
        i: Packing(order, (1,) * len(order), tuple(range(2 * len(order)))) for i, order in orders.items()
        if order != tuple(range(len(order)))
    }
    return replace(kernel, values=values), packings


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
    depth = [d for d in _memory_order(kernel, image, stage) if stage.iterators[d] == "reduction"]
    axes = {d: axis for axis, entry in enumerate(filters.map) for d, c in enumerate(entry.coefficients) if c}
    inside = list(dict.fromkeys(axes[d] for d in depth if d in axes))
    outside = [axis for axis in range(len(filters.map)) if axis not in inside]
    return tuple([*outside, *inside] if depth_last else [*inside, *outside])


def _memory_order(kernel: Kernel, access: Access, stage: Stage) -> list[int]:
    """The stage's dimensions as `access` walks memory, the fastest last."""
    found: list[int] = []
    for axis in kernel.values[access.value].order:
        found += [d for d, c in enumerate(access.map[axis].coefficients) if c and d not in found]
    return found


def pieces(kernel: Kernel, stage: Stage, target: GpuTarget) -> int:
    """In how many pieces along K a product keeps all processors busy, whose result is too small for it."""
    classes = classify(kernel, stage)
    if classes is None or any(not isinstance(size, int) for size in stage.sizes) or any(map(is_windowed, stage.inputs)):
        return 1
    batch, m, n, k = (_known(stage, dims) for dims in classes)
    tiles = -(-m // _SIDE) * -(-n // _SIDE) * batch
    return min(k // _LEAST_DEPTH, 2 * target.processors // tiles)


def match(task: Task, target: GpuTarget) -> Contraction | None:
    stage, kernel = task.stage, task.kernel
    classes = classify(kernel, stage)
    product, factor = match_product(stage), _factor_dtype(kernel, stage)
    if classes is None or product is None or factor is None or not takes(kernel, stage):
        return None
    sources = task.sources
    left, right = sources[product.lhs.input], sources[product.rhs.input]
    batch, m, n, k = (task.merged(dims) for dims in classes)
    output = next(iter(task.stored.values()))
    if any(output.strides[dim] == ONE for _, dim in m):
        left, right, m, n = right, left, n, m
    leading = [left.place, right.place]
    if factor == "f32":
        factor = {"ieee": "f32", "tf32": "tf32", "tf32x3": "tf32x3"}[target.precision]
    return Contraction(
        task, left, right, factor, product.dtype, task.by_memory(batch, [output]), task.by_memory(m, [output]),
        task.by_memory(n, [output]), task.by_memory(k, leading),
    )


# -- tiles -----------------------------------------------------------------------------------------


def emit(task: Task, target: GpuTarget) -> tuple[Form, ...]:
    """Forms with the best tiles for the shapes; none where the launch is no contraction. Raises `Unsupported`."""
    found = match(task, target)
    if found is None:
        return ()
    return (*(_form(found, tile) for tile in choose_tiles(found, target)), *_ring_forms(found, target))


def choose_tiles(c: Contraction, target: GpuTarget) -> list[Tile]:
    """The tiles that take the least, the best first; those that follow are smaller, for where it does not fit. None
    where the target has no room for any."""
    extents = [total(loops).known or _GUESS for loops in (c.m, c.n, c.k, c.batch)]
    sides = {"f64": 64, "f32": 128}.get(c.factor, 256)
    tiles = [
        tile for m in (16, 32, 64, 128, 256) for n in (16, 32, 64, 128, 256)
        if m <= sides and n <= sides and m * n <= _most_points(c.factor)
        and (tile := _tile(c, m, n, extents[2], target)) is not None
    ]
    tiles.sort(key=lambda tile: (_cycles(c, tile, extents, target), tile.m * tile.n))
    smaller = [tile for tile in tiles[1:] if tile.m * tile.n < tiles[0].m * tiles[0].n]
    return [*tiles[:1], *smaller[: _FORMS - 1]]


def stored_as(factor: str) -> str:
    """The dtype of factors in memory."""
    return "f32" if factor in _PRECISIONS else factor


def _most_points(factor: str) -> int:
    return {"f64": 64 * 64, "f32": 128 * 128, "tf32": 128 * 128, "tf32x3": 128 * 128}.get(factor, 128 * 256)


def _tile(c: Contraction, m: int, n: int, depth: int, target: GpuTarget) -> Tile | None:
    k = min(_DEPTHS[c.factor], max(32 if c.factor == "i8" else 16, power_of_two(depth)))
    if c.factor == "f32" and m * n <= 64 * 64:
        k = min(32, max(16, power_of_two(depth)))
    if c.factor == "f32":
        warps = 8 if m * n >= 64 * 128 else 4
    else:
        warps = 8 if m * n >= 128 * 128 else 4 if m * n >= 32 * 32 else 2
    one = (m + n) * k * item_bytes(stored_as(c.factor))
    stages = min(4, max(1, -(-depth // k)), (target.shared - 4096) // one)
    return Tile(m, n, k, warps, stages) if stages >= 1 else None


def _cycles(c: Contraction, tile: Tile, extents: Sequence[int], target: GpuTarget) -> float:
    """What the product takes on the busiest processor. Arithmetic and reading overlap, but not quite; a tile begins
    and ends with a latency of its own."""
    m, n, depth, batch = extents
    tiles = -(-m // tile.m) * -(-n // tile.n) * batch
    steps = -(-depth // tile.k)
    size = item_bytes(stored_as(c.factor))
    arithmetic = tile.m * tile.n * tile.k / (_RATES[c.factor] * min(1.0, tile.m * tile.n / (64 * 64)))
    reading = (tile.m + tile.n) * tile.k * size / _CACHE_BYTES
    step = max(arithmetic, reading) + 0.2 * min(arithmetic, reading) + 20
    ending = tile.m * tile.n * 4 / _CACHE_BYTES + 500
    return -(-tiles // target.processors) * (steps * step + ending)


# -- emission --------------------------------------------------------------------------------------


def _form(c: Contraction, tile: Tile) -> Form:
    task = c.task
    w = Writer(task.kernel, task.buffers, (tile.m, tile.n))
    rows, columns, depth = total(c.m), total(c.n), total(c.k)
    batch, pm, pn = _numbers(w, c, tile)
    row = w.define("m", f"{pm} * {tile.m} + {w.range(0)}")
    column = w.define("n", f"{pn} * {tile.n} + {w.range(1)}")
    masks = {
        axis: w.define("b", f"{point} < {w.extent(count)}")
        for axis, point, count, block in ((0, row, rows, tile.m), (1, column, columns, tile.n))
        if count.known is None or count.factor % block
    }
    at = dict(batch)
    at |= w.decompose(Coordinate(row, frozenset({0})), c.m) if c.m else {}
    at |= w.decompose(Coordinate(column, frozenset({1})), c.n) if c.n else {}
    kind = carried_type(c.sum)
    w.line(f"acc = tl.zeros(({tile.m}, {tile.n}), {kind})")
    if depth.known is not None and depth.factor <= tile.k:
        _step(w, c, tile, at, masks, "")
    else:
        w.line(f"for k in range(0, {w.extent(depth)}, {tile.k}):")
        w.level += 1
        _step(w, c, tile, at, masks, "k + ")
        w.level -= 1
    w.shape, w.masks, w.remembered = (tile.m, tile.n), masks, {}
    _finish(w, c, "acc", at)
    tasks = _times(_times(ceiling(rows, tile.m), ceiling(columns, tile.n)), total(c.batch).expression)
    label = f"{tile.m}x{tile.n}x{tile.k} warps={tile.warps} stages={tile.stages}"
    return Form(w.module(task.symbol, task.about), tasks, tile.warps, tile.stages, label)


def _ring_forms(c: Contraction, target: GpuTarget) -> list[Form]:
    """Forms for GPUs whose copy engine and asynchronous products want them; none where one cannot say the factors."""
    left, right = matrix_of(c.left, c.m, c.k, c.batch), matrix_of(c.right, c.k, c.n, c.batch)
    if target.architecture != 90 or left is None or right is None or c.task.epilogue is None or c.batch:
        return []
    dtype = stored_as(c.factor)
    if {c.left.place.dtype, c.right.place.dtype} != {dtype} or c.factor in ("f32", "f64", "tf32x3"):
        return []
    if item_bytes(dtype) != 2 and (left.across or right.across is False):
        return []
    return [_ring_form(c, left, right, each, target) for each in RINGS]


def _ring_form(c: Contraction, left: Matrix, right: Matrix, ring: Ring, target: GpuTarget) -> Form:
    task = c.task
    assert task.epilogue is not None
    place = next((place for place in task.stored.values() if place.dtype in _LEAVING), None)
    result = matrix_of(Source(place), c.m, c.n, c.batch) if place is not None else None
    result = None if result is not None and result.across else result
    w = RingWriter(task.kernel, task.buffers, (ring.m, ring.n // ring.pieces), result.place if result else None)
    row, column = (w.define(name, f"{name}_at + {w.range(axis)}") for axis, name in enumerate("mn"))
    rows, columns = total(c.m), total(c.n)
    w.masks = {
        axis: w.define("b", f"{point} < {w.extent(count)}")
        for axis, point, count, block in ((0, row, rows, ring.m), (1, column, columns, ring.n))
        if count.known is None or count.factor % block
    }
    at = w.decompose(Coordinate(row, frozenset({0})), c.m) | w.decompose(Coordinate(column, frozenset({1})), c.n)
    _finish(w, c, "acc", at)
    parts = Parts(left, right, result, rows, columns, total(c.k), stored_as(c.factor), c.sum)
    tiles = _times(ceiling(rows, ring.m), ceiling(columns, ring.n))
    source = ring_module(w, parts, ring, task.symbol, task.about, _GROUP)
    return Form(source, tasks_of(tiles, target.processors), ring.warps, ring.stages, ring.label)


def _finish(w: Writer, c: Contraction, value: str, at: dict[int, Coordinate]) -> None:
    """What is done to the sum of products `value`, and stored."""
    task = c.task
    dtype = task.kernel.values[task.stage.outputs[0].value].dtype
    init = task.inits[0]
    if isinstance(init, Source):
        value = w.define("x", f"{value} + {w.read(init, at)}")
    elif init:
        value = w.define("x", f"{value} + {constant(init, dtype)}")
    if carried_type(dtype) != carried_type(c.sum):
        value = w.define("x", f"{value}.to({carried_type(dtype)})")
    value = w.define("x", rounded(value, dtype))
    if task.epilogue is not None:
        w.finish(task.epilogue, value, at, task.stored)


def _times(a: Expr, b: Expr) -> Expr:
    return a * b if isinstance(a, int) and isinstance(b, int) else b if a == 1 else a if b == 1 else ["*", a, b]


def _numbers(w: Writer, c: Contraction, tile: Tile) -> tuple[dict[int, Coordinate], str, str]:
    """Which tile a program makes: groups of rows of tiles go over their columns together, so that what they share is
    still in the cache."""
    p = w.program()
    m, n = (_blocks(w, total(loops), block) for loops, block in ((c.m, tile.m), (c.n, tile.n)))
    at: dict[int, Coordinate] = {}
    if c.batch:
        at = w.decompose(Coordinate(w.define("p", f"{p} // ({m} * {n})")), c.batch)
        p = w.define("p", f"{p} % ({m} * {n})")
    if m == "1" or n == "1":
        return (at, "0", p) if m == "1" else (at, p, "0")
    first = w.define("g", f"{p} // ({_GROUP} * {n}) * {_GROUP}")
    height = w.define("g", f"tl.minimum({m} - {first}, {_GROUP})")
    rest = w.define("g", f"{p} % ({_GROUP} * {n})")
    return at, w.define("p", f"{first} + {rest} % {height}"), w.define("p", f"{rest} // {height}")


def _blocks(w: Writer, count: Extent, block: int) -> str:
    return f"tl.cdiv({w.extent(count)}, {block})" if count.known is None else str(-(-count.factor // block))


def _step(w: Writer, c: Contraction, tile: Tile, at: dict[int, Coordinate], masks: dict[int, str], begin: str) -> None:
    """One turn along K: both factors are read, and multiplied."""
    w.remembered = {}
    left = _factor(w, c, c.left, (tile.m, tile.k), 1, at, {0: masks.get(0)}, begin)
    right = _factor(w, c, c.right, (tile.k, tile.n), 0, at, {1: masks.get(1)}, begin)
    precision = f', input_precision="{_PRECISIONS[c.factor]}"' if c.factor in _PRECISIONS else ""
    w.line(f"acc = tl.dot({left}, {right}, acc{precision}, out_dtype={carried_type(c.sum)})")


def _factor(
    w: Writer, c: Contraction, source: Source, shape: tuple[int, int], axis: int, at: dict[int, Coordinate],
    masks: dict[int, str | None], begin: str,
) -> str:
    """A tile of a factor, of `shape`; K runs along `axis`."""
    w.shape = shape
    w.masks = {a: mask for a, mask in masks.items() if mask is not None}
    depth = w.define("k", f"{begin}{w.range(axis)}")
    length = total(c.k)
    if length.known is None or length.factor % shape[axis]:
        w.masks[axis] = w.define("b", f"{depth} < {w.extent(length)}")
    points = at | w.decompose(Coordinate(depth, frozenset({axis})), c.k)
    value = w.read(source, points, other="0", raw=True)
    dtype = source.place.dtype
    wanted = stored_as(c.factor)
    return value if dtype == wanted else w.define("x", f"{value}.to({carried_type(wanted)})")
