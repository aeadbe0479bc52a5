"""The driver for NVIDIA GPUs.

    cuda:0                  the first GPU; GPU-…, as shown by nvidia-smi -L, names one by its UUID
    cuda:0?queues=2         with two queues
    cuda:0?check=1          waits for every command before the next, so that a fault names its kernel
    cuda:0?overlap=0        starts no kernel while the previous one still runs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.artifact.uri import number_options
from motet.errors import DeviceError
from motet.runtime.device import DeviceInfo
from motet.runtime.drivers.cuda.api import CudaApi, CudaError, Gpu, load_api
from motet.runtime.drivers.cuda.device import CudaDevice
from motet.runtime.drivers.cuda.external import DLPACK_CUDA
from motet.runtime.drivers.cuda.program import FAMILY
from motet.runtime.foreign import StreamCalls

api = 1
dlpack_types = (DLPACK_CUDA,)

QUEUES = 4
_OPTIONS = {"queues": (QUEUES, 1), "check": (0, 0), "overlap": (1, 0)}
_OLDEST = 7, 0  # compute capability; memory pools need it

conformance_exempt = {
    "abort-endless": "nothing can stop a kernel on a GPU but the end of the process",
    "load-objects-together": "its kernels are whole when they are compiled: nothing is linked on the device",
}
# Checks after which the process cannot use the GPU any more, as they cause a fault.
conformance_in_processes = (
    "fault-illegal-instruction", "fault-out-of-bounds", "fault-then-usable", "fault-reaches-dependants",
)


def probe() -> Sequence[DeviceInfo]:
    """Initialise the driver and query its GPUs; creates no context."""
    try:
        cuda = load_api()
        count = cuda.count()
        if count:
            return [_described(cuda.gpu(ordinal), ordinal) for ordinal in range(count)]
        reason = "the NVIDIA driver finds no GPU; is it hidden by CUDA_VISIBLE_DEVICES?"
    except DeviceError as error:
        reason = str(error)
    except CudaError as error:
        reason = f"the NVIDIA driver does not work: {error}"
    return [DeviceInfo("NVIDIA GPU", f"{FAMILY}:0", available=False, reason=reason, family=FAMILY)]


def open(info: DeviceInfo) -> CudaDevice:
    """Raises DeviceError for unknown options, and if the GPU cannot be opened."""
    return open_with(load_api(), info)


def open_with(cuda: CudaApi, info: DeviceInfo) -> CudaDevice:
    """Like `open`, with a loaded driver."""
    options = number_options(info.uri, _OPTIONS)
    try:
        gpu = cuda.gpu(info.ordinal)
        if info.uuid and gpu.uuid != info.uuid:
            raise DeviceError(f"device {info.uri}: GPU {info.ordinal} is {gpu.uuid}; expected {info.uuid}")
        if gpu.capability < _OLDEST:
            raise DeviceError(f"device {info.uri}: compute capability {_dotted(gpu)}; expected 7.0 or newer")
        return CudaDevice(
            cuda, info, gpu, info.ordinal, int(options["queues"]), bool(options["check"]),
            bool(options["overlap"]),
        )
    except CudaError as error:
        raise DeviceError(f"device {info.uri}: cannot be opened: {error}") from error


def stream_calls() -> StreamCalls:
    """Calls with tensors of PyTorch, CuPy and others on a GPU."""
    from motet.runtime.drivers.cuda import calls  # needed by such calls only

    return calls


def conformance_kernels() -> tuple[str, Mapping[str, Mapping[str, bytes]]]:
    """The target of the conformance kernels, and the files of each unit."""
    from motet.runtime.drivers.cuda.conformance_kernels import TARGET, cuda_units

    return TARGET, cuda_units()


def _described(gpu: Gpu, ordinal: int) -> DeviceInfo:
    level = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
    return DeviceInfo(
        gpu.name, f"{FAMILY}:{ordinal}", cores=gpu.multiprocessors, level=level, memory=gpu.memory, family=FAMILY,
        ordinal=ordinal, uuid=gpu.uuid,
    )


def _dotted(gpu: Gpu) -> str:
    return ".".join(map(str, gpu.capability))
