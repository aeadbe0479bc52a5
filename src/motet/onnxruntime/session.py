"""InferenceSession, with the interface of onnxruntime's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.argument_kinds import check_kind, path_of, refuse_kind
from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import show
from motet.artifact.schema import TensorSpec
from motet.errors import MotetError, OptionError
from motet.onnxruntime.binding import IOBinding
from motet.onnxruntime.model_meta import ModelMetadata, read_metadata
from motet.onnxruntime.options import profile_prefix, threads_of
from motet.onnxruntime.profiling import SessionProfile
from motet.onnxruntime.provider.provider import PREFIX, ProviderSettings
from motet.onnxruntime.value import array_of, type_name
from motet.runtime.device_array import DeviceArray
from motet.runtime.named import arguments_by_name, names_of, results_by_name
from motet.runtime.pointer import Pointer
from motet.runtime.session import Session, load

_OWN = "MotetExecutionProvider"
_CPU = "CPUExecutionProvider"
_AS_THEY_ARE = (np.ndarray, DeviceArray, Pointer)
Provider = str | tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, its type as onnxruntime writes it, `tensor(float)`, and its extents; a dynamic one
    is its name."""

    name: str
    type: str
    shape: list[int | str]


def get_available_providers() -> list[str]:
    """The providers that a session accepts."""
    return [_OWN, _CPU]


def get_device() -> str:
    """The kind of device of sessions."""
    return "CPU"


