"""The bindings carry no usable types: whatever comes out of them is unknown."""

from typing import Any

PassManager: Any

def __getattr__(name: str) -> Any: ...
