"""Caches compiled programs in Motet's cache (`motet/cache.py`), so that another compilation of the same kernel, also
with other weights, does not compile it again.

The key is all that machine code depends on: the program's forms and how many of them are requested, the target,
Triton's version and the environment variables that affect it, and Motet's code around it. """

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from motet.cache import Cache
from motet.compiler.codegen.triton.compile import ocloc
from motet.compiler.codegen.triton.compile.installation import XPU
from motet.compiler.codegen.triton.compile.worker import Made, ProgramUnit, Request
from motet.compiler.targets.gpu import GpuTarget
from motet.decoding import decode_msgpack

# Motet's sources that affect the machine code of a program.
_SOURCES = (
    "compiling.py", "programmatic_launch.py", "fences.py", "hsaco.py", "worker.py", "../../gpu/cubin.py", "xpu.py",
    "native_code.py", "iga.py", "ocloc.py", "zebin.py", "../../../../runtime/drivers/common/elf/structures.py",
)
_VARIABLES = ("TRITON_", "PTXAS", "NVPTX_", "LLVM_", "MLIR_", "DISABLE_", "AMDGCN_")


def find(request: Request) -> dict[int, list[Made]]:
    """The cached programs of a request, by number."""
    cache = Cache()
    found: dict[int, list[Made]] = {}
    for number, forms in enumerate(request.programs):
        content = cache.get(_key(forms, request))
        if content is not None:
            found[number] = decode_msgpack(content, list[Made])
    return found


def keep(request: Request, made: Mapping[int, Sequence[Made]]) -> None:
    """Cache the compiled programs of a request that can be launched."""
    Cache().put_all({
        _key(request.programs[number], request): msgspec.msgpack.encode(forms)
        for number, forms in made.items()
        if not any(form.error for form in forms)
    })


def _key(forms: Sequence[ProgramUnit], request: Request) -> str:
    parts = [*_versions(), *_makers(request.target), *_environment(), request.target, request.most, list(forms)]
    return f"kernel {hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()}"


def _makers(target: GpuTarget) -> list[str]:
    """What makes code for Intel's GPUs, and its version."""
    if target.xpu is None:
        return []
    return [f"triton-xpu {XPU}", *([ocloc.version()] if target.xpu.device else [])]


@functools.cache
def _versions() -> tuple[str, str]:
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:  # which code for Intel's GPUs does not need
        triton = ""
    return triton, digest.hexdigest()


def _environment() -> list[str]:
    ignored = ("TRITON_CACHE_DIR", "TRITON_INTERPRET")
    return sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(_VARIABLES) and k not in ignored)
