"""Motet beside its peers on an NVIDIA GPU, in two steps, as the compiler needs no GPU and the runtime no compiler:

    python -m benchmarks.gpu compile --out DIR          anywhere; --pack makes one small file of it
    python -m benchmarks.gpu run DIR --markdown FILE    on a machine with a GPU and PyTorch
    python -m benchmarks.gpu all --markdown FILE        both
    python -m benchmarks.gpu table DIR --merge A B …    the tables of several runs' results

Row by row, all contenders make the row ready, their results are compared with a reference of more bits, and then
they take turns, round by round, each with enough calls to fill some milliseconds, timed by CUDA events around them.
Calls go over sets of inputs, fresh random numbers, that are larger than the second cache together. Shown is the
fastest round, per call; the JSON lines have the median, whole calls by the clock, and what each kernel took. The limit
of a row is the larger of its operations over the GPU's peak and its bytes over the bandwidth of a copy, measured in the
same run.
Rows run in a process of their own, which is started anew if it dies.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime
import io
import json
import lzma
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_rows import Row, rows

DEFAULT_PEERS = ("eager", "graph", "compile", "compile+graph", "JAX")
RESULTS = "results.jsonl"
_MOST_SETS = 8
_PATIENCE = 150  # seconds without a result after which a row is given up


# -- compiling -------------------------------------------------------------------------------------


def compile_rows(chosen: list[Row], folder: Path, target: str) -> None:
    """An artifact for each row, and in `compiled.json` how long it took, or why there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    about = folder / "compiled.json"
    report: dict[str, Any] = json.loads(about.read_text()) if about.exists() else {}
    for row in chosen:
        say(f"compiling {row.title}")
        try:
            report[row.name] = _compile(row, folder / f"{row.name}.motet", target)
        except Exception as error:  # whatever one row meets, the others are compiled
            (folder / f"{row.name}.motet").unlink(missing_ok=True)
            report[row.name] = {"error": f"{type(error).__name__}: {error}"[:500]}
            say(f"  {report[row.name]['error']}")
        about.write_text(json.dumps(report, indent=1))


def _compile(row: Row, file: Path, target: str) -> dict[str, Any]:
    import motet

    begin = time.perf_counter()
    model = exported(row)
    middle = time.perf_counter()
    device = f"cuda{{arch={target}{',' + row.options if row.options else ''}}}"
    artifact = motet.compile(model, devices=device, cache=False)
    seconds = time.perf_counter() - middle
    artifact.save(file)
    variant = artifact.manifest.variants[0]
    kinds = {kernel.name: kernel.kind for kernel in variant.kernels}
    commands = next(iter(variant.schedules.values())).commands
    return {"export": middle - begin, "seconds": seconds, "bytes": file.stat().st_size, "commands": len(commands),
            "kinds": [kinds.get(command.kernel, command.kernel or command.op) for command in commands]}


class _Open(torch.nn.Module):
    """A module whose weights are inputs, after its own; it can be called once."""

    def __init__(self, module: torch.nn.Module, names: list[str], own: int) -> None:
        super().__init__()
        self.inside = [module]  # in a list: the exporter must find no weights
        self.names, self.own = names, own

    def forward(self, *values: torch.Tensor) -> Any:
        module = self.inside[0]
        for name, value in zip(self.names, values[self.own :], strict=True):
            path, _, last = name.rpartition(".")
            owner = module.get_submodule(path)
            owner._parameters.pop(last, None)
            owner._buffers.pop(last, None)
            setattr(owner, last, value)
        return module(*values[: self.own])


