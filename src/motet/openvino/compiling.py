"""compile_model: OpenVINO compiles a model, of which Motet compiles what it can."""

# openvino need not be installed, and has no types for its bindings.
# Where it is not installed, pyright takes this package for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openvino as ov
from openvino.passes import ConstantFolding, Manager

import motet
from motet.artifact.reader import Artifact
from motet.errors import CompileError, OptionError
from motet.openvino.call import MotetCall
from motet.openvino.compiled import CompiledModel, meaning, one_line
from motet.openvino.replace import Lowering, replace_parts
from motet.openvino.saving import without_code
from motet.openvino.settings import Settings, read_settings, threads_of

CPU = "CPU"
SMALLEST = 4


# Parameters: the caller's choices, by keyword.
def compile_model(
    model: Any,
    device: str = "CPU",
    hint: Any = None,
    *,
    config: Mapping[str, Any] | None = None,
    devices: str = "host{cpu=native}",
    options: Mapping[str, str | int | bool] | None = None,
    smallest: int = SMALLEST,
    core: Any = None,
) -> CompiledModel:
    """Compile `model`, an `openvino.Model` or the path of a file that OpenVINO reads, for OpenVINO's `device`.

    Connected parts of at least `smallest` operations that Motet can compile become calls of compiled functions, which
    work on OpenVINO's tensors in place. `model` is not changed. `hint` is the precision of products, `f32` or
    `bf16`; None is OpenVINO's choice for the device and `config`, its properties. `devices` and `options` are those of
    `motet.compile`. Raises OptionError for an unknown device, hint or property, or a model that cannot be read.
    """
    core = core or ov.Core()
    core.add_extension(MotetCall)
    if device != CPU:
        raise OptionError(f"device {device!r}: no such device; expected CPU, or compile_on_queue for a GPU's queue")
    settings = read_settings(core, device, hint, config)
    lowering = lowering_for(settings.precision, devices, options, smallest)
    return compile_with(core, own_copy(core, model), device, settings, lowering)


def compile_with(core: Any, model: Any, device: str, settings: Settings, lowering: Lowering) -> CompiledModel:
    """Replace parts of `model` in place, as `lowering` says, and have OpenVINO compile the rest."""
    earlier = without_code(model)
    made = replace_parts(model, lowering)
    runners = [*earlier, *made.runners]
    with one_line(CompileError):
        compiled = core.compile_model(model, device, dict(settings.config))
    for runner in runners:
        runner.threads = threads_of(compiled)
        runner.prepare()
    return CompiledModel(compiled, model, made.report, runners)


def lowering_for(
    precision: str, devices: str, options: Mapping[str, str | int | bool] | None, smallest: int
) -> Lowering:
    """Motet's compiler with `options`, for products of `precision`."""
    from motet.compiler.frontends.openvino.translate import supported

    chosen: dict[str, str | int | bool] = {} if precision == "f32" else {"precision": precision}
    chosen |= options or {}

    def compile_part(part: Any) -> Artifact:
        return motet.compile(part, devices=devices, options=chosen)

    return Lowering(lambda operation: supported(operation) or "", compile_part, smallest)


def own_copy(core: Any, model: Any) -> Any:
    """The model to change, with OpenVINO's operations on constants evaluated, such as ranges of axes."""
    own = model.clone() if isinstance(model, ov.Model) else _read_model(core, model)
    manager = Manager()
    manager.register_pass(ConstantFolding())
    manager.run_passes(own)
    return own


def _read_model(core: Any, model: Any) -> Any:
    if not isinstance(model, (str, os.PathLike)):
        raise OptionError(f"model: it is of type {type(model).__module__}.{type(model).__qualname__}; expected an "
                          "openvino.Model, or the path of a file that OpenVINO reads")
    path = os.fspath(model)
    try:
        if path.endswith(".xml"):
            _check_ir(path)
        return core.read_model(path)
    except (OSError, CompileError, RuntimeError) as error:
        said = str(error).removeprefix(f"{path}: ") if isinstance(error, CompileError) else meaning(str(error))
        raise OptionError(f"{path}: cannot be read: {said}") from None


def _check_ir(path: str) -> None:
    """Raises CompileError for IR that is truncated or lacks constants, of which OpenVINO's errors do not tell."""
    from motet.compiler.frontends.openvino.files import check_ir

    text = Path(path).read_bytes()
    if text.strip():
        check_ir(text, path, path)
