"""Cold starts: the time of a fresh process from its first line to the first result on the GPU.

Motet's process imports the runtime only and passes NumPy arrays; weights are part of the artifact. PyTorch's process
has its weights in memory: their creation is not counted, their transfer to the GPU is. `torch.compile` has its disk
caches filled. Python's own start is the same for all, and not counted. Files are in the page cache from earlier runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

ROWS = ("fragment", "bert-1")
_LIMIT = 60  # seconds for a process
WAYS = ("Motet", "eager", "compile")


def starts(chosen: list[Any], folder: Path, end: float) -> Iterator[dict[str, Any]]:
    """A line for each of `ROWS` among the chosen rows, with the seconds of each contender."""
    for row in (row for row in chosen if row.name in ROWS):
        found: dict[str, float | str] = {}
        for way in WAYS:
            if way == "Motet" and not (folder / f"{row.name}.motet").exists():
                continue
            if time.time() > end:
                return
            try:
                found[way] = _start(way, row.name, folder)
            except (subprocess.SubprocessError, ValueError, IndexError) as error:
                found[f"{way}, error"] = str(error)[-300:]
        yield {"cold": row.name, **found}


def _start(way: str, name: str, folder: Path) -> float:
    done = subprocess.run([sys.executable, "-m", "benchmarks.gpu_cold", way, name, str(folder)], capture_output=True,
                          text=True, timeout=_LIMIT, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _motet(folder: Path, name: str) -> float:
    begin = time.perf_counter()
    import numpy as np

    import motet
    from motet.artifact.dtypes import DTYPES

    session = motet.load(folder / f"{name}.motet", devices={"": "cuda:0"})
    function = next(iter(session.functions.values()))
    values = [np.zeros([cast("int", extent) for extent in each.shape], DTYPES[each.dtype])
              for each in function.signature.inputs]
    made = session(*values)
    for each in made if isinstance(made, tuple | list) else [made]:
        np.asarray(each)
    return time.perf_counter() - begin


def _torch(name: str, compiled: bool) -> float:
    begin = time.perf_counter()
    import torch

    from benchmarks.gpu_rows import rows

    row = next(row for row in rows() if row.name == name)
    with torch.no_grad():
        making = time.perf_counter()
        module: Any = row.module()
        begin += time.perf_counter() - making
        module = module.cuda()
        if compiled:
            module = torch.compile(module, dynamic=False)
        made = module(*[torch.zeros(each.shape, dtype=each.dtype, device="cuda") for each in row.inputs])
        for each in made if isinstance(made, tuple) else [made]:
            each.cpu()
    return time.perf_counter() - begin


def main() -> None:
    way, name, folder = sys.argv[1:]
    seconds = _motet(Path(folder), name) if way == "Motet" else _torch(name, way == "compile")
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
