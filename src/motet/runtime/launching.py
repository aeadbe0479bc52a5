"""How to start a program on several processes, for errors."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

INSTALL = "pip install 'motet[mpi]'"


def how_to_launch(ranks: int) -> str:
    """What to run for at least that many ranks."""
    beside = str(Path(sys.executable).parent)  # where wheels of MPI install it, also if the environment is not active
    if shutil.which("mpiexec") is None and shutil.which("mpiexec", path=beside) is None:
        return f"mpiexec is not installed: {INSTALL}, then start this with mpiexec -n {ranks}, or more"
    return f"start this with mpiexec -n {ranks}, or more"
