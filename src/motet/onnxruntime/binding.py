"""IOBinding, with the interface of onnxruntime's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from motet.argument_kinds import check_kind, extents_of, integer_of, refuse_kind
from motet.artifact.dtypes import DTYPES
from motet.errors import CallError, OptionError
from motet.onnxruntime.value import HOST, OrtValue
from motet.runtime.device_array import dtype_of
from motet.runtime.named import names_of
from motet.runtime.pointer import Pointer
from motet.runtime.session import Session

# A call of a session: the names of results, the inputs by name, and the memory of all results, None for new memory.
Call = Callable[[Sequence[str] | None, Mapping[str, Any], tuple[Any, ...] | None], list[Any]]


class IOBinding:
    """Memory bound to inputs and outputs by name, for repeated calls: the host's, or that of a device of the session,
    named by a type and a number: "cpu", or "cuda" and 0."""

    def __init__(self, session: Session, call: Call) -> None:
        self._session = session
        self._signature = session.signature
        self._call = call
        self._feeds: dict[str, Any] = {}
        self._wanted: dict[str, OrtValue | None] = {}  # the memory to write to, None for new memory
        self._values: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an array to an input; its content is read at each call. Raises CallError for an unknown name."""
        self._check_name(name, names_of(self._signature.inputs))
        self._feeds[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind a contiguous tensor at an address of a device to an input. Raises CallError."""
        self.bind_cpu_input(name, _pointer(device_type, device_id, element_type, shape, buffer_ptr))

    def bind_output(
        self, name: str, device_type: str = HOST, device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in the memory at an address, or in new memory of the host or of a device of the session.
        Raises CallError for an unknown name, OptionError for a device that the session lacks."""
        self._check_name(name, names_of(self._signature.results))
        uri = _uri(device_type, device_id)
        if buffer_ptr is not None:
            there = _pointer(device_type, device_id, element_type, shape, buffer_ptr)
            self._wanted[name] = OrtValue(
                there.array(name) if uri == HOST else self._session.wrap(there, self._device(uri)))
        else:
            self._wanted[name] = None if uri == HOST else self._new(name, uri)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind the memory of a value to an input."""
        check_kind("ortvalue", ortvalue, OrtValue, "an OrtValue")
        self.bind_cpu_input(name, ortvalue.tensor)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output to the memory of a value."""
        check_kind("ortvalue", ortvalue, OrtValue, "an OrtValue")
        self.bind_output(name)
        self._wanted[name] = ortvalue

    def clear_binding_inputs(self) -> None:
        self._feeds.clear()

    def clear_binding_outputs(self) -> None:
        self._wanted.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to do: a call waits for what is written to its inputs."""

    def synchronize_outputs(self) -> None:
        """Nothing to do: the outputs are written when a call returns."""

    def call(self) -> None:
        """Run the session, and keep the outputs. Raises CallError for memory of another shape or dtype than its
        output."""
        memory = [self._wanted.get(name) for name in names_of(self._signature.results)]
        out = tuple(None if each is None else each.tensor for each in memory)
        values = self._call(list(self._wanted), self._feeds, None if all(each is None for each in out) else out)
        self._values = [OrtValue(value) if home is None else home
                        for home, value in zip(self._wanted.values(), values, strict=True)]

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last call, in the order in which they were bound."""
        return list(self._values)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last call as arrays, in the order in which they were bound."""
        return [value.numpy() for value in self._values]

    def _new(self, name: str, uri: str) -> OrtValue:
        """Memory for an output on a device of the session."""
        device = self._device(uri)
        specs = self._signature.results
        spec = specs[names_of(specs).index(name)]
        shape = [extent for extent in spec.shape if isinstance(extent, int)]
        if len(shape) < len(spec.shape):
            raise OptionError(f"bind_output: {name!r} has extents that only a call knows; expected memory for it: "
                              "element_type, shape and buffer_ptr")
        return OrtValue(self._session.empty(shape, DTYPES[spec.dtype], device))

    def _device(self, uri: str) -> str:
        """The program's name of a device. Raises OptionError."""
        devices = {choice.info.uri: choice.device.name for choice in self._session.devices}
        found = next((name for there, name in devices.items() if uri in (there, f"{there}:0")), None)
        if found is None:
            raise OptionError(f"bind_output: device {uri!r}: the session has {', '.join(devices) or HOST!r}; expected "
                              "one of them")
        return found

    def _check_name(self, name: str, known: Sequence[str]) -> None:
        check_kind("name", name, str, "the name of an input or output", CallError)
        if name not in known:
            raise CallError(f"no input or output {name!r}; there are: {', '.join(known) or 'none'}")


def _pointer(device_type: str, device_id: int, element_type: Any, shape: Any, address: Any) -> Pointer:
    """The tensor at an address. Raises CallError."""
    if (number := integer_of(address)) is None:
        refuse_kind("buffer_ptr", address, "an address", CallError)
    return Pointer(number, extents_of("shape", shape), dtype_of(element_type), _uri(device_type, device_id))


def _uri(device_type: str, device_id: int) -> str:
    """Motet's name of a device. Raises OptionError."""
    check_kind("device_type", device_type, str, "the type of a device, 'cpu' or 'cuda'")
    if (number := integer_of(device_id)) is None or number < 0:
        refuse_kind("device_id", device_id, "the number of a device, such as 0")
    return HOST if device_type == HOST else f"{device_type}:{number}"
