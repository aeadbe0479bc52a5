"""Compiled programs in Motet's cache (`motet/cache.py`): another compilation that has the same kernel, or the same one
with other weights, does not compile it again.

A program is kept under all that its machine code depends on: its forms and how many of them are wanted, the target,
Triton's version and the variables that change what it does, and Motet's own code around it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from motet.cache import Cache
from motet.compiler.codegen.triton.compile.worker import Made, ProgramUnit, Request

# What decides on the code that Triton makes of a program, next to Triton itself.
_SOURCES = ("compiling.py", "programmatic_launch.py", "fences.py", "hsaco.py", "worker.py", "../../gpu/cubin.py")
_VARIABLES = ("TRITON_", "PTXAS", "NVPTX_", "LLVM_", "MLIR_", "DISABLE_", "AMDGCN_")


def find(request: Request) -> dict[int, list[Made]]:
    """What is kept of the programs of a request, by number."""
    cache = Cache()
    found: dict[int, list[Made]] = {}
    for number, forms in enumerate(request.programs):
        content = cache.get(_key(forms, request))
        if content is not None:
            found[number] = msgspec.msgpack.decode(content, type=list[Made])
    return found


def keep(request: Request, made: Mapping[int, Sequence[Made]]) -> None:
    """Keep what became of programs of a request, as far as they can be launched."""
    Cache().put_all({
        _key(request.programs[number], request): msgspec.msgpack.encode(forms)
        for number, forms in made.items()
        if not any(form.error for form in forms)
    })


def _key(forms: Sequence[ProgramUnit], request: Request) -> str:
    parts = [*_versions(), *_environment(), request.target, request.most, list(forms)]
    return f"kernel {hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()}"


@functools.cache
def _versions() -> tuple[str, str]:
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return importlib.metadata.version("triton"), digest.hexdigest()


def _environment() -> list[str]:
    ignored = ("TRITON_CACHE_DIR", "TRITON_INTERPRET")
    return sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(_VARIABLES) and k not in ignored)
