"""Random programs for the scheduler: commands over tensors, what they compute, and ways to run their schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from tests.unit.runtime.drivers.host.test_native import compile_ir

from motet.artifact.expressions import apply, evaluate
from motet.artifact.schema import Command, Expr, Schedule, Signature, Symbol, TensorSpec
from motet.compiler.scheduling.arrangement import Recorded, Storage
from motet.runtime.drivers.host.loader import NativeCode, load_objects
from motet.runtime.drivers.host.native import NativeCommand, NativeProgram
from motet.runtime.drivers.host.threads import HostThreads
from motet.runtime.instantiate import make_concrete

# out[i] = 3 * a[i % na] + b[i % nb] + addend, for every task i. `mix` makes the result at once; `begin` makes a
# workspace of it, and `finish` the result of that and b.
PLACES = {"mix": (0, 1, 2), "begin": (0, 1, 3), "finish": (3, 1, 2)}
_IR = """
define void @NAME(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %pa = getelementptr ptr, ptr %buffers, i64 FIRST
  %a = load ptr, ptr %pa
  %pb = getelementptr ptr, ptr %buffers, i64 SECOND
  %b = load ptr, ptr %pb
  %po = getelementptr ptr, ptr %buffers, i64 THIRD
  %out = load ptr, ptr %po
  %na = load i64, ptr %sizes
  %pnb = getelementptr i64, ptr %sizes, i64 1
  %nb = load i64, ptr %pnb
  %padd = getelementptr i64, ptr %sizes, i64 2
  %addend = load i64, ptr %padd
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %n, %loop ]
  %ia = urem i64 %i, %na
  %ib = urem i64 %i, %nb
  %pla = getelementptr i64, ptr %a, i64 %ia
  %va = load i64, ptr %pla
  %plb = getelementptr i64, ptr %b, i64 %ib
  %vb = load i64, ptr %plb
  %t = mul i64 %va, 3
  %u = add i64 %t, %vb
  %v = add i64 %u, %addend
  %pout = getelementptr i64, ptr %out, i64 %i
  store i64 %v, ptr %pout
  %n = add i64 %i, 1
  %c = icmp slt i64 %n, %end
  br i1 %c, label %loop, label %done
done:
  ret void
}
"""


def load_code() -> NativeCode:
    texts = []
    for name, (first, second, third) in PLACES.items():
        text = _IR.replace("NAME", name).replace("FIRST", str(first)).replace("SECOND", str(second))
        texts.append(text.replace("THIRD", str(third)))
    return load_objects([compile_ir("\n".join(texts))], {})


def mix(a: np.ndarray, b: np.ndarray, count: int, addend: int) -> np.ndarray:
    i = np.arange(count)
    return 3 * a[i % len(a)] + b[i % len(b)] + addend


@dataclass
class RandomProgram:
    """A program of `seed`: commands in program order, and the values that numpy gives its results. The first inputs
    give the symbols their values."""

    seed: int
    most: int = 40
    dynamic: bool = False  # some extents are symbols, whose values are `symbols`
    recorded: list[Recorded] = field(default_factory=list)
    inputs: list[np.ndarray] = field(default_factory=list)
    expected: list[np.ndarray] = field(default_factory=list)
    over: list[int | None] = field(default_factory=list)  # of results: the input whose memory they are
    symbols: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self._values: dict[Storage, np.ndarray] = {}
        if self.dynamic:
            self.symbols = {name: int(self.random.integers(1, 90)) for name in ("n", "m")}
        self.extents: list[Expr] = []  # of the inputs
        self._counts: dict[Storage, Expr] = {}
        for index in range(int(self.random.integers(1, 4)) + len(self.symbols)):
            extent: Expr = [*self.symbols][index] if index < len(self.symbols) else self._length()
            array = self.random.integers(-9, 9, evaluate(extent, self.symbols))
            self.inputs.append(array)
            self.extents.append(extent)
            self._keep(Storage("input", apply("*", extent, 8), index), extent, array)
        self._given = list(self._values)
        self.returned: list[Expr] = []  # the extents of the results
        self._window = int(self.random.integers(2, 30))
        for _ in range(int(self.random.integers(1, self.most))):
            self._add()
        self._return()

    def _length(self) -> Expr:
        if self.symbols and self.random.random() < 0.6:
            factor = int(self.random.integers(1, 4))
            return apply("*", str(self.random.choice([*self.symbols])), factor)
        return int(self.random.choice([1, 2, 7, 8, 9, 31, 64, 100, 200]))

    def _keep(self, storage: Storage, extent: Expr, value: np.ndarray) -> None:
        self._values[storage] = value
        self._counts[storage] = extent

    def _choose(self) -> Storage:
        known = list(self._values)
        near = known[-self._window :] if self.random.random() < 0.8 else known
        return near[int(self.random.integers(len(near)))]

    def _add(self) -> None:
        left, right = self._choose(), self._choose()
        a, b, extent = self._values[left], self._values[right], self._length()
        na, nb, count = self._counts[left], self._counts[right], evaluate(extent, self.symbols)
        out = Storage("arena", apply("*", extent, 8))
        addend = int(self.random.integers(100))
        seconds = float(self.random.random())
        if self.random.random() < 0.8:
            command = Command("dispatch", [], "mix", extent, [na, nb, addend])
            over = ((0, 2),) if na == extent else ()  # task i then reads element i of it alone
            self.recorded.append(Recorded(command, [left, right, out], 2, seconds, over))
            self._keep(out, extent, mix(a, b, count, addend))
            return
        work = Storage("arena", apply("*", extent, 8))
        used = [left, right, out, work]
        begin = Command("dispatch", [], "begin", extent, [na, nb, addend])
        finish = Command("dispatch", [], "finish", extent, [extent, nb, 1])
        self.recorded += [Recorded(begin, used, 2, seconds), Recorded(finish, used, 2, seconds)]
        self._keep(out, extent, mix(mix(a, b, count, addend), b, count, 1))

    def _return(self) -> None:
        made = [storage for storage in self._values if storage.kind == "arena"]
        chosen = self.random.permutation(len(made))[: int(self.random.integers(1, 4))]
        copied: set[int] = set()
        for number in chosen:
            storage, index = made[number], len(self.expected)
            value = self._values[storage]
            self.expected.append(value)
            own = self._counts[storage]
            self.returned.append(own)
            fitting = [i for i, extent in enumerate(self.extents) if extent == own and i not in copied]
            if fitting:
                copied.add(fitting[0])
                self.over.append(fitting[0])
                result = Storage("result", storage.bytes, index, over=self._given[fitting[0]])
            else:
                self.over.append(None)
                if self.random.random() < 0.5:
                    storage.kind, storage.index = "result", index
                    continue
                result = Storage("result", storage.bytes, index)
            self.recorded.append(Recorded(Command("copy", []), [storage, result], 1))

    @property
    def signature(self) -> Signature:
        inputs = [TensorSpec(f"i{n}", [extent], "i64") for n, extent in enumerate(self.extents)]
        results = [
            TensorSpec(f"r{n}", [extent], "i64", over)
            for n, (extent, over) in enumerate(zip(self.returned, self.over, strict=True))
        ]
        return Signature("f", inputs, results, [Symbol(name, n, 0) for n, name in enumerate(self.symbols)])

    def compute(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results for other inputs, by numpy, each tensor in memory of its own."""
        values = dict(zip(self._given, inputs, strict=True))
        for entry in self.recorded:
            command, used = entry.command, entry.storages
            if command.op == "copy":
                values[used[1]] = values[used[0]]
                continue
            first, second, out = (used[place] for place in PLACES[command.kernel])
            na, nb, addend, count = (evaluate(size, self.symbols) for size in (*command.sizes, command.tasks))
            values[out] = mix(values[first][:na], values[second][:nb], count, addend)
        made = {storage.index: value for storage, value in values.items() if storage.kind == "result"}
        return [made[index] for index in range(len(self.expected))]

    def arrays(self) -> list[np.ndarray]:
        """New arrays of the inputs and results; a result that is written to an input is that array."""
        inputs = [array.copy() for array in self.inputs]
        results = [
            np.full(len(value), -1) if over is None else inputs[over]
            for value, over in zip(self.expected, self.over, strict=True)
        ]
        return [*inputs, *results]


