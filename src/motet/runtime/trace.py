"""What happened in a call, on every device, and the file that trace viewers (Perfetto, Chrome's) show of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from motet.runtime.device import Event


@dataclass(frozen=True)
class Traced:
    """An event of the device with this URI."""

    device: str
    event: Event


def chrome_trace(events: Sequence[Traced], name: str) -> str:
    """JSON of the Trace Event Format: a process for each device, a thread for each of its queues, times from the
    first event on; `name` is what was called.

    Source of the format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
    """
    devices = list(dict.fromkeys(traced.device for traced in events))
    start = min((traced.event.begin for traced in events), default=0.0)
    entries: list[dict[str, Any]] = []
    for number, device in enumerate(devices):
        entries.append({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": device}})
        for queue in sorted({traced.event.queue for traced in events if traced.device == device}):
            entries.append(
                {"ph": "M", "name": "thread_name", "pid": number, "tid": queue, "args": {"name": f"queue {queue}"}}
            )
    for traced in events:
        event = traced.event
        entries.append({
            "ph": "X", "name": event.name, "cat": event.kind, "pid": devices.index(traced.device), "tid": event.queue,
            "ts": (event.begin - start) * 1e6, "dur": (event.end - event.begin) * 1e6,
            "args": {key: getattr(event, key) for key in ("bytes", "instructions") if getattr(event, key)},
        })
    return json.dumps({"traceEvents": entries, "displayTimeUnit": "ns", "otherData": {"program": name}}, indent=1)
