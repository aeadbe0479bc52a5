"""Reads a trace of `motet run --trace`, and matches its spans with the operations of a function.

Launches are matched by symbol: the n-th launch of a symbol on a device is the n-th command with that symbol there.
Transfers are matched with reads and writes of the same number of bytes, in order.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from motet.artifact.files import unreadable
from motet.errors import OptionError
from motet.tools.report.model import GraphNode, ReportedFunction

_EXPECTED = "expected what motet run --trace FILE.json writes"
MADE = ("date", "machine", "threads", "command")
_MOST = 1 << 28  # bytes of a file


@dataclass(frozen=True)
class TraceSpan:
    """A span of a device: seconds from the start of the trace. `after` are the numbers of the spans it waited for."""

    device: str
    queue: int
    name: str
    kind: str
    begin: float
    end: float
    bytes: int = 0
    instructions: int = 0
    kernel: str = ""
    flops: int = 0
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trace:
    """`devices` are the URI and target of each of the program's devices, `shapes` those of the inputs, `memory` pairs
    of seconds and bytes for each device; all are empty if the file does not have them."""

    path: str
    function: str
    spans: list[TraceSpan]
    devices: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    shapes: list[list[int]] | None = None
    memory: dict[str, list[tuple[float, int]]] = field(default_factory=dict[str, list[tuple[float, int]]])
    made: dict[str, str] = field(default_factory=dict[str, str])  # when, where and how: date, machine, threads, command


def read_trace(path: str) -> Trace:
    """Reads a trace. Raises OptionError for a file that cannot be read or is not a trace of Motet."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST + 1)
    except (OSError, ValueError) as error:
        raise OptionError(f"--trace {unreadable(Path(path), error)}; {_EXPECTED}") from None
    if len(data) > _MOST:
        raise OptionError(f"--trace {path}: more than {_MOST >> 20} MiB; {_EXPECTED}")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"--trace {path}: is no trace: {_first_line(error)}; {_EXPECTED}") from None
    return _TraceReader(path).read(content)


def _first_line(error: Exception) -> str:
    text = (str(error) or type(error).__name__).splitlines()[0]
    return text[:1].lower() + text[1:]


