"""Whether programs compiled for a GPU keep their launches and the bytes that these move: `python -m benchmarks.gpu
launches`, on any machine.

`gpu_launches.json` has, for 200 rows of the corpus, the number of launches and the bytes of all operands and results of
kernels. Rows that got more are named, and the exit status is 1; `--write` stores what there is now. No machine code is
made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.corpus.gpu import gpu_corpus
from benchmarks.gpu_gate import chosen
from motet.compiler import service
from motet.compiler.targets.device_flags import device_flags_of
from motet.errors import CompileError
from motet.pytorch.export import export_module

FIGURES = Path(__file__).with_name("gpu_launches.json")
COUNT = 200
TARGET = "cuda{arch=sm_90a}"
_PROCESSES = 2

Launches = tuple[int, int]  # launches, bytes


def launches_of(names: Sequence[str]) -> dict[str, Launches | str]:
    """What rows are compiled to, or why they are not. torch.export runs in one thread alone."""
    with ThreadPoolExecutor(_PROCESSES) as pool:
        found = {name: pool.submit(_listed, name, _exported(name)) for name in names}
        return {name: future.result() for name, future in found.items()}


def _exported(name: str) -> bytes | CompileError:
    module, inputs = gpu_corpus(0, 0)[name].module()
    try:
        return export_module(module, list(inputs))
    except CompileError as error:
        return error


def _listed(name: str, source: bytes | CompileError) -> Launches | str:
    try:
        if isinstance(source, CompileError):
            raise source
        kernels = service.list_kernels(service.CompileRequest(source, name, devices=device_flags_of(TARGET)))
    except CompileError as error:  # without its location, which is a path of this machine
        return f"CompileError: {error.message}".splitlines()[0]
    return sum(kernel.launches for kernel in kernels), sum(kernel.bytes for kernel in kernels)


def more(before: Mapping[str, Sequence[int] | str], now: Mapping[str, Launches | str]) -> list[str]:
    """A line for each row that got more launches or bytes, or that is refused now."""
    lines: list[str] = []
    for name, known in before.items():
        found = now.get(name, "not compiled")
        if isinstance(known, str):
            continue
        if isinstance(found, str):
            lines.append(f"{name}: {found}; {known[0]} launches before")
            continue
        for what, one, other in zip(("launches", "bytes"), found, known, strict=True):
            if one > other:
                lines.append(f"{name}: {one:,} {what}; {other:,} before")
    return lines


def run(texts: Sequence[str], write: bool) -> int:
    """Compare rows whose names contain one of `texts`, or all; returns the exit status."""
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    names = chosen(COUNT) if write else list(known)
    names = [name for name in names if not texts or any(text in name for text in texts)]
    now = launches_of(names)
    if write:
        text = ",\n".join(f" {json.dumps(name, ensure_ascii=False)}: {json.dumps(found, ensure_ascii=False)}"
                          for name, found in sorted({**(known if texts else {}), **now}.items()))
        FIGURES.write_text(f"{{\n{text}\n}}\n")
        print(f"{FIGURES}: {len(now)} rows")
        return 0
    lines = more({name: known[name] for name in names}, now)
    print("\n".join([*lines, f"{len(lines)} of {len(names)} rows with more launches or bytes than before"]))
    return 1 if lines else 0
