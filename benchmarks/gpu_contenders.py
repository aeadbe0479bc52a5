"""Motet and its peers on one GPU: each prepares a row for several sets of inputs, and then puts calls on its stream.

A contender's `launch(i)` begins a call on set `i` and returns at once; `begin` and `end` mark its stream, and `elapsed`
waits and says how many seconds lie between the marks. `call(i)` is a whole call
as a caller sees it: begun and waited for.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import motet
from benchmarks.gpu_rows import Row

Tensor = torch.Tensor
Sets = Sequence[Sequence[Tensor]]


class Absent(Exception):
    """A contender that has no such row; the text says why."""


def flat(results: Any) -> list[Tensor]:
    """The tensors of a result: one, or a tuple of them."""
    return [results] if isinstance(results, Tensor) else list(results)


class OnStream:
    """What works on one CUDA stream of this process; timed by events."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self.marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def begin(self) -> None:
        self.marks[0].record(self.stream)

    def end(self) -> None:
        self.marks[1].record(self.stream)

    def elapsed(self) -> float:
        self.marks[1].synchronize()
        return self.marks[0].elapsed_time(self.marks[1]) * 1e-3


class Eager(OnStream):
    """PyTorch as it is."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets) -> None:
        super().__init__(torch.cuda.current_stream())
        self.module, self.sets = module, sets
        self.function: Callable[..., Any] = module
        self.last: Any = None

    def launch(self, number: int) -> None:
        self.last = self.function(*self.sets[number])

    def call(self, number: int) -> None:
        self.launch(number)
        self.stream.synchronize()

    def results(self) -> list[Tensor]:
        """What a call on the first set gives."""
        self.call(0)
        return flat(self.last)


class Compiled(Eager):
    """`torch.compile`."""

    mode: str | None = None

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets) -> None:
        super().__init__(row, module, sets)
        self.function = torch.compile(module, dynamic=False, mode=self.mode)


class ReduceOverhead(Compiled):
    mode = "reduce-overhead"


class MaxAutotune(Compiled):
    mode = "max-autotune-no-cudagraphs"


class Graphed(Eager):
    """A CUDA graph of PyTorch's calls, one for each set."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets) -> None:
        super().__init__(row, module, sets)
        self._capture()

    def _capture(self) -> None:
        for _ in range(2):
            self.function(*self.sets[0])
        torch.cuda.synchronize()
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.made: list[Any] = []
        for values in self.sets:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.made.append(self.function(*values))
            self.graphs.append(graph)

    def launch(self, number: int) -> None:
        self.graphs[number].replay()
        self.last = self.made[number]


class CompiledGraphed(Graphed):
    """A CUDA graph of what `torch.compile` makes."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets) -> None:
        Eager.__init__(self, row, module, sets)
        self.function = torch.compile(module, dynamic=False)
        self._capture()


class Jax:
    """`jax.jit`; timed by the clock, as its streams are its own."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets) -> None:
        if row.jax is None:
            raise Absent("not written for JAX")
        jax, jnp = importlib.import_module("jax"), importlib.import_module("jax.numpy")
        jax.config.update("jax_default_matmul_precision", "highest" if row.unit == "f32" else None)
        self.sets = [[jnp.from_dlpack(tensor.contiguous()) for tensor in values] for values in sets]
        self.function = jax.jit(row.jax(jax, jnp))
        self.last: Any = None

    def launch(self, number: int) -> None:
        self.last = self.function(*self.sets[number])

    def call(self, number: int) -> None:
        self.launch(number)
        self.last.block_until_ready()

    def begin(self) -> None:
        self.since = time.perf_counter()

    def end(self) -> None:
        pass

    def elapsed(self) -> float:
        self.last.block_until_ready()
        return time.perf_counter() - self.since

    def results(self) -> list[Tensor]:
        self.call(0)
        return [torch.from_dlpack(self.last)]


class Motet(Eager):
    """The artifact's one function, called as PyTorch's are: with its tensors, on its current stream. Results are
    made anew by each call."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, artifact: Path) -> None:
        super().__init__(row, module, sets)
        begin = time.perf_counter()
        self.session = motet.load(artifact, devices={"": "cuda:0"})
        self.load_seconds = time.perf_counter() - begin
        self.function = self.session
        begin = time.perf_counter()
        self.call(0)
        self.first_seconds = time.perf_counter() - begin

    def kernels(self) -> list[tuple[str, float]]:
        """Seconds of each launch of one call, one after the other."""
        function = next(iter(self.session.functions.values()))
        _, events = function.trace(*[self.session.wrap(tensor) for tensor in self.sets[0]])
        return [(each.event.name, each.event.end - each.event.begin) for each in events if each.event.kind == "launch"]

    def close(self) -> None:
        torch.cuda.synchronize()
        self.session.close()


class MotetGraphed(Graphed):
    """A CUDA graph of Motet's calls."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, artifact: Path) -> None:
        Eager.__init__(self, row, module, sets)
        self.session = motet.load(artifact, devices={"": "cuda:0"})
        self.function = self.session
        self._capture()

    def close(self) -> None:
        torch.cuda.synchronize()
        self.session.close()


PEERS: dict[str, type[Eager] | type[Jax]] = {
    "eager": Eager, "graph": Graphed, "compile": Compiled, "compile+graph": CompiledGraphed,
    "reduce-overhead": ReduceOverhead, "max-autotune": MaxAutotune, "JAX": Jax,
}
