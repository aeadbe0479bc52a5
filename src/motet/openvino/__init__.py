"""Motet inside OpenVINO: the parts of a model that Motet compiles become single operations of OpenVINO's pipeline.

    compiled = motet.openvino.compile_model(model, "CPU", hint="bf16")
    print(compiled.report)
    results = compiled(x)

Needs OpenVINO (`pip install openvino`).
"""

from motet.openvino.compiled import CompiledModel, InferRequest
from motet.openvino.compiling import compile_model
from motet.openvino.graph import Left
from motet.openvino.operation import MotetCall
from motet.openvino.report import Replaced, Report

__all__ = ["CompiledModel", "InferRequest", "Left", "MotetCall", "Replaced", "Report", "compile_model"]
