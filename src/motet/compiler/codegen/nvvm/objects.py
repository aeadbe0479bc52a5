"""Makes the members of an artifact that hold launches as written: for every function `S` of a target,
`executables/FAMILY/TARGET/S.cubin` (`.ptx`), its launch metadata in `S.json`, and its LLVM IR in `S.llir`, which is not
needed to run it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from motet.artifact.launch import Launch
from motet.compiler.codegen.nvvm.program import LaunchFunction, NvvmCode
from motet.compiler.codegen.nvvm.ptx import Binary, make_binary, make_ptx
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.gpu import GpuTarget

_WARP = 32


def functions_of(compiled: Mapping[str, Compiled]) -> list[LaunchFunction]:
    return [
        function for entry in compiled.values() if isinstance(entry.code, NvvmCode) for function in entry.code.functions
    ]


def compile_launches(
    compiled: Mapping[str, Compiled], target: GpuTarget, jobs: int, members: dict[str, bytes]
) -> list[str]:
    """Compile all launches among `compiled`, add machine code to `members`; returns the names of their objects."""
    functions = functions_of(compiled)
    with ThreadPoolExecutor(max(1, jobs)) as pool:  # the assembler is a separate process
        made = list(pool.map(lambda function: make_binary(function.llvm, function.symbol, target), functions))
    paths: list[str] = []
    for function, binary in zip(functions, made, strict=True):
        path = f"executables/{target.family}/{target.name}/{function.symbol}"
        members[f"{path}.{target.binary}"] = binary.code
        members[f"{path}.json"] = msgspec.json.format(msgspec.json.encode(_described(function, binary)), indent=2)
        members[f"{path}.llir"] = function.llvm.encode()
        paths += [f"{path}.{target.binary}", f"{path}.json"]
    return paths


def launch_text(compiled: Mapping[str, Compiled], target: GpuTarget, stage: str) -> str:
    """The launches as text for `--emit` at stage `llvm` or `assembly`."""
    return "\n".join(
        function.llvm if stage == "llvm" else make_ptx(function.llvm, function.symbol, target)
        for function in functions_of(compiled)
    )


def _described(function: LaunchFunction, binary: Binary) -> Launch:
    return Launch(
        function.symbol, function.symbol, -(-function.threads // _WARP), 1, function.shared, 0,
        binary.registers, binary.frame, len(function.buffers), ["i64"] * function.sizes, False,
        threads=function.threads,
    )
