"""Writes into `tests/costs.json` what a case of each function with parameters costs, as pytest's last runs found it.

    python -m checks.costs

Cases beyond the seconds of their function are slow: `tests/costs.py`. Functions that no run has seen keep their cost.
"""

from __future__ import annotations

import json
import sys

from tests.costs import COSTS, read_costs

from checks.structure import ROOT

TOP = ROOT.parent
_DURATIONS = TOP / ".pytest_cache/v/motet/functions"  # tests/conftest.py
_CHEAP = 0.05  # seconds


def read_durations() -> dict[str, tuple[int, float]]:
    """Of each function of the tests, how many cases pytest's last runs ran, and their seconds together."""
    return json.loads(_DURATIONS.read_text()) if _DURATIONS.exists() else {}


def main() -> int:
    known, there = read_costs(), read_durations()
    costs = {name: cost for name, cost in known.items() if name not in there}
    for name, (cases, seconds) in there.items():
        if cases and seconds / cases >= _CHEAP and (cases > 1 or name in known):
            costs[name] = round(seconds / cases, 2)
    COSTS.write_text(json.dumps(costs, indent=0, sort_keys=True) + "\n")
    print(f"{COSTS.relative_to(TOP)}: {len(costs)} functions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
