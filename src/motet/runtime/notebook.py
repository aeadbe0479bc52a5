"""Sessions in notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from motet.artifact.notebook import functions_html, show_size, table
from motet.artifact.schema import Signature


def session_html(
    name: str, devices: Sequence[Sequence[str]], functions: Sequence[Signature], memory: Mapping[str, int]
) -> str:
    """A session of the artifact `name`: `devices` are rows of a device's name in the program, its URI, its name, and
    the target of its code; `memory` are bytes by what they are for."""
    sizes = ", ".join(f"{what} {show_size(size)}" for what, size in memory.items())
    return (
        f"<p><b>Session of {html.escape(name)}</b>: {sizes}</p>"
        + table(["device", "is", "which is", "code for"], devices) + functions_html(functions)
    )
