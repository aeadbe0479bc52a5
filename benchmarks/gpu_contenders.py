"""Motet and its peers on one GPU: each prepares a row for several sets of inputs, then puts calls on its stream.

A contender's `launch(i)` starts a call on set `i` and returns immediately; `begin` and `end` mark its stream, and
`elapsed` waits and returns the seconds between the marks. `call(i)` is a whole call as a caller sees it, including the
wait. Products of `eager` are cuBLAS's, or cuBLASLt's if they have a bias.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import motet
from benchmarks import gpu_jax
from benchmarks.gpu_compile import file_of
from benchmarks.gpu_iree import Iree
from benchmarks.gpu_rows import Absent, Row, flat

Tensor = torch.Tensor
Sets = Sequence[Sequence[Tensor]]


class OnStream:
    """Base of contenders that work on one CUDA stream of this process; timed by events."""

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
    """PyTorch in eager mode."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> None:
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
        """The results of a call on the first set."""
        self.call(0)
        return flat(self.last)


class Compiled(Eager):
    """`torch.compile`."""

    mode: str | None = None

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> None:
        super().__init__(row, module, sets, folder)
        self.function = torch.compile(module, dynamic=False, mode=self.mode)


def _check_searched(row: Row) -> None:
    if not row.searched:
        raise Absent("not searched")


class ReduceOverhead(Compiled):
    """`torch.compile` with its own CUDA graphs, into whose memory it copies the inputs."""

    mode = "reduce-overhead"

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> None:
        _check_searched(row)
        super().__init__(row, module, sets, folder)

    def launch(self, number: int) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        super().launch(number)


class Graphed(Eager):
    """A CUDA graph of PyTorch's calls, one for each set."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> None:
        super().__init__(row, module, sets, folder)
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
    """A CUDA graph of `torch.compile`'s result."""

    mode: str | None = None

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> None:
        Eager.__init__(self, row, module, sets, folder)
        self.function = torch.compile(module, dynamic=False, mode=self.mode)
        self._capture()


class MaxAutotune(CompiledGraphed):
    """A CUDA graph of `torch.compile`'s result in max-autotune mode, for rows that request it."""

    mode = "max-autotune-no-cudagraphs"

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> None:
        _check_searched(row)
        super().__init__(row, module, sets, folder)


class Jax:
    """`jax.jit`, timed by the clock over consecutive calls, as it has separate streams."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> None:
        if row.jax is None:
            raise Absent("not written for JAX")
        self.jax, self.jnp = importlib.import_module("jax"), importlib.import_module("jax.numpy")
        self.jax.config.update("jax_default_matmul_precision", "highest" if row.unit == "f32" else None)
        self.sets: list[list[Any]] = [[self._array(tensor) for tensor in values] for values in sets]
        weights = {name: self._array(tensor) for name, tensor in module.state_dict().items()}
        if weights:
            for values in self.sets:
                values.append(weights)
        gpu_jax.attention_by()
        self.function = self.jax.jit(row.jax(self.jax, self.jnp))
        self.last: Any = None

    def _array(self, tensor: Tensor) -> Any:
        """The tensor for JAX; 64-bit integers become 32-bit ones, JAX's default."""
        if tensor.dtype == torch.int64:
            tensor = tensor.to(torch.int32)
        if tensor.dtype != torch.float8_e4m3fn:
            return self.jnp.from_dlpack(tensor.contiguous())
        words = self.jnp.from_dlpack(tensor.contiguous().view(torch.uint8))
        return self.jax.lax.bitcast_convert_type(words, self.jnp.float8_e4m3fn)

    def launch(self, number: int) -> None:
        self.last = self.function(*self.sets[number])

    def call(self, number: int) -> None:
        self.launch(number)
        self.jax.block_until_ready(self.last)

    def begin(self) -> None:
        self.jax.block_until_ready(self.last)
        self.since = time.perf_counter()

    def end(self) -> None:
        pass

    def elapsed(self) -> float:
        self.jax.block_until_ready(self.last)
        return time.perf_counter() - self.since

    def results(self) -> list[Tensor]:
        self.call(0)
        made = self.last if isinstance(self.last, tuple | list) else [self.last]
        return [torch.from_dlpack(each) for each in made]


class Motet(Eager):
    """The artifact's only function, called like PyTorch's functions: with its tensors, on its current stream. Each call
    allocates its results."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> None:
        super().__init__(row, module, sets, folder)
        begin = time.perf_counter()
        self.session = _loaded(row, folder)
        self.load_seconds = time.perf_counter() - begin
        self.function = self.session
        begin = time.perf_counter()
        self.call(0)
        self.first_seconds = time.perf_counter() - begin

    def kernels(self) -> list[tuple[str, float]]:
        """The seconds of each launch of one call, run in sequence."""
        function = next(iter(self.session.functions.values()))
        _, events = function.trace(*[self.session.wrap(tensor) for tensor in self.sets[0]])
        return [(each.event.name, each.event.end - each.event.begin) for each in events if each.event.kind == "launch"]

    def close(self) -> None:
        torch.cuda.synchronize()
        self.session.close()


class MotetGraphed(Graphed):
    """A CUDA graph of Motet's calls."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> None:
        Eager.__init__(self, row, module, sets, folder)
        self.session = _loaded(row, folder)
        self.function = self.session
        self._capture()

    def close(self) -> None:
        torch.cuda.synchronize()
        self.session.close()


def _loaded(row: Row, folder: Path) -> motet.Session:
    file = file_of(folder, row, "Motet")
    if not file.exists():
        raise Absent("it did not compile")
    return motet.load(file, devices={"": "cuda:0"})


def _iree(row: Row, module: torch.nn.Module, sets: Sets, folder: Path) -> Iree:
    file = file_of(folder, row, "IREE")
    if not file.exists():
        raise Absent("it did not compile")
    return Iree(row, module, sets, file)


CONTENDERS: dict[str, Callable[[Row, torch.nn.Module, Sets, Path], Any]] = {
    "Motet": Motet, "Motet, graph": MotetGraphed, "eager": Eager, "graph": Graphed, "compile": Compiled,
    "compile+graph": CompiledGraphed, "reduce-overhead": ReduceOverhead, "max-autotune": MaxAutotune, "JAX": Jax,
    "IREE": _iree,
}
