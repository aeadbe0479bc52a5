"""Artifacts in notebooks: tables in HTML, with all text escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

from motet.artifact.expressions import show
from motet.artifact.schema import Expr, Manifest, Signature

_CELL = ' style="text-align:left"'


def artifact_html(functions: Sequence[Signature], manifest: Manifest, size: int, name: str) -> str:
    """The functions of an artifact, and its code for each target."""
    targets = [
        [variant.family, variant.target, str(len(variant.kernels)),
         show_size(sum(manifest.members[member].size for member in variant.objects))]
        for variant in manifest.variants
    ]
    return (
        f"<p><b>{html.escape(name)}</b>: {show_size(size)}, made by {html.escape(manifest.producer)}</p>"
        + functions_html(functions) + table(["family", "target", "kernels", "code"], targets)
    )


def functions_html(functions: Sequence[Signature]) -> str:
    """A table of inputs and results."""
    rows = [
        [signature.name, kind, spec.name or str(index), "×".join(map(_extent, spec.shape)) or "scalar", spec.dtype]
        for signature in functions
        for kind, specs in (("input", signature.inputs), ("result", signature.results))
        for index, spec in enumerate(specs)
    ]
    return table(["function", "", "name", "shape", "dtype"], rows)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are escaped."""
    head = "".join(f"<th{_CELL}>{html.escape(word)}</th>" for word in header)
    body = "".join("<tr>" + "".join(f"<td{_CELL}>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def show_size(size: float) -> str:
    """`1.5 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} GiB"


def _extent(extent: Expr) -> str:
    return show(extent, space="")
