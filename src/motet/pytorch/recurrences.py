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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._decomp.decompositions as unrolled

_FEW = 4  # steps that are faster one after the other, without a loop
_DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True)
class _Recurrent:
    """A kind of layer: its operator, and ONNX's order of PyTorch's gates."""

    name: str
    gates: Sequence[int]


_LSTM = _Recurrent("lstm", (0, 3, 1, 2))  # input, forget, cell, output → input, output, forget, cell
_GRU = _Recurrent("gru", (1, 0, 2))  # reset, update, new → update, reset, new
_TANH, _RELU = _Recurrent("rnn_tanh", (0,)), _Recurrent("rnn_relu", (0,))


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.lstm.input: _lstm,
        aten.gru.input: _of_one_state(_GRU, unrolled.gru_impl),
        aten.rnn_tanh.input: _of_one_state(_TANH, unrolled.rnn_tanh_input),
        aten.rnn_relu.input: _of_one_state(_RELU, unrolled.rnn_relu_input),
        aten.mkldnn_rnn_layer.default: _layer_of_compile,
    }


# -- PyTorch's operators, with their parameters ------------------------------------------------------------------------
# `options` are has_biases, num_layers, dropout, train, bidirectional and batch_first, as PyTorch passes them.


def _lstm(x: Any, hx: Sequence[Any], params: Sequence[Any], *options: Any) -> Any:
    if _is_special(x, params, options) or hx[0].shape[2] != hx[1].shape[2]:
        # PyTorch's fused layer for processors is for inference only, but is chosen wherever `x` itself has no gradient.
        fused = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(fused and not _is_learning(x, params))
        try:
            return _unrolled(unrolled.lstm_impl, x, hx, params, options)
        finally:
            torch._C._set_mkldnn_enabled(fused)
    found, (hidden, cells) = _layers(_LSTM, x, hx, params, options)
    return found, hidden, cells


def _of_one_state(layer: _Recurrent, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, hx: Any, params: Sequence[Any], *options: Any) -> Any:
        if _is_special(x, params, options):
            return _unrolled(lambda x, states, *others: otherwise(x, states[0], *others), x, [hx], params, options)
        found, (hidden,) = _layers(layer, x, [hx], params, options)
        return found, hidden

    return run


def _unrolled(
    impl: Callable[..., Any], x: Any, states: Sequence[Any], params: Sequence[Any], options: Sequence[Any]
) -> tuple[Any, ...]:
    """What PyTorch's decomposition `impl` gives, with dropout between the layers, which it leaves out
    (`torch._decomp.decompositions._rnn_helper` compares the number of layers with the layer)."""
    has_biases, layers, dropout, train, bidirectional, batch_first = options
    if not dropout or not train or layers == 1:
        return impl(x, states, params, *options)
    each, directions = len(params) // layers, 2 if bidirectional else 1
    sequence = x.transpose(0, 1) if batch_first else x
    final: list[Sequence[Any]] = []
    for number in range(layers):
        if number:
            sequence = torch.dropout(sequence, dropout, True)
        own = [state[number * directions : (number + 1) * directions] for state in states]
        weights = params[number * each : (number + 1) * each]
        sequence, *last = impl(sequence, own, weights, has_biases, 1, 0.0, train, bidirectional, False)
        final.append(last)
    ends = [torch.cat(kind) for kind in zip(*final, strict=True)]
    return sequence.transpose(0, 1) if batch_first else sequence, *ends


def _layer_of_compile(x: Any, *others: Any) -> Any:
    """One layer of an LSTM in one direction, as torch.compile has it for processors. The last result is for
    gradients."""
    *params, hidden, cell, reverse, _, mode, _, num_layers, has_biases = others[:12]
    if mode != 2 or num_layers != 1:
        return NotImplemented
    weights = params if has_biases else params[:2]
    if _is_special(x, weights, (has_biases, 1, 0.0, False, False, False)):
        found, (last, state) = unrolled.one_layer_lstm(x, (hidden[0], cell[0]), weights, has_biases, reverse)
    else:
        found, last, state = _one(_LSTM, x, [hidden[0], cell[0]], weights, has_biases, reverse)
    return found, last.unsqueeze(0), state.unsqueeze(0), torch.zeros(0, dtype=torch.uint8, device=x.device)


