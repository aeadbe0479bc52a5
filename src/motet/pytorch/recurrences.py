"""Keeps recurrent layers of PyTorch as loops over their sequences, which torch.export and torch.compile unroll.

    aten.lstm.input(x, …)    →   for each layer and direction: motet.lstm(x, w, r, b, h, c), with ONNX's order of gates
    aten.gru.input(x, …)     →   motet.gru(x, w, r, b, h)
    aten.rnn_tanh.input, …   →   motet.rnn_tanh(x, w, r, b, h), motet.rnn_relu

The operators of `motet` have the operands and results of ONNX's LSTM, GRU and RNN in one direction, which the compiler
lowers (`compiler/frontends/torch/layers.py`): sequences of steps × batch × features, weights of 1 × gates·hidden ×
features, biases of 1 × 2·gates·hidden, states of 1 × batch × hidden. Layers that ONNX does not have, of few steps, of
packed sequences or with projections, are unrolled as PyTorch defines them.
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch._decomp.decompositions as unrolled

_FEW = 4  # steps that are faster one after the other, without a loop
_DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True)
class _Cell:
    """A kind of layer: its operator, and ONNX's order of PyTorch's gates."""

    name: str
    gates: Sequence[int]


_LSTM = _Cell("lstm", (0, 3, 1, 2))  # input, forget, cell, output → input, output, forget, cell
_GRU = _Cell("gru", (1, 0, 2))  # reset, update, new → update, reset, new
_TANH, _RELU = _Cell("rnn_tanh", (0,)), _Cell("rnn_relu", (0,))


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.lstm.input: _lstm,
        aten.gru.input: _gru,
        aten.rnn_tanh.input: _rnn(_TANH, unrolled.rnn_tanh_input),
        aten.rnn_relu.input: _rnn(_RELU, unrolled.rnn_relu_input),
        aten.mkldnn_rnn_layer.default: _layer_of_compile,
    }


@contextmanager
def dynamic_sequences() -> Generator[None]:
    """While it lasts, torch.export finds the extents of recurrent layers' results without unrolling them, so that the
    number of steps may be dynamic."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    ours: Mapping[Any, Any] = {op: made for op, made in decompositions().items() if key in op.py_kernels}
    before = {op: op.py_kernels[key] for op in ours}
    try:
        for op, made in ours.items():
            op.py_kernels[key] = made
            op._dispatch_cache.clear()
        yield
    finally:
        for op, made in before.items():
            op.py_kernels[key] = made
            op._dispatch_cache.clear()


# -- PyTorch's operators, with their parameters ------------------------------------------------------------------------


