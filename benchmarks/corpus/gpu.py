"""The corpus on a GPU: rows, their preparation, and the runs. `benchmarks.corpus --device cuda:0` uses it.

Rows are prepared in parallel processes: Motet's artifact, the amount of work, and the kernels that torch.compile keeps
on disk. One process that uses the GPU alone then measures them in sequence (`benchmarks.gpu_measure`): CUDA events,
inputs that exceed the second-level cache, results compared with a reference of higher precision.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import gpu_rows
from benchmarks.corpus.contender import rows_of
from benchmarks.corpus.row import Row
from benchmarks.gpu import note, read, watch
from benchmarks.run import HERE, THREADS, Child, machine, say

PEERS = ("eager", "graph", "compile", "compile+graph")
MORE_PEERS = ("max-autotune",)  # search for long
OWN = ("Motet", "Motet, graph")
RESULTS = "results.jsonl"
# Families whose rows of f32 are also measured in bf16, in which GPUs mostly compute.
_SHORT = ("linear", "attention", "convolution", "normalisation", "element-wise", "network", "movement", "vision",
          "weights", "experts", "blocks")
_PREPARE, _WARM, _ROW = 240.0, 120.0, 90.0  # seconds for one row
_DEATHS = 3  # consecutive processes that measured nothing, after which a run ends


@dataclass(frozen=True)
class Plan:
    """The rows and settings of a run, stored with its results so that `--resume` continues it."""

    seed: int
    count: int  # of fresh rows
    rows: Sequence[str]
    device: str
    peers: Sequence[str]
    rounds: int
    slot: float


def gpu_corpus(seed: int, count: int) -> dict[str, Row]:
    """The rows of the corpus that are modules of torch, those of common families in bf16 as well, by name."""
    found: dict[str, Row] = {}
    for row in rows_of(seed, count).values():
        if row.make is None:
            continue
        found[row.name] = row
        if row.dtype == "f32" and row.family.startswith(_SHORT):
            short = replace(row, name=f"{row.name} bf16", dtype="bf16")
            found.setdefault(short.name, short)
    return found


def expression(architecture: str = "native") -> str:
    """What to compile for: an architecture, or that of the GPU of this machine."""
    from motet.compiler.targets.cuda import CUDA

    if architecture == "native":
        capability = "".join(map(str, torch.cuda.get_device_capability()))
        found = [name for name in CUDA.targets if name.rstrip("a") == f"sm_{capability}"]
        architecture = found[0] if found else "ptx80"
    return f"cuda{{arch={architecture}}}"


def measured(row: Row, folder: Path) -> gpu_rows.Row:
    """`row` as `benchmarks.gpu_measure` takes it. The amount of work is what `prepare` stored."""
    facts = json.loads((folder / f"{row.file}.json").read_text())
    _, inputs = row.module()
    return gpu_rows.Row(
        row.file, row.name, row.family, lambda: row.module()[0],
        tuple(gpu_rows.Input(tuple(tensor.shape), tensor.dtype) for tensor in inputs), facts["flops"], facts["bytes"],
        unit=row.dtype, searched=True, tolerance=row.allowed, values=lambda: inputs)


def prepare(row: Row, folder: Path, target: str) -> dict[str, Any]:
    """Compile `row` for `target` into `folder`, and store its amount of work; returns what is stored."""
    import motet

    module, inputs = row.module()
    facts: dict[str, Any] = {}
    begin = time.perf_counter()
    try:
        artifact = motet.compile(module, inputs=list(inputs), devices=target)
        artifact.save(folder / f"{row.file}.motet")
        facts["kernels"] = {kernel.name: [kernel.kind, kernel.source]
                            for variant in artifact.manifest.variants for kernel in variant.kernels}
    except Exception as error:  # a program that Motet refuses is a result
        facts["refused"] = f"{type(error).__name__}: {error}"[:300]
    facts["seconds"] = time.perf_counter() - begin
    facts |= count_work(row, module, inputs)
    (folder / f"{row.file}.json").write_text(json.dumps(facts))
    return facts


def warm(row: Row) -> None:
    """Fill torch.compile's cache on disk."""
    module, inputs = row.module()
    with torch.no_grad():
        torch.compile(module.cuda(), dynamic=False)(*(tensor.cuda() for tensor in inputs))


