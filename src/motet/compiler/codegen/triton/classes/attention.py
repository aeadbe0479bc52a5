"""The class `attention`: two products with a softmax between them; one launch, or two for few queries."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.attention.space import AttentionSpace
from motet.compiler.codegen.triton.attention import attention, decode, hopper
from motet.compiler.codegen.triton.attention.attention import Emitted
from motet.compiler.codegen.triton.attention.decode import KeyParts
from motet.compiler.kernels.attention.description import Attention
from motet.compiler.kernels.attention.matching import match as match_attention
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.targets.gpu import GpuTarget


@dataclass(frozen=True)
class AttentionPlan:
    """`parts` are the parts into which keys are split for few queries."""

    found: Attention
    space: AttentionSpace
    parts: KeyParts | None
    target: GpuTarget


def match(kernel: Kernel) -> Attention | None:
    return match_attention(kernel)


def plan(found: Attention, target: GpuTarget) -> AttentionPlan:
    space = attention.space_of(found)
    return AttentionPlan(found, space, decode.parts_of(space, target), target)


def forms(plan: AttentionPlan, about: str) -> Emitted:
    """The forms of `plan`, best first. Raises `Unsupported` for operations without code."""
    found, target = plan.found, plan.target
    kernel = found.kernel
    if plan.parts is not None:
        return decode.emit(found, plan.parts, kernel.name, about, target)
    first = hopper.forms_of(plan.space, kernel.externals, kernel.name, about, target)
    return attention.emit(found, kernel.name, about, target, first)
