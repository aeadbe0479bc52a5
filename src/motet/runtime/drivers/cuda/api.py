"""The calls of NVIDIA's driver that the device needs, with failures as exceptions; the only module that makes them.

Addresses and sizes are ints, times are seconds. Calls that need a context use the one that is current in the thread.
Functions that every submission calls are called in the driver's library by ctypes, since the bindings take longer than
the driver itself. Reference: CUDA Driver API, https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from motet.errors import DeviceError
from motet.runtime.drivers.common.streams import ApiError, Handle
from motet.runtime.drivers.cuda.cublaslt import Functions, installed
from motet.runtime.drivers.cuda.quick_calls import CudaLaunch, EdgeData, LaunchAttribute, Quick, error_name, uuid_text

OUT_OF_MEMORY = 2
INVALID_HANDLE = 400
WRONG_CONTEXT = (201, INVALID_HANDLE)  # codes of calls without a current context, or with that of another GPU
_NOT_READY = 600
_PEER_ALREADY = 704
_MEMORY_TYPE, _DEVICE_ORDINAL = 2, 9  # attributes of pointers
_HOST_MEMORY = 1
_RELAXED = 2  # capture mode
_NON_BLOCKING = 1  # stream flag: not synchronised with the legacy default stream
_NO_TIMING = 2  # event flag
_PORTABLE = 1  # flag of host memory: pinned for every context
_SERIALIZATION = 6  # launch attribute: previous work on the stream need not have ended; the kernel itself waits for it
_PROGRAMMATIC = 1  # port and kind of such a graph edge
_LOG = 8192  # bytes for messages of the PTX compiler
_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


class CudaError(ApiError):
    """A failed call of the driver."""

    out_of_memory = frozenset({OUT_OF_MEMORY})
    invalid_handle = frozenset({INVALID_HANDLE})


@dataclass(frozen=True)
class Gpu:
    """The driver's properties of a GPU. `capability` is (9, 0) for an H100; `shared` is the maximum bytes of shared
    memory per block."""

    name: str
    uuid: str
    capability: tuple[int, int]
    memory: int
    multiprocessors: int
    shared: int


class CudaApi:
    """The driver, through NVIDIA's `cuda-bindings`, and directly through its library for frequent calls."""

    def __init__(self, driver: Any, library: ctypes.CDLL) -> None:
        self._driver = driver
        self.quick = Quick(library)
        self._early = ctypes.pointer(LaunchAttribute(_SERIALIZATION, b"", 1))
        self.try_executable_launch: Callable[[Handle, Handle], int] = self.quick.executable_launch  # the driver's code
        attributes = driver.CUfunction_attribute
        self._dynamic_shared = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

    # -- GPUs and contexts -----------------------------------------------------------------------

    def start(self) -> None:
        self._call("cuInit", 0)

    def count(self) -> int:
        return int(self._call("cuDeviceGetCount"))

    def gpu(self, ordinal: int) -> Gpu:
        device = self._call("cuDeviceGet", ordinal)
        kinds = self._driver.CUdevice_attribute

        def attribute(name: str) -> int:
            return int(self._call("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

        name = bytes(self._call("cuDeviceGetName", 128, device)).split(b"\0")[0].decode(errors="replace")
        capability = (attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR"))
        return Gpu(
            name, uuid_text(bytes(self._call("cuDeviceGetUuid", device).bytes)), capability,
            int(self._call("cuDeviceTotalMem", device)), attribute("MULTIPROCESSOR_COUNT"),
            attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        )

    def retain(self, ordinal: int) -> Handle:
        """The primary context of a GPU, which all libraries of the process share."""
        return int(self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", ordinal)))

    def release(self, ordinal: int) -> None:
        self._call("cuDevicePrimaryCtxRelease", self._call("cuDeviceGet", ordinal))

    def current_context(self) -> Handle:
        """The thread's current context; 0 if there is none, or no working driver, as in the child of a fork."""
        context = ctypes.c_void_p()
        return 0 if self.quick.current(ctypes.byref(context)) else context.value or 0

    def push(self, context: Handle) -> None:
        if code := self.quick.push(context):
            self.fail(code, "cuCtxPushCurrent")

    def pop(self) -> None:
        if code := self.quick.pop(ctypes.byref(ctypes.c_void_p())):
            self.fail(code, "cuCtxPopCurrent")

    def can_reach(self, ordinal: int, other: int) -> bool:
        """Whether a GPU can access another one's memory."""
        devices = self._call("cuDeviceGet", ordinal), self._call("cuDeviceGet", other)
        return bool(self._call("cuDeviceCanAccessPeer", *devices))

    def reach(self, context: Handle) -> None:
        """Allow the current context to access the memory of another one; no error if it may already."""
        result = self._driver.cuCtxEnablePeerAccess(context, 0)
        if result[0] and int(result[0]) != _PEER_ALREADY:
            _check(self._driver, "cuCtxEnablePeerAccess", result)

    # -- memory ----------------------------------------------------------------------------------

    def pool_create(self, ordinal: int) -> Handle:
        """A pool of a GPU's memory that keeps freed memory."""
        driver = self._driver
        properties = driver.CUmemPoolProps()
        properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = ordinal
        pool = self._call("cuMemPoolCreate", properties)
        threshold = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        self._call("cuMemPoolSetAttribute", pool, threshold, driver.cuuint64_t((1 << 64) - 1))
        return pool

    def pool_allocate(self, pool: Handle, size: int, stream: Handle) -> int:
        return int(self._call("cuMemAllocFromPoolAsync", size, pool, stream))

    def pool_let_in(self, pool: Handle, ordinal: int) -> None:
        """Allow another GPU to access memory from a pool."""
        driver = self._driver
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = ordinal
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._call("cuMemPoolSetAccess", pool, [access], 1)

    def pool_trim(self, pool: Handle) -> None:
        """Return unused memory to the system."""
        self._call("cuMemPoolTrimTo", pool, 0)

    def pool_destroy(self, pool: Handle) -> None:
        self._call("cuMemPoolDestroy", pool)

    def free(self, address: int, stream: Handle) -> None:
        self._call("cuMemFreeAsync", address, stream)

    def host_allocate(self, size: int) -> int:
        """Allocate pinned host memory, which GPUs access directly."""
        return int(self._call("cuMemHostAlloc", size, _PORTABLE))

    def host_free(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def is_pinned(self, address: int) -> bool:
        """Whether host memory is pinned."""
        return self._memory_of(address)[0] == _HOST_MEMORY

    def ordinal_of(self, address: int) -> int | None:
        """The GPU whose memory an address is in; None if it is in no GPU's memory."""
        kind, ordinal = self._memory_of(address)
        return ordinal if kind else None

    def _memory_of(self, address: int) -> tuple[int, int]:
        """The kind of the memory at an address, 0 if the driver does not know it, and its GPU."""
        kind, ordinal = ctypes.c_int(), ctypes.c_int()
        wanted = (ctypes.c_int * 2)(_MEMORY_TYPE, _DEVICE_ORDINAL)
        places = (ctypes.c_void_p * 2)(ctypes.addressof(kind), ctypes.addressof(ordinal))
        if code := self.quick.pointer_attributes(2, wanted, places, address):
            self.fail(code, "cuPointerGetAttributes")
        return kind.value, ordinal.value

    # -- streams and events ----------------------------------------------------------------------

    def stream_create(self) -> Handle:
        return int(self._call("cuStreamCreate", _NON_BLOCKING))

    def stream_destroy(self, stream: Handle) -> None:
        self._call("cuStreamDestroy", stream)

    def stream_context(self, stream: Handle) -> Handle:
        """The context to which a stream belongs."""
        return int(self._call("cuStreamGetCtx", stream))

    def is_capturing(self, stream: Handle) -> bool:
        """Whether work put on a stream is captured into another library's graph instead of running."""
        status = ctypes.c_int()
        code = self.quick.stream_is_capturing(stream, ctypes.byref(status))
        return not code and bool(status.value)

    @contextlib.contextmanager
    def beside_captures(self) -> Generator[None]:
        """Allow this thread to allocate memory while streams are being captured."""
        mode = ctypes.c_int(_RELAXED)
        self.quick.exchange_capture_mode(ctypes.byref(mode))
        try:
            yield
        finally:
            self.quick.exchange_capture_mode(ctypes.byref(mode))

    def stream_wait(self, stream: Handle, event: Handle) -> None:
        if code := self.quick.stream_wait(stream, event, 0):
            self.fail(code, "cuStreamWaitEvent")

    def stream_synchronize(self, stream: Handle) -> None:
        self._call("cuStreamSynchronize", stream)

    def event_create(self, timed: bool = False) -> Handle:
        return int(self._call("cuEventCreate", 0 if timed else _NO_TIMING))

    def event_destroy(self, event: Handle) -> None:
        self._call("cuEventDestroy", event)

    def event_record(self, event: Handle, stream: Handle) -> None:
        if code := self.quick.event_record(event, stream):
            self.fail(code, "cuEventRecord")

    def event_query(self, event: Handle) -> bool:
        """Whether the work before an event has ended."""
        code = self.quick.event_query(event)
        if code and code != _NOT_READY:
            self.fail(code, "cuEventQuery")
        return not code

    def event_synchronize(self, event: Handle) -> None:
        self._call("cuEventSynchronize", event)

    def elapsed(self, first: Handle, second: Handle) -> float:
        return float(self._call("cuEventElapsedTime", first, second)) * 1e-3

    # -- transfers -------------------------------------------------------------------------------

    def upload(self, target: int, source: int, size: int, stream: Handle) -> None:
        self._call("cuMemcpyHtoDAsync", target, source, size, stream)

    def download(self, target: int, source: int, size: int, stream: Handle) -> None:
        self._call("cuMemcpyDtoHAsync", target, source, size, stream)

    def copy(self, target: int, source: int, size: int, stream: Handle) -> None:
        self._call("cuMemcpyDtoDAsync", target, source, size, stream)

    def copy_peer(
        self, target: int, context: Handle, source: int, other: Handle, size: int, stream: Handle
    ) -> None:
        """Copy from memory of the context `other`, of another GPU, to memory of `context`."""
        self._call("cuMemcpyPeerAsync", target, context, source, other, size, stream)

    def fill(self, target: int, byte: int, size: int, stream: Handle) -> None:
        self._call("cuMemsetD8Async", target, byte, size, stream)

    # -- code ------------------------------------------------------------------------------------

    def module_load(self, image: bytes) -> Handle:
        """Load a cubin, or PTX as text, which the driver compiles for the GPU. Errors include the compiler's
        messages."""
        options = self._driver.CUjit_option
        log = bytearray(_LOG)
        names = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        result = self._driver.cuModuleLoadDataEx(image + b"\0", len(names), names, [log, len(log)])
        if result[0]:
            said = bytes(log).split(b"\0")[0].decode(errors="replace")
            _check(self._driver, "cuModuleLoadDataEx", result, " ".join(said.split()))
        return result[1]

    def compile_ptx(self, text: bytes) -> bytes:
        """Compile PTX to machine code of the GPU."""
        kind = self._driver.CUjitInputType.CU_JIT_INPUT_PTX
        state = self._call("cuLinkCreate", 0, [], [])
        try:
            self._call("cuLinkAddData", state, kind, text + b"\0", len(text) + 1, b"kernel", 0, [], [])
            code, address, size = self._driver.cuLinkComplete(state)
            if code:
                self.fail(int(code), "cuLinkComplete")
            return ctypes.string_at(int(address), int(size))
        finally:
            self._call("cuLinkDestroy", state)

    def version(self) -> int:
        """The driver's version: 13000 for CUDA 13.0."""
        return int(self._call("cuDriverGetVersion"))

    def module_function(self, module: Handle, name: str) -> Handle:
        return int(self._call("cuModuleGetFunction", module, name.encode()))

    def module_unload(self, module: Handle) -> None:
        self._call("cuModuleUnload", module)

    def allow_shared(self, function: Handle, size: int) -> None:
        """Allow a kernel more shared memory than the default of 48 KiB."""
        self._call("cuFuncSetAttribute", function, self._dynamic_shared, size)

    def launch(self, launch: CudaLaunch, stream: Handle, early: bool = False) -> None:
        """Launch a kernel. Not thread-safe for the same launch. An `early` launch may start while previous work on the
        stream runs, and waits for it in the kernel."""
        config = launch.config
        config.stream = stream
        config.attributes, config.count = (self._early, 1) if early else (None, 0)
        if code := self.quick.launch(ctypes.byref(config), launch.function, launch.parameters, None):
            self.fail(code, "cuLaunchKernelEx")

    def product_libraries(self) -> Iterator[Functions]:
        """The installed cuBLASLt libraries."""
        return installed()

    # -- graphs ----------------------------------------------------------------------------------

    def graph_create(self) -> Handle:
        return self._call("cuGraphCreate", 0)

    def graph_destroy(self, graph: Handle) -> None:
        self._call("cuGraphDestroy", graph)

    def kernel_node(self, launch: CudaLaunch) -> Handle:
        """The node parameters for the two calls below."""
        node = self._driver.CUDA_KERNEL_NODE_PARAMS()
        node.func = launch.function
        node.gridDimX, node.gridDimY, node.gridDimZ = launch.programs, 1, 1
        node.blockDimX, node.blockDimY, node.blockDimZ = launch.threads, 1, 1
        node.sharedMemBytes = launch.shared
        node.kernelParams = launch.parameters
        return node

    def graph_add_kernel(self, graph: Handle, after: Sequence[Handle], node: Handle, early: bool = False) -> Handle:
        """Add a kernel. If it is `early`, `after` must be kernels, for which it waits itself: it may start while they
        run."""
        add = self.quick.add_dependencies
        if not early or add is None:
            return self._call("cuGraphAddKernelNode", graph, list(after), len(after), node)
        place = self._call("cuGraphAddKernelNode", graph, [], 0, node)
        count = len(after)
        sources = (ctypes.c_void_p * count)(*map(int, after))
        targets = (ctypes.c_void_p * count)(*[int(place)] * count)
        edges = (EdgeData * count)(*[EdgeData(_PROGRAMMATIC, 0, _PROGRAMMATIC)] * count)
        if code := add(int(graph), sources, targets, edges, count):
            self.fail(code, "cuGraphAddDependencies")
        return place

    def graph_add_copy(
        self, graph: Handle, after: Sequence[Handle], target: int, source: int, size: int, context: Handle
    ) -> Handle:
        copy = self._copy_node(target, source, size)
        return self._call("cuGraphAddMemcpyNode", graph, list(after), len(after), copy, context)

    def graph_add_nothing(self, graph: Handle, after: Sequence[Handle]) -> Handle:
        return self._call("cuGraphAddEmptyNode", graph, list(after), len(after))

    def graph_add_child(self, graph: Handle, after: Sequence[Handle], child: Handle) -> Handle:
        """Add a copy of a whole graph as a node of another one."""
        return self._call("cuGraphAddChildGraphNode", graph, list(after), len(after), child)

    def captured(self, stream: Handle, put: Callable[[], None]) -> Handle:
        """Capture what `put` puts on one of our streams as a graph, without running it."""
        self._call("cuStreamBeginCapture", stream, self._driver.CUstreamCaptureMode(_RELAXED))
        try:
            put()
        except BaseException:
            _, graph = self._driver.cuStreamEndCapture(stream)
            if graph is not None and int(graph):
                self._driver.cuGraphDestroy(graph)
            raise
        return self._call("cuStreamEndCapture", stream)

    def graph_instantiate(self, graph: Handle) -> Handle:
        return int(self._call("cuGraphInstantiate", graph, 0))

    def executable_set_kernel(self, executable: Handle, place: Handle, node: Handle) -> None:
        self._call("cuGraphExecKernelNodeSetParams", executable, place, node)

    def executable_set_copy(
        self, executable: Handle, place: Handle, target: int, source: int, size: int, context: Handle
    ) -> None:
        copy = self._copy_node(target, source, size)
        self._call("cuGraphExecMemcpyNodeSetParams", executable, place, copy, context)

    def executable_set_child(self, executable: Handle, place: Handle, child: Handle) -> None:
        self._call("cuGraphExecChildGraphNodeSetParams", executable, place, child)

    def executable_launch(self, executable: Handle, stream: Handle) -> None:
        if code := self.quick.executable_launch(executable, stream):
            self.fail(code, "cuGraphLaunch")

    def executable_destroy(self, executable: Handle) -> None:
        self._call("cuGraphExecDestroy", executable)

    def _copy_node(self, target: int, source: int, size: int) -> Handle:
        device = self._driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy = self._driver.CUDA_MEMCPY3D()
        copy.srcMemoryType = copy.dstMemoryType = device
        copy.srcDevice, copy.dstDevice = source, target
        copy.WidthInBytes, copy.Height, copy.Depth = size, 1, 1
        return copy

    def fail(self, code: int, call: str) -> NoReturn:
        """Raise the exception for the error code of a call."""
        raise CudaError(code, error_name(self._driver, code), call)

    def context_synchronize(self) -> None:
        """Block until all work in the current context has ended, including that of other libraries."""
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: Any) -> Any:
        result = getattr(self._driver, name)(*arguments)
        if result[0]:
            _check(self._driver, name, result)
        return result[1] if len(result) > 1 else None


def load_api() -> CudaApi:
    """Load and initialise the driver of this machine. Raises DeviceError that says what is missing."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise DeviceError(f"no NVIDIA driver ({_LIBRARY})") from None
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise DeviceError("cuda-bindings is not installed; pip install 'motet[cuda]'") from None
    try:
        api = CudaApi(driver, library)
        api.start()
    except AttributeError as error:
        raise DeviceError(f"the NVIDIA driver is too old: {error}; expected one for CUDA 12") from error
    except CudaError as error:
        raise DeviceError(f"the NVIDIA driver does not start: {error}") from error
    return api


def _check(driver: Any, call: str, result: Sequence[Any], log: str = "") -> None:
    """Raise the exception for a failed call."""
    code = int(result[0])
    raise CudaError(code, error_name(driver, code), call, log)