class _TraceReader:
    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, content: Any) -> Trace:
        document = self._object(content, "the file")
        entries = document.get("traceEvents")
        other = self._object(document.get("otherData", {}), "otherData")
        function = other.get("program")
        if not isinstance(entries, list) or not isinstance(function, str):
            raise self._wrong("it does not say what was called")
        events = [self._object(entry, "an event") for entry in cast(list[Any], entries)]
        names = {
            self._integer(event, "pid"): str(self._object(event.get("args"), "args").get("name", ""))
            for event in events if event.get("ph") == "M" and event.get("name") == "process_name"
        }
        # Spans of single cores are for trace viewers; here they are part of their command.
        spans = [self._span(e, names) for e in events if e.get("ph") == "X" and e.get("cat") != "core"]
        return Trace(
            self.path, function, self._joined(spans, events, names), self._devices(other.get("devices", {})),
            self._shapes(other.get("inputs")), self._memory(events, names),
            {key: str(other[key]) for key in MADE if key in other},
        )

    def _span(self, event: Mapping[str, Any], names: Mapping[int, str]) -> TraceSpan:
        args = self._object(event.get("args", {}), "args")
        begin, length = self._seconds(event, "ts"), self._seconds(event, "dur")
        if length < 0:
            raise self._wrong(f"an event lasts {length} s")
        return TraceSpan(
            self._device(event, names), self._integer(event, "tid"), str(event.get("name", "")),
            str(event.get("cat", "")), begin, begin + length, self._count(args, "bytes"),
            self._count(args, "instructions"), str(args.get("kernel", "")), self._count(args, "flops"),
        )

    def _joined(
        self, spans: Sequence[TraceSpan], events: Sequence[Mapping[str, Any]], names: Mapping[int, str]
    ) -> list[TraceSpan]:
        """The spans with their dependences: an arrow begins or ends in the span that encloses its end point."""
        begins: dict[int, int | None] = {}
        after: dict[int, list[int]] = {}
        for event in events:
            if event.get("ph") not in ("s", "f"):
                continue
            place = self._device(event, names), self._integer(event, "tid"), self._seconds(event, "ts")
            found = _enclosing(spans, *place)
            number = self._integer(event, "id")
            if event["ph"] == "s":
                begins[number] = found
            elif found is not None and begins.get(number) is not None:
                after.setdefault(found, []).append(cast(int, begins[number]))
        return [
            TraceSpan(s.device, s.queue, s.name, s.kind, s.begin, s.end, s.bytes, s.instructions, s.kernel, s.flops,
                 tuple(after.get(number, ())))
            for number, s in enumerate(spans)
        ]

    def _memory(
        self, events: Sequence[Mapping[str, Any]], names: Mapping[int, str]
    ) -> dict[str, list[tuple[float, int]]]:
        found: dict[str, list[tuple[float, int]]] = {}
        for event in events:
            if event.get("ph") == "C" and event.get("name") == "memory":
                size = self._count(self._object(event.get("args", {}), "args"), "bytes")
                found.setdefault(self._device(event, names), []).append((self._seconds(event, "ts"), size))
        return found

    def _devices(self, given: Any) -> dict[str, tuple[str, str]]:
        return {
            name: (str(entry.get("uri", "")), str(entry.get("target", "")))
            for name, value in self._object(given, "devices").items()
            for entry in (self._object(value, "devices"),)
        }

    def _shapes(self, given: Any) -> list[list[int]] | None:
        if not isinstance(given, list):
            return None
        shapes = [cast(list[Any], shape) for shape in cast(list[Any], given) if isinstance(shape, list)]
        if any(type(extent) is not int or not 0 <= extent < 1 << 48 for shape in shapes for extent in shape):
            raise self._wrong("its inputs have no shapes")
        return shapes

    # -- parts of events -------------------------------------------------------------------------

    def _wrong(self, what: str) -> OptionError:
        return OptionError(f"--trace {self.path}: is no trace of a call: {what}; {_EXPECTED}")

    def _object(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(f"{what} is not an object")
        return cast(dict[str, Any], value)

    def _integer(self, event: Mapping[str, Any], key: str) -> int:
        value = event.get(key, 0)
        if type(value) is not int or not -(1 << 62) < value < 1 << 62:
            raise self._wrong(f"an event's {key} is not an integer")
        return value

    def _count(self, args: Mapping[str, Any], key: str) -> int:
        return max(0, self._integer(args, key))

    def _seconds(self, event: Mapping[str, Any], key: str) -> float:
        value = event.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
            raise self._wrong(f"an event's {key} is not a number of microseconds")
        return float(value) * 1e-6

    def _device(self, event: Mapping[str, Any], names: Mapping[int, str]) -> str:
        return names.get(self._integer(event, "pid"), f"process {event.get('pid', 0)}")


def _enclosing(spans: Sequence[TraceSpan], device: str, queue: int, moment: float) -> int | None:
    around = [
        number for number, span in enumerate(spans)
        if (span.device, span.queue) == (device, queue) and span.begin - 1e-9 <= moment <= span.end + 1e-9
    ]
    return min(around, key=lambda number: abs(spans[number].begin - moment)) if around else None


# -- matching --------------------------------------------------------------------------------------


def match(trace: Trace, program: ReportedFunction) -> dict[int, int]:
    """The operation of each span, both by number; spans without an operation are left out. Raises OptionError for a
    trace of another program."""
    known = {symbol for operation in program.operations for symbol in operation.symbols}
    for span in trace.spans:
        if span.kind == "launch" and span.name not in known:
            raise _another(trace, f"it launches {span.name}, which {program.signature.name} has not")
    found: dict[int, int] = {}
    used = {span.device for span in trace.spans if span.kind in ("launch", "copy")}
    for device in sorted(used):
        own = [o for n, o in enumerate(program.operations) if _runs_on(program, n, device, used)]
        numbers = [n for n in range(len(program.operations)) if _runs_on(program, n, device, used)]
        queues = _by_symbol(own, numbers)
        spans = [n for n, span in enumerate(trace.spans) if span.device == device and span.kind in ("launch", "copy")]
        counts = Counter(trace.spans[n].name for n in spans if trace.spans[n].kind == "launch")
        for symbol, count in counts.items():
            if count != len(queues.get(symbol, [])):
                raise _another(trace, f"it launches {symbol} {count} times on {device}, where "
                               f"{program.signature.name} does {len(queues.get(symbol, []))} times")
        for number in sorted(spans, key=lambda n: trace.spans[n].begin):
            waiting = queues.get(trace.spans[number].name, [])
            if waiting:
                found[number] = waiting.pop(0)
    _check_work(trace, program, found)
    return found | _moves(trace, program)


def _runs_on(program: ReportedFunction, number: int, device: str, used: set[str]) -> bool:
    """Whether an operation runs on a device of the trace. If all devices are the host, it runs everything."""
    uri = program.devices[program.operations[number].device].uri
    return uri == device or (len(used) == 1 and uri not in used)


def _by_symbol(operations: Sequence[GraphNode], numbers: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for operation, number in zip(operations, numbers, strict=True):
        for symbol in operation.symbols:
            found.setdefault(symbol, []).append(number)
    return found


def _check_work(trace: Trace, program: ReportedFunction, found: Mapping[int, int]) -> None:
    """Checks that kernels have the same work, since all programs number their kernels alike."""
    for number, operation in found.items():
        span, info = trace.spans[number], program.operations[operation].info
        if info is not None and span.flops and info.flops and not math.isclose(span.flops, info.flops):
            raise _another(trace, f"{span.name} does {span.flops:,} operations in it, {info.flops:,} here")


def _moves(trace: Trace, program: ReportedFunction) -> dict[int, int]:
    found: dict[int, int] = {}
    taken: set[int] = set()
    order = sorted(range(len(trace.spans)), key=lambda n: trace.spans[n].begin)
    for number in order:
        span = trace.spans[number]
        if span.kind not in ("read", "write"):
            continue
        for place, operation in enumerate(program.operations):
            if operation.kind != "transfer" or place in taken:
                continue
            end = operation.device if span.kind == "write" else operation.source
            if program.devices[end].uri == span.device and operation.bytes == span.bytes:
                found[number] = place
                taken.add(place)
                break
    return found


def _another(trace: Trace, what: str) -> OptionError:
    return OptionError(f"--trace {trace.path}: a trace of another program: {what}; expected one of this file, "
                       "compiled as it is")
