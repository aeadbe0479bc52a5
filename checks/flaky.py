"""Runs the tests that failed in the last run of pytest once more, one after the other.

    python -m checks.flaky

A test that passes then is flaky and printed as `FLAKY test`. Exits with 1 if a test fails again, if more than three are
flaky, or if the run failed without a failed test. `tests/flaky.md` lists the known ones with their causes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_MOST = 3
_FAILED = Path(".pytest_cache/v/cache/lastfailed")
_LIMIT = 600  # seconds, for each test


def failed() -> set[str]:
    """The tests that failed in the last run, from pytest's cache."""
    return set(json.loads(_FAILED.read_text())) if _FAILED.exists() else set()


def main() -> int:
    before = failed()
    if not before:
        print("error: pytest failed without a failed test", flush=True)
        return 1
    print(f"{len(before)} tests failed and run once more, alone", flush=True)
    command = [sys.executable, "-m", "pytest", "--last-failed", "--last-failed-no-failures", "none"]
    status = subprocess.run([*command, "-m", "not slow", "--timeout", str(_LIMIT)], check=False).returncode
    flaky = sorted(before - failed())
    for test in flaky:
        print(f"FLAKY {test}", flush=True)
    if len(flaky) > _MOST:
        print(f"error: {len(flaky)} tests are flaky; expected at most {_MOST}", flush=True)
    return int(status != 0 or len(flaky) > _MOST)


if __name__ == "__main__":
    sys.exit(main())
