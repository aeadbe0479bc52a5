"""Calls on a caller's queue: `session(a, b, out=c, stream=queue)`, `session.enqueue(…, wait=[event])`.

A function runs in the context of the queue, in which its programs are built and its constants are placed once. The
queue is `stream=`, else that of the first pyopencl array. See `motet.runtime.foreign.StreamCalls`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import motet.runtime.tensors as tensors
from motet.errors import CallError
from motet.runtime.drivers.opencl.adopting import Adopted, adopt, is_of_library, is_opencl
from motet.runtime.drivers.opencl.api import DEVICE_HOST_UNIFIED, DEVICE_NAME, Handle
from motet.runtime.drivers.opencl.context import MemoryPart
from motet.runtime.drivers.opencl.device import OpenClDevice
from motet.runtime.drivers.opencl.external import ExternalWork
from motet.runtime.drivers.opencl.handles import OpenClBuffer, empty, handle_of
from motet.runtime.drivers.opencl.objects import Objects, QueueFacts, load_objects
from motet.runtime.drivers.opencl.repeated import RepeatedCall, wait_list
from motet.runtime.drivers.opencl.staged import StagedCall
from motet.runtime.foreign import Again, Callee, Enqueued
from motet.runtime.instantiate import Shape
from motet.runtime.overlaps import check_overlaps
from motet.runtime.plan_executor import Alone, PlacedInstance

enqueues_state = True


def call(callee: Callee, arguments: Sequence[Any], out: Sequence[Any], stream: Any) -> tuple[Any, None]:
    """A call that has been enqueued when it returns; it has ended if a result is in the host's memory."""
    made = _QueueCall(callee, arguments, out, stream)
    enqueued = made.run(())
    if made.uses_host:
        enqueued.event.wait()
    return enqueued.result, None


def enqueue(
    callee: Callee, arguments: Sequence[Any], out: Sequence[Any], stream: Any, wait: Sequence[Any]
) -> tuple[Enqueued, Again | None]:
    """See `motet.runtime.foreign.StreamCalls`."""
    made = _QueueCall(callee, arguments, out, stream)
    return made.run(wait), made.again


def current_stream(arguments: Sequence[Any]) -> Any:
    """The queue of the first pyopencl array; None if there is none."""
    return next((queue for value in arguments if (queue := getattr(value, "queue", None)) is not None), None)


def resident(callee: Callee, arguments: Sequence[Any]) -> Sequence[Any]:
    """Raises CallError: measured calls run in the session's own context."""
    raise CallError(f"{callee.signature.name}: measured calls take no memory of other OpenCL contexts; expected arrays "
                    "of the host, or tensors of session.put")  # fmt: skip


def stream_handle(stream: Any) -> Any | None:
    """The handle of a queue: pyopencl's, or Motet's."""
    return handle_of(stream) if hasattr(stream, "int_ptr") else None


