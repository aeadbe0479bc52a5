"""Writes TMA descriptors of matrices as Triton text (`tl.make_tensor_descriptor`)."""

from __future__ import annotations

from collections.abc import Mapping

from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.kernels.strides import Extent


def describe(w: Writer, matrix: Matrix, at: Mapping[int, Coordinate], block: tuple[int, int]) -> str:
    """The arguments of a descriptor: base, shape, strides and tile, lines first."""
    base = w.offset(matrix.place, at).text
    pointer = f"v{matrix.place.value}" if base == "0" else f"v{matrix.place.value} + ({base})"
    return (
        f"{pointer}, [{short(w, matrix.lines)}, {short(w, matrix.length)}], [{w.extent(matrix.stride)}, 1], "
        f"[{block[0]}, {block[1]}]"
    )


def short(w: Writer, extent: Extent) -> str:
    """An extent in 32 bits, as descriptors require."""
    return f"tl.cast({w.extent(extent)}, tl.int32)" if extent.symbols else w.extent(extent)
