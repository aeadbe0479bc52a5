"""Facts about each operation of a function: work; estimated, predicted and measured times; and the lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from motet.tools.report.measured import Trace, match
from motet.tools.report.model import GraphNode, ReportedFunction
from motet.tools.report.prediction import Prediction, predict
from motet.tools.report.writing import amount, share, short
from motet.tools.show import show_bytes, show_names, show_seconds


@dataclass(frozen=True)
class FunctionFacts:
    """A function with all facts about it. `spans` maps spans of the trace to operations; `key` is the prefix of the
    identifiers of its parts in the page."""

    program: ReportedFunction
    key: str
    prediction: Prediction
    trace: Trace | None = None
    spans: Mapping[int, int] = field(default_factory=dict[int, int])
    predicted: Mapping[int, float] = field(default_factory=dict[int, float])  # operation → seconds
    measured: Mapping[int, float] = field(default_factory=dict[int, float])
    instructions: Mapping[int, int] = field(default_factory=dict[int, int])
    earlier: FunctionFacts | None = None  # the same function with the trace to compare with

    def seconds(self, operation: int) -> float:
        """The measured seconds of an operation, else the predicted ones."""
        return self.measured.get(operation, 0.0) if self.trace is not None else self.predicted.get(operation, 0.0)

    @property
    def busy(self) -> float:
        """The sum of the seconds of all operations."""
        return sum(self.seconds(number) for number in range(len(self.program.operations)))

    @property
    def elapsed(self) -> float | None:
        """The measured seconds from the first event to the end of the last."""
        if self.trace is None:
            return None
        return max((span.end for span in self.trace.spans), default=0.0)

    def limit(self, operation: int) -> float:
        """The lower bound of an operation's seconds on its device; 0 if unknown."""
        found = self.program.operations[operation]
        if found.kind not in ("kernel", "copy") or not self.program.devices[found.device].is_measured:
            return 0.0
        return self.program.devices[found.device].limit(found.flops, found.bytes)


def gather(program: ReportedFunction, trace: Trace | None, key: str) -> FunctionFacts:
    """Collects the facts. Raises OptionError for a trace of another program."""
    prediction = predict(program)
    predicted: dict[int, float] = {}
    for bar in prediction.bars:
        if bar.operation >= 0:  # operations of a wave share its time
            predicted[bar.operation] = predicted.get(bar.operation, 0.0) + (bar.end - bar.begin) / bar.lanes
    if trace is None:
        return FunctionFacts(program, key, prediction, predicted=predicted)
    spans = match(trace, program)
    _raise_peaks(program, trace, spans)
    measured: dict[int, float] = {}
    instructions: dict[int, int] = {}
    for number, operation in spans.items():
        span = trace.spans[number]
        measured[operation] = measured.get(operation, 0.0) + span.end - span.begin
        if span.instructions:
            instructions[operation] = instructions.get(operation, 0) + span.instructions
    return FunctionFacts(program, key, prediction, trace, spans, predicted, measured, instructions)


def _raise_peaks(program: ReportedFunction, trace: Trace, spans: Mapping[int, int]) -> None:
    """Raises the peaks of devices to the highest rates in the trace."""
    seconds: dict[int, float] = {}
    for number, operation in spans.items():
        seconds[operation] = seconds.get(operation, 0.0) + trace.spans[number].end - trace.spans[number].begin
    peaks = [bound.peak for bound in program.devices]
    for number, taken in seconds.items():
        operation = program.operations[number]
        if taken > 0 and operation.flops:
            peaks[operation.device] = max(peaks[operation.device], operation.flops / taken)
    program.devices = [replace(bound, peak=peak) for bound, peak in zip(program.devices, peaks, strict=True)]


def label(facts: FunctionFacts, operation: GraphNode) -> str:
    """The names in the source of what an operation computes; else its name without its function's, which the context
    shows."""
    if operation.computes:
        return show_names(operation.computes)
    return short(operation.name, facts.program.signature.name)


Detail = tuple[str, list[tuple[str, str]]]


