"""Kernels from `linalg.generic`, written as index expressions: `n, 2*o + 3*w, c ; f, w, c -> n, o, f`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.prepared import load_mlir

from motet.compiler import pipeline
from motet.compiler.build.partitioning import partition
from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.kernel import Kernel, Stage

PRODUCT = ("arith.mulf %a0, %a1", "arith.addf %r, %t")
MAXIMUM = ("arith.addf %a0, %z", "arith.maximumf %r, %t")


def kernel_of(
    expressions: str, sizes: Mapping[str, int], pads: Mapping[int, tuple[int, int]] | None = None,
    body: Sequence[str] = PRODUCT,
) -> Kernel:
    """The one kernel of a program that is one operation of f32. Letters are loops, of `sizes`: those that the result
    does not have are reduced. `pads` are zeros before and after axes of the first operand."""
    program = load_mlir(text_of(expressions, sizes, pads or {}, body), "test.mlir")
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        (kernel,) = partition(program).readable.values()
    return kernel


def stage_of(
    expressions: str, sizes: Mapping[str, int], pads: Mapping[int, tuple[int, int]] | None = None,
    body: Sequence[str] = PRODUCT,
) -> Stage:
    """The stage of `kernel_of`."""
    (stage,) = kernel_of(expressions, sizes, pads, body).stages
    return stage


def letters(stage: Stage, dims: Sequence[int], sizes: Mapping[str, int]) -> str:
    """Dimensions of a stage as letters, which are told by their sizes."""
    return "".join(sorted({size: name for name, size in sizes.items()}[stage.sizes[d]] for d in dims))


def text_of(
    expressions: str, sizes: Mapping[str, int], pads: Mapping[int, tuple[int, int]], body: Sequence[str]
) -> str:
    """The program's text."""
    reads, result = (part.strip() for part in expressions.split("->"))
    operands = [[entry.strip() for entry in read.split(",")] for read in reads.split(";")]
    loops = list(dict.fromkeys(re.findall(r"[a-z]", result + reads)))
    entries = [*operands, [entry.strip() for entry in result.split(",")]]
    shapes = [[_extent(entry, sizes) for entry in each] for each in entries]
    whole = list(shapes)
    before, padded = "", "%x0"
    if pads:
        low = [pads.get(axis, (0, 0))[0] for axis in range(len(shapes[0]))]
        high = [pads.get(axis, (0, 0))[1] for axis in range(len(shapes[0]))]
        whole[0] = [size - a - b for size, a, b in zip(shapes[0], low, high, strict=True)]
        indices = ", ".join(f"%i{axis}: index" for axis in range(len(low)))
        before = (
            f"%p = tensor.pad %x0 low{low} high{high} {{\n^bb0({indices}):\n  tensor.yield %z : f32\n}} : "
            f"{_tensor(whole[0])} to {_tensor(shapes[0])}"
        )
        padded = "%p"
    kinds = ["parallel" if loop in result else "reduction" for loop in loops]
    maps = [f"affine_map<({', '.join(loops)}) -> ({', '.join(each)})>" for each in entries]
    count = len(operands)
    values = [padded, *(f"%x{number}" for number in range(1, count))]
    arguments = ", ".join(f"%x{number}: {_tensor(whole[number])}" for number in range(count))
    return f"""
func.func @main({arguments}) -> {_tensor(shapes[-1])} {{
  %z = arith.constant 0.0 : f32
  {before}
  %e = tensor.empty() : {_tensor(shapes[-1])}
  %f = linalg.fill ins(%z : f32) outs(%e : {_tensor(shapes[-1])}) -> {_tensor(shapes[-1])}
  %y = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{', '.join(f'"{k}"' for k in kinds)}]}}
    ins({', '.join(values)} : {', '.join(map(_tensor, shapes[:-1]))}) outs(%f : {_tensor(shapes[-1])}) {{
  ^bb0({', '.join(f'%a{number}: f32' for number in range(count))}, %r: f32):
    %t = {body[0]} : f32
    %s = {body[1]} : f32
    linalg.yield %s : f32
  }} -> {_tensor(shapes[-1])}
  return %y : {_tensor(shapes[-1])}
}}"""


def _extent(entry: str, sizes: Mapping[str, int]) -> int:
    """The extent that an index expression reaches over."""
    found = 1
    for term in entry.split("+"):
        factor, _, loop = term.strip().rpartition("*")
        found += int(factor.strip() or 1) * (sizes[loop.strip()] - 1)
    return found


def _tensor(shape: Sequence[int]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"
