"""The host as a device: the processor this process runs on."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from motet.runtime import cpu_features
from motet.runtime.device import API_VERSION, DeviceInfo
from motet.runtime.devices.host.threads import processors, thread_count

api = API_VERSION


def probe() -> Sequence[DeviceInfo]:
    level = cpu_features.level(cpu_features.host_features(), cpu_features.machine())
    return [
        DeviceInfo(
            processor_name(), "host", processors(), thread_count(), level, memory(), family="host", host_memory=True
        )
    ]


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