class _QueueCall:
    def __init__(self, callee: Callee, arguments: Sequence[Any], out: Sequence[Any], stream: Any) -> None:
        self.callee = callee
        self.signature = callee.signature
        self.arguments = arguments
        self.out = out
        self.objects: Objects = load_objects()
        name = self.signature.name
        given = stream if stream is not None else current_stream([*arguments, *out])
        if given is None:
            raise CallError(f"{name}: arguments in OpenCL memory without a queue; expected stream=, a command queue of "
                            "their context")  # fmt: skip
        handle = handle_of(given)
        if handle is None:
            raise CallError(f"{name}: stream: {type(given).__name__} given; expected a command queue: pyopencl's, or a "
                            "handle")  # fmt: skip
        self.given = given
        self.queue: QueueFacts = self.objects.queue(handle, f"{name}: stream")
        self.destinations = {spec.destination for spec in self.signature.results if spec.destination is not None}
        self.uses_host = False
        self.again: Again | None = None

    def run(self, wait: Sequence[Any]) -> Enqueued:
        signature = self.signature
        inputs = [
            adopt(self.objects, self.queue, value, spec, where, writable=index in self.destinations)
            if spec.state is None else Adopted(value, None, tuple(value.shape))
            for index, (value, spec, where) in enumerate(
                zip(self.arguments, signature.inputs, self.callee.where, strict=True)
            )
        ]
        instance, _ = self.callee.find(inputs)
        for argument, shape, where in zip(inputs, instance.inputs, self.callee.where, strict=True):
            if argument.shape != shape.extents:
                tensors.check_shape(argument, shape.extents, where)  # pyright: ignore[reportArgumentType]
        work = self._work(instance)  # instance.direct has the function now, unless it is None
        results, returned = self._results(inputs, instance.results)
        destinations = [spec.destination for spec in signature.results]
        check_overlaps(signature.name, destinations, results, inputs, results, _overlap)  # also results that are new
        waits = self._waits(wait, [*inputs, *results])
        if work is None:
            made, ended = StagedCall(self.objects, self.queue, self.callee, waits).run(inputs, results)
            values = [new if spec.state is not None else value
                      for new, value, spec in zip(made, returned, signature.results, strict=True)]  # fmt: skip
            return Enqueued(values[0] if len(values) == 1 else tuple(values) if values else None, ended)
        self._warn(instance.direct[0], results)
        self.uses_host = any(each.array is not None for each in (*inputs, *results))
        places: list[MemoryPart | np.ndarray[Any, Any]] = []
        for each in (*inputs, *results):
            places.append(each.place if each.place is not None else _array_of(each))
        for number, spec in enumerate(signature.results):  # a destination has one place
            if spec.destination is not None:
                places[len(inputs) + number] = places[spec.destination]
        externals = [places[number] for number in instance.direct[0].alone.places]
        event = work(self.queue.handle, externals, waits, (self.arguments, returned))
        value = returned[0] if len(returned) == 1 else tuple(returned) if returned else None
        given = (*self.arguments, *self.out)
        if all(type(each) is OpenClBuffer for each in (*self.arguments, *returned)) and not self.uses_host:
            held = (self.arguments, returned)
            order = () if self.destinations or None in self.out else instance.direct[0].alone.places
            self.again = RepeatedCall(self.objects, given, self.given, self.queue, work, externals, held, value, order)
        return Enqueued(value, event)

    # -- the function in the queue's context -------------------------------------------------------

    def _work(self, instance: Any) -> ExternalWork | None:
        """None if the queue's device does not compute the function as a whole."""
        name = self.signature.name
        if not isinstance(instance, PlacedInstance):
            raise CallError(f"{name}: a command queue given, but the session runs on the host; load it with "
                            'devices="opencl:0"')  # fmt: skip
        devices = [loaded.device for loaded in instance.devices]
        if not any(isinstance(each, OpenClDevice) and each.handle == self.queue.device for each in devices):
            theirs = self.objects.api.device_text(self.queue.device, DEVICE_NAME)
            here = ", ".join(dict.fromkeys(f"{each.info.uri} ({each.info.name})" for each in devices))
            raise CallError(f"{name}: the queue is of {theirs}; the session runs on {here}")
        has_state = any(spec.state is not None for spec in (*self.signature.inputs, *self.signature.results))
        alone = None if has_state else instance.direct[0].alone if instance.direct else instance.alone()
        if alone is None:
            return None
        device = alone.loaded.device
        if not isinstance(device, OpenClDevice) or device.handle != self.queue.device:
            return None
        if not instance.direct:
            instance.direct.append(InContexts(alone))
        return instance.direct[0].in_context(device, self.queue.context)

    def _waits(self, wait: Sequence[Any], arguments: Sequence[Adopted]) -> list[Handle]:
        """The events of the call's wait list, and those of its arguments."""
        found = wait_list(self.objects, self.queue, wait, self.signature.name)
        for argument in arguments:
            for handle in argument.waits:
                self.objects.check_event(handle, self.queue, f"{self.signature.name}: an event of an array")
            found += argument.waits
        return found

    # -- results ----------------------------------------------------------------------------------

    def _results(self, inputs: Sequence[Adopted], shapes: Sequence[Shape]) -> tuple[list[Adopted], list[Any]]:
        results: list[Adopted] = []
        returned: list[Any] = []
        for index, (spec, shape, given) in enumerate(zip(self.signature.results, shapes, self.out, strict=True)):
            where = f"{self.signature.name}: result {index}" + (f' ("{spec.name}")' if spec.name else "")
            if spec.state is not None:
                value, found = None, Adopted(None, None, shape.extents)
            elif spec.destination is not None:
                value, found = self.arguments[spec.destination], inputs[spec.destination]
                if given is not None and given is not value:
                    raise CallError(f"{where}: is written to argument {spec.destination}; out must be that or None")
            else:
                value = given if given is not None else self._made(shape, spec.memory)
                found = adopt(self.objects, self.queue, value, spec, where, writable=True)
                if found.shape != shape.extents:
                    tensors.check_shape(found, shape.extents, where)  # pyright: ignore[reportArgumentType]
            results.append(found)
            returned.append(value)
        return results, returned

    def _made(self, shape: Shape, stated: str) -> Any:
        """Memory for a result: as the program states, else like the first argument in OpenCL memory, else of the
        host."""
        if stated not in ("", "global"):
            return empty(self.queue.handle, stated, shape.extents, shape.dtype)
        like = next((value for value in self.arguments if is_opencl(value)), None)
        if like is None or (type(like) is OpenClBuffer and like.kind == "host"):
            return np.empty(shape.extents, shape.dtype)
        if is_of_library(like) and hasattr(like, "base_data"):
            array: Any = type(like)
            return array(self.given, shape.extents, shape.dtype)
        kind = like.kind if type(like) is OpenClBuffer else "svm" if hasattr(like, "svm_ptr") else "cl_mem"
        return empty(self.queue.handle, kind, shape.extents, shape.dtype)

    def _warn(self, function: InContexts, results: Sequence[Adopted]) -> None:
        """Warn, once for each function, of a result that the device writes over the bus."""
        if function.has_warned or all(each.place is None or each.place.kind != "usm_host" for each in results):
            return
        if not self.objects.api.device_number(self.queue.device, DEVICE_HOST_UNIFIED):
            function.has_warned = True
            warnings.warn(
                f"{self.signature.name}: a result in usm_host memory, which the device writes over the bus; usm_device "
                "memory is faster", RuntimeWarning, stacklevel=7,
            )


class InContexts:
    """A function that one device computes, in the contexts of callers."""

    def __init__(self, alone: Alone) -> None:
        self.alone = alone
        self.has_warned = False
        self._works: dict[Handle, ExternalWork] = {}

    def in_context(self, device: OpenClDevice, context: Handle) -> ExternalWork:
        """The function in a context, made once. Raises DeviceError, OutOfMemoryError."""
        found = self._works.get(context)
        if found is None or not device.keeps(found.context):
            found = self._works[context] = device.external(context, self.alone)
        return found


def _array_of(argument: Adopted) -> np.ndarray[Any, Any]:
    assert argument.array is not None
    return argument.array


def _overlap(a: Adopted, b: Adopted) -> bool:
    if a.array is not None and b.array is not None:
        return tensors.overlap(a.array, b.array)
    return a.place is not None and b.place is not None and a.place.overlaps(b.place)
