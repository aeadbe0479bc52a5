"""Formats signatures, expressions, sizes and tables as text."""

from __future__ import annotations

from collections.abc import Sequence

from motet.artifact.expressions import show
from motet.artifact.kernels import module_of
from motet.artifact.schema import Expr, Signature, TensorSpec

_PARTS_SHOWN = 3


def show_shape(extents: Sequence[Expr], dtype: str) -> str:
    """`64xn*128xf32`: extents, whose expressions have no spaces, and the dtype."""
    return "x".join([*(show(extent, space="") for extent in extents), dtype])


def show_tensor(spec: TensorSpec) -> str:
    return show_shape(spec.shape, spec.dtype)


def show_signature(signature: Signature) -> str:
    """`main(x: 64x128xf32, w: nx128xf32) -> (64xf32)`; a result written in place names its input."""
    inputs = ", ".join(f"{spec.name or i}: {show_tensor(spec)}" for i, spec in enumerate(signature.inputs))
    results = ", ".join(
        show_tensor(spec) + ("" if spec.destination is None else f" in input {spec.destination}")
        for spec in signature.results
    )
    return f"{signature.name}({inputs}) -> ({results})"


def show_bytes(size: float) -> str:
    """`1.5 MiB`: three digits and a suitable unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"


def show_seconds(seconds: float) -> str:
    """`12.3 µs`: three digits and a suitable unit."""
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def show_rate(rate: float, unit: str) -> str:
    """`12.3 GFLOP/s`, or with M or k for what is less than one of the larger unit."""
    factor, prefix = next((each for each in ((1e9, "G"), (1e6, "M")) if rate >= each[0]), (1e3, "k"))
    return f"{rate / factor:,.1f} {prefix}{unit}"


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """The lines of a table with padded columns; columns of numbers are right-aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    numeric = [bool(rows) and all(row[i][:1].isdigit() or row[i] in ("", "-") for row in rows)
               for i in range(len(header))]
    return [
        (indent + "  ".join(cell.rjust(width) if right else cell.ljust(width)
                            for cell, width, right in zip(row, widths, numeric, strict=True))).rstrip()
        for row in [header, *rows]
    ]


def show_names(source: str, most: int | None = None) -> str:
    """The names of what a kernel computes; those in the module of the first without it: `layer1.0.conv2 + bn2 + relu`.
    Of more than `most`, the first ones and the number of the others."""
    first, *others = source.split(" + ")
    module = module_of(first)
    names = [first, *(other.removeprefix(module) or other for other in others)]
    if most is not None and len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " + ".join(names) or "-"


def show_computed(names: Sequence[str]) -> str:
    """The names of what a kernel computes; of one for many parts of the program, those of the first parts."""
    shown = "; ".join(map(show_names, names[:_PARTS_SHOWN])) or "-"
    return shown + (f"; and {len(names) - _PARTS_SHOWN} more" if len(names) > _PARTS_SHOWN else "")
