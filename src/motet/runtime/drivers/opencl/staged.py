"""Calls on a caller's queue of functions that one device does not compute as a whole: of several devices, with loops
whose condition the host reads, or with state.

Such a call runs between copies of what is in the caller's memory, and has ended when it returns. Commands on the queue
order it: its copies wait for the events of the call, and for the commands before it on an in-order queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.artifact.schema import TensorSpec
from motet.runtime.device_array import DeviceArray
from motet.runtime.drivers.opencl.adopting import Adopted
from motet.runtime.drivers.opencl.api import Handle
from motet.runtime.drivers.opencl.handles import CallerEvent
from motet.runtime.drivers.opencl.objects import Objects, QueueFacts
from motet.runtime.foreign import Callee

Array = np.ndarray[Any, Any]


class StagedCall:
    """A call of `callee` on a queue, after the events `waits`."""

    def __init__(self, objects: Objects, queue: QueueFacts, callee: Callee, waits: Sequence[Handle]) -> None:
        self.objects = objects
        self.queue = queue
        self.callee = callee
        self.waits = waits

    def run(self, inputs: Sequence[Adopted], results: Sequence[Adopted]) -> tuple[list[Any], CallerEvent]:
        """Compute `results` of `inputs`; one without a place and an array is the session's own tensor. Returns the
        results as they were computed, and an event of the caller's context that has ended."""
        api, signature = self.objects.api, self.callee.signature
        given = [_host_tensor(each, spec) for each, spec in zip(inputs, signature.inputs, strict=True)]
        self._transfer(inputs, given, self.waits, write=False)
        out = [
            _host_tensor(each, spec) if spec.destination is None else None
            for each, spec in zip(results, signature.results, strict=True)
        ]
        returned = self.callee.fallback((*given, *out), None)
        made = list(returned) if isinstance(returned, tuple) else [returned] if results else []
        self._transfer(results, made, (), write=True)
        event = api.user_event(self.queue.context)
        api.end_user_event(event)
        return made, CallerEvent(api, event, lambda: None)

    def _transfer(
        self, arguments: Sequence[Adopted], tensors: Sequence[Any], waits: Sequence[Handle], *, write: bool
    ) -> None:
        """Copy between the caller's memory and `tensors`, after `waits`, and wait for the copies."""
        api, queue = self.objects.api, self.queue.handle
        events: list[Handle] = []
        held: list[Array] = []
        try:
            for argument, tensor in zip(arguments, tensors, strict=True):
                if argument.place is not None and argument.place.bytes:
                    held.append(np.ascontiguousarray(tensor.numpy() if type(tensor) is DeviceArray else tensor))
                    ends = argument.place, held[-1].ctypes.data
                    events.append(self.objects.transfer(queue, self.queue.device, *ends, waits, write=write))
            if waits and not events:
                events.append(api.marker(queue, waits))
            api.flush(queue)
            api.wait(events)
        finally:
            for event in events:
                api.release("Event", event)


def _host_tensor(argument: Adopted, spec: TensorSpec) -> Any:
    """What stands for an argument or a result: an array of the host, or the session's own tensor."""
    if argument.place is not None:
        return np.empty(argument.shape, DTYPES[spec.dtype])
    return argument.array if argument.array is not None else argument.value
