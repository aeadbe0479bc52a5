"""What is known to be wrong and is being mended: the fuzzer does not draw it.

An entry is taken out when its defect is mended. `--include all` draws everything.
"""

from __future__ import annotations

from tests.fuzz.registry import Rejected

KNOWN: set[str] = set()


def avoid(name: str) -> None:
    """Says that what is drawn is what is known by `name`."""
    if name in KNOWN:
        raise Rejected(name)
