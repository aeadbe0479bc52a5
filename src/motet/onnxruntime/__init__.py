"""Sessions with the interface of the package onnxruntime, for programs written for it:

    import motet.onnxruntime as ort

    session = ort.InferenceSession("model.onnx")        # or model.motet
    y, = session.run(None, {"x": x})

These need no onnxruntime. `register_provider` makes Motet an execution provider of onnxruntime's own sessions. Errors
are Motet's: `CallError` for inputs, `OptionError` for what is not supported.
"""

from motet.onnxruntime.binding import IOBinding
from motet.onnxruntime.options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions
from motet.onnxruntime.provider.registration import register_provider
from motet.onnxruntime.session import InferenceSession, NodeArg, get_available_providers, get_device
from motet.onnxruntime.value import OrtValue

__all__ = [
    "ExecutionMode", "GraphOptimizationLevel", "IOBinding", "InferenceSession", "NodeArg", "OrtValue", "RunOptions",
    "SessionOptions", "get_available_providers", "get_device", "register_provider",
]
