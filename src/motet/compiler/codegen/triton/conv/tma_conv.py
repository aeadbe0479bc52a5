"""Convolutions on Hopper whose images the copy engine reads, as Gluon programs: a form for boxes of an image."""

from __future__ import annotations

from motet.compiler.codegen.gpu.conv.image_boxes import (
    UNIT,
    Boxes,
    Image,
    tiles_of,
)
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.triton.conv.tma_conv_text import ImageWriter, TmaConvText, can_store, coordinates, stores
from motet.compiler.codegen.triton.gemm.products import finish, stay
from motet.compiler.codegen.triton.text.program import Form, tile_along
from motet.compiler.codegen.triton.text.writer import Coordinate
from motet.compiler.targets.gpu import GpuTarget


def image_form(c: ContractionLaunch, image: Image, boxes: Boxes, target: GpuTarget) -> Form:
    """Raises `UnsupportedOnGpu` for operations without code."""
    task, filters = c.task, image.filters
    result = next(iter(task.stored.values()))
    leaves = can_store(image, result)
    w = ImageWriter(task.kernel, task.buffers, (boxes.m, UNIT), stores(image, boxes) if leaves else ())
    wide = ".to(tl.int64)" if w.wide else ""
    points = [w.define(name, f"({name}_at + {w.range(axis)}){wide}") for axis, name in enumerate("mn")]
    axis = 0 if image.are_rows else 1
    at, mask = coordinates(w, image, boxes, points[axis], axis)
    at[filters.dim] = Coordinate(points[1 - axis], frozenset({1 - axis}))
    w.masks[axis] = w.define("b", mask)
    if filters.count % (boxes.n if image.are_rows else boxes.m):
        w.masks[1 - axis] = w.define("b", f"{points[1 - axis]} < {filters.count}")
    finish(w, c, "acc", at)
    rows, columns = tiles_of(image, boxes)
    text = TmaConvText(w, c, image, boxes, result if leaves else None)
    return Form(
        text.module(task.symbol, task.about), stay(rows * columns, target.processors), boxes.warps, boxes.stages,
        boxes.label, specialized=True,
        tiles=(tile_along(c.m, boxes.m), tile_along(c.n, boxes.n), tile_along(c.k, UNIT)),
    )
