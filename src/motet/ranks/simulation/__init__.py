"""Simulated runs of plans over meshes of up to thousands of devices, with modelled links."""

from motet.ranks.simulation.network import Network
from motet.ranks.simulation.run import SimulatedRun, lower_bound, simulate

__all__ = ["Network", "SimulatedRun", "lower_bound", "simulate"]
