"""Measures Motet and its peers on many operators and networks: `python -m benchmarks.corpus --device host --cores 1,2`.

Nine of ten rows are fixed; the others are drawn for each run from the same families, with odd extents. Models,
references and the times of peers are kept in `--folder`. `--resume` continues an interrupted run.

With `--device cuda:0`, rows are compiled for that GPU and measured there, those of common families in bf16 too:
`python -m benchmarks.corpus --device cuda:0 --seconds 500 --resume`. `--prepare` only compiles them, which needs no
GPU: `--target` then names its architecture, and `--folder` can be taken to the machine with the GPU. `--fresh 100`
measures rows that no table has, nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.corpus.row import Row

SHARE_FRESH = 10  # fixed rows per fresh row
PEERS = ("torch (oneDNN)", "torch.compile", "onnxruntime", "OpenVINO", "OpenVINO default", "ggml")
GPU_PEERS, GPU_MORE = ("eager", "graph", "compile", "compile+graph"), ("max-autotune",)
GPU_NEEDED = ("torch", "torchvision", "timm", "transformers")
NEEDED = ("torch", "torchvision", "timm", "transformers", "onnxscript", "onnxruntime", "openvino")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.corpus", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="host", help="what to compile for: host (this processor), an expression "
                        "such as host{cpu=x86-64-v3}, or a GPU such as cuda:0")
    parser.add_argument("--cores", default="1", metavar="N,N", help="numbers of cores (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="30 rows, without torch.compile")
    parser.add_argument("--rows", nargs="+", metavar="TEXT", help="only rows whose name contains one of these texts")
    parser.add_argument("--peers", nargs="+", choices=(*PEERS, *GPU_PEERS, *GPU_MORE), metavar="NAME",
                        help=f"only these: {', '.join(PEERS)}; on GPUs {', '.join(GPU_PEERS)}, and if named "
                        f"{', '.join(GPU_MORE)}, which searches for long")
    parser.add_argument("--shard", metavar="I/N", help="every Nth row, starting at row I (from 1)")
    parser.add_argument("--resume", action="store_true", help="continue the last run in the folder")
    parser.add_argument("--again", action="store_true", help="measure peers again instead of using stored times")
    parser.add_argument("--fresh", type=int, metavar="N", help="only rows drawn at random, N of them")
    parser.add_argument("--seed", type=int, help="seed of the fresh rows (default: random)")
    parser.add_argument("--rounds", type=int, help="rounds of each contender (default: 3 with --quick, else 6)")
    parser.add_argument("--slot", type=float, default=0.04, help="seconds per round (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=2, metavar="S",
                        help="seconds to wait per row for a machine without other work (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for preparing a row (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S",
                        help="on GPUs: begin nothing after this time; --resume then continues")
    parser.add_argument("--prepare", action="store_true", help="for GPUs: compile the rows, and measure nothing")
    parser.add_argument("--target", default="native", metavar="ARCH",
                        help="for GPUs: the architecture to compile for, such as sm_90a (default: that of the device)")
    parser.add_argument("--folder", type=Path, default=Path("build/corpus"), help="default: %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to FILE, not the terminal")
    given = parser.parse_args()
    _check_device(parser, given)
    given.cores = _cores(parser, given.cores)
    given.shard = _shard(parser, given.shard)
    if given.fresh is not None and given.fresh < 1:
        parser.error(f"--fresh {given.fresh}: expected a number of rows from 1")
    needed = GPU_NEEDED if on_gpu(given) else NEEDED
    if absent := [name for name in needed if find_spec(name) is None]:
        parser.error(f"not installed: {', '.join(absent)}; expected what `pip install 'motet[corpus]'` installs")
    return given


def on_gpu(given: argparse.Namespace) -> bool:
    return given.device.startswith("cuda")


def _check_device(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    peers = (*GPU_PEERS, *GPU_MORE) if on_gpu(given) else PEERS
    if wrong := [name for name in given.peers or () if name not in peers]:
        parser.error(f"--peers {' '.join(wrong)}: not on {given.device}; expected {', '.join(peers)}")
    if not on_gpu(given):
        return
    if given.device not in ("cuda", "cuda:0"):
        parser.error(f"--device {given.device}: expected cuda:0; CUDA_VISIBLE_DEVICES chooses another GPU")
    if given.prepare and given.target == "native":
        parser.error("--prepare: expected --target with the architecture of the GPU, such as --target sm_90a")


def _cores(parser: argparse.ArgumentParser, text: str) -> list[int]:
    there = len(os.sched_getaffinity(0))
    if not all(part.isdecimal() and 1 <= int(part) <= there for part in text.split(",")):
        parser.error(f"--cores {text}: expected numbers from 1 to {there}, such as --cores 1,{there}")
    return [int(part) for part in text.split(",")]


def _shard(parser: argparse.ArgumentParser, text: str | None) -> tuple[int, int]:
    part, _, parts = (text or "1/1").partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        parser.error(f"--shard {text}: expected I/N with I from 1 to N, such as --shard 1/4")
    return int(part), int(parts)


def make_plan(given: argparse.Namespace) -> Any:
    """The plan of a run that the options describe."""
    from benchmarks.corpus.contender import rows_of
    from benchmarks.corpus.measure import OWN, Plan
    from benchmarks.corpus.peers import DEFAULT_TARGET

    seed, count, names = _choose(given, rows_of)
    peers = given.peers or [name for name in PEERS if not (given.quick and name == "torch.compile")]
    return Plan(
        seed=seed, count=count, rows=names, cores=given.cores, peers=[OWN, *peers],
        target=DEFAULT_TARGET if given.device == "host" else given.device,
        rounds=given.rounds or (3 if given.quick else 6), slot=given.slot, patience=given.patience,
        timeout=given.timeout)


def _choose(given: argparse.Namespace, rows_of: Callable[[int, int], Mapping[str, Row]]) -> tuple[int, int, list[str]]:
    """The seed, the number of fresh rows, and the names of the chosen rows among `rows_of(seed, count)`."""
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    fixed = {name for name, row in rows_of(seed, 0).items() if (row.quick or not given.quick) and not given.fresh}
    count = given.fresh or max(1, round(len(fixed) / (SHARE_FRESH - 1)))
    names = [name for name, row in rows_of(seed, count).items() if row.fresh or name in fixed]
    if given.rows:
        names = [name for name in names if any(text in name for text in given.rows)]
        if not names:
            raise SystemExit(f"error: --rows {' '.join(given.rows)}: no row has that in its name; expected part of a "
                             "name, such as conv2d")
    part, parts = given.shard
    return seed, count, names[part - 1 :: parts]


def _run_on_gpu(given: argparse.Namespace) -> None:
    """Prepare and measure on a GPU; the results are printed as far as they go."""
    from benchmarks.corpus import gpu
    from benchmarks.corpus.table import markdown

    folder, until = given.folder.resolve(), time.time() + given.seconds
    file = folder / "plan.json"
    if given.resume and file.exists():
        plan = gpu.Plan(**json.loads(file.read_text()))
        plan = replace(plan, peers=given.peers or plan.peers)
    else:
        seed, count, names = _choose(given, gpu.gpu_corpus)
        plan = gpu.Plan(seed, count, names, given.device, given.peers or list(GPU_PEERS), given.rounds or 5,
                        given.slot)
        file.write_text(json.dumps(asdict(plan)))
        (folder / gpu.RESULTS).unlink(missing_ok=True)
    print(f"{len(plan.rows)} rows, seed {plan.seed}", flush=True)
    gpu.prepare_all(plan, folder, gpu.expression(given.target), until, peers=not given.prepare)
    if not given.prepare:
        gpu.run(plan, folder, until)
        _print(given, markdown(gpu.report(plan, folder)))


def _print(given: argparse.Namespace, text: str) -> None:
    if given.markdown:
        given.markdown.write_text(text)
    else:
        print(text)


def main() -> None:
    given = parse()
    given.folder.mkdir(parents=True, exist_ok=True)
    if on_gpu(given):
        _run_on_gpu(given)
        return
    from benchmarks.corpus.measure import Plan, run
    from benchmarks.corpus.table import markdown

    folder, done = given.folder.resolve(), {}
    if given.resume:
        file = folder / "run.json"
        if not file.exists():
            raise SystemExit(f"error: --resume: {file} is not there; run without it first")
        done = json.loads(file.read_text())
        plan = Plan(**done["plan"])
    else:
        plan = make_plan(given)
    print(f"{len(plan.rows)} rows, seed {plan.seed}", flush=True)
    report = run(plan, folder, done, given.again)
    _print(given, markdown(report))


if __name__ == "__main__":
    main()
