"""Finds the Python with the Triton that compiles for a family of devices.

Programs for NVIDIA's and AMD's GPUs are compiled by the Triton of this Python's environment. Those for Intel's need
another build of the package, triton-xpu, for Python 3.11, which `make intel` installs into another environment, the
folder `intel` in this one; MOTET_INTEL names another folder. An environment with motet[intel] has it itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from motet.compiler.codegen.triton.compile import ocloc
from motet.compiler.targets.gpu import GpuTarget
from motet.errors import OptionError

FOLDER = "MOTET_INTEL"
XPU = "3.3.0b1"  # of triton-xpu
_BACK_END = "lib/python3.11/site-packages/triton/backends/intel/compiler.py"
_PACKAGES = f"triton-xpu=={XPU} setuptools msgspec"
_INSTALL = f"run `make intel`, or: python3.11 -m venv FOLDER; FOLDER/bin/pip install --pre {_PACKAGES}; " \
    f"export {FOLDER}=FOLDER"


def interpreter(target: GpuTarget) -> str:
    """The Python that compiles programs for `target`."""
    return str(_folder() / "bin/python") if target.xpu is not None else sys.executable


def require_intel(target: GpuTarget) -> None:
    """Raises OptionError if triton-xpu or the offline compiler is not installed."""
    what = f"device {target.family}: code for {target.name} is made by triton-xpu {XPU}"
    if not _packages():
        raise OptionError(f"{what}, which is not in {_folder()}; {_INSTALL}")
    if target.xpu is None or not target.xpu.device:
        return
    if not ocloc.is_available():
        raise OptionError(
            f"device {target.family}: native code for {target.name} is made by Intel's offline compiler, which is not "
            f"installed; {ocloc.INSTALL}; {target.family}{{device=spirv}} needs none"
        )
    if target.precision == "tf32" and not ocloc.has_tf32(target.xpu.device):
        raise OptionError(
            f"device {target.family}: precision tf32: {ocloc.version()} has no tf32 products for {target.name}; "
            "expected that of Intel's compute runtime of 2023 or later, or precision=ieee"
        )


def has_intel() -> bool:
    """Whether triton-xpu is installed."""
    return bool(_packages())


def _packages() -> list[Path]:
    return sorted(_folder().glob(_BACK_END))


def _folder() -> Path:
    if given := os.environ.get(FOLDER):
        return Path(given)
    own = Path(sys.prefix)
    return own if (own / _BACK_END).exists() else own / "intel"
