"""The energy of processor packages, by Linux's powercap interface to RAPL."""

from __future__ import annotations

from pathlib import Path

NAME = "energy"  # joules per call
_ROOT = Path("/sys/class/powercap")


def read_energy() -> dict[Path, int] | str:
    """The microjoules that each package has used, by its counter, or why they cannot be read."""
    found: dict[Path, int] = {}
    for path in sorted(_ROOT.glob("intel-rapl:?/energy_uj")):
        try:
            found[path] = int(path.read_text())
        except (OSError, ValueError) as error:
            return f"not available: {path}: {(getattr(error, 'strerror', None) or str(error)).lower()}"
    return found or f"not available: no RAPL counters in {_ROOT}"


def joules(before: dict[Path, int], after: dict[Path, int]) -> float:
    """The joules between two readings of counters, which may have wrapped around."""
    total = 0
    for path, start in before.items():
        used = after[path] - start
        if used < 0:
            used += int((path.parent / "max_energy_range_uj").read_text())
        total += used
    return total * 1e-6
