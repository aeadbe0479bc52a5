"""The package openvino, which reads IR files; the only module that imports it unasked."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from motet.errors import CompileError, Location


def require_openvino(file: str) -> Any:
    """The package openvino. Raises CompileError, about `file`, if it is missing."""
    if importlib.util.find_spec("openvino") is None:
        raise CompileError('reading OpenVINO IR needs the package openvino; install it: pip install "motet[openvino]"',
                           Location(file))
    return importlib.import_module("openvino")
