"""Two GPUs of one host: copies from one to the other, their effect on computing, and programs on both.

    python -m benchmarks.two_gpus --prepare FOLDER                      compiles the programs; needs no GPU
    python -m benchmarks.two_gpus --files FOLDER --out results.jsonl    measures; needs no compiler
    python -m benchmarks.two_gpus --table results.jsonl                 prints the results as Markdown

Each part runs in a process with a time limit, and each of its lines is written to the results at once, so that a part
that hangs or loses a GPU leaves the others' results. The limit of a copy is the driver's own: `cuMemcpyPeerAsync`
between blocks of `cuMemAlloc`, called through cuda-bindings, in the same process, alternately with Motet's copies. The
limit of two GPUs is twice the throughput of one, measured alternately in the same process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = (4 * KIB, 64 * KIB, 1 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1 * GIB)
GPUS = ("cuda:0", "cuda:1")
TARGET = "cuda{arch=sm_90a}"
ROWS, WIDTH, LAYERS = 4096, 4096, 8
MICRO = 4  # micro-batches that are in flight at once
_ROUNDS = 7
_BATCH = 2 * GIB  # bytes copied for one measurement of bandwidth, within the limits of `_copies`
_COPIES = 4, 64
_NON_BLOCKING, _ALREADY_ENABLED = 1, 704  # of the driver's interface: a flag of streams, and an error

Line = dict[str, Any]
Array = np.ndarray[Any, Any]


# -- programs --------------------------------------------------------------------------------------------


def mlp(devices: Sequence[str], whole: bool, rows: int = ROWS, width: int = WIDTH, layers: int = LAYERS) -> Any:
    """Layers of products with ReLU, then the sums of rows; the weights are inputs. If `whole`, each device has all
    layers and its own rows; else the layers are divided over the devices, one stage after the other."""
    import motet.builder as b

    graph = b.Graph("main")
    share = layers if whole else layers // len(devices)
    x, ends = None, []
    for device in devices:
        if whole or x is None:
            x = graph.input(f"x_{device}", (rows, width), "f16", device=device)
        for layer in range(share):
            weights = graph.input(f"w_{device}_{layer}", (width, width), "f16", device=device)
            x = b.relu(b.matmul(x, weights, device=device), device=device)
        ends.append((x, device))
    for x, device in ends if whole else ends[-1:]:
        graph.result(b.reduce_sum(b.cast(x, "f32", device=device), 1, device=device), name=f"y_{device}")
    return graph


def prepare(folder: Path) -> None:
    """Compile the programs; each is there as soon as it is compiled."""
    from examples import models

    import motet

    folder.mkdir(parents=True, exist_ok=True)
    both = {"a": TARGET, "b": TARGET}
    sources: dict[str, tuple[Any, Any]] = {
        "one": (mlp(["a"], True), {"a": TARGET}),
        "both": (mlp(["a", "b"], True), both),
        "stages": (mlp(["a", "b"], False), both),
        "resnet18": (models.resnet18(64, width=32), TARGET),
    }
    for name, (source, devices) in sources.items():
        artifact = motet.compile(source, devices=devices)
        artifact.save(folder / f"{name}.motet")
        print(f"{name}: {(folder / f'{name}.motet').stat().st_size / MIB:.2f} MiB", flush=True)


# -- copies ----------------------------------------------------------------------------------------------


class Copier(Protocol):
    """Copies from one GPU to the other."""

    def start(self, source: int) -> None:
        """Begin a copy of the whole block of GPU `source` to the other GPU."""
        ...

    def wait(self) -> None:
        """Block until all copies have ended."""
        ...


class MotetCopier:
    """Copies by Motet's driver, between two of its open devices."""

    def __init__(self, devices: Sequence[Any], size: int) -> None:
        self.devices = devices
        for target, source in ((0, 1), (1, 0)):
            if not devices[target].copies_from(devices[source]):
                raise ValueError(f"{GPUS[target]} does not copy from {GPUS[source]}")
        self.sources = [device.allocate(size) for device in devices]
        self.targets = [device.allocate(size) for device in devices]
        self._points: dict[int, Any] = {}

    def start(self, source: int) -> None:
        target = 1 - source
        self._points[source] = self.devices[target].copy(self.sources[source], self.targets[target])

    def wait(self) -> None:
        for point in self._points.values():
            point.wait()
            if point.error is not None:
                raise point.error
        self._points.clear()

    def is_right(self, source: int) -> bool:
        """Whether random bytes arrive on the other GPU as they are."""
        size = self.sources[source].bytes
        sent = np.random.default_rng(size + source).integers(0, 256, size, np.uint8)
        found = np.zeros_like(sent)
        self.devices[source].write(self.sources[source], sent).wait()
        self.devices[1 - source].write(self.targets[1 - source], ~sent).wait()  # or an earlier copy would do
        self.start(source)
        self.wait()
        self.devices[1 - source].read(self.targets[1 - source], found).wait()
        return bool(np.array_equal(sent, found))