class InferenceSession:
    """A session of an ONNX model or an artifact, given as a path or bytes.

    A model is compiled for the host, or for the `devices` among the options of the provider, or taken from the cache.
    `motet` is the session below, with all that onnxruntime lacks. Raises OptionError, CompileError, ArtifactError.
    """

    def __init__(
        self, path_or_bytes: str | os.PathLike[str] | bytes, sess_options: Any = None,
        providers: Sequence[Provider] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        threads, prefix = threads_of(sess_options), profile_prefix(sess_options)
        settings = _settings(providers, provider_options)
        self.motet: Session = _open(path_or_bytes, settings.threads or threads, settings)
        self._source = path_or_bytes
        self._profile = None if prefix is None else SessionProfile(prefix, self.motet, _OWN)
        self._function = self.motet[self.motet.signature.name]
        self._inputs = _arguments(self._function.signature.inputs)
        self._outputs = _arguments(self._function.signature.results)
        self._dtypes = {each.name: DTYPES[spec.dtype]
                        for each, spec in zip(self._inputs, self._function.signature.inputs, strict=True)}

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in order."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in order."""
        return list(self._outputs)

    def get_providers(self) -> list[str]:
        """Motet alone: nothing falls back to another library."""
        return [_OWN]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs `output_names`, or all for None or an empty list, in this order, as numpy arrays.

        `input_feed` has an array for each input; lists and numbers of Python become arrays of the input's dtype. Raises
        CallError for wrong names, shapes and dtypes.
        """
        return self._call(output_names, input_feed, None)

    def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None], user_data: Any, run_options: Any = None,
    ) -> None:
        """Run on a thread of the session, and return at once. The thread calls `callback` with the outputs, `user_data`
        and "", or with no outputs and the text of the error. Raises CallError for wrong names."""
        if not callable(callback):
            refuse_kind("callback", callback, "a function of the outputs, the user's data and the text of an error")
        function = self._function
        names, feeds = self._taken(output_names, input_feed)

        def end(future: Future[Any]) -> None:
            try:
                results = results_by_name(function, names, future.result())
            except (MotetError, CancelledError) as error:
                callback([], user_data, str(error) or "cancelled")
                return
            callback(results, user_data, "")

        function.submit(*arguments_by_name(function, names, feeds)).add_done_callback(end)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's author wrote into it; an artifact has none of it."""
        return read_metadata(self._source)

    def end_profiling(self) -> str:
        """End the profile of `enable_profiling`, and write it; returns the name of the file, "" if there is none."""
        profile, self._profile = self._profile, None
        return "" if profile is None else profile.write()

    def get_profiling_start_time_ns(self) -> int:
        """When the profile began, in nanoseconds since 1970; 0 if there is none."""
        return 0 if self._profile is None else self._profile.start_ns

    def _call(self, names: Sequence[str] | None, feeds: Mapping[str, Any], out: tuple[Any, ...] | None) -> list[Any]:
        """The results `names` of a call that writes the memory `out`, and is part of the profile if there is one."""
        function, profile = self._function, self._profile
        names, feeds = self._taken(names, feeds)
        arguments = arguments_by_name(function, names, feeds)
        values = function(*arguments, out=out) if profile is None else profile.call(function, arguments, out)
        return results_by_name(function, names, values)

    def _taken(
        self, names: Sequence[str] | None, feeds: Mapping[str, Any]
    ) -> tuple[Sequence[str] | None, Mapping[str, Any]]:
        """The names of results, None for all, and the inputs as arrays."""
        if _is_mapping(feeds):
            feeds = {name: value if type(value) in _AS_THEY_ARE else _array(name, value, self._dtypes.get(name))
                     for name, value in feeds.items()}
        return None if isinstance(names, (list, tuple)) and not names else names, feeds

    def io_binding(self) -> IOBinding:
        """An empty binding of inputs and outputs of this session."""
        return IOBinding(self.motet, self._call)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Call with the inputs of a binding; it keeps the outputs."""
        check_kind("iobinding", iobinding, IOBinding, "session.io_binding()")
        iobinding.call()


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _array(name: str, value: Any, dtype: np.dtype[Any] | None) -> np.ndarray:
    """`value` as an array. What has no dtype of its own takes `dtype`, unless that would change its integers."""
    array = array_of(f"input {name!r}", value)
    if dtype is None or not isinstance(value, (bool, int, float, list, tuple)):
        return array
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        return array
    converted = array.astype(dtype)
    return converted if dtype.kind not in "iu" or np.array_equal(converted, array) else array


def _open(source: str | os.PathLike[str] | bytes, threads: int | None, settings: ProviderSettings) -> Session:
    """The session of an artifact, which is a zip archive, or a model."""
    import motet

    path = source if isinstance(source, bytes) else path_of(
        "path_or_bytes", source, "the path or the bytes of an ONNX model or an artifact")
    if path[:4] == b"PK\x03\x04" if isinstance(path, bytes) else path.suffix == ".motet":
        if settings.devices is not None or settings.options:
            raise OptionError("providers: options of the compiler given for an artifact, which is compiled already; "
                              "leave them out")
        return load(path, threads=threads)
    format = "onnx" if isinstance(path, bytes) else "auto"
    artifact = motet.compile(path, format=format, devices=settings.devices, options=settings.options or None)
    return load(artifact, threads=threads)


def _settings(
    providers: Sequence[Provider] | None, provider_options: Sequence[Mapping[str, Any]] | None
) -> ProviderSettings:
    """The options of Motet's own provider. Raises OptionError unless it or the host is among the providers. Others are
    skipped, as onnxruntime does with those that it lacks."""
    expected = f"a list of names, ['{_CPU}'], or of pairs of a name and options"
    if isinstance(providers, str):
        refuse_kind("providers", providers, expected)
    providers = [_CPU] if providers is None else providers
    check_kind("providers", providers, Iterable, expected)
    pairs = [(*provider, {})[:2] if isinstance(provider, (tuple, list)) and provider else (provider, {})
             for provider in providers]
    names = [name for name, _ in pairs]
    for name in names:
        check_kind("providers", name, str, expected)
    if names and not {_OWN, _CPU} & set(names):
        raise OptionError(f"providers: {', '.join(names)} given; {_OWN} or {_CPU} expected; for another device, "
                          f'("{_OWN}", {{"devices": "cuda,host"}})')
    apart = [] if provider_options is None else provider_options
    check_kind("provider_options", apart, Sequence, "a list of mappings, one for each provider")
    if apart and len(apart) != len(names):
        raise OptionError(f"provider_options: {len(apart)} given for {len(names)} providers; expected one for each")
    own: dict[str, str] = {}
    for name, options in [*pairs, *zip(names, apart, strict=False)]:
        check_kind(f"options of {name}", options, Mapping, 'names and values, {"threads": "2"}')
        own |= {f"{PREFIX}{key}": str(value) for key, value in options.items()} if name == _OWN else {}
    return ProviderSettings.of(own)


def _arguments(specs: Sequence[TensorSpec]) -> list[NodeArg]:
    return [
        NodeArg(name, type_name(DTYPES[spec.dtype]),
                [extent if isinstance(extent, int) else show(extent) for extent in spec.shape])
        for name, spec in zip(names_of(specs), specs, strict=True)
    ]