def count_work(row: Row, module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Operations and bytes of a call, with operators whose operations PyTorch can count."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = sum(tensor.nbytes for tensor in (*inputs, *module.parameters(), *module.buffers()))
    module, values = module.to(device), [tensor.to(device) for tensor in inputs]
    with (torch.no_grad(), torch.backends.cudnn.flags(enabled=False), FlopCounterMode(display=False) as counter,
          sdpa_kernel(SDPBackend.MATH)):
        results = gpu_rows.flat(module(*values))
    moved = size + sum(tensor.nbytes for tensor in results)
    return {"flops": counter.get_total_flops(), "bytes": moved if row.moved is None else row.moved}


class _Preparer(Child):
    """A process that prepares rows, or fills caches."""

    def __init__(self, number: int, folder: Path, plan: Plan, target: str) -> None:
        super().__init__(f"prepare-{number}", [number], folder)
        self.plan, self.target = plan, target

    def _start(self) -> subprocess.Popen[str]:
        words = [str(self.folder), str(self.plan.seed), str(self.plan.count), self.target]
        with (self.folder / f"{self.name}.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.corpus.gpu", "prepare", *words], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, env=_environment(self.folder), cwd=HERE.parent)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, **dict.fromkeys(THREADS, "1"), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
            "MOTET_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def prepare_all(plan: Plan, folder: Path, target: str, until: float, peers: bool) -> None:
    """Prepare the rows of `plan` that `folder` lacks; for `peers`, fill torch.compile's cache."""
    rows = gpu_corpus(plan.seed, plan.count)
    todo = [(name, "prepare", _PREPARE) for name in plan.rows if not (folder / f"{rows[name].file}.json").exists()]
    if peers and any(name.startswith(("compile", "max")) for name in plan.peers):
        todo += [(name, "warm", _WARM) for name in plan.rows if not (folder / f"{rows[name].file}.warm").exists()]
    count = max(1, len(os.sched_getaffinity(0)) - 1)
    free: queue.SimpleQueue[_Preparer] = queue.SimpleQueue()
    children = [_Preparer(number, folder, plan, target) for number in range(min(count, len(todo)))]
    for child in children:
        free.put(child)

    def one(job: tuple[str, str, float]) -> None:
        name, do, limit = job
        if time.time() > until:
            return
        child = free.get()
        answer = child.ask(min(limit, max(1.0, until - time.time())), do=do, row=name)
        free.put(child)
        if why := answer.get("refused") or answer.get("absent"):
            say(f"{do} {name}: {why}")
            if do == "prepare" and "absent" in answer and time.time() < until:
                failed = {"flops": 0.0, "bytes": 0.0, "refused": answer["absent"]}
                (folder / f"{rows[name].file}.json").write_text(json.dumps(failed))
        if do == "warm":
            (folder / f"{rows[name].file}.warm").touch()

    say(f"preparing: {len(todo)} steps in {len(children)} processes")
    with ThreadPoolExecutor(max(1, len(children))) as pool:
        list(pool.map(one, todo))
    for child in children:
        child.stop()


def run(plan: Plan, folder: Path, until: float) -> None:
    """Measure the rows of `plan` without a result in the folder; a process that dies is restarted at the next row."""
    rows = gpu_corpus(plan.seed, plan.count)
    results = folder / RESULTS
    titles = {rows[name].file: name for name in plan.rows}
    deaths = 0
    while time.time() < until and deaths < _DEATHS:
        lines = read(results)
        done = {titles.get(line["row"]) for line in lines if "row" in line}
        names = [name for name in plan.rows if name not in done and (folder / f"{rows[name].file}.json").exists()]
        if not names:
            return
        code = watch(_child(plan, names, folder, until, first=not lines), results, _ROW, until, _environment(folder))
        new = read(results)[len(lines) :]
        begun = [line["begin"] for line in new if "begin" in line]
        ended = [line["row"] for line in new if "row" in line]
        deaths = 0 if ended else deaths + 1
        if begun and begun[-1] not in ended and time.time() < until:
            why = f"its process ended with {code}"
            note(results, {"row": begun[-1], "error": why, "peers": {name: {"absent": why} for name in OWN}})


def _child(plan: Plan, names: Sequence[str], folder: Path, until: float, first: bool) -> list[str]:
    given = folder / "child.json"
    given.write_text(json.dumps({**asdict(plan), "rows": list(names), "until": until, "first": first}))
    return [sys.executable, "-m", "benchmarks.corpus.gpu", "measure", str(folder)]


