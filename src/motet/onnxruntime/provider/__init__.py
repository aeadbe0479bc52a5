"""Motet as an execution provider of onnxruntime 1.23 and newer: its sessions run models, or the parts of them that
compile, by Motet.

    devices = motet.onnxruntime.register_provider()
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(devices, {"threads": "2"})
    session = onnxruntime.InferenceSession("model.onnx", options)

Modules: `shared_library.py` writes the library that onnxruntime loads; `interface.py` calls onnxruntime; `provider.py`
is what onnxruntime calls; `graphs.py` and `attributes.py` read its graphs, `parts.py` and `programs.py` choose and
compile parts, `calls.py` runs them, `contexts.py` keeps them in compiled models.
"""

from motet.onnxruntime.provider.contexts import NAME
from motet.onnxruntime.provider.provider import OPTIONS
from motet.onnxruntime.provider.registration import register_provider

__all__ = ["NAME", "OPTIONS", "register_provider"]
