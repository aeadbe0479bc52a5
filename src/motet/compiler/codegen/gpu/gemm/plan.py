"""Chooses the forms of contractions and convolutions.

Forms are ranked by estimated time: arithmetic, and reads from the second-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.artifact.library import LibraryCall
from motet.compiler.codegen.gpu.conv.image_boxes import Boxes, Image
from motet.compiler.codegen.gpu.conv.tma_conv import boxes_of, expected_cycles, image_of
from motet.compiler.codegen.gpu.gemm import gemv, small_gemm
from motet.compiler.codegen.gpu.gemm.contraction import match, takes, worth_matrix_units
from motet.compiler.codegen.gpu.gemm.gemv import GemvBlock
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.gemm.library import library_call
from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix, matrix_of, suits_block_loads
from motet.compiler.codegen.gpu.gemm.persistent_tiles import Ring, ring_cycles, rings
from motet.compiler.codegen.gpu.gemm.small_gemm import SmallBlock
from motet.compiler.codegen.gpu.gemm.tiles import GemmShape, Tile, choose_tiles, cycles, stored_as
from motet.compiler.codegen.gpu.launches import FormT, LaunchClass, LaunchPart
from motet.compiler.codegen.gpu.tasks import Loop, task_of, total
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.strides import ONE, StridedAccess
from motet.compiler.targets.gpu import GpuTarget

_GUESS = 1024  # of a dynamic extent
_FORMS = 8
_HOPED = 1.12  # measured slowdown of forms without ring buffer, relative to the model
_LAUNCH = 5200  # cycles of a launch after another one, which `persistent.py` models and `tiles.py` does not
_LOAD = 8  # minimum bytes of a load


@dataclass(frozen=True)
class TileChoice:
    """One program per `tile` of the result; `left` and `right` are the operands if TMA can load them, else None."""

    c: ContractionLaunch
    tile: Tile
    left: Matrix | None
    right: Matrix | None


@dataclass(frozen=True)
class RingChoice:
    """Persistent programs with a ring buffer of tiles."""

    c: ContractionLaunch
    ring: Ring
    left: Matrix
    right: Matrix


@dataclass(frozen=True)
class ImageChoice:
    """Persistent programs for a convolution whose image TMA loads in boxes."""

    c: ContractionLaunch
    image: Image
    boxes: Boxes


@dataclass(frozen=True)
class SmallChoice:
    """A small product whose operands are loaded at once, multiplied by threads."""

    c: ContractionLaunch
    block: SmallBlock


@dataclass(frozen=True)
class GemvChoice:
    """A product of a few vectors and a matrix, the right operand; `along`: the matrix is contiguous along K."""

    c: ContractionLaunch
    block: GemvBlock
    along: bool


GemmChoice = TileChoice | RingChoice | ImageChoice | SmallChoice | GemvChoice


@dataclass(frozen=True)
class GemmPlan:
    """A contraction and its possible forms, the preferred one first."""

    c: ContractionLaunch
    choices: tuple[GemmChoice, ...]
    target: GpuTarget


class ContractionLaunches(LaunchClass[ContractionLaunch, GemmPlan, FormT]):
    name = "contraction"
    rank = 2

    def match(self, launch: LaunchPart, target: GpuTarget) -> ContractionLaunch | None:
        return match(task_of(launch), target) if takes(launch.kernel, launch.stages[0]) else None

    def plan(self, found: ContractionLaunch, target: GpuTarget) -> GemmPlan:
        return GemmPlan(found, choices(found, target), target)

    def library(self, plan: GemmPlan) -> LibraryCall | None:
        return library_call(plan.c, plan.target)


def choices(c: ContractionLaunch, target: GpuTarget) -> tuple[GemmChoice, ...]:
    """The possible forms of a contraction, the preferred one first."""
    if not worth_matrix_units(c.task.kernel, c.task.stage):
        way, along, blocks = gemv.blocks_of(c, target)
        return tuple(GemvChoice(way, block, along) for block in blocks)
    left, right = _described(c)
    m, n, k, batch = (total(loops).known or _GUESS for loops in (c.m, c.n, c.k, c.batch))
    narrow = _is_narrow(c.left, c.m, c.k) or _is_narrow(c.right, c.k, c.n)
    described = left is not None and right is not None
    if left is not None and right is not None and target.xpu is not None:
        described = all(suits_block_loads(each, c.batch) for each in (left, right))
    problem = GemmShape(m, n, k, batch, c.factor, described, narrow)
    tiles = choose_tiles(problem, target, _FORMS)
    plain: list[GemmChoice] = [SmallChoice(c, block) for block in small_gemm.blocks_of(c, target)]
    plain += [TileChoice(c, tile, left, right) for tile in tiles]
    image = image_of(c, target)
    images = [ImageChoice(c, image, boxes) for boxes in boxes_of(c, image, target)] if image is not None else []
    if images:
        first = expected_cycles(images[0].image, images[0].boxes, target) < cycles(problem, tiles[0], target)
        return (*images, *plain) if first else (*plain[:2], *images, *plain[2:])
    turned = _through_registers(c)
    if turned is not None:
        way, left, right = turned
        problem = replace(problem, m=total(way.m).known or _GUESS, n=total(way.n).known or _GUESS)
        return (*(RingChoice(way, ring, left, right) for ring in rings(way, left, right, problem, target)), *plain)
    around = rings(c, left, right, problem, target)
    if left is None or right is None or not around:
        return tuple(plain)
    first = ring_cycles(around[0], problem, target) < _HOPED * cycles(problem, tiles[0], target) + _LAUNCH
    own = [RingChoice(c, ring, left, right) for ring in around]
    return (*own, *plain) if first else (*plain[:1], *own, *plain[1:])


def _is_narrow(source: StridedAccess, first: Sequence[Loop], second: Sequence[Loop]) -> bool:
    """Whether threads must load an operand element by element, since its lines are unaligned."""
    strides = source.strides
    item = item_bytes(source.dtype)
    along = [size for size, dim in (*first, *second) if strides[dim] == ONE]
    apart = [strides[dim].factor for _, dim in (*first, *second) if strides[dim] != ONE]
    lengths = [size.factor for size in along] or [1]
    return any(count * item % _LOAD for count in (*lengths, *apart))


def _described(c: ContractionLaunch) -> tuple[Matrix | None, Matrix | None]:
    """The operands as matrices that TMA can load, if both suit: 16-bit numbers in any layout and others along K for
    tensor cores, any layout for threads."""
    left, right = matrix_of(c.left, c.m, c.k, c.batch), matrix_of(c.right, c.k, c.n, c.batch)
    dtype = stored_as(c.factor)
    if left is None or right is None or {left.place.dtype, right.place.dtype} != {dtype}:
        return None, None
    if item_bytes(dtype) != 2 and c.factor != "f32" and (left.across or not right.across):
        return None, None
    return left, right


def _through_registers(c: ContractionLaunch) -> tuple[ContractionLaunch, Matrix, Matrix] | None:
    """`c` and its operands, possibly exchanged, such that only the left one is contiguous across K; None if it is not a
    product of 32-bit operands. Tensor cores can read such an operand from registers."""
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