class RawCopier:
    """Copies by `cuMemcpyPeerAsync`, on a stream for each direction."""

    def __init__(self, size: int) -> None:
        driver = importlib.import_module("cuda.bindings.driver")  # an extra
        self._driver, self._size = driver, size
        self._call(driver.cuInit(0))
        self._gpus = [self._call(driver.cuDeviceGet(ordinal)) for ordinal in range(2)]
        self._contexts = [self._call(driver.cuDevicePrimaryCtxRetain(gpu)) for gpu in self._gpus]
        self._blocks: list[list[Any]] = []
        self._streams: list[Any] = []
        for ordinal, context in enumerate(self._contexts):
            self._call(driver.cuCtxSetCurrent(context))
            (code,) = driver.cuCtxEnablePeerAccess(self._contexts[1 - ordinal], 0)
            if int(code) != _ALREADY_ENABLED:
                self._call((code,))
            self._blocks.append([self._call(driver.cuMemAlloc(size)) for _ in range(2)])
            self._streams.append(self._call(driver.cuStreamCreate(_NON_BLOCKING)))

    def start(self, source: int) -> None:
        target = 1 - source
        self._call(self._driver.cuMemcpyPeerAsync(
            self._blocks[target][1], self._contexts[target], self._blocks[source][0], self._contexts[source],
            self._size, self._streams[target],
        ))

    def wait(self) -> None:
        for stream in self._streams:
            self._call(self._driver.cuStreamSynchronize(stream))

    def close(self) -> None:
        """Free the blocks and streams, and release the contexts."""
        for context, blocks, stream in zip(self._contexts, self._blocks, self._streams, strict=True):
            self._call(self._driver.cuCtxSetCurrent(context))
            for block in blocks:
                self._call(self._driver.cuMemFree(block))
            self._call(self._driver.cuStreamDestroy(stream))
        for gpu in self._gpus:
            self._call(self._driver.cuDevicePrimaryCtxRelease(gpu))

    def _call(self, result: tuple[Any, ...]) -> Any:
        code, *values = result
        if int(code):
            raise RuntimeError(f"the driver reports {code!r}")
        return values[0] if values else None


