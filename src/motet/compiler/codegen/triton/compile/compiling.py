"""A program through the stages of Triton's compiler, in this process, with nothing kept on disk.

`triton.compile` does the same for programs that are compiled when they are first called: it hashes Triton itself (half
a second), looks for the program in a folder, and writes what every stage made as text. An ahead-of-time compiler wants
the last two stages, in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

KEPT = ("ptx", "amdgcn", "cubin", "hsaco")


@dataclass(frozen=True)
class Stages:
    """What the stages named in `KEPT` made, as text or bytes, and what they found out."""

    made: dict[str, Any]
    metadata: dict[str, Any]


def compile_source(source: Any, target: Any, options: dict[str, Any], fenced: bool = False) -> Stages:
    """`source` is one of Triton's `ASTSource`, or of Gluon's, `target` a `GPUTarget`. `fenced` programs have all fences
    between the ways to shared memory (`fences.py`). Raises what Triton raises."""
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
    """Leave out the pass that looks for places without fences. Triton has no option for that."""
    from triton.backends.nvidia import compiler

    passes: Any = compiler.nvidia.passes.ttnvgpuir
    usual = passes.add_proxy_fence_insertion
    passes.add_proxy_fence_insertion = lambda manager, capability: None
    try:
        yield
    finally:
        passes.add_proxy_fence_insertion = usual
