"""ONNX Runtime on the ONNX cases, with unchanged models."""

from __future__ import annotations

import re

import onnx
import onnxruntime

from conformance import onnx_cases
from conformance.onnx_cases import cases
from motet.compiler.verify.model_oracles import call_session
from motet.errors import CompileError

__all__ = ["cases", "check"]

_SETS = re.compile(r"Opset (\d+) is under development.*?till opset (\d+)")
_VERSION = re.compile(r"max supported IR version: (\d+)")


def check(suite: str, case: str) -> str:
    """Run a case; an error of ONNX Runtime becomes a CompileError, as if it were Motet's."""
    return run(onnx_cases.load(suite, case), lowered=False)


def run(case: onnx_cases.Case, lowered: bool) -> str:
    """Run a case, with its versions lowered to those that ONNX Runtime supports, if needed."""
    session = _open(case.model, lowered)
    names = [value.name for value in session.get_inputs()]
    for inputs, expected in case.data:
        try:
            results = call_session(session, dict(zip(names, inputs, strict=False)))
        except Exception as error:
            raise CompileError(str(error)) from None
        onnx_cases.judge(case, inputs, results, expected)
    return ""


def _open(model: onnx.ModelProto, lowered: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    for _ in range(4):  # each error names one version
        try:
            return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        except Exception as error:
            lower = _lowered(model, str(error)) if lowered else None
            if lower is None:
                raise CompileError(str(error)) from None
            model = lower
    raise CompileError("its versions cannot be lowered to supported ones")


def _lowered(model: onnx.ModelProto, complaint: str) -> onnx.ModelProto | None:
    """`model` with the version named by `complaint` lowered to the supported one; None if it names none."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if found := _VERSION.search(complaint):
        copy.ir_version = int(found[1])
        return copy
    if found := _SETS.search(complaint):
        for each in copy.opset_import:
            if each.version == int(found[1]):
                each.version = int(found[2])
        return copy
    return None