def copies_of(size: int) -> int:
    """The number of copies in one measurement of bandwidth."""
    fewest, most = _COPIES
    return max(fewest, min(most, _BATCH // size))


def compare_copies(copiers: Mapping[str, Copier], size: int, rounds: int = _ROUNDS) -> Iterator[Line]:
    """Lines of latency and bandwidth for blocks of `size` bytes; contenders alternate."""
    ways: dict[str, tuple[Sequence[int], int]] = {
        "latency": ((0,), 1), "one direction": ((0,), copies_of(size)), "both directions": ((0, 1), copies_of(size)),
    }
    for way, (sources, count) in ways.items():
        seconds: dict[str, list[float]] = {name: [] for name in copiers}
        for repetition in range(rounds + 1):
            for name, copier in copiers.items():
                begin = time.perf_counter()
                for _ in range(count):
                    for source in sources:
                        copier.start(source)
                copier.wait()
                if repetition:  # the first warms up
                    seconds[name].append((time.perf_counter() - begin) / count)
        for name, found in seconds.items():
            line: Line = {"way": way, "bytes": size, "by": name, **_summary(found)}
            if way != "latency":
                line["GB/s"] = len(sources) * size / min(found) / 1e9
            yield line


def measure_copies(folder: Path) -> Iterator[Line]:
    """Motet's copies against the driver's, by size."""
    devices = open_both()
    for size in SIZES:
        raw, own = RawCopier(size), MotetCopier(devices, size)
        if size <= 64 * MIB:
            yield {"way": "content", "bytes": size, "right": own.is_right(0) and own.is_right(1)}
        yield from compare_copies({"Motet": own, "driver": raw}, size)
        raw.close()
    for device in devices:
        device.close()


def open_both() -> list[Any]:
    """Motet's devices of both GPUs."""
    from motet.runtime.device import find_device, open_device

    return [open_device(find_device(uri)) for uri in GPUS]


# -- computing -------------------------------------------------------------------------------------------


def mlp_inputs(session: Any, count: int) -> list[list[Array]]:
    """Inputs of a session of `one`, `count` times: different rows, and the same weights."""
    first, *others = [tuple(spec.shape) for spec in session.signature.inputs]
    rows, width = first
    random = np.random.default_rng(0)
    scale = np.float32((6 / width) ** 0.5)  # keeps the variance of ReLU's results

    def uniform(height: int) -> Array:
        return ((random.random((height, width), np.float32) * 2 - 1) * scale).astype(np.float16)

    weights = [uniform(height) for height, _ in others]
    return [[uniform(rows), *weights] for _ in range(count)]


def mlp_rows(inputs: Sequence[Array], rows: int) -> Array:
    """numpy's sums of the first rows."""
    x = inputs[0][:rows].astype(np.float32)
    for weights in inputs[1:]:
        x = np.maximum(x @ weights.astype(np.float32), 0).astype(np.float16).astype(np.float32)
    return x.sum(1)


def _error(found: Array, wanted: Array) -> float:
    return float(np.abs(found.ravel()[: wanted.size] - wanted.ravel()).max() / np.abs(wanted).max())


def _put(session: Any, values: Sequence[Array], device: str = "") -> list[Any]:
    return [session.put(value, device) for value in values]


def _on_host(made: Any) -> list[Array]:
    return [np.asarray(each) for each in (made if isinstance(made, tuple | list) else (made,))]


def measure_overlap(folder: Path) -> Iterator[Line]:
    """The time of calls on one GPU while it sends to, or receives from, the other one."""
    import motet

    size = 256 * MIB
    copier = MotetCopier(open_both(), size)
    session = motet.load(folder / "one.motet", devices={"a": GPUS[0]})
    arguments = _put(session, mlp_inputs(session, 1)[0], "a")

    def call() -> None:
        _on_host(session(*arguments))

    alone = _times([call], 20)[0]
    copier.start(0)
    copier.wait()
    copy = _times([lambda: (copier.start(0), copier.wait())], 3)[0]
    count = min(2000, int(3 * 20 * min(alone) / min(copy)) + 4)
    for direction, sources in (("sends", (0,)), ("receives", (1,)), ("both", (0, 1))):
        for _ in range(count):
            for source in sources:
                copier.start(source)
        ended = threading.Event()
        waiter = threading.Thread(target=lambda ended=ended: (copier.wait(), ended.set()))
        waiter.start()
        during: list[float] = []
        while len(during) < 20:
            begin = time.perf_counter()
            call()
            seconds = time.perf_counter() - begin
            if ended.is_set():
                break
            during.append(seconds)
        waiter.join()
        after = _times([call], 20)[0]
        line: Line = {"way": direction, "alone ms": 1e3 * statistics.median([*alone, *after]), "calls": len(during)}
        if during:
            line["during ms"] = 1e3 * statistics.median(during)
            line["loss"] = line["during ms"] / line["alone ms"] - 1
        yield line


def measure_both(folder: Path) -> Iterator[Line]:
    """A program with a copy of a network on each GPU, and two sessions of one program, against one GPU."""
    import motet

    single = [motet.load(folder / "one.motet", devices={"a": uri}) for uri in GPUS]
    given = mlp_inputs(single[0], 2)
    double = motet.load(folder / "both.motet", devices=dict(zip("ab", GPUS, strict=True)))
    on_one = [_put(session, values, "a") for session, values in zip(single, given, strict=True)]
    on_both = [each for name, values in zip("ab", given, strict=True) for each in _put(double, values, name)]
    wanted = [_on_host(session(*values))[0] for session, values in zip(single, on_one, strict=True)]
    yield {"way": "error of one GPU, against numpy", "error": _error(wanted[0], mlp_rows(given[0], 4))}
    found = _on_host(double(*on_both))
    yield {"way": "error of both, against one", "error": max(map(_error, found, wanted))}

    def together() -> None:
        futures = [session.submit(*values) for session, values in zip(single, on_one, strict=True)]
        for future in futures:
            _on_host(future.result())

    ways: dict[str, Callable[[], object]] = {
        "one": lambda: _on_host(single[0](*on_one[0])), "other": lambda: _on_host(single[1](*on_one[1])),
        "one program": lambda: _on_host(double(*on_both)), "two sessions": together,
    }
    yield from _speedups("MLP", ways, {"one program": 2, "two sessions": 2})


def measure_stages(folder: Path) -> Iterator[Line]:
    """A network in two halves, one on each GPU, against the whole on one; with several calls in flight."""
    import motet

    whole = motet.load(folder / "one.motet", devices={"a": GPUS[0]}, in_flight=MICRO)
    halves = motet.load(folder / "stages.motet", devices=dict(zip("ab", GPUS, strict=True)), in_flight=MICRO)
    (given,) = mlp_inputs(whole, 1)
    half = (len(given) - 1) // 2
    on_one = _put(whole, given, "a")
    on_both = [*_put(halves, given[: 1 + half], "a"), *_put(halves, given[1 + half :], "b")]
    wanted = _on_host(whole(*on_one))[0]
    yield {"way": "error, against one", "error": _error(_on_host(halves(*on_both))[0], wanted)}

    def several(session: Any, arguments: Sequence[Any]) -> Callable[[], None]:
        def run() -> None:
            for future in [session.submit(*arguments) for _ in range(4 * MICRO)]:
                _on_host(future.result())

        return run

    alone: dict[str, Callable[[], object]] = {
        "one": lambda: _on_host(whole(*on_one)), "halves": lambda: _on_host(halves(*on_both)),
    }
    yield from _speedups("a call at a time", alone, {"halves": 1})
    flowing: dict[str, Callable[[], object]] = {"one": several(whole, on_one), "halves": several(halves, on_both)}
    yield from _speedups(f"{4 * MICRO} calls, {MICRO} in flight", flowing, {"halves": 1})


def measure_resnet(folder: Path) -> Iterator[Line]:
    """ResNet-18 with 32 channels in its first stage, batch 64: two sessions, one on each GPU, against one."""
    import motet

    sessions = [motet.load(folder / "resnet18.motet", devices=uri) for uri in GPUS]
    x = np.random.default_rng(0).standard_normal((64, 3, 224, 224), np.float32)
    arguments = [session.put(x) for session in sessions]
    first, second = (_on_host(session(each))[0] for session, each in zip(sessions, arguments, strict=True))
    yield {"way": "error of the other GPU, against one", "error": _error(second, first)}

    def together() -> None:
        futures = [session.submit(each) for session, each in zip(sessions, arguments, strict=True)]
        for future in futures:
            _on_host(future.result())

    ways: dict[str, Callable[[], object]] = {
        "one": lambda: _on_host(sessions[0](arguments[0])), "other": lambda: _on_host(sessions[1](arguments[1])),
        "two sessions": together,
    }
    yield from _speedups("ResNet-18", ways, {"two sessions": 2})


def _speedups(what: str, ways: Mapping[str, Callable[[], object]], work: Mapping[str, int]) -> Iterator[Line]:
    """A line for each way; the speedup is `work`, in units of the first way's, by the ratio of times."""
    found = dict(zip(ways, _times(list(ways.values()), 20), strict=True))
    slower = max((found[name] for name in ways if name not in work), key=min)  # GPUs differ: the slower one bounds both
    for name, seconds in found.items():
        line: Line = {"way": what, "by": name, **_summary(seconds)}
        if name in work:
            line["speedup"] = work[name] * statistics.median(slower) / statistics.median(seconds)
        yield line


def _times(calls: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """The seconds of each call, made alternately, after two to warm up."""
    found: list[list[float]] = [[] for _ in calls]
    for repetition in range(rounds + 2):
        for call, seconds in zip(calls, found, strict=True):
            begin = time.perf_counter()
            call()
            if repetition >= 2:
                seconds.append(time.perf_counter() - begin)
    return found


def _summary(seconds: Sequence[float]) -> Line:
    return {"min us": 1e6 * min(seconds), "median us": 1e6 * statistics.median(seconds)}


# -- parts -----------------------------------------------------------------------------------------------


def measure_facts(folder: Path) -> Iterator[Line]:
    """The GPUs and the link between them, as the driver describes them."""
    from motet.runtime.device import probe
    from motet.runtime.drivers.cuda.api import load_api

    cuda = load_api()
    for info in probe("cuda"):
        yield {"way": info.uri, "name": info.name, "level": info.level, "available": info.available,
               "reason": info.reason}
    if cuda.count() > 1:
        yield {"way": "peers", "0 to 1": cuda.can_reach(0, 1), "1 to 0": cuda.can_reach(1, 0)}


PARTS: dict[str, tuple[Callable[[Path], Iterator[Line]], int]] = {  # with the limit in seconds
    "facts": (measure_facts, 30), "copies": (measure_copies, 90), "overlap": (measure_overlap, 60),
    "both": (measure_both, 90), "stages": (measure_stages, 90), "resnet": (measure_resnet, 60),
}


def run_part(name: str, command: Sequence[str], limit: float, keep: Callable[[Line], None]) -> bool:
    """Run a part's process and keep its lines as they come; a line tells of a failure or the end of its time. Returns
    whether the part has ended well."""
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True)
        late = threading.Event()
        timer = threading.Timer(limit, lambda: (late.set(), process.kill()))
        timer.start()
        try:
            assert process.stdout is not None
            for text in process.stdout:
                if text.startswith("{"):
                    keep({"part": name, **json.loads(text)})
            code = process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
        if code == 0:
            return True
        complaints.seek(0)
        reason = f"ended after its limit of {limit:g} s" if late.is_set() else complaints.read().strip()[-600:]
        keep({"part": name, "error": reason or f"its process ended with status {code}"})
        return False


def run_parts(names: Sequence[str], files: Path, out: Path) -> bool:
    """Run parts one after the other, and append their lines to `out`. Returns whether all have ended well."""
    with out.open("a") as results:

        def keep(line: Line) -> None:
            results.write(json.dumps(line) + "\n")
            results.flush()

        ended = []
        for name in names:
            command = [sys.executable, "-m", "benchmarks.two_gpus", "--part", name, "--files", str(files)]
            ended.append(run_part(name, command, PARTS[name][1], keep))
            print(f"{name}: {'ended' if ended[-1] else 'failed'}", flush=True)
    return all(ended)


def table(lines: Sequence[Line]) -> str:
    """A Markdown table for each part, with a column for each key of its lines."""
    sections: list[str] = []
    for part in dict.fromkeys(line["part"] for line in lines):
        own = [{key: value for key, value in line.items() if key != "part"} for line in lines if line["part"] == part]
        keys = list(dict.fromkeys(key for line in own for key in line))
        rows = [keys, ["---"] * len(keys), *([_cell(line.get(key)) for key in keys] for line in own)]
        sections.append("\n".join([f"### {part}", "", *(f"| {' | '.join(row)} |" for row in rows)]))
    return "\n\n".join(sections) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def read_lines(file: Path) -> list[Line]:
    """The lines of a results file; a last line that was cut off is left out."""
    found: list[Line] = []
    for text in file.read_text().splitlines():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.two_gpus", description="Measures two GPUs of one host.")
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="compile the programs into FOLDER and end")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the results of FILE as Markdown and end")
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="the folder with the compiled programs")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file to which results are appended")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"by default {','.join(PARTS)}")
    parser.add_argument("--part", choices=list(PARTS), help="measure one part in this process, to standard output")
    options = parser.parse_args(arguments)
    if options.prepare is not None:
        prepare(options.prepare)
        return 0
    if options.table is not None:
        print(table(read_lines(options.table)))
        return 0
    if options.files is None or (options.part is None and options.out is None):
        parser.error("expected --prepare FOLDER, --table FILE, or --files FOLDER with --out FILE")
    if options.part is not None:
        for line in PARTS[options.part][0](options.files):
            print(json.dumps(line), flush=True)
        return 0
    names = options.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"no part is named {', '.join(unknown)}; available: {', '.join(PARTS)}")
    return 0 if run_parts(names, options.files, options.out) else 1


if __name__ == "__main__":
    sys.exit(main())
