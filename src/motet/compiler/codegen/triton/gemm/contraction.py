"""Writes the forms of a contraction's plan as Triton programs."""

from __future__ import annotations

from motet.compiler.codegen.gpu.gemm.plan import (
    GemmChoice,
    GemmPlan,
    GemvChoice,
    ImageChoice,
    RingChoice,
    SmallChoice,
    TileChoice,
)
from motet.compiler.codegen.triton.conv.tma_conv import image_form
from motet.compiler.codegen.triton.gemm.gemv import gemv_form
from motet.compiler.codegen.triton.gemm.persistent import ring_form
from motet.compiler.codegen.triton.gemm.products import product_form
from motet.compiler.codegen.triton.gemm.small_gemm import small_form
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.targets.gpu import GpuTarget


def emit(plan: GemmPlan) -> tuple[Form, ...]:
    """The programs of `plan`. Raises `UnsupportedOnGpu` for operations without code."""
    return tuple(_form(choice, plan.target) for choice in plan.choices)


def _form(choice: GemmChoice, target: GpuTarget) -> Form:
    match choice:
        case TileChoice(c, tile, left, right):
            return product_form(c, tile, left, right)
        case RingChoice(c, ring, left, right):
            return ring_form(c, left, right, ring, target)
        case ImageChoice(c, image, boxes):
            return image_form(c, image, boxes, target)
        case SmallChoice(c, block):
            return small_form(c, block)
        case GemvChoice(c, block, along):
            return gemv_form(c, block, along)
