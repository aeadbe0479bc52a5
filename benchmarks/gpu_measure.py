"""Measures the rows of `benchmarks.gpu` in a process that uses the GPU alone."""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime
import gc
import importlib
import importlib.util
import io
import json
import math
import statistics
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_contenders import CONTENDERS, Motet, MotetGraphed
from benchmarks.gpu_rows import LATER, Absent, Input, Row, flat, say

_MOST_SETS = 8
_MOST_SECONDS = 0.7  # of a contender's rounds for a row, of which there are at least two
_BEGUN = 8  # consecutive calls for the host's time per call


def run_rows(chosen: Iterable[Row], options: argparse.Namespace, folder: Path) -> None:
    """Measure one row after the other, and write a line for each."""
    end = options.until
    with options.results.open("a") as file:
        for row in chosen:
            if time.time() > end:
                break
            say(f"measuring {row.title}")
            note(file, {"begin": row.name})
            since = time.perf_counter()
            try:
                found = _measure(row, folder, options)
            except Exception as error:  # a failing row must not end the others
                traceback.print_exc()
                found = {"error": f"{type(error).__name__}: {error}"[:500]}
            seconds = time.perf_counter() - since
            say(f"  {seconds:.1f} s")
            note(file, {"row": row.name, "seconds": seconds, **found})
            if "error" in found and not _works():
                raise SystemExit(1)  # the next rows get a new process


def _works() -> bool:
    """Whether the GPU still works in this process; it does not after a fault."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def note(file: io.TextIOBase, line: dict[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def _measure(row: Row, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    torch.compiler.reset()
    gc.collect()  # peers' devices hold memory
    torch.cuda.empty_cache()
    _set_precision(row.unit)
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    size = sum(each.bytes for each in row.inputs)
    count = max(2, min(_MOST_SETS, -(-2 * cache // max(size, 1)) + 1))
    sets = inputs(row, count, "cuda")
    module = row.module().cuda()
    reference = _reference(row, module, sets[0])
    answers: dict[str, Any] = {}
    ready: dict[str, Any] = {}
    for name in options.peers:
        if name in LATER and (row.group in LATER[name]) == ("Motet" in options.peers):
            continue
        begin = time.perf_counter()
        try:
            contender = CONTENDERS[name](row, module, sets, folder)
            error = _error(contender.results(), reference)
        except Absent as why:
            answers[name] = {"absent": str(why)}
            continue
        except Exception as why:  # a peer that cannot run a row is omitted
            traceback.print_exc(limit=-3)
            answers[name] = {"absent": f"{type(why).__name__}: {why}"[:300]}
            continue
        ready[name] = contender
        answers[name] = {"ready": time.perf_counter() - begin, "error": error}
        if isinstance(contender, Motet):
            answers[name] |= _about(contender)
    _run_rounds(ready, count, options, answers)
    for name, contender in ready.items():
        if isinstance(contender, Motet | MotetGraphed):
            answers[name]["error"] = max(answers[name]["error"], _again(contender, reference))
            contender.close()
    return {"peers": answers}


def _about(contender: Motet) -> dict[str, Any]:
    answer: dict[str, Any] = {"load": contender.load_seconds, "first": contender.first_seconds}
    with contextlib.suppress(Exception):  # times of kernels are informative only
        contender.kernels()
        answer["kernels"] = contender.kernels()
    return answer


def inputs(row: Row, count: int, device: str) -> list[list[torch.Tensor]]:
    """`count` sets of random inputs."""
    if row.values is not None:
        first = [tensor.to(device) for tensor in row.values()]
        return [[_rotated(tensor, number) for tensor in first] for number in range(count)]
    random = torch.Generator(device).manual_seed(1)
    return [[_random(each, random) for each in row.inputs] for _ in range(count)]


def _rotated(tensor: torch.Tensor, places: int) -> torch.Tensor:
    """A copy with its elements moved by `places` in memory order."""
    return tensor.flatten().roll(places).reshape(tensor.shape).clone() if tensor.ndim else tensor.clone()


def _random(each: Input, random: torch.Generator) -> torch.Tensor:
    if each.below or not each.dtype.is_floating_point:
        low, high = (0, each.below) if each.below else (-127, 128)
        return torch.randint(low, high, each.shape, generator=random, device=random.device, dtype=each.dtype)
    return torch.randn(each.shape, generator=random, device=random.device, dtype=torch.float32).to(each.dtype)


def _set_precision(unit: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = unit == "tf32"


def _reference(row: Row, module: torch.nn.Module, values: list[torch.Tensor]) -> list[torch.Tensor]:
    """The first set's results, in f32 for types of at most 16 bits, in f64 for f32."""
    _set_precision("f32")
    wide = torch.float32 if row.inputs[0].dtype.itemsize <= 2 or row.unit == "bf16" else torch.float64
    converted = [value.to(wide) if value.is_floating_point() or value.dtype == torch.int8 else value
                 for value in values]
    with torch.no_grad():
        made = flat(copy.deepcopy(module).to(wide)(*converted))
    _set_precision(row.unit)
    return made


