"""Formats for the page: amounts with units, text escaped for markup, classes of kernels as colours."""

from __future__ import annotations

import html

# Classes of kernels, and other work, with a colour in `page.css`.
COLOURED = (
    "contraction", "convolution", "depthwise", "planes", "interleave", "loops", "rows", "generic", "transfer", "copy",
    "idle",
)


def safe(text: object) -> str:
    """Text escaped for elements and quoted attributes."""
    return html.escape(str(text), quote=True)


def colour(kind: str) -> str:
    """The CSS class of a kind of work."""
    if kind in ("read", "write"):
        kind = "transfer"
    return f"k-{kind}" if kind in COLOURED else "k-other"


def amount(count: float, unit: str) -> str:
    """`231 MFLOP`: three digits and a suitable prefix."""
    for prefix in ("", "k", "M", "G", "T"):
        if count < 999.5 or prefix == "T":
            break
        count /= 1000
    return f"{count:.0f} {prefix}{unit}" if not prefix else f"{count:.3g} {prefix}{unit}"


def number(value: float) -> str:
    """A number for markup: at most two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def percent(part: float, whole: float) -> str:
    """`12.345%`, for a position or length in a drawing."""
    return f"{100 * part / whole:.4f}".rstrip("0").rstrip(".") + "%" if whole else "0%"


def share(part: float, whole: float) -> str:
    """`12 %`, for text."""
    if not whole:
        return "-"
    value = 100 * part / whole
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.1f} %"


def short(name: str, function: str) -> str:
    """A kernel's name without that of its function, which the context shows."""
    return name.removeprefix(function + "_") or name


def clipped(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
