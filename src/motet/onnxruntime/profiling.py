"""The profile of a session as onnxruntime writes it: a trace for Chrome's viewer, of calls and their kernels."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from motet.artifact.files import write_atomically
from motet.artifact.kernels import KernelTable
from motet.runtime.function import Function
from motet.runtime.session import Session

_Event = dict[str, Any]


class SessionProfile:
    """The events of a session's calls, from its creation until it is written."""

    def __init__(self, prefix: str, session: Session, provider: str) -> None:
        self.start_ns = time.time_ns()
        self._prefix = prefix
        self._provider = provider
        self._table = KernelTable(session.variants)
        self._begin = time.perf_counter()
        self._events: list[_Event] = []

    def call(self, function: Function, arguments: Sequence[Any], out: tuple[Any, ...] | None) -> Any:
        """Call `function`, which writes the memory `out`, and keep the events. Raises the errors of a call."""
        begin = time.perf_counter()
        result, traced = function.trace(*arguments, out=out)
        end = time.perf_counter()
        first = min((each.event.begin for each in traced), default=0.0)
        events = [self._event("model_run", "Session", begin, end - begin, {})]
        for number, each in enumerate(traced):
            known = self._table.find(each.event.name)
            name = each.event.source or each.event.name
            events.append(self._event(
                f"{name}_kernel_time", "Node", begin + each.event.begin - first, each.event.end - each.event.begin,
                {"op_name": each.event.kind if known is None else known.kind, "provider": self._provider,
                 "node_index": str(number), "kernel": each.event.name}))  # fmt: skip
        self._events += events
        return result

    def write(self) -> str:
        """Write the file to the current folder; returns its name. Raises ArtifactError if it cannot be written."""
        path = f"{self._prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S}_{time.time_ns() // 1_000_000 % 1000:03}.json"
        write_atomically(Path(path), [memoryview(json.dumps(self._events).encode())])
        return path

    def _event(self, name: str, category: str, begin: float, seconds: float, details: dict[str, str]) -> _Event:
        return {"cat": category, "pid": os.getpid(), "tid": threading.get_native_id(), "dur": round(seconds * 1e6),
                "ts": round((begin - self._begin) * 1e6), "ph": "X", "name": name, "args": details}
