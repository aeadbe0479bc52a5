"""Motet inside OpenVINO: the parts of a model that Motet compiles become single operations of OpenVINO's pipeline.

    compiled = motet.openvino.compile_model(model, "CPU", hint="bf16")
    print(compiled.report)
    results = compiled(x)

Needs OpenVINO: `pip install 'motet[openvino]'`.
"""

import importlib.util

if importlib.util.find_spec("openvino") is None:
    raise ModuleNotFoundError("motet.openvino needs OpenVINO: pip install 'motet[openvino]'", name="openvino")

from motet.openvino.call import MotetCall
from motet.openvino.compiled import CompiledModel, InferRequest
from motet.openvino.compiling import compile_model
from motet.openvino.operations import Left
from motet.openvino.queued import QueuedModel, compile_on_queue
from motet.openvino.report import Replaced, Report

__all__ = [
    "CompiledModel", "InferRequest", "Left", "MotetCall", "QueuedModel", "Replaced", "Report", "compile_model",
    "compile_on_queue",
]
