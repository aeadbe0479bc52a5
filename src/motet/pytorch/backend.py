"""The backend `motet` of torch.compile: graphs are compiled by Motet and run by its runtime.

    fast = torch.compile(model.eval(), backend="motet")
    fast = torch.compile(model.eval(), backend="motet", options={"devices": "cuda{arch=sm_90a}"})

Parameters and buffers become constants of the compiled program, packed for its kernels. Each call checks whether one of
them was changed since (by torch's version counters), and recompiles if so. A graph is compiled for each combination of
extents that it is called with. Where gradients flow, torch makes a forward and a backward graph, whose parameters are
read in every call. Graphs over several devices, and graphs with operators without a lowering are run by torch, with a
warning that states the reason.

The wrappers of torch (for results that are views of arguments, and for mutated arguments) are bypassed if a graph has
neither.
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
import torch._dynamo.config
import torch._dynamo.eval_frame
from torch import fx

from motet.argument_kinds import check_kind
from motet.errors import CompileError, OptionError, WorkerCrash
from motet.pytorch import chance
from motet.pytorch.export import export_module
from motet.pytorch.kept import keep_whole
from motet.pytorch.transformers import loosen_views, settle_attention
from motet.runtime.session import Session

_log = logging.getLogger("motet")
_VERSION = operator.attrgetter("_version")
_MOST = 64  # combinations of extents whose programs are kept
_CHANGES = 4  # changes of parameters after which they are read in every call

Compiled = Callable[..., Any]
# All of a call's arguments → its results; None if torch must run the graph.
Attempt = Callable[[Sequence[Any]], tuple[Any, ...] | None]


def motet_backend(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, str | int | bool] | None = None
) -> Compiled:
    """The function that torch.compile calls for each captured graph.

    `options` are those of `motet compile --option`, and two more: `devices`, a device expression; the default is the
    device of the graph's inputs: this processor, or the GPU with that number. `freeze`: whether parameters and buffers
    become constants (the default), or are read in every call.
    """
    from functorch.compile import min_cut_rematerialization_partition
    from torch._decomp import get_decompositions
    from torch._dynamo.backends.common import aot_autograd

    check_kind("options", options or {}, Mapping, 'a mapping such as {"devices": "host"}')
    settings = dict(options or {})
    freeze = bool(settings.pop("freeze", True))
    attempts: list[Attempt] = []

    def inference(program: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        settle_attention(program)
        captured = Captured(program, _constants(program) if freeze else [], settings)
        if _is_plain(len(inputs)) and len(inputs) == len(example_inputs):
            attempts.append(captured.attempt)
        return _boxed(captured)

    def training(program: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        if state := _opaque_state(program):
            _log.warning("torch.compile(backend='motet'): torch runs this graph itself: %s: its gradients need a "
                         "result that only PyTorch can read", state)
            return _boxed(program)
        loosen_views(program)
        return _boxed(Captured(program, [], settings))  # parameters change from step to step

    compile_graph = aot_autograd(
        fw_compiler=training, bw_compiler=training, inference_compiler=inference,
        partition_fn=min_cut_rematerialization_partition,
        # torch.export ignores decompositions of what is composite and has kernels too.
        decompositions={**get_decompositions([torch.ops.aten.silu_backward]), **chance.decompositions()},
    )  # fmt: skip
    with keep_whole():
        wrapped = compile_graph(graph, list(example_inputs))
    if len(attempts) != 1:
        return wrapped
    (attempt,) = attempts

    def run(*arguments: Any) -> Any:
        results = attempt(arguments)
        return wrapped(*arguments) if results is None else results

    return run


def _allow_recurrent_layers() -> None:
    """Makes Dynamo trace layers of nn.LSTM, GRU and RNN, which it would otherwise leave to PyTorch."""
    torch._dynamo.config.allow_rnn = True


# Dynamo reads this global setting before it calls a backend, so it is set when this backend is selected.
if hasattr(torch._dynamo.eval_frame, "_maybe_fire_backend_init"):
    motet_backend._dynamo_backend_init = _allow_recurrent_layers  # type: ignore[attr-defined]
else:  # older versions of torch only import this module when it is selected
    _allow_recurrent_layers()


def _boxed(function: Compiled) -> Compiled:
    """Wraps a function in torch's calling convention: one list of arguments, emptied to free tensors early."""

    def run(arguments: list[Any]) -> Any:
        values = list(arguments)
        arguments.clear()
        return function(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _metadata() -> Any:
    """torch's metadata of the graph being compiled."""
    from torch._guards import TracingContext

    return getattr(TracingContext.try_get(), "fw_metadata", None)


def _constants(program: fx.GraphModule) -> list[int]:
    """The positions of the arguments that are unmutated parameters and buffers, as far as torch knows."""
    metadata = _metadata()
    found = set(getattr(metadata, "static_input_indices", None) or ())
    changed = {
        position for position, info in enumerate(getattr(metadata, "input_info", None) or ())
        if info.mutates_data or info.mutates_metadata
    }
    count = sum(node.op == "placeholder" for node in program.graph.nodes)
    return sorted(position for position in found - changed if position < count)


def _opaque_state(program: fx.GraphModule) -> str | None:
    """An operator that keeps bytes of undocumented contents for its gradients: another kernel must not make them."""
    for node in program.graph.find_nodes(op="call_function", target=operator.getitem):
        if node.meta["val"].dtype == torch.uint8 and node.users:
            return str(node.args[0].target)
    return None


def _is_plain(count: int) -> bool:
    """Whether all results of the graph are new tensors, and its `count` arguments are those of the call, and not
    mutated."""
    metadata = _metadata()
    if metadata is None:
        return False
    try:
        inputs, outputs = metadata.input_info, metadata.output_info
        return (
            len(inputs) == count
            and not any(info.mutates_data or info.mutates_metadata for info in inputs)
            and all(info.output_type.name == "non_alias" for info in outputs)
            and not metadata.num_intermediate_bases
            and not metadata.tokens
            and not metadata.is_rng_op_functionalized
            and metadata.grad_enabled_mutation is None
            and all(type(meta).__name__ == "PlainTensorMeta" for meta in metadata.subclass_inp_meta)
            and all(type(meta).__name__ == "PlainTensorMeta" for meta in metadata.subclass_fw_graph_out_meta)
        )
    except AttributeError:  # other versions of torch use other names
        return False


def _picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that selects the arguments at `positions`."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return lambda arguments: [arguments[position] for position in positions]


class Captured:
    """A captured graph, and its compiled programs for each combination of extents and numbers.

    `constants` are the positions of the arguments that rarely change.
    """

    def __init__(
        self, program: fx.GraphModule, constants: Sequence[int], options: Mapping[str, str | int | bool]
    ) -> None:
        self._program = program
        self._draws = chance.take_draws(program)
        self._options = dict(options)
        self._placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
        self._arrange(constants)
        self._home = _home(program)
        self._values: Sequence[torch.Tensor] = ()  # of the constants at compile time
        self._state: list[int] = []
        self._changes = -1
        self._compiled: dict[Any, Compiled | None] = {}

    def _arrange(self, constants: Sequence[int]) -> None:
        self._constants = list(constants)
        self._inputs = [position for position in range(len(self._placeholders)) if position not in constants]
        self._take_constants, self._take_inputs = _picker(self._constants), _picker(self._inputs)
        # torch checks shapes, dtypes and devices before each call: if all of them are static, there is one program.
        self._is_static = all(_is_static(self._placeholders[position]) for position in self._inputs)

    def __call__(self, *arguments: Any) -> Any:
        given = self._with_draws(arguments)
        results = self._attempt(given)
        return self._program(*given) if results is None else results

    def attempt(self, arguments: Sequence[Any]) -> tuple[Any, ...] | None:
        """The results by Motet; None if torch must run the graph."""
        return self._attempt(self._with_draws(arguments))

    def _with_draws(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """The arguments, and the random numbers of this call."""
        return [*arguments, *self._draws.draw(arguments)] if self._draws.calls else arguments

    def _attempt(self, arguments: Sequence[Any]) -> tuple[Any, ...] | None:
        if self._constants:
            self._look_at_constants(arguments)
        inputs = self._take_inputs(arguments)
        key = None if self._is_static else tuple([_kind(argument) for argument in inputs])
        try:
            compiled = self._compiled[key]
        except KeyError:
            if len(self._compiled) == _MOST:
                self._compiled.pop(next(iter(self._compiled)))
            compiled = self._compiled[key] = self._compile(inputs)
        return None if compiled is None else compiled(inputs)

    def _look_at_constants(self, arguments: Sequence[Any]) -> None:
        """Discards programs compiled for other values. Arguments that change repeatedly no longer count as
        constants."""
        values = self._take_constants(arguments)
        try:
            state = [*map(_VERSION, values), *map(torch.Tensor.data_ptr, values)]
        except RuntimeError:  # tensors of inference mode have no version counters, sparse ones no address
            kept = [p for p in self._constants if not arguments[p].is_inference()]
            self._arrange(kept if len(kept) < len(self._constants) else [])
            self._look_at_constants(arguments)
            return
        if state == self._state and all(map(operator.is_, values, self._values)):
            return
        self._compiled.clear()
        self._changes += 1
        self._values, self._state = values, state
        if self._changes == _CHANGES:
            _log.warning("torch.compile(backend='motet'): parameters of this graph were changed %d times, and are read "
                         "in every call from now on", _CHANGES)
            self._arrange([])
            self._values = ()

    def _compile(self, inputs: Sequence[Any]) -> Compiled | None:
        """Compiles for these extents and numbers; None if the graph has no lowering."""
        import motet

        home = self._home
        if home is None:
            _log.warning("torch.compile(backend='motet'): torch runs this graph itself: its tensors lie on several "
                         "devices; expected one, beside scalars on the cpu")
            return None
        options = dict(self._options)
        devices = options.pop("devices", None) or _devices(home)
        tensors = [argument for argument in inputs if isinstance(argument, torch.Tensor)]
        returned = _Returned()
        closed = _Closed(self._program, self._constants, self._values, self._inputs, inputs, returned.note)
        try:
            # In another thread: in this one torch's dispatcher is configured for the call, not for tracing.
            with ThreadPoolExecutor(1) as thread:
                source = thread.submit(export_module, closed, [tensor.detach() for tensor in tensors]).result()
            artifact = motet.compile(source, devices=str(devices) if devices else None, options=options)
        except (CompileError, WorkerCrash) as error:
            _log.warning("torch.compile(backend='motet'): torch runs this graph itself: %s", error)
            return None
        return _caller(motet.load(artifact), returned, home, len(tensors) == len(inputs))


def _caller(session: Session, returned: _Returned, home: torch.device, only_tensors: bool) -> Compiled:
    """A function that calls `session` with the tensors among the inputs of a graph, and returns the graph's results."""
    plain, is_there = torch.Tensor, operator.attrgetter(f"is_{home.type}")
    (function,) = (session[name] for name in session)

    def ready(value: Any) -> Any:
        """The tensor as the session needs it: without gradient, contiguous, on the graph's device."""
        if type(value) is plain and value.is_contiguous() and not value.requires_grad and is_there(value):
            return value
        return value.detach().to(home).contiguous().resolve_neg()

    def call(inputs: Sequence[Any]) -> tuple[Any, ...]:
        given = inputs if only_tensors else [value for value in inputs if isinstance(value, torch.Tensor)]
        values = function(*[ready(value) for value in given])
        found = values if type(values) is tuple else () if values is None else (values,)
        if not returned.others and not returned.inputs:
            return found
        others = {**returned.others, **{i: inputs[position] for i, position in returned.inputs.items()}}
        rest = iter(found)
        return tuple(others[i] if i in others else next(rest) for i in range(returned.count))

    return call


def _kind(argument: Any) -> Any:
    return (argument.shape, argument.dtype) if isinstance(argument, torch.Tensor) else argument


def _is_static(placeholder: fx.Node) -> bool:
    """Whether an argument is a tensor of static extents, which torch checks before each call."""
    value = placeholder.meta.get("val")
    return isinstance(value, torch.Tensor) and all(type(extent) is int for extent in value.shape)


def _home(program: fx.GraphModule) -> torch.device | None:
    """The only device of a graph's tensors, ignoring scalars on the cpu; None if there are several."""
    found: set[torch.device] = set()
    made: set[torch.device] = set()
    for node in program.graph.nodes:
        values: Any = node.meta.get("val") if node.op != "output" else None
        for value in values if isinstance(values, (tuple, list)) else [values]:
            if isinstance(value, torch.Tensor):
                (made if value.device.type == "cpu" and not value.ndim else found).add(value.device)
    if not found:
        found = made
    if len(found) != 1:
        return None if found else torch.device("cpu")
    (home,) = found
    (results,) = (node.args[0] for node in program.graph.nodes if node.op == "output")
    returned = [node.meta.get("val") for node in results if isinstance(node, fx.Node)]
    return home if all(value.device == home for value in returned if isinstance(value, torch.Tensor)) else None


def _devices(where: torch.device) -> str | None:
    if where.type == "cpu":
        return None
    if where.type != "cuda":
        raise OptionError(f"torch.compile(backend='motet'): its tensors are on {where}; expected cpu or cuda")
    major, minor = torch.cuda.get_device_capability(where)
    return f"cuda[{where.index or 0}]{{arch=sm_{major}{minor}{'a' if major >= 9 else ''}}}"


class _Returned:
    """The results of a graph, of `count` in total, by position: `others` are those that are not tensors, `inputs` the
    positions of those that are inputs, as graphs keep for gradients. Known after tracing."""

    def __init__(self) -> None:
        self.others: dict[int, Any] = {}
        self.inputs: dict[int, int] = {}
        self.count = 0

    def note(self, results: Sequence[Any], inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Records the results of tracing with `inputs`; returns those that are computed."""
        given = {id(tensor): position for position, tensor in enumerate(inputs) if isinstance(tensor, torch.Tensor)}
        self.others = {i: result for i, result in enumerate(results) if not isinstance(result, torch.Tensor)}
        self.inputs = {i: given[id(result)] for i, result in enumerate(results) if id(result) in given}
        self.count = len(results)
        return [result for i, result in enumerate(results) if i not in self.others and i not in self.inputs]


class _Closed(torch.nn.Module):
    """A captured graph as a module of its tensors only: constants are buffers, numbers are fixed."""

    def __init__(
        self, program: fx.GraphModule, constants: Sequence[int], values: Sequence[torch.Tensor],
        inputs: Sequence[int], given: Sequence[Any], note: Callable[[Sequence[Any], Sequence[Any]], list[torch.Tensor]],
    ) -> None:
        super().__init__()
        self._inputs = inputs
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
        return tuple(self._note(results, [arguments[position] for position in self._inputs]))