def _error(made: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest distance of the results to the reference, relative to its norm; infinite for NaNs."""
    worst = 0.0
    for own, other in zip(made, expected, strict=True):
        if own.shape != other.shape:
            raise ValueError(f"shape {tuple(own.shape)}; expected {tuple(other.shape)}")
        distance = (own.to(other.device).double() - other.double()).norm() / other.double().norm().clamp_min(1e-30)
        worst = max(worst, distance.item() if torch.isfinite(distance) else math.inf)
    return worst


def _again(contender: Any, reference: list[torch.Tensor]) -> float:
    """The error after the timed calls, whose memory, which may hold earlier results, is overwritten first."""
    for _ in range(3):
        for tensor in contender.results():
            tensor.fill_(math.nan if tensor.is_floating_point() else -1)
    return _error(contender.results(), reference)


def _run_rounds(ready: dict[str, Any], sets: int, options: argparse.Namespace, answers: dict[str, Any]) -> None:
    counts: dict[str, int] = {}
    for name in list(ready):
        try:
            _round(ready[name], sets, 3)
            once = _round(ready[name], sets, 4)
        except Exception as why:  # as above
            answers[name]["absent"] = f"{type(why).__name__}: {why}"[:300]
            del ready[name]
            continue
        counts[name] = max(4, min(400, math.ceil(options.slot / max(once, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in ready}
    calls: dict[str, list[float]] = {name: [] for name in ready}
    hosts: dict[str, list[float]] = {name: [] for name in ready}
    begun = dict.fromkeys(ready, 0.0)
    for number in range(options.rounds):
        for name, contender in ready.items():
            if number > 1 and begun[name] > _MOST_SECONDS:
                continue
            since = time.perf_counter()
            try:
                times[name].append(_round(contender, sets, counts[name]))
                for turn in range(3):
                    begin = time.perf_counter()
                    contender.call((number + turn) % sets)
                    calls[name].append(time.perf_counter() - begin)
                hosts[name].append(_begun(contender, sets))
            except Exception as why:
                raise RuntimeError(f"turn {number + 1} of {name}: {why}") from why
            begun[name] += time.perf_counter() - since
    for name in ready:
        answers[name] |= {
            "min": min(times[name]), "median": statistics.median(times[name]), "call": min(calls[name]),
            "host": min(hosts[name])}


def _round(contender: Any, sets: int, count: int) -> float:
    """The seconds of one of `count` consecutive calls."""
    torch.cuda.synchronize()
    contender.launch(0)
    contender.begin()
    for number in range(count):
        contender.launch(number % sets)
    contender.end()
    return contender.elapsed() / count


def _begun(contender: Any, sets: int) -> float:
    """The host's seconds to start a call on an idle GPU."""
    begin = time.perf_counter()
    for number in range(_BEGUN):
        contender.launch(number % sets)
    seconds = (time.perf_counter() - begin) / _BEGUN
    contender.call(0)
    return seconds


def measure_machine() -> dict[str, Any]:
    """The GPU's properties, and the bandwidth of a copy after warm-up, in bytes read and written per second."""
    properties = torch.cuda.get_device_properties(0)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(100):
        torch.matmul(a, a)
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(9)]
    for mark in marks:
        target.copy_(source)
        mark.record()
    torch.cuda.synchronize()
    best = min(marks[i].elapsed_time(marks[i + 1]) for i in range(8)) * 1e-3
    return {
        "device": properties.name, "torch": torch.__version__, "date": datetime.date.today().isoformat(),
        "cuda": torch.version.cuda, "bandwidth": 2 * (1 << 30) / best,
        "JAX": _version("jax"), "IREE": _version("iree.runtime"),
    }


def _version(module: str) -> str | None:
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return None
    return str(getattr(importlib.import_module(f"{module}.version"), "__version__", None)
               or importlib.import_module(f"{module}.version").VERSION)