def _lstm(
    x: Any, hx: Sequence[Any], params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:
    if _is_special(x, batch_first, dropout and train) or hx[0].shape[2] != hx[1].shape[2]:
        return unrolled.lstm_impl(
            x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
        )
    found, (hidden, cells) = _layers(_LSTM, x, hx, params, has_biases, bidirectional, batch_first)
    return found, hidden, cells


def _gru(
    x: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:
    if _is_special(x, batch_first, dropout and train):
        return unrolled.gru_impl(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    found, (hidden,) = _layers(_GRU, x, [hx], params, has_biases, bidirectional, batch_first)
    return found, hidden


def _rnn(cell: _Cell, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def layer(
        x: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:
        if _is_special(x, batch_first, dropout and train):
            return otherwise(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        found, (hidden,) = _layers(cell, x, [hx], params, has_biases, bidirectional, batch_first)
        return found, hidden

    return layer


def _layer_of_compile(
    x: Any, weight0: Any, weight1: Any, weight2: Any, weight3: Any, hidden: Any, cell: Any, reverse: bool,
    batch_sizes: Any, mode: int, hidden_size: int, num_layers: int, has_biases: bool, *others: Any,
) -> Any:
    """One layer of an LSTM in one direction, as torch.compile has it for processors. The last result is for
    gradients."""
    if mode != 2 or num_layers != 1:
        return NotImplemented
    weights = [weight0, weight1, weight2, weight3] if has_biases else [weight0, weight1]
    if _is_special(x, False, False):
        found, (last, state) = unrolled.one_layer_lstm(x, (hidden[0], cell[0]), weights, has_biases, reverse)
    else:
        found, last, state = _one(_LSTM, x, [hidden[0], cell[0]], weights, has_biases, reverse)
    return found, last.unsqueeze(0), state.unsqueeze(0), torch.zeros(0, dtype=torch.uint8, device=x.device)


def _is_special(x: Any, batch_first: bool, dropout: float | bool) -> bool:
    """Whether a layer of the sequences `x` is unrolled."""
    steps = x.shape[1 if batch_first else 0]
    return bool(dropout) or x.dtype not in _DTYPES or (isinstance(steps, int) and steps <= _FEW)


# -- layers --------------------------------------------------------------------------------------------------------


def _layers(
    cell: _Cell, x: Any, states: Sequence[Any], params: Sequence[Any], has_biases: bool, bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, list[Any]]:
    """What all layers give: the states of the last layer at each step, and the final states of all."""
    sequence = x.transpose(0, 1) if batch_first else x
    each, directions = 4 if has_biases else 2, 2 if bidirectional else 1
    final: list[Sequence[Any]] = []
    for first in range(0, len(params) // each, directions):
        made: list[Any] = []
        for number in range(first, first + directions):
            own = params[number * each : (number + 1) * each]
            found, *last = _one(cell, sequence, [s[number] for s in states], own, has_biases, number > first)
            made.append(found)
            final.append(last)
        sequence = torch.cat(made, -1) if bidirectional else made[0]
    stacked = [torch.stack(kind) for kind in zip(*final, strict=True)]
    return sequence.transpose(0, 1) if batch_first else sequence, stacked


def _one(
    cell: _Cell, x: Any, states: Sequence[Any], params: Sequence[Any], has_biases: bool, reverse: bool
) -> list[Any]:
    """The states at each step, and the final ones, of one layer in one direction."""
    w, r = (_ordered(weight, cell) for weight in params[:2])
    b = torch.cat([_ordered(bias, cell) for bias in params[2:]]) if has_biases else w.new_zeros(2 * w.shape[0])
    found, *last = _operator(cell)(
        x.flip(0) if reverse else x, w.unsqueeze(0), r.unsqueeze(0), b.unsqueeze(0), *(s.unsqueeze(0) for s in states)
    )
    found = found.squeeze(1)
    return [found.flip(0) if reverse else found, *(state.squeeze(0) for state in last)]


def _ordered(parameter: Any, cell: _Cell) -> Any:
    """Weights or a bias with the gates in ONNX's order."""
    if len(cell.gates) == 1:
        return parameter
    parts = parameter.chunk(len(cell.gates))
    return torch.cat([parts[gate] for gate in cell.gates])


# -- the operators that stand for layers -------------------------------------------------------------------------------


def _operator(cell: _Cell) -> Any:
    """The operator of `motet` for a kind of layer, registered with PyTorch when first needed. It has no kernel, since
    PyTorch does not run the programs that have it."""
    if not hasattr(torch.ops.motet, cell.name):
        states, results = ("Tensor h, Tensor c", 3) if cell is _LSTM else ("Tensor h", 2)
        name = f"motet::{cell.name}"
        torch.library.define(
            name, f"(Tensor x, Tensor w, Tensor r, Tensor b, {states}) -> ({', '.join(['Tensor'] * results)})"
        )
        torch.library.register_fake(name, _extents)
    return getattr(torch.ops.motet, cell.name).default


def _extents(x: Any, w: Any, r: Any, b: Any, *states: Any) -> tuple[Any, ...]:
    steps, batch, _ = x.shape
    return x.new_empty(steps, 1, batch, r.shape[-1]), *(torch.empty_like(state) for state in states)
