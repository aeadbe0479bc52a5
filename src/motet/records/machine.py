"""The identity of this machine in records: the processor or the device, and what its speed depends on."""

from __future__ import annotations

import re
from pathlib import Path

from motet.cpu_features import host_features, level, machine
from motet.runtime.device import DeviceInfo


def fingerprint(info: DeviceInfo) -> str:
    """A readable name, equal on machines whose figures can be compared: `Xeon 8488C, x86-64-v4-amx, 2 cores`."""
    if info.family != "host":
        return ", ".join(filter(None, (info.name, info.family, info.uri.partition("?")[2])))
    return f"{_processor()}, {level(host_features(), machine())}, {info.threads} threads"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return machine()
    match = re.search(r"^(?:model name|uarch|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    return re.sub(r"\s+", " ", match[1]).strip() if match else machine()
