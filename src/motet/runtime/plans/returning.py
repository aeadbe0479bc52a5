"""Copies the results of a call to the caller's memory after success, since that memory may also hold inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motet.runtime.device_array import DeviceArray
from motet.runtime.plans.frame import PlanFrame
from motet.runtime.plans.values import Array, PlacedValue, Tensor


def return_results(frame: PlanFrame, places: Sequence[Tensor]) -> None:
    """`places` are the caller's tensors, one for each result of the plan."""
    late: list[tuple[PlacedValue, Tensor]] = []
    for number, place in zip(frame.recorded.plan.results, places, strict=True):
        value = frame.values[number]
        there = [copy.buffer for copy in value.copies.values()]
        if value.array is not place and not (isinstance(place, DeviceArray) and place.buffer in there):
            late.append((value, place))
    if not late:
        return
    frame.underway.settle_now()
    for value, place in late:
        if isinstance(place, DeviceArray):
            _to_device(frame, value, place)
        else:
            _to_host(frame, value, place)


def _to_device(frame: PlanFrame, value: PlacedValue, place: DeviceArray) -> None:
    underway, home = frame.underway, frame.number_of(place.device)
    copy = value.copies.get(home) if home is not None else None
    if copy is not None:
        point = place.device.copy(copy.buffer, place.buffer, copy.points)
        underway.pend(underway.note(place.device, 0, copy.points, point), [copy.buffer, place.buffer])
        return
    source, points, _ = frame.host_bytes(value)
    point = place.device.write(place.buffer, source, 0, points)
    underway.pend(underway.note(place.device, 0, points, point), [place.buffer])
    underway.pending.held.append(source)


def _to_host(frame: PlanFrame, value: PlacedValue, place: Array) -> None:
    underway, flat = frame.underway, place.reshape(-1).view(np.uint8)
    if value.array is not None:
        flat[...] = value.array.reshape(-1).view(np.uint8)
        return
    number, copy = next(iter(value.copies.items()))
    device = frame.devices[number].device
    point = device.read(copy.buffer, flat, 0, copy.points, copy.queue)
    underway.pend(underway.note(device, copy.queue, copy.points, point), [copy.buffer])
