"""Programs in normal form, as the stages of the compiler that follow them take them."""

from __future__ import annotations

from motet.compiler import frontends
from motet.compiler.frontends import mlir
from motet.compiler.ir.program import Program
from motet.compiler.pipeline import ONE_DEVICE, prepare
from motet.compiler.placement.erase_devices import EraseDevices
from motet.compiler.placement.place import Place
from motet.compiler.protobuf import Content


def load_source(
    source: str | Content, file: str, format: str = "auto", place: Place | EraseDevices = ONE_DEVICE
) -> Program:
    """The program of a source in any format, split by device as `place` says."""
    program = frontends.load_source(source, file, format)
    prepare(program, place)
    return program


def load_mlir(text: str, file: str, place: Place | EraseDevices = ONE_DEVICE) -> Program:
    """The program of MLIR text."""
    program = mlir.load_mlir(text, file)
    prepare(program, place)
    return program
