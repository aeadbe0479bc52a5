"""The events of a call on all devices, and their export to trace viewers (Perfetto, Chrome).

Devices record their events (`Device.profile`); the submitter records what each submission waits for and how much memory
is in use (`Submissions`). Both are combined by their order on each queue.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from motet.artifact.schema import KernelInfo
from motet.runtime.device import Event
from motet.runtime.timeline import Point

# Thread numbers in the file: a queue's, plus multiples of BESIDE for overlapping events; then cores.
BESIDE = 1 << 12
_CORES = 1 << 24


@dataclass(frozen=True)
class Traced:
    """An event of the device with this URI. `after` are the events of other queues, of any device, that it waited for;
    `memory` is the bytes in use on the device for the call when it was submitted, 0 if unknown; `iteration` are the
    numbers of the iterations, from 0, of the enclosing loops over devices, outermost first."""

    device: str
    event: Event
    after: tuple[Event, ...] = ()
    memory: int = 0
    iteration: tuple[int, ...] = ()


class CallEvents(list[Traced]):
    """The events of a call. `spans` are the seconds from the beginning of its native work to the end."""

    def __init__(self, events: Iterable[Traced], spans: Sequence[tuple[float, float]]) -> None:
        super().__init__(events)
        self.spans = spans

    @property
    def overhead(self) -> float:
        """The seconds of the call in which no device ran anything: dispatch, waiting, and the start of threads."""
        whole = sum(end - begin for begin, end in self.spans)
        return max(0.0, whole - busy([(traced.event.begin, traced.event.end) for traced in self]))


def busy(spans: Iterable[tuple[float, float]]) -> float:
    """The seconds that at least one of the spans (begin, end) covers."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


@dataclass(frozen=True)
class _TracedSubmission:
    """Work for a queue that consists of `events` events of its device, in the order of submission."""

    device: str
    queue: int
    events: int
    waits: tuple[int, ...]  # submissions
    memory: int
    iteration: tuple[int, ...]


@dataclass
class Submissions:
    """Records the submissions of one call."""

    memory: dict[str, int]  # bytes in use, by device
    made: list[_TracedSubmission] = field(default_factory=list[_TracedSubmission])
    iteration: tuple[int, ...] = ()  # of the loops over devices in progress
    _signals: dict[int, tuple[Point, int]] = field(default_factory=dict[int, tuple[Point, int]])

    def allocated(self, device: str, size: int) -> None:
        self.memory[device] = self.memory.get(device, 0) + size

    def submitted(self, device: str, queue: int, events: int, waits: Sequence[Point], point: Point) -> Point:
        """Record a submission; returns its point as a separate object, since queues return one point for all
        submissions that had ended already."""
        waited = {self._signals[id(each)][1] for each in waits if id(each) in self._signals}
        own = Point(point.timeline, point.value)
        self._signals[id(own)] = (own, len(self.made))  # keeps the object alive, and so its id valid
        memory = self.memory.get(device, 0)
        self.made.append(_TracedSubmission(device, queue, events, tuple(sorted(waited)), memory, self.iteration))
        return own

    def attach(self, recorded: Mapping[str, Sequence[Event]]) -> list[Traced]:
        """The events of all devices by start time, with the recorded data of their submissions. If a queue recorded
        other events than it was given, its events have no further data."""
        owners: dict[int, _TracedSubmission] = {}
        first: dict[int, int] = {}  # number of the submission that begins with an event (by id)
        last: dict[int, Event] = {}  # by submission
        for device, events in recorded.items():
            for queue in {event.queue for event in events}:
                own = [event for event in events if event.queue == queue]
                made = [n for n, each in enumerate(self.made) if (each.device, each.queue) == (device, queue)]
                if sum(self.made[number].events for number in made) != len(own):
                    continue
                position = 0
                for number in made:
                    part = own[position : position + self.made[number].events]
                    position += len(part)
                    for event in part:
                        owners[id(event)] = self.made[number]
                    if part:
                        first[id(part[0])] = number
                        last[number] = part[-1]
        found: list[Traced] = []
        for device, events in recorded.items():
            for event in events:
                number = first.get(id(event))
                waits = () if number is None else self.made[number].waits
                after = [last[each] for each in waits if each in last and not self._together(each, number)]
                owner = owners.get(id(event))
                memory, iteration = (0, ()) if owner is None else (owner.memory, owner.iteration)
                found.append(Traced(device, event, tuple(after), memory, iteration))
        return sorted(found, key=lambda traced: traced.event.begin)

    def _together(self, earlier: int, later: int | None) -> bool:
        """Whether two submissions are on one queue, whose order needs no arrow."""
        if later is None:
            return False
        a, b = self.made[earlier], self.made[later]
        return (a.device, a.queue) == (b.device, b.queue)


# The description of a kernel on a device, by the device's URI and a symbol of the kernel.
Find = Callable[[str, str], KernelInfo | None]