class Runnable(Protocol):
    """What a schedule is run for."""

    inputs: list[np.ndarray]
    symbols: dict[str, int]

    def arrays(self) -> list[np.ndarray]:
        """New arrays of the inputs and results."""
        ...


def some_order(schedule: Schedule, random: np.random.Generator, by_streams: bool) -> list[int]:
    """An order of the commands that `after`, or streams and waits, allow, drawn at random."""
    last: dict[int, int] = {}
    waits = []
    for number, command in enumerate(schedule.commands):
        own = [last[command.stream]] if command.stream in last else []
        waits.append({*command.waits, *own} if by_streams else set(command.after))
        last[command.stream] = number
    order: list[int] = []
    left = set(range(len(waits)))
    while left:
        ready = [number for number in left if waits[number] <= set(order)]
        order.append(ready[int(random.integers(len(ready)))])
        left.remove(order[-1])
    return order


def run_in_order(program: Runnable, schedule: Schedule, order: list[int]) -> list[np.ndarray]:
    """The results of the commands one after the other in `order`, by numpy."""
    def known(size: Expr) -> int:
        return evaluate(size, program.symbols)

    arrays = program.arrays()
    arena = np.full(known(schedule.arena) // 8, -1)
    first = {"input": 0, "result": len(program.inputs)}

    def view(number: int) -> np.ndarray:
        buffer = schedule.buffers[number]
        if buffer.kind != "arena":
            return arrays[first[buffer.kind] + buffer.index]
        begin = known(buffer.offset) // 8
        return arena[begin : begin + known(buffer.bytes) // 8]

    for number in order:
        command = schedule.commands[number]
        if command.op == "copy":
            source, target = command.buffers
            view(target)[...] = view(source)
            continue
        a, b, out = (view(command.buffers[place]) for place in PLACES[command.kernel])
        na, nb, addend = map(known, command.sizes)
        out[...] = mix(a[:na], b[:nb], known(command.tasks), addend)
    return arrays[len(program.inputs) :]


def run_on_host(
    program: RandomProgram, schedule: Schedule, code: NativeCode, threads: HostThreads
) -> list[np.ndarray]:
    """The results of the host's threads, which run what may run at once at once."""
    concrete = make_concrete(program.signature, schedule, program.symbols, lambda index: 0, "f")
    commands = []
    for work in concrete.work:
        places = tuple((reference.external, reference.offset) for reference in work.references)
        if work.op == "copy":
            commands.append(NativeCommand(0, 0, places, (), work.references[0].bytes))
        else:
            commands.append(NativeCommand(code.address(work.kernel), work.tasks, places, work.sizes))
    native = NativeProgram(
        threads, commands, concrete.externals, 0, (code,), [work.after for work in concrete.work]
    )
    arrays = program.arrays()
    arena = np.full(concrete.arena // 8 + 1, -1)
    native.run([array.ctypes.data for array in (*arrays, arena)])
    return arrays[len(program.inputs) :]
