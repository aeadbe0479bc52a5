"""Models compiled by OpenVINO with calls of Motet: requests whose errors are one line."""

# openvino need not be installed, and has no types for its bindings.
# Where it is not installed, pyright takes this package for it.
# pyright: reportUntypedBaseClass=false, reportMissingImports=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Sequence
from typing import Any

import openvino as ov

from motet.errors import CallError, CompileError
from motet.openvino.report import Report
from motet.openvino.runner import Runner
from motet.openvino.saving import with_code


class InferRequest(ov.InferRequest):
    """OpenVINO's request. Raises CallError for inputs that a part does not accept."""

    def infer(self, *arguments: Any, **options: Any) -> Any:
        """See openvino.InferRequest.infer."""
        with one_line(CallError, self.model_inputs):
            return super().infer(*arguments, **options)

    def wait(self) -> None:
        """See openvino.InferRequest.wait."""
        with one_line(CallError):
            super().wait()


class CompiledModel(ov.CompiledModel):
    """OpenVINO's compiled model. `model` is the model with calls of Motet, `report` lists them and what stays with
    OpenVINO."""

    def __init__(self, compiled: Any, model: Any, report: Report, runners: Sequence[Runner]) -> None:
        super().__init__(compiled)
        self.model = model
        self.report = report
        self.runners = tuple(runners)

    def create_infer_request(self) -> InferRequest:
        """See openvino.CompiledModel.create_infer_request."""
        return InferRequest(super().create_infer_request())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as IR, with the compiled functions inside: `path` ends with .xml, and the constants are in a
        file that ends with .bin. `compile_model(path)` reads it, and so does a process without a compiler, after
        `core.add_extension(motet.openvino.MotetCall)`."""
        ov.save_model(with_code(self.model), os.fspath(path), compress_to_fp16=False)


@contextlib.contextmanager
def one_line(kind: type[CallError] | type[CompileError], inputs: Sequence[Any] = ()) -> Generator[None]:
    """Raises OpenVINO's exceptions, and those of calls inside it, as one line of class `kind`. `inputs` are those of a
    request, for errors in their extents."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        text = str(error)
        raise kind(_raised(text) or _misfit(text, inputs) or f"OpenVINO: {meaning(text)}") from None


def _raised(text: str) -> str:
    """The message of the exception of Python that an exception's text tells of; empty if there is none."""
    found = re.search(r"^(?:motet\.errors\.)?\w*Error: (.*)$", text, re.MULTILINE)
    return found[1] if found else ""


def _misfit(text: str, inputs: Sequence[Any]) -> str:
    """The input and the axis of an exception's text that gives both shapes; empty for other texts."""
    found = re.search(r"tensor with index: (\d+), .*\(shape=(\[.*\])\) and the tensor \(shape=\(([\d.]*)\)\)", text)
    if found is None or int(found[1]) >= len(inputs):
        return ""
    shape, given = ov.PartialShape(found[2]), [int(extent) for extent in found[3].split(".") if extent]
    names = sorted(inputs[int(found[1])].get_names())
    where = f'input "{names[0]}"' if names else f"input {found[1]}"
    for axis, extent in enumerate(given if len(given) == len(shape) else ()):
        if not shape[axis].compatible(ov.Dimension(extent)):
            return f"{where}: axis {axis} is {extent}; expected {shape[axis].to_string()}"
    return f"{where}: {len(given)} axes given; expected {len(shape)}"


def meaning(text: str) -> str:
    """The line of an exception's text that says what is wrong; the others are places in source."""
    if said := _raised(text):
        return said
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Exception from", "While validating", "[GPU] Please"))]
    return re.sub(r"^Check '.*' failed at \S+:?\s*", "", (told or lines or [""])[-1])