def chrome_trace(
    events: Sequence[Traced], name: str, find: Find | None = None, other: Mapping[str, Any] | None = None
) -> str:
    """The events in JSON of the Trace Event Format: a process for each device, a thread for each of its queues (further
    ones for overlapping events, `queue 0 +1`) and for each core that reports its work, times relative to the first
    event, an arrow for each wait between queues, a counter of each device's memory. `name` is the function called;
    `find` returns descriptions of kernels, with all phases of one combined; `other` is stored next to the name.

    Source of the format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
    """
    devices = list(dict.fromkeys(traced.device for traced in events))
    start = min((traced.event.begin for traced in events), default=0.0)
    tracks = _tracks(events)
    entries = [*_names(events, devices, tracks)]
    for traced in events:
        event = traced.event
        entries.append({
            "ph": "X", "name": event.name, "cat": event.kind, "pid": devices.index(traced.device),
            "tid": tracks[id(event)], "ts": (event.begin - start) * 1e6, "dur": (event.end - event.begin) * 1e6,
            "args": _arguments(traced, find),
        })
    entries += [*_pieces(events, devices, start), *_arrows(events, devices, start, tracks)]
    entries += _counters(events, devices, start)
    return json.dumps(
        {"traceEvents": entries, "displayTimeUnit": "ns", "otherData": {"program": name, **(other or {})}}, indent=1
    )


def fair_seconds(events: Sequence[Traced]) -> list[float]:
    """The duration of each event, where concurrent events of a queue share time evenly: those of one queue add up to
    its busy time."""
    shares = [0.0] * len(events)
    queues: dict[tuple[str, int], list[int]] = {}
    for number, traced in enumerate(events):
        queues.setdefault((traced.device, traced.event.queue), []).append(number)
    for own in queues.values():
        moments = sorted({moment for n in own for moment in (events[n].event.begin, events[n].event.end)})
        own.sort(key=lambda n: events[n].event.begin)
        active: list[int] = []
        waiting = iter(own)
        following = next(waiting, None)
        for begin, end in pairwise(moments):
            while following is not None and events[following].event.begin <= begin:
                active.append(following)
                following = next(waiting, None)
            active = [n for n in active if events[n].event.end > begin]
            for n in active:
                shares[n] += (end - begin) / len(active)
    return shares


def _tracks(events: Sequence[Traced]) -> dict[int, int]:
    """The thread number of each event, by its id: its queue, or a further one if another event of its queue is still in
    progress there."""
    tracks: dict[int, int] = {}
    free: dict[tuple[str, int], list[float]] = {}
    for traced in sorted(events, key=lambda each: each.event.begin):
        event = traced.event
        ends = free.setdefault((traced.device, event.queue), [])
        beside = next((k for k, end in enumerate(ends) if end <= event.begin), len(ends))
        ends[beside : beside + 1] = [event.end]
        tracks[id(event)] = event.queue + BESIDE * beside
    return tracks


def _names(events: Sequence[Traced], devices: Sequence[str], tracks: Mapping[int, int]) -> Iterable[dict[str, Any]]:
    for number, device in enumerate(devices):
        yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": device}}
        own = [traced.event for traced in events if traced.device == device]
        names = {track: f"queue {track}" for track in (tracks[id(event)] for event in own)}
        names = {
            track: name if track < BESIDE else f"queue {track % BESIDE} +{track // BESIDE}"
            for track, name in names.items()
        }
        names |= {_CORES + piece.core: f"core {piece.core}" for event in own for piece in event.pieces}
        for track, name in sorted(names.items()):
            yield {"ph": "M", "name": "thread_name", "pid": number, "tid": track, "args": {"name": name}}


def _pieces(events: Sequence[Traced], devices: Sequence[str], start: float) -> Iterable[dict[str, Any]]:
    for traced in events:
        for piece in traced.event.pieces:
            yield {
                "ph": "X", "name": traced.event.name, "cat": "core", "pid": devices.index(traced.device),
                "tid": _CORES + piece.core, "ts": (piece.begin - start) * 1e6, "dur": (piece.end - piece.begin) * 1e6,
            }


def _arguments(traced: Traced, find: Find | None) -> dict[str, Any]:
    event = traced.event
    said: dict[str, Any] = {key: getattr(event, key) for key in ("bytes", "instructions") if getattr(event, key)}
    said |= {"source": event.source} if event.source else {}
    info = None if find is None or event.kind != "launch" else find(traced.device, event.name)
    if info is not None:
        said |= {"kernel": info.name, "class": info.kind}
        said |= {key: value for key, value in (("flops", info.flops), ("kernel_bytes", info.bytes)) if value}
    if traced.iteration:
        said["iteration"] = ".".join(map(str, traced.iteration))
    return said


def _arrows(
    events: Sequence[Traced], devices: Sequence[str], start: float, tracks: Mapping[int, int]
) -> Iterable[dict[str, Any]]:
    places = {id(traced.event): devices.index(traced.device) for traced in events}
    number = 0
    for traced in events:
        for source in traced.after:
            number += 1
            common = {"name": "wait", "cat": "wait", "id": number}
            # An arrow binds to the slice that encloses its end; the source's very end may be outside.
            end = source.begin + 0.999 * (source.end - source.begin)
            yield {"ph": "s", **common, "pid": places[id(source)], "tid": tracks[id(source)], "ts": (end - start) * 1e6}
            yield {"ph": "f", "bp": "e", **common, "pid": places[id(traced.event)], "tid": tracks[id(traced.event)],
                   "ts": (traced.event.begin - start) * 1e6}


def _counters(events: Sequence[Traced], devices: Sequence[str], start: float) -> Iterable[dict[str, Any]]:
    before: dict[str, int] = {}
    for traced in events:
        if traced.memory and before.get(traced.device) != traced.memory:
            before[traced.device] = traced.memory
            yield {"ph": "C", "name": "memory", "pid": devices.index(traced.device),
                   "ts": (traced.event.begin - start) * 1e6, "args": {"bytes": traced.memory}}
