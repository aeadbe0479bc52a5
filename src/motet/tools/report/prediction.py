"""Predicts when each operation of a function would run: plans by steps, schedules by waves, transfers by queues.

    step 0 on host  ████ ███           commands of one wave begin and end together: they share the threads
    transfer             ▇▇            on the target's last queue; on the source's first when it goes to the host
    step 1 on acc          ██████

A step takes the compiler's estimate, if there is one, divided among its kernels; else the sum of the cost model's
estimates for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.runtime.drivers.host.waves import plan_waves
from motet.runtime.selection import HOST
from motet.runtime.submission import submission_order
from motet.tools.report.model import Region, ReportedFunction


@dataclass(frozen=True)
class Bar:
    """Work on a queue. `operation` is -1 for a transfer that the function does not name; `lane` of `lanes` is its
    position among simultaneous bars; `after` are the bars of other queues that it waits for."""

    device: str
    queue: int
    operation: int
    name: str
    kind: str
    begin: float
    end: float
    bytes: int = 0
    lane: int = 0
    lanes: int = 1
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """`critical` are the numbers of the bars on the critical path."""

    bars: list[Bar]
    critical: frozenset[int]
    seconds: float


def predict(program: ReportedFunction) -> Prediction:
    return _Simulation(program).run()


@dataclass
class _Simulation:
    program: ReportedFunction
    bars: list[Bar] = field(default_factory=list[Bar])
    free: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])  # queue → its last bar
    # Value of the plan → the devices that have it, and the bar that brought it there; None: available from the start.
    copies: dict[int, dict[str, int | None]] = field(default_factory=dict[int, dict[str, int | None]])
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    why: dict[int, int | None] = field(default_factory=dict[int, "int | None"])  # bar → the bar it waited for last
    caller: int | None = None  # the last bar that occupied the caller's thread

    def run(self) -> Prediction:
        program, plan = self.program, self.program.plan
        for number, operation in zip(plan.inputs, program.operations, strict=False):
            self.copies[number] = {HOST: None}
            self.sizes[number] = operation.writes[0].bytes
        order = submission_order(
            plan.steps, lambda device: program.devices[device].family == HOST,
            lambda device: hash(program.devices[device].uri),
        )
        regions = {region.step: region for region in program.regions}
        transfers = {o.step: n for n, o in enumerate(program.operations) if o.kind == "transfer"}
        for number in order:
            step = plan.steps[number]
            if step.op == "transfer":
                source = step.operands[0]
                self.sizes[step.results[0]] = self.sizes[source]
                self.copies[step.results[0]] = self.copies[source]
                self._on(source, step.device, transfers[number], step.seconds)
            else:
                self._run(number, regions[number])
        for number, device in zip(plan.results, plan.result_devices, strict=True):
            if HOST not in self.copies[number] or program.devices[device].family == HOST:
                self._on(number, None)
        return Prediction(self.bars, self._critical(), max((bar.end for bar in self.bars), default=0.0))

    # -- moves -----------------------------------------------------------------------------------

    def _place(self, device: int | None) -> str:
        """The memory that holds a device's values: all devices of the host share one."""
        if device is None or self.program.devices[device].family == HOST:
            return HOST
        return self.program.devices[device].uri

    def _on(self, value: int, device: int | None, operation: int = -1, seconds: float | None = None) -> int | None:
        """The bar after which a value is on a device; None means the host."""
        place, copies = self._place(device), self.copies[value]
        if place in copies:
            return copies[place]
        if HOST not in copies:
            source = next(iter(copies))
            own = operation if place == HOST else -1
            copies[HOST] = self._move(value, source, 0, "read", copies[source], own, seconds if own >= 0 else None)
        if place not in copies:
            copies[place] = self._move(value, place, 1, "write", copies[HOST], operation, seconds)
        return copies[place]

    def _move(
        self, value: int, uri: str, queue: int, kind: str, ready: int | None, operation: int, seconds: float | None
    ) -> int:
        rates = next(device.rates for device in self.program.devices if device.uri == uri)
        size = self.sizes[value]
        if seconds is None:
            seconds = rates.latency + size / (rates.download if kind == "read" else rates.upload)
        return self._add([(operation, kind, kind, size)], uri, queue, seconds, [ready])[-1]

    # -- runs ------------------------------------------------------------------------------------

    def _run(self, number: int, region: Region) -> None:
        program, step = self.program, self.program.plan.steps[number]
        bound = program.devices[step.device]
        waits = [self._on(value, step.device) for value in step.operands]
        queue = next((each for each in range(64) if step.queues >> each & 1), 0)
        waves = self._waves(region)
        costs = [self._cost(region, wave) for wave in waves]
        factor, ahead = 1.0, bound.rates.submit if len(program.plan.steps) > 1 else 0.0
        if step.seconds is not None and sum(costs):
            ahead = min(ahead, step.seconds / 2)
            factor = (step.seconds - ahead) / sum(costs)
        last: list[int | None] = []
        for place, (wave, cost) in enumerate(zip(waves, costs, strict=True)):
            items = [(n, program.operations[n].name, program.operations[n].kind, 0) for n in wave]
            made = self._add(items, bound.uri, queue, cost * factor, waits if not place else [],
                             0.0 if place else ahead, bound.family == HOST)
            last = [made[-1]]
        ends = last or waits
        latest = max((bar for bar in ends if bar is not None), key=lambda bar: self.bars[bar].end, default=None)
        for value in step.results:
            self.copies[value] = {self._place(step.device): latest}
            self.sizes[value] = program.values[value].bytes

    def _waves(self, region: Region) -> list[list[int]]:
        """The operations of a region that run at once, by wave. Each phase of a kernel is a separate wave."""
        program, bound = self.program, self.program.devices[region.device]
        commands = region.schedule.commands
        if bound.family != HOST or not commands:
            return [[number] for number in region.operations]
        owner = {c: n for n in region.operations for c in program.operations[n].commands}
        tasks = [program.operations[owner[index]].tasks for index in range(len(commands))]
        found: list[list[int]] = []
        seen: set[int] = set()
        for wave in plan_waves(tasks, [command.after for command in commands], bound.threads):
            fresh = [n for n in dict.fromkeys(owner[index] for index in wave) if n not in seen]
            seen.update(fresh)
            if fresh:
                found.append(fresh)
        return found

    def _cost(self, region: Region, wave: Sequence[int]) -> float:
        """The seconds of a wave: the work of its operations adds up, the launch overhead is counted once."""
        bound = self.program.devices[region.device]
        operations = [self.program.operations[number] for number in wave]
        launch = bound.rates.launch
        work = sum(
            bound.seconds("" if o.info is None else o.info.kind, o.flops, o.bytes) - launch for o in operations
        )
        return launch + work

    # -- bars ------------------------------------------------------------------------------------

    def _add(
        self, items: Sequence[tuple[int, str, str, int]], uri: str, queue: int, seconds: float,
        waits: Sequence[int | None], ahead: float = 0.0, keeps_caller: bool = False,
    ) -> list[int]:
        """Adds simultaneous bars as soon as the queue is free, their dependences have ended and `ahead` has passed."""
        needed = [bar for bar in waits if bar is not None]
        before = [*needed, *([self.free[uri, queue]] if (uri, queue) in self.free else [])]
        if keeps_caller and self.caller is not None:
            before.append(self.caller)
        last = max(before, key=lambda bar: self.bars[bar].end, default=None)
        begin = (0.0 if last is None else self.bars[last].end) + ahead
        arrows = tuple(bar for bar in dict.fromkeys(needed)
                       if (self.bars[bar].device, self.bars[bar].queue) != (uri, queue))
        made: list[int] = []
        for lane, (operation, name, kind, size) in enumerate(items):
            made.append(len(self.bars))
            self.why[len(self.bars)] = last
            self.bars.append(Bar(uri, queue, operation, name, kind, begin, begin + seconds, size, lane, len(items),
                                 arrows))
        self.free[uri, queue] = made[-1]
        if keeps_caller:
            self.caller = made[-1]
        return made

    def _critical(self) -> frozenset[int]:
        found: set[int] = set()
        bar = max(range(len(self.bars)), key=lambda number: self.bars[number].end, default=None)
        while bar is not None:
            found.add(bar)
            bar = self.why[bar]
        return frozenset(found)
