"""The backend `motet` of torch.compile: graphs of inference are compiled by Motet and run by its runtime.

    fast = torch.compile(model.eval(), backend="motet")
    fast = torch.compile(model.eval(), backend="motet", options={"devices": "cuda{arch=sm_90a}"})

Parameters and buffers become constants of the compiled program, laid out for its kernels. Each call looks whether one
of them was changed since (torch counts that), and compiles anew if so. A graph is compiled for each combination of
extents that it is called with. Graphs that gradients flow through, and graphs with operators that have no lowering,
run as torch runs them, with a warning that says why.
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportPrivateUsage=false

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import fx

from motet.errors import CompileError, OptionError
from motet.pytorch.export import export_module

_log = logging.getLogger("motet")
_VERSION = operator.attrgetter("_version")

Compiled = Callable[..., Any]


def motet_backend(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, str | int | bool] | None = None
) -> Compiled:
    """What torch.compile calls for each graph that it has captured.

    `options` are those of `motet compile --option`, and `devices`, a device expression; without it code is made for
    where the graph's inputs lie: this processor, or the GPU of that number.
    """
    from torch._dynamo.backends.common import aot_autograd

    settings = dict(options or {})

    def inference(program: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        return _boxed(Captured(program, _constants(program), settings))

    def training(program: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        _log.warning("torch.compile(backend='motet'): gradients flow through this graph, and torch runs it as it is; "
                     "to have it compiled, call the model under torch.no_grad()")
        return _boxed(program)

    compile_graph = aot_autograd(fw_compiler=training, bw_compiler=training, inference_compiler=inference)
    return compile_graph(graph, list(example_inputs))


def _boxed(function: Compiled) -> Compiled:
    """The convention of torch's own graphs: one list of arguments, emptied so that tensors can be freed early."""

    def run(arguments: list[Any]) -> Any:
        values = list(arguments)
        arguments.clear()
        return function(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _constants(program: fx.GraphModule) -> list[int]:
    """The positions of the arguments that are parameters and buffers, as far as torch says so."""
    from torch._guards import TracingContext

    metadata = getattr(TracingContext.try_get(), "fw_metadata", None)
    found = getattr(metadata, "static_input_indices", None) or ()
    count = sum(node.op == "placeholder" for node in program.graph.nodes)
    return sorted(position for position in set(found) if position < count)


class Captured:
    """A graph that torch has captured, and what was compiled of it for each combination of extents and numbers.

    `constants` are the positions of the arguments that hardly ever change.
    """

    def __init__(
        self, program: fx.GraphModule, constants: Sequence[int], options: Mapping[str, str | int | bool]
    ) -> None:
        self._program = program
        self._constants = list(constants)
        count = sum(node.op == "placeholder" for node in program.graph.nodes)
        self._inputs = [position for position in range(count) if position not in constants]
        self._options = dict(options)
        self._values: list[torch.Tensor] = []  # of the constants, when they were compiled
        self._state: list[int] = []
        self._compiled: dict[tuple[Any, ...], Compiled | None] = {}

    def __call__(self, *arguments: Any) -> Any:
        self._look_at_constants([arguments[position] for position in self._constants])
        inputs = [arguments[position] for position in self._inputs]
        key = tuple((a.shape, a.dtype, a.device) if isinstance(a, torch.Tensor) else a for a in inputs)
        if key not in self._compiled:
            self._compiled[key] = self._compile(inputs)
        compiled = self._compiled[key]
        if compiled is None:
            return self._program(*arguments)
        return compiled([a for a in inputs if isinstance(a, torch.Tensor)])

    def _look_at_constants(self, values: list[torch.Tensor]) -> None:
        """Forgets what was compiled of other values."""
        state = [*map(_VERSION, values), *map(torch.Tensor.data_ptr, values)]
        same = len(values) == len(self._values) and all(map(operator.is_, values, self._values))
        if not same or state != self._state:
            self._values, self._state = values, state
            self._compiled.clear()

    def _compile(self, inputs: Sequence[Any]) -> Compiled | None:
        """Compiles for these extents and numbers; None if the graph has no lowering."""
        import motet

        tensors = [a for a in inputs if isinstance(a, torch.Tensor)]
        where = next((t.device for t in (*tensors, *self._values)), torch.device("cpu"))
        options = dict(self._options)
        devices = options.pop("devices", None) or _devices(where)
        returned = _Returned()
        closed = _Closed(self._program, self._constants, self._values, self._inputs, inputs, returned.note)
        try:
            # In a thread of its own: within a call torch's dispatcher is set up for that call, not for tracing.
            with ThreadPoolExecutor(1) as thread:
                source = thread.submit(export_module, closed, tensors).result()
            artifact = motet.compile(source, devices=str(devices) if devices else None, options=options)
        except CompileError as error:
            _log.warning("torch.compile(backend='motet'): torch runs this graph itself: %s", error)
            return None
        session = motet.load(artifact)

        def call(arguments: Sequence[torch.Tensor]) -> tuple[Any, ...]:
            values = session(*[tensor.detach().contiguous() for tensor in arguments])
            found = iter(values if isinstance(values, tuple) else (values,))
            return tuple(
                returned.others[i] if i in returned.others else next(found) for i in range(returned.count)
            )

        return call


def _devices(where: torch.device) -> str | None:
    if where.type == "cpu":
        return None
    if where.type != "cuda":
        raise OptionError(f"torch.compile(backend='motet'): its tensors are on {where}; expected cpu or cuda")
    major, minor = torch.cuda.get_device_capability(where)
    return f"cuda[{where.index or 0}]{{arch=sm_{major}{minor}{'a' if major >= 9 else ''}}}"


class _Returned:
    """What a graph returns: `others` beside tensors, by position, and `count` in all. Known once it was traced."""

    def __init__(self) -> None:
        self.others: dict[int, Any] = {}
        self.count = 0

    def note(self, results: Sequence[Any]) -> None:
        self.others = {i: result for i, result in enumerate(results) if not isinstance(result, torch.Tensor)}
        self.count = len(results)


class _Closed(torch.nn.Module):
    """A captured graph as a module of its tensors alone: constants are its buffers, numbers what they were."""

    def __init__(
        self, program: fx.GraphModule, constants: Sequence[int], values: Sequence[torch.Tensor],
        inputs: Sequence[int], given: Sequence[Any], note: Callable[[Sequence[Any]], None],
    ) -> None:
        super().__init__()
        self._program = program
        self._note = note
        self._length = len(constants) + len(inputs)
        self._numbers = {p: a for p, a in zip(inputs, given, strict=True) if not isinstance(a, torch.Tensor)}
        self._tensors = [p for p in inputs if p not in self._numbers]
        self._names = {position: f"constant_{position}" for position in constants}
        for position, value in zip(constants, values, strict=True):
            self.register_buffer(self._names[position], value.detach())

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        arguments: dict[int, Any] = {**self._numbers, **dict(zip(self._tensors, tensors, strict=True))}
        for position, name in self._names.items():
            arguments[position] = getattr(self, name)
        results = self._program(*(arguments[position] for position in range(self._length)))
        self._note(results)
        return tuple(result for result in results if isinstance(result, torch.Tensor))
