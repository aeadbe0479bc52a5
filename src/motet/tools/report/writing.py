"""How what the page shows is written: amounts with units, text made safe for markup, classes of kernels as colours."""

from __future__ import annotations

import html

# Classes of kernels, and other work, that have a colour in `page.css`.
COLOURED = ("contraction", "convolution", "depthwise", "loops", "rows", "generic", "transfer", "copy")


def safe(text: object) -> str:
    """Text for between tags and for attributes in quotes."""
    return html.escape(str(text), quote=True)


def colour(kind: str) -> str:
    """The name of a class in the style sheet."""
    if kind in ("read", "write"):
        kind = "transfer"
    return f"k-{kind}" if kind in COLOURED else "k-other"


def amount(count: float, unit: str) -> str:
    """`231 MFLOP`: three digits and the prefix that fits."""
    for prefix in ("", "k", "M", "G", "T"):
        if count < 999.5 or prefix == "T":
            break
        count /= 1000
    return f"{count:.0f} {prefix}{unit}" if not prefix else f"{count:.3g} {prefix}{unit}"


def number(value: float) -> str:
    """For markup: at most two places, no superfluous zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def percent(part: float, whole: float) -> str:
    """`12.345%`, for a place or length in a drawing."""
    return f"{100 * part / whole:.4f}".rstrip("0").rstrip(".") + "%" if whole else "0%"


def share(part: float, whole: float) -> str:
    """`12 %`, for people."""
    if not whole:
        return "-"
    value = 100 * part / whole
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.1f} %"


def short(name: str, function: str) -> str:
    """A kernel's name without that of its function, which stands elsewhere."""
    return name.removeprefix(function + "_") or name


def clipped(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
