"""Frontends: read a source into a `Program`. One module or package for each format."""

from __future__ import annotations

from motet.compiler.external_data import State
from motet.compiler.frontends.kinds import kind_of, text_of
from motet.compiler.ir.program import Program
from motet.compiler.protobuf import Content
from motet.errors import OptionError


def load_source(
    source: str | Content, file: str, format: str = "auto", model: str = "", states: dict[str, State] | None = None,
    sequences: str = "",
) -> Program:
    """Reads a program. `file` is its name in messages; `format` is one of `FORMATS`, or `auto`, which decides by the
    file's name and content (`kinds`).

    `source` may be a mapped file, whose large constants are then not copied. Text (or its UTF-8 bytes) is MLIR or
    StableHLO, XML is OpenVINO's IR; other bytes are ONNX, a serialized graph of `motet.builder`, or a file of
    torch.export.save. `place`
    converts the device annotations of the program into a placement; the default removes them. `model` is the file that
    an ONNX model or OpenVINO's IR was read from, required for data in other files, and `states` are the states that
    these must have.
    `sequences` gives the elements of an ONNX model's sequence inputs. Raises CompileError with the place.
    """
    kind = kind_of(source, file, format)
    if kind == "onnx":
        from motet.compiler.frontends.onnx.data import DataFiles
        from motet.compiler.frontends.onnx.loading import load_onnx

        data = source.encode() if isinstance(source, str) else source
        return load_onnx(data, file, DataFiles(model, states) if model else None, sequences)
    if sequences:
        raise OptionError("option sequences: of ONNX models only; expected none")
    if kind == "openvino":
        from motet.compiler.frontends.openvino.loading import load_openvino

        return load_openvino(source.encode() if isinstance(source, str) else source, file, model)
    if kind == "graph" and not isinstance(source, str):
        from motet.compiler.frontends.graph import load_serialized

        return load_serialized(source, file)
    if kind == "archive" and not isinstance(source, str):
        from motet.compiler.frontends.torch.archive import load_archive

        return load_archive(source[:], file)
    text = text_of(source, file)
    if kind == "stablehlo":
        from motet.compiler.frontends.stablehlo.loading import load_stablehlo

        return load_stablehlo(text, file)
    from motet.compiler.frontends.mlir import load_mlir

    return load_mlir(text, file)