def _is_special(x: Any, params: Sequence[Any], options: Sequence[Any]) -> bool:
    """Whether a layer of the sequences `x` is unrolled. Only PyTorch's own operators have gradients."""
    _, _, dropout, train, _, batch_first = options
    steps = x.shape[1 if batch_first else 0]
    is_short = isinstance(steps, int) and steps <= _FEW
    return _is_learning(x, params) or bool(dropout and train) or x.dtype not in _DTYPES or is_short


def _is_learning(x: Any, params: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *params))


# -- layers --------------------------------------------------------------------------------------------------------


def _layers(
    layer: _Recurrent, x: Any, states: Sequence[Any], params: Sequence[Any], options: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """What all layers give: the states of the last layer at each step, and the final states of all."""
    has_biases, _, _, _, bidirectional, batch_first = options
    sequence = x.transpose(0, 1) if batch_first else x
    each, directions = 4 if has_biases else 2, 2 if bidirectional else 1
    final: list[Sequence[Any]] = []
    for first in range(0, len(params) // each, directions):
        made: list[Any] = []
        for number in range(first, first + directions):
            own = params[number * each : (number + 1) * each]
            found, *last = _one(layer, sequence, [s[number] for s in states], own, has_biases, number > first)
            made.append(found)
            final.append(last)
        sequence = torch.cat(made, -1) if bidirectional else made[0]
    stacked = [torch.stack(kind) for kind in zip(*final, strict=True)]
    return sequence.transpose(0, 1) if batch_first else sequence, stacked


def _one(
    layer: _Recurrent, x: Any, states: Sequence[Any], params: Sequence[Any], has_biases: bool, reverse: bool
) -> list[Any]:
    """The states at each step, and the final ones, of one layer in one direction."""
    w, r = (_ordered(weight, layer) for weight in params[:2])
    b = torch.cat([_ordered(bias, layer) for bias in params[2:]]) if has_biases else w.new_zeros(2 * w.shape[0])
    found, *last = _operator(layer)(
        x.flip(0) if reverse else x, w.unsqueeze(0), r.unsqueeze(0), b.unsqueeze(0), *(s.unsqueeze(0) for s in states)
    )
    found = found.squeeze(1)
    return [found.flip(0) if reverse else found, *(state.squeeze(0) for state in last)]


def _ordered(parameter: Any, layer: _Recurrent) -> Any:
    """Weights or a bias with the gates in ONNX's order."""
    if len(layer.gates) == 1:
        return parameter
    parts = parameter.chunk(len(layer.gates))
    return torch.cat([parts[gate] for gate in layer.gates])


# -- the operators that stand for layers -------------------------------------------------------------------------------


def _operator(layer: _Recurrent) -> Any:
    """The operator of `motet` for a kind of layer, registered with PyTorch when first needed."""
    if not hasattr(torch.ops.motet, layer.name):
        states, results = ("Tensor h, Tensor c", 3) if layer is _LSTM else ("Tensor h", 2)
        name = f"motet::{layer.name}"
        torch.library.define(
            name, f"(Tensor x, Tensor w, Tensor r, Tensor b, {states}) -> ({', '.join(['Tensor'] * results)})"
        )
        torch.library.register_fake(name, _extents)
        torch.library.impl(name, "default", _kernel(layer))
    return getattr(torch.ops.motet, layer.name).default


def _kernel(layer: _Recurrent) -> Callable[..., Any]:
    """What PyTorch runs for the operator, in graphs that are not compiled."""
    back = [layer.gates.index(gate) for gate in range(len(layer.gates))]
    function = getattr(torch._VF, layer.name)

    def run(x: Any, w: Any, r: Any, b: Any, *states: Any) -> tuple[Any, ...]:
        theirs = _Recurrent(layer.name, back)
        biases = b[0].chunk(2)
        params = [_ordered(parameter, theirs) for parameter in (w[0], r[0], *biases)]
        hidden = list(states) if layer is _LSTM else states[0]
        found, *last = function(x, hidden, params, True, 1, 0.0, False, False, False)
        return found.unsqueeze(1), *last

    return run


def _extents(x: Any, w: Any, r: Any, b: Any, *states: Any) -> tuple[Any, ...]:
    steps, batch, _ = x.shape
    return x.new_empty(steps, 1, batch, r.shape[-1]), *(torch.empty_like(state) for state in states)