def details(facts: FunctionFacts) -> dict[str, Detail]:
    """The details of each operation, shown on a click: a title, and lines of a label and a value."""
    return {
        f"{facts.key}o{number}": (label(facts, operation), _lines(facts, number, operation))
        for number, operation in enumerate(facts.program.operations)
    }


def _lines(facts: FunctionFacts, number: int, operation: GraphNode) -> list[tuple[str, str]]:
    program, device = facts.program, facts.program.devices[operation.device]
    lines: list[tuple[str, str]] = []
    if operation.kind == "transfer":
        source = program.devices[operation.source]
        lines.append(("from", source.title))
        lines.append(("to", device.title))
    else:
        lines.append(("device", device.title))
    info = operation.info
    if info is not None:
        lines += [("kernel", operation.name)] if operation.computes else []
        lines += [("made of", info.source or "-"), ("class", info.kind)]
    elif operation.kind not in ("input", "result"):
        lines.append(("kind", operation.kind))
    lines += _times(facts, number, operation)
    if operation.flops:
        lines.append(("work", amount(operation.flops, "FLOP")))
    if operation.kind not in ("input", "result"):
        lines.append(("moves", show_bytes(operation.bytes)))
    if operation.flops and operation.bytes:
        lines.append(("intensity", f"{operation.flops / operation.bytes:.3g} FLOP/B"))
    if operation.parameters:
        lines.append(("constants", show_bytes(operation.parameters)))
    if operation.commands:
        tasks = f"{operation.tasks} tasks" if operation.kind == "kernel" else "1"
        lines.append(("commands", tasks if len(operation.commands) == 1
                      else f"{len(operation.commands)} phases of up to {tasks}"))
    if operation.step >= 0 and len(program.plan.steps) > 1:
        step = program.plan.steps[operation.step]
        lines.append(("step", f"{operation.step}" + (f", {step.region}" if step.region else "")))
        if step.seconds is not None:
            lines.append(("estimate of step", show_seconds(step.seconds)))
    lines += [("reads", f"{value.name} {value.type} ({show_bytes(value.bytes)})") for value in operation.reads]
    lines += [("writes", f"{value.name} {value.type} ({show_bytes(value.bytes)})") for value in operation.writes]
    if len(operation.symbols) > 1 or (operation.symbols and operation.symbols[0] != operation.name):
        lines.append(("symbols", ", ".join(dict.fromkeys(operation.symbols))))
    return lines


def show_ratio(seconds: float, before: float) -> str:
    """`now 0.83 ×`: the time of what was measured relative to the earlier trace."""
    return f"now {seconds / before:.3g} ×"


def _times(facts: FunctionFacts, number: int, operation: GraphNode) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    if number in facts.predicted:
        lines.append(("estimate", show_seconds(facts.predicted[number])))
    if number in facts.measured:
        seconds = facts.measured[number]
        lines.append(("measured", f"{show_seconds(seconds)}, {share(seconds, facts.busy)} of all"))
        before = 0.0 if facts.earlier is None else facts.earlier.measured.get(number, 0.0)
        if before:
            lines.append(("before", f"{show_seconds(before)}, {show_ratio(seconds, before)}"))
    seconds, limit = facts.seconds(number), facts.limit(number)
    if seconds and limit:
        device = facts.program.devices[operation.device]
        by = "arithmetic" if operation.flops / device.peak >= operation.bytes / device.rates.memory else "memory"
        lines.append(("limit", f"{show_seconds(limit)}, by {by}"))
        lines.append(("cost", f"{seconds / limit:.3g} × the limit"))
    if seconds and operation.flops:
        lines.append(("rate", f"{operation.flops / seconds / 1e9:,.4g} GFLOP/s"))
    if seconds and operation.bytes and operation.kind not in ("input", "result"):
        lines.append(("bandwidth", f"{operation.bytes / seconds / 1e9:,.3g} GB/s"))
    if number in facts.instructions:
        count = facts.instructions[number]
        each = f", {count / operation.flops:.2g} per FLOP" if operation.flops else ""
        lines.append(("instructions", f"{count:,}{each}"))
    return lines