def exported(row: Row) -> bytes:
    """The row as an ONNX model. Traced on tensors without memory where PyTorch can (it cannot with convolutions), so
    that nothing is computed; the weights are put in afterwards."""
    import onnx

    module = row.module()
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    state = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    device = "cpu" if any(isinstance(part, torch.nn.Conv2d) for part in module.modules()) else "meta"
    own = [torch.zeros(each.shape, dtype=each.dtype, device=device) for each in row.inputs]
    weights = [tensor.to(device) for tensor in state.values()]
    names = [f"x{i}" for i in range(len(own))] + [f"w{i}" for i in range(len(weights))]
    buffer = io.BytesIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(_Open(module, list(state), len(own)), (*own, *weights), buffer, dynamo=False,
                          opset_version=18, input_names=names)
    model = onnx.load_from_string(buffer.getvalue())
    tensors = dict(zip(names[len(own) :], state.values(), strict=True))
    kept = [value for value in model.graph.input if value.name not in tensors]
    for value in model.graph.input:
        if value.name in tensors:
            tensor = tensors[value.name].detach().contiguous()
            model.graph.initializer.append(onnx.helper.make_tensor(
                value.name, value.type.tensor_type.elem_type, tensor.shape,
                tensor.view(torch.uint8).numpy().tobytes() if tensor.ndim else bytes(tensor.view(1).view(torch.uint8)),
                raw=True))
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model.SerializeToString()


def inputs(row: Row, count: int, device: str) -> list[list[torch.Tensor]]:
    """`count` sets of random inputs."""
    random = torch.Generator(device).manual_seed(1)
    sets: list[list[torch.Tensor]] = []
    for _ in range(count):
        values: list[torch.Tensor] = []
        for each in row.inputs:
            if each.below:
                values.append(torch.randint(each.below, each.shape, generator=random, device=device))
            else:
                values.append(torch.randn(each.shape, generator=random, device=device, dtype=torch.float32)
                              .to(each.dtype))
        sets.append(values)
    return sets


def pack(folder: Path, file: Path) -> None:
    """All of a folder as one file; weights repeat themselves, which a large window finds."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 26}]
    with lzma.open(file, "wb", filters=filters) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        for member in sorted(folder.iterdir(), key=lambda path: path.stat().st_size):
            archive.add(member, member.name)


def unpacked(source: Path, into: Path) -> Path:
    if source.is_dir():
        return source
    with tarfile.open(source, "r:xz") as archive:
        archive.extractall(into, filter="data")
    return into


# -- running ---------------------------------------------------------------------------------------


def run_rows(options: argparse.Namespace, folder: Path) -> None:
    """In the child: measures row after row, and writes a line for each."""
    end = options.until
    with options.results.open("a") as file:
        for row in _chosen(options):
            if time.time() > end:
                break
            say(f"measuring {row.title}")
            note(file, {"begin": row.name})
            try:
                found = _measure(row, folder, options)
            except Exception as error:  # a row that fails must not end the others
                traceback.print_exc()
                found = {"error": f"{type(error).__name__}: {error}"[:500]}
            note(file, {"row": row.name, **found})


def note(file: io.TextIOBase, line: dict[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def _measure(row: Row, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.gpu_contenders import PEERS, Absent, Motet, MotetGraphed

    torch._dynamo.reset()
    torch.cuda.empty_cache()
    _set_precision(row.unit)
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    size = sum(each.bytes for each in row.inputs)
    count = max(2, min(_MOST_SETS, -(-2 * cache // max(size, 1)) + 1))
    sets = inputs(row, count, "cuda")
    module = row.module().cuda()
    reference = _reference(row, module, sets[0])
    found: dict[str, Any] = {"peers": {}}
    ready: dict[str, Any] = {}
    artifact = folder / f"{row.name}.motet"
    own = {"Motet": Motet, "Motet, graph": MotetGraphed}
    for name in ["Motet", *options.peers, "Motet, graph"]:
        begin = time.perf_counter()
        try:
            if name in own:
                if not artifact.exists():
                    raise Absent("it did not compile")
                contender: Any = own[name](row, module, sets, artifact)
            else:
                contender = PEERS[name](row, module, sets)
            error = _error(contender.results(), reference)
        except Absent as why:
            found["peers"][name] = {"absent": str(why)}
            continue
        except Exception as why:  # a peer that cannot do a row is left out
            traceback.print_exc()
            found["peers"][name] = {"absent": f"{type(why).__name__}: {why}"[:300]}
            continue
        ready[name] = contender
        found["peers"][name] = {"ready": time.perf_counter() - begin, "error": error}
    if "Motet" in ready:
        answer = found["peers"]["Motet"]
        answer |= {"load": ready["Motet"].load_seconds, "first": ready["Motet"].first_seconds}
        with contextlib.suppress(Exception):
            ready["Motet"].kernels()
            answer["kernels"] = ready["Motet"].kernels()
    _take_turns(ready, count, options, found["peers"])
    for name in own:
        if name in ready:
            found["peers"][name]["error"] = max(found["peers"][name]["error"], _again(ready[name], reference))
            ready[name].close()
    return found


def _set_precision(unit: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = unit == "tf32"


def _reference(row: Row, module: torch.nn.Module, values: list[torch.Tensor]) -> list[torch.Tensor]:
    """The first set's results in f32 for short floats, in f64 for f32."""
    from benchmarks.gpu_contenders import flat

    _set_precision("f32")
    wide = torch.float32 if row.inputs[0].dtype.itemsize <= 2 or row.unit == "bf16" else torch.float64
    converted = [value.to(wide) if value.is_floating_point() else value for value in values]
    with torch.no_grad():
        made = flat(copy.deepcopy(module).to(wide)(*converted))
    _set_precision(row.unit)
    return made


