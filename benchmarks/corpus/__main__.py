"""Measures Motet and its peers on many operators and networks: `python -m benchmarks.corpus --device host --cores 1,2`.

Nine of ten rows are fixed; the others are drawn for each run from the same families, with odd extents. Models,
references and the times of peers are kept in `--folder`. `--resume` continues an interrupted run.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PEERS = ("torch (oneDNN)", "torch.compile", "onnxruntime", "OpenVINO", "OpenVINO default", "ggml")
NEEDED = ("torch", "torchvision", "timm", "transformers", "onnxscript", "onnxruntime", "openvino")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.corpus", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="host", help="what to compile for: host (this processor) or an expression "
                        "such as host{cpu=x86-64-v3}")
    parser.add_argument("--cores", default="1", metavar="N,N", help="numbers of cores (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="30 rows, without torch.compile")
    parser.add_argument("--rows", nargs="+", metavar="TEXT", help="only rows whose name contains one of these texts")
    parser.add_argument("--peers", nargs="+", choices=PEERS, metavar="NAME", help=f"only these: {', '.join(PEERS)}")
    parser.add_argument("--shard", metavar="I/N", help="every Nth row, starting at row I (from 1)")
    parser.add_argument("--resume", action="store_true", help="continue the last run in the folder")
    parser.add_argument("--again", action="store_true", help="measure peers again instead of using stored times")
    parser.add_argument("--seed", type=int, help="seed of the fresh rows (default: random)")
    parser.add_argument("--rounds", type=int, help="rounds of each contender (default: 3 with --quick, else 6)")
    parser.add_argument("--slot", type=float, default=0.04, help="seconds per round (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=2, metavar="S",
                        help="seconds to wait per row for a machine without other work (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for preparing a row (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/corpus"), help="default: %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to FILE, not the terminal")
    given = parser.parse_args()
    if absent := [name for name in NEEDED if find_spec(name) is None]:
        parser.error(f"not installed: {', '.join(absent)}; expected what `pip install 'motet[corpus]'` installs")
    given.cores = _cores(parser, given.cores)
    given.shard = _shard(parser, given.shard)
    return given


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
    from benchmarks.corpus.measure import OWN, SHARE_FRESH, Plan, rows_of
    from benchmarks.corpus.peers import DEFAULT_TARGET

    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    fixed = [row for row in rows_of(seed, 0).values() if row.quick or not given.quick]
    count = max(1, round(len(fixed) / (SHARE_FRESH - 1)))
    names = [row.name for row in rows_of(seed, count).values() if row.fresh or row.quick or not given.quick]
    if given.rows:
        names = [name for name in names if any(text in name for text in given.rows)]
        if not names:
            raise SystemExit(f"error: --rows {' '.join(given.rows)}: no row has that in its name; expected part of a "
                             "name, such as conv2d")
    part, parts = given.shard
    peers = given.peers or [name for name in PEERS if not (given.quick and name == "torch.compile")]
    return Plan(
        seed=seed, count=count, rows=names[part - 1 :: parts], cores=given.cores, peers=[OWN, *peers],
        target=DEFAULT_TARGET if given.device == "host" else given.device,
        rounds=given.rounds or (3 if given.quick else 6), slot=given.slot, patience=given.patience,
        timeout=given.timeout)


def main() -> None:
    given = parse()
    from benchmarks.corpus.measure import Plan, run
    from benchmarks.corpus.table import markdown

    given.folder.mkdir(parents=True, exist_ok=True)
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
    text = markdown(report)
    if given.markdown:
        given.markdown.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
