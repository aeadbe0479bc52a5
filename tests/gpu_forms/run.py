"""Runs packed forms on a device, in a process that is replaced when a form ends it or never ends."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.gpu_forms.cases import Bundle

import motet
from motet.errors import DeviceError, MotetError

_LIMIT = 60.0  # seconds for one artifact, which OpenCL platforms compile on the way
_CALLS = 3  # the second and third go other ways through the driver than the first


def work(device: str) -> int:
    """Answers every path on standard input with a line of JSON: the faults, by form, and the seconds it took. Ends
    after an error of the device, behind which nothing can be believed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what drivers print is no answer
    for line in sys.stdin:
        begin = time.monotonic()
        lost = False
        try:
            faults, error = _faults(Path(line.strip()), device), ""
        except DeviceError as problem:
            faults, error, lost = {}, f"{type(problem).__name__}: {problem}", True
        except MotetError as problem:
            faults, error = {}, f"{type(problem).__name__}: {problem}"
        except (ValueError, TypeError, RuntimeError, KeyError, OSError):
            faults, error = {}, traceback.format_exc()[-1500:]
        answer = {"faults": faults, "error": error, "seconds": time.monotonic() - begin}
        print(json.dumps(answer), file=answers, flush=True)
        if lost:
            return 1
    return 0


def _faults(path: Path, device: str) -> dict[str, str]:
    bundle = msgspec.msgpack.decode(path.with_suffix(".cases").read_bytes(), type=Bundle)
    inputs = [array.array() for array in bundle.inputs]
    before = [array.tobytes() for array in inputs]
    faults: dict[str, str] = {}
    with motet.load(path, devices=device) as session:
        for call in range(_CALLS):
            results = session(*inputs)
            arrays = [np.asarray(one) for one in (results if isinstance(results, (tuple, list)) else [results])]
            for name, text in bundle.faults(arrays).items():
                faults.setdefault(name, text if call == 0 else f"in call {call} alone: {text}")
    for number, (array, content) in enumerate(zip(inputs, before, strict=True)):
        if array.tobytes() != content:
            faults["inputs"] = f"input {number} was written to"
    return faults


class _Process:
    def __init__(self, device: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu_forms", "worker", device], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )

    def ask(self, path: Path, limit: float) -> dict[str, Any] | None:
        """The answer, or None where there was none in time or the process died."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"{path}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        if not select.select([self._process.stdout], [], [], limit)[0]:
            return None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def end(self) -> str:
        """How it ended, where it did by itself."""
        try:
            status = str(self._process.wait(0.2))
        except subprocess.TimeoutExpired:
            status = "no answer"
        self._process.kill()
        self._process.wait()
        return status


def run(folder: Path, device: str, seconds: float, output: Path | None) -> int:
    """Runs every artifact of `folder`; prints, and writes, what is wrong."""
    begin = time.monotonic()
    paths = sorted(folder.glob("*.motet"))
    process = _Process(device)
    found: dict[str, Any] = {"artifacts": 0, "forms": 0, "skipped": 0, "wrong": {}, "errors": {}, "slow": {}}
    for path in paths:
        if time.monotonic() - begin > seconds:
            found["skipped"] += 1
            continue
        answer = process.ask(path, _LIMIT)
        cases = msgspec.msgpack.decode(path.with_suffix(".cases").read_bytes(), type=Bundle).cases
        found["artifacts"] += 1
        found["forms"] += len(cases)
        error = f"the process ended: {process.end()}" if answer is None else answer["error"]
        if error:
            found["errors"][path.stem] = {"error": error, "forms": [case.name for case in cases]}
            print(f"{path.stem}: {error}", flush=True)
            process.end()
            process = _Process(device)
            continue
        assert answer is not None
        for name, text in answer["faults"].items():
            found["wrong"][f"{path.stem}: {name}"] = text
            print(f"{path.stem}: {name}: {text}", flush=True)
        if answer["seconds"] > 1:
            found["slow"][path.stem] = answer["seconds"]
    process.end()
    found["seconds"] = time.monotonic() - begin
    print(f"{found['forms']} forms in {found['artifacts']} artifacts: {len(found['wrong'])} wrong, "
          f"{len(found['errors'])} artifacts failed, {found['skipped']} left out, {found['seconds']:.1f} s", flush=True)
    if output is not None:
        output.write_text(json.dumps(found, indent=1))
    return int(bool(found["wrong"] or found["errors"]))
