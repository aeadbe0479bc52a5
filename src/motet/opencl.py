"""OpenCL memory and queues of the caller, for calls of functions on them."""

from motet.runtime.drivers.opencl.handles import CallerEvent as Event
from motet.runtime.drivers.opencl.handles import OpenClBuffer as Buffer
from motet.runtime.drivers.opencl.handles import OpenClQueue as Queue
from motet.runtime.drivers.opencl.handles import empty

__all__ = ["Buffer", "Event", "Queue", "empty"]