def report(plan: Plan, folder: Path) -> dict[str, Any]:
    """The results in the form that `benchmarks.corpus.table` prints."""
    from benchmarks.gpu_table import PEAKS, is_far, is_wrong, merged

    lines = read(folder / RESULTS)
    gpu = next((line["machine"] for line in lines if "machine" in line), None)
    if gpu is None:
        raise SystemExit(f"error: nothing was measured; {folder / 'measure.log'} may tell why")
    rows = gpu_corpus(plan.seed, plan.count)
    by_file = {rows[name].file: rows[name] for name in plan.rows}
    found: dict[str, Any] = {}
    for name, result in merged(lines).items():
        row = by_file.get(name)
        if row is None:
            continue
        facts = json.loads((folder / f"{name}.json").read_text())
        answers = dict(result["peers"])
        own = min((answers.pop(each, {}) for each in OWN), key=lambda answer: answer.get("min", float("inf")))
        kernels = _kernels(result["peers"].get("Motet", {}).get("kernels", []), facts.get("kernels", {}))
        if is_wrong(result["peers"], row.allowed):
            own = {"wrong": f"off by {result['peers']['Motet']['error']:.1e}"}
        elif "min" not in own and "refused" in facts:
            own = {"absent": facts["refused"]}
        answers = {peer: {"wrong": f"off by {answer['error']:.1e}"} if is_far(answer, row.allowed) else answer
                   for peer, answer in answers.items()}
        found[row.name] = {"family": row.family, "dtype": row.dtype, "fresh": row.fresh, "flops": facts["flops"],
                           "bytes": facts["bytes"], "answers": {"Motet": own, **answers}, "kernels": kernels}
    peaks = next((peaks for name, peaks in PEAKS.items() if name in gpu["device"]), {})
    limits = {"peaks": peaks, "bandwidth": gpu["bandwidth"]}
    head = machine() | {"command": "python -m " + " ".join(["benchmarks.corpus", *sys.argv[1:]])}
    return {"plan": asdict(plan) | {"peers": ["Motet", *plan.peers]}, "limits": {plan.device: limits},
            "machine": head | {"processor": f"{gpu['device']}, PyTorch {gpu['torch']}, CUDA {gpu['cuda']}; host: "
                               f"{head['processor']}"}, "rows": {plan.device: found}}


def _kernels(times: Sequence[tuple[str, float]], about: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """The kernels of a call with their classes and what they compute, slowest first."""
    found: dict[str, dict[str, Any]] = {}
    for name, seconds in times:
        kind, source = about.get(name, (name, ""))
        kernel = found.setdefault(name, {"class": kind, "seconds": 0.0, "calls": 0, "source": source})
        kernel["seconds"] += seconds
        kernel["calls"] += 1
    return sorted(found.values(), key=lambda kernel: -kernel["seconds"])


def _prepare_main(folder: Path, seed: int, count: int, target: str) -> None:
    """Answer each line of JSON, such as {"do": "prepare", "row": NAME}, with one line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    rows = gpu_corpus(seed, count)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            row = rows[command["row"]]
            answer: dict[str, Any] = prepare(row, folder, target) if command["do"] == "prepare" else {}
            if command["do"] == "warm":
                warm(row)
                torch.compiler.reset()
                torch.cuda.empty_cache()
        except Exception as error:  # a row that fails must not end the others
            said = (str(error).strip().splitlines() or [""])[0]
            answer = {"absent": f"{type(error).__name__}: {said}"[:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _measure_main(folder: Path) -> None:
    from benchmarks.gpu_measure import measure_machine, note, run_rows

    given = json.loads((folder / "child.json").read_text())
    rows = gpu_corpus(given["seed"], given["count"])
    options = argparse.Namespace(results=folder / RESULTS, peers=[OWN[0], *given["peers"], OWN[1]],
                                 rounds=given["rounds"], slot=given["slot"], until=given["until"])
    with torch.no_grad():
        if given["first"]:
            with options.results.open("a") as file:
                note(file, {"machine": measure_machine()})
        run_rows((measured(rows[name], folder) for name in given["rows"]), options, folder)


def main() -> None:
    step, folder, *rest = sys.argv[1:]
    if step == "prepare":
        _prepare_main(Path(folder), int(rest[0]), int(rest[1]), rest[2])
    else:
        _measure_main(Path(folder))


if __name__ == "__main__":
    main()
