"""Motet compiles a tensor program once, ahead of time, into one file, and runs that file without a compiler.

    artifact = motet.compile("model.onnx")
    artifact.save("model.motet")
    session = motet.load("model.motet")
    y = session(x)

Imports are lazy: `import motet` is light, and `motet.runtime` never loads the compiler.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from motet.errors import (
    ArtifactError,
    CallError,
    CompileError,
    DeviceError,
    Location,
    MotetError,
    OptionError,
    OutOfMemoryError,
    WorkerCrash,
)
from motet.on_use import imported_on_use
from motet.version import VERSION

if TYPE_CHECKING:
    from motet import builder as builder
    from motet import huggingface as huggingface
    from motet import jax as jax
    from motet import llm as llm
    from motet import onnxruntime as onnxruntime
    from motet import opencl as opencl
    from motet import openvino as openvino
    from motet import runtime as runtime
    from motet.artifact.reader import Artifact
    from motet.compiler.service import CompileRequest
    from motet.options import Options
    from motet.runtime.device import devices
    from motet.runtime.session import Session

__all__ = [
    "Artifact", "ArtifactError", "CallError", "CompileError", "DeviceError", "Location", "MotetError",
    "OptionError", "Options", "OutOfMemoryError", "Session", "WorkerCrash", "__version__", "compile", "devices", "load",
]

__version__ = VERSION

Format = Literal["auto", "mlir", "onnx", "openvino", "stablehlo"]
FORMATS: tuple[Format, ...] = ("auto", "mlir", "onnx", "openvino", "stablehlo")

_MODULES = ("builder", "huggingface", "jax", "llm", "onnxruntime", "opencl", "openvino", "runtime")

if not TYPE_CHECKING:
    __getattr__ = imported_on_use("motet", {
        "Artifact": "motet.artifact.reader:Artifact", "Options": "motet.options:Options",
        "Session": "motet.runtime.session:Session", "devices": "motet.runtime.device:devices",
        **{name: f"motet.{name}" for name in _MODULES},
    })  # fmt: skip


# Parameters: the caller's choices, by keyword, as options of `motet compile`.
def compile(
    source: Any,
    *,
    devices: Mapping[str, str] | str | None = None,
    options: Options | Mapping[str, str | int | bool | os.PathLike[str]] | None = None,
    format: Format = "auto",
    cache: bool = True,
    placement: Literal["default", "auto"] = "default",
    place: Mapping[str, str] | None = None,
    mesh: str = "",
    shard: Mapping[str, str] | None = None,
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    progress: Callable[[str, float], None] | None = None,
) -> Artifact:
    """Compile `source` for `devices` into an artifact.

    `source` is the path of a file (MLIR text, ONNX, StableHLO, OpenVINO's IR, a .pt2 of torch.export), MLIR text (a
    string with a line break), the bytes of such a file, an `onnx.ModelProto`, an `openvino.Model`, a
    `motet.builder` graph, a `torch.export.ExportedProgram`, or a `torch.nn.Module` with `inputs`: example tensors
    for a call, in order or by name. `dynamic_shapes` marks the extents of inputs that may differ between calls, in
    the format of torch.export. `devices` maps names to device expressions, `{"gpu": "cuda,@cpu", "cpu": "host"}`,
    or is one expression, `"host{cpu=x86-64-v4}"`; by default, code is made for the CPU levels of the host's kind.
    `cache=False` ignores cached results. Operations that the program does not place run on its default device or,
    with `placement="auto"`, where a cost model places them; `place` maps patterns of names in the source, such as
    those of an ONNX model's nodes, to devices: `{"layer4*": "gpu"}`. `mesh="data=2,model=4"` divides the program over
    devices, and `shard` dimensions of named arguments and operations over its axes: `{"layers.*.q": "model:1"}`.
    `options` are an `Options`, or a mapping with the names of the command line. `progress` is called with what is being
    done and the fraction of the work (0 to 1). Progress is also logged, to the logger `motet`.

    Raises `CompileError` for a program that cannot be read or compiled, `OptionError` for an invalid source, device
    expression or option, `WorkerCrash` if a native part of the compiler crashed.
    """
    from motet.argument_kinds import check_kind, refuse_kind, text_pairs
    from motet.compiler import service

    name = ""
    if inputs is not None or dynamic_shapes is not None or _is_torch(source):
        name, source = type(source).__name__, _exported(source, inputs, dynamic_shapes)
    request = _request(source, devices, options, format, cache, placement, place)
    check_kind("cache", cache, int, "True or False")
    check_kind("mesh", mesh, str, 'axes and their numbers of devices, "data=2,model=4"')
    if progress is not None and not callable(progress):
        refuse_kind("progress", progress, "a function of a text and a number")
    expected = 'names and the axes of their dimensions, {"layers.*.q": "model:1"}'
    shards = tuple(f"{names}={axes}" for names, axes in text_pairs("shard", shard, expected))
    request = dataclasses.replace(request, mesh=mesh, shards=shards, path=name or request.path)
    begin = time.perf_counter()
    artifact = service.compile(request, progress)
    logging.getLogger("motet").info("compiled %s in %.3f s: %d bytes for %s", request.path or "<string>",
                                    time.perf_counter() - begin, len(artifact.data),
                                    ", ".join(variant.target for variant in artifact.manifest.variants))
    return artifact


def load(
    source: str | os.PathLike[str] | bytes | Artifact,
    *,
    devices: Mapping[str, str] | str | None = None,
    threads: int | None = None,
    in_flight: int | None = None,
    copy: bool = False,
) -> Session:
    """Load an artifact (a path, its bytes, or the result of `compile`) and bind it to this machine's devices.

    `devices` binds named devices to physical ones, `{"gpu": "cuda:0"}`; `threads` limits the CPU threads of host code,
    `in_flight` the concurrent calls of `submit` (default 4). `copy` reads a file into memory instead of mapping it: a
    mapped one that is cut short while it is in use ends the process. Raises `ArtifactError` for a file that is not a
    valid artifact, `DeviceError` if it has no code for this machine.
    """
    from motet import runtime

    path_or_artifact = os.fspath(source) if isinstance(source, os.PathLike) else source
    if in_flight is None:
        return runtime.load(path_or_artifact, devices=devices, threads=threads, copy=copy)
    return runtime.load(path_or_artifact, devices=devices, threads=threads, in_flight=in_flight, copy=copy)


def _request(
    source: Any,
    devices: Mapping[str, str] | str | None,
    options: Options | Mapping[str, str | int | bool | os.PathLike[str]] | None,
    format: str,
    cache: bool,
    placement: str,
    place: Mapping[str, str] | None,
) -> CompileRequest:
    from motet.argument_kinds import check_kind, text_pairs
    from motet.compiler.service import CompileRequest
    from motet.compiler.targets.device_flags import device_flags_of

    check_kind("format", format, str, f"one of {', '.join(FORMATS)}")
    check_kind("placement", placement, str, "default or auto")
    if format not in FORMATS:
        raise OptionError(f"format '{format}': no such format; expected one of {', '.join(FORMATS)}")
    places = text_pairs("place", place, 'patterns of names and devices, {"layer4*": "gpu"}')
    data, path, implied = _read(source)
    if implied and format not in ("auto", implied):
        raise OptionError(f"format '{format}': the source is {implied}; leave out the format")
    return CompileRequest(
        source=data,
        path=path,
        format=implied or format,
        devices=device_flags_of(devices),
        options=_option_pairs(options),
        cache=cache,
        placement=placement,
        places=places,
    )


def _option_pairs(
    options: Options | Mapping[str, str | int | bool | os.PathLike[str]] | None,
) -> tuple[tuple[str, str], ...]:
    from motet.argument_kinds import check_kind
    from motet.options import Options, option_text

    if options is None:
        return ()
    if isinstance(options, Options):
        return options.pairs()
    check_kind("options", options, Mapping, 'motet.Options(…), or a mapping such as {"keep-source": True}')
    return tuple((str(key), option_text(str(key), value)) for key, value in options.items())


def _is_torch(source: Any) -> bool:
    """Whether `source` is a PyTorch object. Does not load torch: if it is one, torch is loaded."""
    return any(f"{kind.__module__}.{kind.__qualname__}" in _TORCH for kind in type(source).__mro__)


_TORCH = ("torch.nn.modules.module.Module", "torch.export.exported_program.ExportedProgram")


def _exported(source: Any, inputs: Sequence[Any] | Mapping[str, Any] | None, dynamic_shapes: Any) -> bytes:
    """A PyTorch module or exported program, serialised for the compiler."""
    if not _is_torch(source):
        raise OptionError(f"inputs: the source is of type {type(source).__module__}.{type(source).__qualname__}; "
                          "only a torch.nn.Module is compiled for inputs that are given")
    from motet.argument_kinds import refuse_kind
    from motet.pytorch.export import export_module, serialize_program

    if type(source).__name__ == "ExportedProgram":
        if inputs is not None or dynamic_shapes is not None:
            raise OptionError("inputs: the program was exported for its inputs already; leave them out")
        return serialize_program(source, "<ExportedProgram>")
    if inputs is None:
        raise OptionError(f"source: a module ({type(source).__qualname__}) without inputs; expected "
                          "inputs=(tensor, …), tensors as it is called with")
    if isinstance(inputs, str) or not hasattr(inputs, "__iter__") or hasattr(inputs, "shape"):
        refuse_kind("inputs", inputs, "a tuple of tensors as the module is called with, or tensors by name")
    return export_module(source, inputs, dynamic_shapes)


def _read(source: Any) -> tuple[str | bytes | None, str, str]:
    """The source to compile (None if it is in a file), its name for messages, and its format if its type determines
    it."""
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source):
        path = os.fspath(source)
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib would cost every import of motet
                # regular files are read by the compiler's worker
                return None if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else file.read(), str(path), ""
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise OptionError(f"{path}: cannot be read: {why[:1].lower()}{why[1:]}; "
                              "expected the path of a program, or MLIR text with a line break") from None
    if isinstance(source, str):
        return source, "<string>", ""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), "<bytes>", ""
    # Neither onnx nor the builder is loaded: if `source` is one of their objects, its module is loaded.
    kind = type(source)
    if kind.__name__ == "ModelProto" and hasattr(source, "SerializeToString"):
        return _serialized_model(source), source.graph.name or "<onnx>", "onnx"
    if _is_openvino(kind):
        from motet.compiler.frontends.openvino.loading import serialize_model

        return serialize_model(source), source.get_friendly_name() or "<openvino>", "onnx"
    if kind.__module__.split(".")[:2] == ["motet", "builder"]:
        return source.serialize(), "<graph>", "mlir"
    raise OptionError(f"source: it is of type {kind.__module__}.{kind.__qualname__}; expected a path, MLIR "
                      "text with a line break, bytes, an onnx.ModelProto, an openvino.Model, a torch.nn.Module, an "
                      "ExportedProgram or a motet.builder graph")


def _is_openvino(kind: type) -> bool:
    """Whether objects of `kind` are models of OpenVINO."""
    return any(one.__name__ == "Model" and one.__module__.split(".")[0] == "openvino" for one in kind.__mro__)


def _serialized_model(model: Any) -> bytes:
    try:
        return model.SerializeToString()
    except Exception as error:  # protobuf raises several classes of errors for messages over 2 GiB
        raise OptionError(f"source: the onnx.ModelProto cannot be serialized: {error}; expected less than 2 GiB; save "
                          "it by onnx.save_model(…, save_as_external_data=True), and give its path") from None


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "errors"})
