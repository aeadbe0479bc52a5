"""The host as a device: the processor this process runs on."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from motet.runtime import cpu_features
from motet.runtime.device import DeviceInfo


def probe() -> Sequence[DeviceInfo]:
    count = cores()
    level = cpu_features.level(cpu_features.host_features(), cpu_features.machine())
    return [DeviceInfo(processor_name(), "host", count, count, level, memory())]


def cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else cpu_features.machine()


def memory() -> int:
    """Bytes of memory that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0
