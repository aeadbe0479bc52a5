"""Measures operators by other libraries, numpy and torch, on the same shapes and as many threads.

    evaluate(…) and measure_peers("matmul:512x512x512xf32", ["numpy", "torch"], threads) → samples of each

Each library runs in its own process, whose environment sets the threads.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.errors import OptionError
from motet.lab.operators import OperatorCall, parse_operator

PEERS = ("numpy", "torch")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SECONDS = 120
_EPSILON = 1e-5  # of layernorm, as in `operators.py`


@dataclass(frozen=True)
class PeerTimes:
    """Seconds per call of each sample, or why there are none."""

    name: str
    samples: tuple[float, ...]
    reason: str = ""


def expect_peers(names: Sequence[str]) -> None:
    """Raises OptionError for an unknown library."""
    for name in names:
        if name not in PEERS:
            raise OptionError(f"peer {name}: unknown; expected some of {', '.join(PEERS)}")


def measure_peers(text: str, names: Sequence[str], threads: int, repeat: int = 5) -> list[PeerTimes]:
    """The times of the operator `text` by each library. Raises OptionError for an unknown library."""
    expect_peers(names)
    return [_measured(text, name, threads, repeat) for name in names]


def _measured(text: str, name: str, threads: int, repeat: int) -> PeerTimes:
    if importlib.util.find_spec(name) is None:
        return PeerTimes(name, (), "not available: not installed")
    environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
    words = [sys.executable, "-m", "motet.lab.peers", text, name, str(threads), str(repeat)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return PeerTimes(name, (), f"not available: no answer within {_SECONDS} s")
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        return PeerTimes(name, (), f"not available: {said}")
    found = json.loads(done.stdout)
    return PeerTimes(name, (), found) if isinstance(found, str) else PeerTimes(name, tuple(found))


def peer_function(name: str, call: OperatorCall) -> Callable[..., Any] | None:
    """A function of the library's arrays that computes an operator; None if the library has none for it."""
    functions = _NUMPY if name == "numpy" else _TORCH
    made = functions.get(call.name)
    return None if made is None else made(importlib.import_module(name), call)


def peer_operands(name: str, arrays: Sequence[Any]) -> list[Any]:
    """Arrays of numpy as those of the library. `torch` shares their memory."""
    return list(arrays) if name == "numpy" else [importlib.import_module(name).from_numpy(each) for each in arrays]


def operand_shapes(call: OperatorCall) -> list[tuple[int, ...]]:
    """The shapes of an operator's arguments."""
    if call.name in ("matmul", "matmul_relu", "batch_matmul"):
        *batch, m, n, k = call.shapes[0]
        return [(*batch, m, k), (*batch, k, n)]
    return [call.shapes[0]] * 2 if call.name == "add" else list(call.shapes)


def _numpy_layernorm(numpy: Any, call: OperatorCall) -> Callable[..., Any]:
    def run(a: Any) -> Any:
        centred = a - a.mean(axis=-1, keepdims=True)
        return centred / numpy.sqrt((centred * centred).mean(axis=-1, keepdims=True) + _EPSILON)

    return run


def _numpy_softmax(numpy: Any, call: OperatorCall) -> Callable[..., Any]:
    def run(a: Any) -> Any:
        powers = numpy.exp(a - a.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    return run


def _torch_convolution(torch: Any, call: OperatorCall) -> Callable[..., Any]:
    """On images NHWC and filters RSCF, in torch's form of channels last: a view, without a copy of the image."""
    stride, pad = call.number("stride", 1), call.number("pad", 0)
    channels = call.shapes[0][3]

    def run(image: Any, filters: Any) -> Any:
        weights = filters.permute(3, 2, 0, 1) if filters.ndim == 4 else filters.permute(2, 0, 1).unsqueeze(1)
        groups = 1 if filters.ndim == 4 else channels
        pixels = image.permute(0, 3, 1, 2)
        found = torch.nn.functional.conv2d(pixels, weights, stride=stride, padding=pad, groups=groups)
        return found.permute(0, 2, 3, 1)

    return run


def _order(call: OperatorCall) -> tuple[int, ...]:
    return call.options.get("perm", tuple(reversed(range(len(call.shapes[0])))))


_Functions = Mapping[str, Callable[[Any, OperatorCall], Callable[..., Any]]]
_NUMPY: _Functions = {
    "matmul": lambda numpy, call: numpy.matmul,
    "batch_matmul": lambda numpy, call: numpy.matmul,
    "matmul_relu": lambda numpy, call: lambda a, b: numpy.maximum(numpy.matmul(a, b), 0),
    "relu": lambda numpy, call: lambda a: numpy.maximum(a, 0),
    "add": lambda numpy, call: numpy.add,
    "sum": lambda numpy, call: lambda a: a.sum(axis=-1),
    "transpose": lambda numpy, call: lambda a: numpy.ascontiguousarray(a.transpose(_order(call))),
    "softmax": _numpy_softmax,
    "layernorm": _numpy_layernorm,
}
_TORCH: _Functions = {
    "matmul": lambda torch, call: torch.matmul,
    "batch_matmul": lambda torch, call: torch.matmul,
    "matmul_relu": lambda torch, call: lambda a, b: torch.relu(torch.matmul(a, b)),
    "relu": lambda torch, call: torch.relu,
    "add": lambda torch, call: torch.add,
    "sum": lambda torch, call: lambda a: a.sum(-1),
    "transpose": lambda torch, call: lambda a: a.permute(_order(call)).contiguous(),
    "softmax": lambda torch, call: lambda a: torch.softmax(a, -1),
    "layernorm": lambda torch, call: lambda a: torch.nn.functional.layer_norm(a, a.shape[-1:], eps=_EPSILON),
    "conv2d": _torch_convolution,
    "depthwise_conv2d": _torch_convolution,
}


def _samples(run: Callable[[], Any], repeat: int) -> list[float]:
    """Samples of at least 10 ms."""
    number, seconds = 1, 0.0
    run()
    while seconds < 0.01:
        number *= 2
        seconds = _seconds(run, number // 2) * (number // 2)
    return [_seconds(run, number) for _ in range(repeat)]


def _seconds(run: Callable[[], Any], number: int) -> float:
    begin = time.perf_counter()
    for _ in range(number):
        run()
    return (time.perf_counter() - begin) / number


def _main(text: str, name: str, threads: str, repeat: str) -> None:
    import numpy as np

    call = parse_operator(text)
    function = peer_function(name, call)
    if function is None or call.dtype not in ("f32", "f64"):
        print(json.dumps(f"not available: no counterpart of {call.name} in {call.dtype}"))
        return
    random = np.random.default_rng(0)
    dtype = np.float32 if call.dtype == "f32" else np.float64
    operands = peer_operands(name, [random.standard_normal(shape).astype(dtype) for shape in operand_shapes(call)])
    if name == "torch":
        importlib.import_module("torch").set_num_threads(int(threads))
    print(json.dumps(_samples(lambda: function(*operands), int(repeat))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
