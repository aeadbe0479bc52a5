"""Microkernels of users: read from files, compiled, and compared with their meaning before they are used."""

from motet.lab.microkernels.acceptance import accepted
from motet.lab.microkernels.definition import MicrokernelFile, read_microkernel

__all__ = ["MicrokernelFile", "accepted", "read_microkernel"]
