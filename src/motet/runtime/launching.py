"""Whether this process is one of several that an MPI launcher started, and how to start several."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

INSTALL = "pip install 'motet[mpi]'"
# What launchers set: mpich's and Intel's (PMI), Open MPI's, Slurm's with PMIx.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")


def launched() -> int:
    """The number of ranks that a launcher has started; 1 for a process started without one."""
    for name in _SIZES:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return 1


def how_to_launch(ranks: int) -> str:
    """What to run for at least that many ranks."""
    beside = str(Path(sys.executable).parent)  # where wheels of MPI install it, also if the environment is not active
    if shutil.which("mpiexec") is None and shutil.which("mpiexec", path=beside) is None:
        return f"mpiexec is not installed: {INSTALL}, then start this with mpiexec -n {ranks}, or more"
    return f"start this with mpiexec -n {ranks}, or more"
