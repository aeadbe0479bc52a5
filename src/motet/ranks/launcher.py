"""Finds out whether this process is one of several that an MPI launcher started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from motet.errors import DeviceError
from motet.runtime.launching import INSTALL

if TYPE_CHECKING:
    from motet.ranks.mpi import MpiTransport

# What launchers set: mpich's and Intel's (PMI), Open MPI's, Slurm's with PMIx.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")


def launched() -> int:
    """The number of ranks that a launcher has started; 1 for a process started without one."""
    for name in _SIZES:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return 1


def transport_of_launcher() -> MpiTransport:
    """The transport of this process among those of its launcher. Raises DeviceError if mpi4py is missing, and if its
    MPI is not the one of the launcher."""
    try:
        from motet.ranks.mpi import MpiTransport

        transport = MpiTransport()
    except (ImportError, RuntimeError) as error:  # mpi4py without an MPI library raises RuntimeError
        raise DeviceError(f"this is one of {launched()} processes of an MPI launcher, but mpi4py cannot be used "
                          f"({error}); {INSTALL}") from None
    if transport.size != launched():
        raise DeviceError(f"the launcher has started {launched()} processes, but mpi4py's MPI sees {transport.size}: "
                          f"they are of different MPIs; use the mpiexec next to python, or {INSTALL} there")
    return transport
