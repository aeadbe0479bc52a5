"""Compiles forms for a GPU, several as one program, and writes them with inputs and what they should give.

In the folder: `NAME.motet` and `NAME.cases` of each program, and `GROUP.refused`, the forms that the compiler refuses
for this target, with the reason and whether it takes them for the host. What is there already is not compiled again.
"""

from __future__ import annotations

import importlib
import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import msgspec
import numpy as np
from tests.gpu_forms.cases import Array, Bundle, Case

from motet.artifact.dtypes import DTYPES
from motet.artifact.reader import Artifact
from motet.errors import MotetError, WorkerCrash

_SECONDS = 120  # for one program; what takes longer is a defect


class Source(Protocol):
    """One form, and those like it that may be in one program with it: `key` says which."""

    name: str
    key: str

    def inputs(self) -> list[np.ndarray | Array]: ...
    def case(self, group: str) -> Case: ...
    def compiled(self, others: Sequence[Source], target: str | None) -> Artifact:
        """This form and `others` as one program, for `target` or for the host."""
        ...


_MODULES = {"onnx": "onnx_sources", "dynamic": "onnx_sources", "free": "onnx_sources", "torch": "torch_sources",
            "random": "programs"}  # which have GROUPS and `sources(group)`, by what groups begin with


def groups() -> list[str]:
    """All there are."""
    return [f"{kind}-{name}" for kind in _MODULES for name in _module(kind).GROUPS]


def sources(group: str) -> Iterator[Source]:
    """Needs what the forms of `group` are of alone: ONNX, or PyTorch."""
    return _module(group.partition("-")[0]).sources(group)


def _module(kind: str) -> Any:
    return importlib.import_module(f"tests.gpu_forms.{_MODULES[kind]}")


def pack_groups(folder: Path, wanted: Sequence[str], at_once: int, every: int, target: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for group in wanted or groups():
        begin = time.monotonic()
        packing = _Packing(folder, group, target)
        packing.pack(list(sources(group))[::every], at_once)
        took = time.monotonic() - begin
        print(f"{group}: {packing.compiled} compiled, {packing.refused} refused, {took:.0f} s", flush=True)
    print(summary(folder), flush=True)
    return 0


def summary(folder: Path) -> str:
    """The reasons of refusal with their counts, those first that the host does not share."""
    counts: Counter[tuple[bool, str]] = Counter()
    examples: dict[tuple[bool, str], str] = {}
    for line in sorted({line for file in folder.glob("*.refused") for line in file.read_text().splitlines()}):
        found = json.loads(line)
        key = (found["host"], re.sub(r"\d+", "N", re.sub(r"^\S*\d\S*: ", "", found["reason"]))[:160])
        counts[key] += 1
        examples[key] = found["name"]
    order = sorted(counts, key=lambda key: (-key[0], -counts[key]))
    return "\n".join(
        f"{counts[key]:5} {'GPU alone' if key[0] else 'host too'}: {key[1]} (such as {examples[key]})" for key in order
    )


class _Packing:
    def __init__(self, folder: Path, group: str, target: str) -> None:
        self._folder = folder
        self._group = group
        self._target = target
        self._refusals = folder / f"{group}.refused"
        self.compiled = self.refused = 0

    def pack(self, found: Sequence[Source], at_once: int) -> None:
        self._refusals.write_text("")
        alike: dict[str, list[Source]] = {}
        for source in found:
            alike.setdefault(source.key, []).append(source)
        number = 0
        for some in alike.values():
            for start in range(0, len(some), at_once):
                self._several(some[start : start + at_once], f"{self._group}-{number:04}")
                number += 1

    def _several(self, some: Sequence[Source], name: str) -> None:
        """Compiles forms together, and by halves where one of them is refused."""
        path = self._folder / f"{name}.motet"
        if path.exists():
            self.compiled += len(some)
            return
        try:
            with _Limit(_SECONDS):
                artifact = some[0].compiled(some[1:], self._target)
        except (MotetError, TimeoutError) as error:
            if len(some) == 1:
                self._refuse(some[0], error)
                return
            half = len(some) // 2
            self._several(some[:half], f"{name}a")
            self._several(some[half:], f"{name}b")
            return
        self._write(some, artifact, path)

    def _write(self, some: Sequence[Source], artifact: Artifact, path: Path) -> None:
        kinds = [DTYPES[spec.dtype] for spec in artifact.manifest.functions[0].inputs]
        arrays = [array for source in some for array in source.inputs()]
        carried = [_carried(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
        bundle = Bundle(carried, [source.case(self._group) for source in some])
        path.with_suffix(".cases").write_bytes(msgspec.msgpack.encode(bundle))
        artifact.save(path)
        self.compiled += len(some)

    def _refuse(self, source: Source, error: Exception) -> None:
        host = True
        try:
            with _Limit(_SECONDS):
                source.compiled([], None)
        except (MotetError, TimeoutError):
            host = False
        crash = not isinstance(error, MotetError) or isinstance(error, WorkerCrash)
        line = {"group": self._group, "name": source.name, "host": host, "crash": crash,
                "reason": f"{type(error).__name__}: {error}"[:600]}
        with self._refusals.open("a") as file:
            print(json.dumps(line), file=file)
        if host or crash:
            print(json.dumps(line)[:400], file=sys.stderr, flush=True)
        self.refused += 1


def _carried(array: np.ndarray | Array, kind: np.dtype[Any]) -> Array:
    """An input, as the program declares it: without a sign where it has none."""
    if isinstance(array, Array):
        return array
    return Array.of(array if array.dtype == kind else array.view(kind))


class _Limit:
    """Raises TimeoutError in this thread after so many seconds."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, _late)
        signal.alarm(self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)


def _late(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"the compiler takes more than {_SECONDS} s")
