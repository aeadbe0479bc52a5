"""The code generator: C for element-wise kernels, compiled by the C compiler of this machine."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from motet.artifact.expressions import product
from motet.compiler.codegen.backend import NoCode, Objects, PlainBackend, places_of
from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.cost import flops, traffic
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.family import Target
from motet.compiler.tuning.kernels import Choice
from motet.errors import CompileError, OptionError
from motet_abacus.c_text import function, refused

api = 1  # the version of the back-end protocol that this module implements

_FLAGS = ("-O2", "-std=c11", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing",
          "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-fcf-protection=none")
_HEADER = "#include <stdint.h>\n#include <tgmath.h>\n"


def open(target: Target, choice: Choice) -> AbacusBackend:
    compiler = shutil.which("cc")
    if compiler is None:
        raise OptionError(f"device {target.family}: cc, a C compiler, is not installed; apt install gcc")
    return AbacusBackend(target, compiler)


@dataclass(frozen=True)
class CCode(KernelCode):
    """A kernel's code, whose `source` is C."""

    source: str = ""


@dataclass(frozen=True)
class AbacusBackend(PlainBackend):
    """See `motet.compiler.codegen.backend.Backend`."""

    target: Target
    compiler: str

    def obstacle(self, function: ir.Operation, kernel: Kernel | None, reason: str) -> str | None:
        return reason if kernel is None else refused(kernel)

    def generate(self, kernel: Kernel) -> KernelCode:
        """One function for each stage; values passed between stages are stored in workspaces."""
        reason = refused(kernel)
        if reason is not None:
            raise self._no_code(kernel.name, reason)
        spaces = [number for number, value in enumerate(kernel.values) if value.role == "temporary"]
        buffers = (*kernel.externals, *spaces)
        symbols = [f"{kernel.name}_{number}" if number else kernel.name for number in range(len(kernel.stages))]
        stages = list(zip(kernel.stages, symbols, strict=True))
        sizes = [kernel.values[space] for space in spaces]
        return CCode(
            "element-wise", "", tuple(Phase(symbol, stage.sizes[0] if stage.sizes else 1) for stage, symbol in stages),
            workspaces=tuple(product((item_bytes(value.dtype), *value.shape)) for value in sizes),
            flops=flops(kernel), bytes=traffic(kernel),
            source=_HEADER + "".join(function(kernel, stage, symbol, buffers) for stage, symbol in stages),
        )

    def generic(self, function: ir.Operation, name: str, reason: str) -> Compiled:
        raise self._no_code(name, reason, places_of(function))

    def _no_code(self, name: str, reason: str, places: frozenset[str] = frozenset()) -> NoCode:
        text = f"kernel {name}: no code can be made for abacus devices: {reason}; place it elsewhere: abacus,@cpu"
        return NoCode(text, None, places, reason)

    def assemble(
        self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes], made: Objects,
        begun: object | None = None,
    ) -> tuple[dict[str, Compiled], list[str]]:
        paths: list[str] = []
        for symbol, source in _sources(compiled).items():
            paths.append(f"executables/{self.target.family}/{self.target.name}/{symbol}.o")
            members[paths[-1]] = self._compile(symbol, source)
        return dict(compiled), paths

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        return "\n".join(_sources(compiled).values())

    def _compile(self, symbol: str, source: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="motet-abacus-") as folder:
            text, result = Path(folder, "kernel.c"), Path(folder, "kernel.o")
            text.write_text(source)
            outcome = subprocess.run(
                [self.compiler, *_FLAGS, "-c", text, "-o", result], capture_output=True, text=True, check=False
            )
            if outcome.returncode:
                said = outcome.stderr.strip().splitlines() or [f"it ended with status {outcome.returncode}"]
                mistake = next((line for line in said if "error:" in line), said[0])
                raise CompileError(f"kernel {symbol}: {self.compiler}: {mistake}")
            return result.read_bytes()


def _sources(compiled: Mapping[str, Compiled]) -> dict[str, str]:
    """C by symbol; kernels of equal structure share their code."""
    codes = [entry.code for entry in compiled.values()]
    return {code.phases[0].symbol: code.source for code in codes if isinstance(code, CCode)}
