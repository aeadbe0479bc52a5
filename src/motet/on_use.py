"""Names of a package that are imported when they are used, so that importing a part of the package stays light."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def imported_on_use(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `package`. `places`: for each name its module and what it is called there,
    "motet.runtime.session:load", or a module. Type checkers, which would take any name for an attribute, must not see
    it."""

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = places[name].partition(":")
        loaded = importlib.import_module(module)
        return getattr(loaded, attribute) if attribute else loaded

    return find
