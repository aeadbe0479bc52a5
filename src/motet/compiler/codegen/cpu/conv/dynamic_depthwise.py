"""Depthwise convolutions with channels-last results along axes of which some have dynamic extents.

They are computed as `depthwise.py` computes others, but of a copy of the image with its padding, so that the columns of
a row do not differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.cpu.conv.depthwise import DepthwiseEmitter
from motet.compiler.codegen.cpu.conv.depthwise_plan import MOST_TAPS, Depthwise, read_depthwise
from motet.compiler.codegen.cpu.conv.depthwise_plan import check as check_depthwise
from motet.compiler.codegen.cpu.conv.depthwise_plan import choose as choose_depthwise
from motet.compiler.codegen.cpu.conv.dynamic import guesses_of, padded_copy
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import DepthwiseSchedule, DynamicDepthwiseSchedule, Reason
from motet.compiler.targets.cpu import CpuTarget


@dataclass(frozen=True)
class DynamicDepthwise:
    """A depthwise convolution `c`, in whose windows dynamic extents are guesses, of `copy`."""

    c: Depthwise
    copy: PreparedImage


def match(kernel: Kernel, target: CpuTarget) -> DynamicDepthwise | None:
    """Read `kernel` as a depthwise convolution along dynamic axes; None if it is not one, or if its window has too many
    columns."""
    if not kernel.symbols or not kernel.stages:
        return None
    c = read_depthwise(kernel, guesses_of(kernel))
    if c is None or c.columns.taps > MOST_TAPS:
        return None
    copy = padded_copy(c, c.image.strides[c.channel_dim])
    return None if copy is None else DynamicDepthwise(c, copy)


def choose(d: DynamicDepthwise, target: CpuTarget) -> DynamicDepthwiseSchedule:
    """The register tile of a convolution of known extents."""
    found = choose_depthwise(d.c, target)
    return DynamicDepthwiseSchedule(found.lanes, found.vectors, found.pixels)


def check(d: DynamicDepthwise, schedule: DynamicDepthwiseSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `d` on `target`; an empty list if it is."""
    return check_depthwise(d.c, _alike(d, schedule), target)


def emit(d: DynamicDepthwise, schedule: DynamicDepthwiseSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a depthwise convolution along dynamic axes by `schedule`."""
    return DepthwiseEmitter(d.c.of(d.copy), _alike(d, schedule), d.copy).run()


CLASS = KernelClass(DynamicDepthwiseSchedule, match, choose, check, emit)


def _alike(d: DynamicDepthwise, s: DynamicDepthwiseSchedule) -> DepthwiseSchedule:
    """The schedule of a convolution of known extents whose tasks are single rows with all channels."""
    return DepthwiseSchedule(s.lanes, s.vectors, s.pixels, 1, -(-d.c.channels // max(1, s.lanes * s.vectors)))
