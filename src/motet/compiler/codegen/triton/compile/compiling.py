"""Runs a program through the stages of Triton's compiler, in this process and in memory.

`triton.compile` does the same for programs compiled at their first call: it hashes Triton itself (half a second), looks
up the program in a folder, and writes the text of every stage. An ahead-of-time compiler needs only the output of the
last two stages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

KEPT = ("ptx", "amdgcn", "cubin", "hsaco")


@dataclass(frozen=True)
class Stages:
    """The outputs of the stages named in `KEPT`, as text or bytes, and the metadata that they collected."""

    made: dict[str, Any]
    metadata: dict[str, Any]


def compile_source(source: Any, target: Any, options: dict[str, Any], fenced: bool = False) -> Stages:
    """Compile `source`, Triton's or Gluon's `ASTSource`, for `target`, a `GPUTarget`. `fenced` programs contain all
    fences between accesses to shared memory (`fences.py`). Raises Triton's exceptions."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    backend: Any = make_backend(target)
    settled: Any = backend.parse_options({**options, **source.parse_options()})
    stages: dict[str, Any] = {}
    backend.add_stages(stages, settled, source.language)
    context: Any = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    implementation, modules = backend.get_codegen_implementation(settled), backend.get_module_map()
    module: Any = source.make_ir(target, settled, implementation, modules, context)
    metadata: dict[str, Any] = {**vars(settled), "target": target}
    made: dict[str, Any] = {}
    names = list(stages)
    with _no_more_fences() if fenced else contextlib.nullcontext():
        for name in names[names.index(source.ext) :]:
            module = stages[name](module, metadata)
            if name in KEPT:
                made[name] = module
    return Stages(made, metadata)


@contextlib.contextmanager
def _no_more_fences() -> Generator[None]:
    """Skip the pass that inserts missing fences; Triton has no option for that."""
    from triton.backends.nvidia import compiler

    passes: Any = compiler.nvidia.passes.ttnvgpuir
    usual = passes.add_proxy_fence_insertion
    passes.add_proxy_fence_insertion = lambda manager, capability: None
    try:
        yield
    finally:
        passes.add_proxy_fence_insertion = usual