def _error(made: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest of the results' distances to the reference, relative to its norm; NaNs count as far away."""
    worst = 0.0
    for own, other in zip(made, expected, strict=True):
        if own.shape != other.shape:
            raise ValueError(f"shape {tuple(own.shape)}; expected {tuple(other.shape)}")
        apart = (own.double() - other.double()).norm() / other.double().norm().clamp_min(1e-30)
        worst = max(worst, apart.item() if torch.isfinite(apart) else math.inf)
    return worst


def _again(contender: Any, reference: list[torch.Tensor]) -> float:
    """The error after the timed calls, whose memory may still hold earlier results: it is spoilt first."""
    for _ in range(3):
        for tensor in contender.results():
            tensor.fill_(math.nan if tensor.is_floating_point() else -1)
    return _error(contender.results(), reference)


def _take_turns(ready: dict[str, Any], sets: int, options: argparse.Namespace, answers: dict[str, Any]) -> None:
    counts: dict[str, int] = {}
    for name in list(ready):
        try:
            _round(ready[name], sets, 3)
            once = _round(ready[name], sets, 4)
        except Exception as why:
            answers[name]["absent"] = f"{type(why).__name__}: {why}"[:300]
            del ready[name]
            continue
        counts[name] = max(4, min(400, math.ceil(options.slot / max(once, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in ready}
    calls: dict[str, list[float]] = {name: [] for name in ready}
    for number in range(options.rounds):
        for name, contender in ready.items():
            times[name].append(_round(contender, sets, counts[name]))
            for turn in range(3):
                begin = time.perf_counter()
                contender.call((number + turn) % sets)
                calls[name].append(time.perf_counter() - begin)
    for name in ready:
        answers[name] |= {
            "min": min(times[name]), "median": statistics.median(times[name]), "call": min(calls[name])}


def _round(contender: Any, sets: int, count: int) -> float:
    """Seconds of a call among `count` in a row."""
    torch.cuda.synchronize()
    contender.launch(0)
    contender.begin()
    for number in range(count):
        contender.launch(number % sets)
    contender.end()
    return contender.elapsed() / count


def measure_machine() -> dict[str, Any]:
    """The GPU, warmed up, and the bandwidth of a copy, in bytes read and written per second."""
    properties = torch.cuda.get_device_properties(0)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(100):
        a @ a
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
    }


def supervise(options: argparse.Namespace, folder: Path) -> None:
    """Starts the child, and again from the next row on where it dies or takes too long over one."""
    options.results.write_text("")
    names = [row.name for row in _chosen(options)]
    end = time.time() + options.time_limit
    while names and time.time() < end:
        command = [sys.executable, "-m", "benchmarks.gpu", "child", str(folder), "--results", str(options.results),
                   "--until", str(end), "--rounds", str(options.rounds), "--slot", str(options.slot),
                   "--rows", *names, "--peers", *options.peers]
        child = subprocess.Popen(command)
        changed, length = time.time(), 0
        while child.poll() is None:
            time.sleep(0.2)
            size = options.results.stat().st_size
            if size != length:
                changed, length = time.time(), size
            if time.time() - changed > options.patience or time.time() > end + 15:
                child.kill()
        begun = [line["begin"] for line in read(options.results) if "begin" in line]
        done = {line["row"] for line in read(options.results) if "row" in line}
        if begun and begun[-1] not in done:
            with options.results.open("a") as file:
                note(file, {"row": begun[-1], "error": f"its process ended with {child.returncode}"})
            done.add(begun[-1])
        if not begun or child.returncode == 0:
            break
        names = [name for name in names if name not in done]


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _chosen(options: argparse.Namespace) -> list[Row]:
    """The rows asked for, by name or by group, in that order."""
    every = rows()
    if not options.rows:
        return every
    found: list[Row] = []
    for wanted in options.rows:
        matching = [row for row in every if wanted in (row.name, row.group)]
        if not matching:
            groups = ", ".join(dict.fromkeys(row.group for row in every))
            raise SystemExit(f"error: no row or group {wanted!r}; groups: {groups}; "
                             f"rows: {', '.join(row.name for row in every)}")
        found += [row for row in matching if row not in found]
    return found


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["compile", "run", "all", "table", "child", "list"])
    parser.add_argument("source", nargs="?", type=Path, help="what `compile` wrote: a folder, or a packed file")
    parser.add_argument("--out", type=Path, default=Path("build/gpu-benchmarks"), help="folder for artifacts")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="write the artifacts as one file too")
    parser.add_argument("--target", default="sm_90a", help="architectures to compile for (default: %(default)s)")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="only these, or groups of them; `list` has them")
    parser.add_argument("--peers", nargs="*", default=list(DEFAULT_PEERS), metavar="NAME",
                        help="eager, graph, compile, compile+graph, reduce-overhead, max-autotune, JAX")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (default: %(default)s)")
    parser.add_argument("--slot", type=float, default=0.006, help="seconds of a turn (default: %(default)s)")
    parser.add_argument("--time-limit", type=float, default=3600, metavar="S", help="begin no row after that long")
    parser.add_argument("--patience", type=float, default=_PATIENCE, metavar="S", help="seconds for one row at most")
    parser.add_argument("--results", type=Path, default=Path(RESULTS), metavar="FILE", help="lines of JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    parser.add_argument("--merge", nargs="+", type=Path, default=[], metavar="FILE", help="results, for `table`")
    parser.add_argument("--until", type=float, default=math.inf, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step == "list":
        print("\n".join(f"{row.group:14} {row.name:18} {row.title}" for row in rows()))
        return
    if options.step == "child":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        with torch.no_grad():
            with options.results.open("a") as file:
                note(file, {"machine": measure_machine()})
            run_rows(options, options.source)
        return
    if options.step == "table":
        from benchmarks.gpu_table import markdown

        about = json.loads(((options.source or options.out) / "compiled.json").read_text())
        text = markdown(rows(), [line for file in options.merge for line in read(file)], about)
        if options.markdown:
            options.markdown.write_text(text)
        print(text)
        return
    if options.step in ("compile", "all"):
        compile_rows(_chosen(options), options.out, options.target)
        if options.pack:
            pack(options.out, options.pack)
    if options.step in ("run", "all"):
        from benchmarks.gpu_table import markdown

        with tempfile.TemporaryDirectory(prefix="motet-gpu-") as temporary:
            folder = unpacked(options.source or options.out, Path(temporary))
            supervise(options, folder)
            text = markdown(rows(), read(options.results), json.loads((folder / "compiled.json").read_text()))
        if options.markdown:
            options.markdown.write_text(text)
        print(text)


if __name__ == "__main__":
    main()
