"""The bindings, whose own stubs name nothing: everything in them is of unknown type."""

from typing import Any

def __getattr__(name: str) -> Any: ...
