"""OpenCL memory and queues of the caller, for calls of functions on them."""

from motet.runtime.drivers.opencl.api import Counts, load_api
from motet.runtime.drivers.opencl.handles import CallerEvent as Event
from motet.runtime.drivers.opencl.handles import OpenClBuffer as Buffer
from motet.runtime.drivers.opencl.handles import OpenClQueue as Queue
from motet.runtime.drivers.opencl.handles import empty
from motet.runtime.drivers.opencl.library import import_pyopencl

__all__ = ["Buffer", "Event", "Queue", "counts", "empty", "import_pyopencl"]


def counts() -> Counts:
    """How often Motet has allocated OpenCL memory, and copied or filled it, in this process until now."""
    now = load_api().counts
    return Counts(now.allocations, now.copies)
