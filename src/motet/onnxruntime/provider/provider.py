"""The execution provider: what onnxruntime asks of a library of providers and of a session's provider."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from motet.errors import CallError, MotetError, OptionError
from motet.onnxruntime.provider.attributes import NodeAttributes
from motet.onnxruntime.provider.calls import PartCall
from motet.onnxruntime.provider.contexts import NAME, OPERATOR, ContextSettings, is_own, read_context, write_context
from motet.onnxruntime.provider.entries import EntryTable, addresses, store
from motet.onnxruntime.provider.graphs import GraphReader
from motet.onnxruntime.provider.interface import CPU, FAILURE, INVALID, InterfaceError, OnnxruntimeApi
from motet.onnxruntime.provider.programs import Programs
from motet.version import VERSION

_log = logging.getLogger("motet")
_NAME = ctypes.c_char_p(NAME.encode())
_VENDOR = ctypes.c_char_p(b"Motet")
_RELEASE = ctypes.c_char_p(VERSION.encode())
PREFIX = f"ep.{NAME.lower()}."
_SMALLEST = 2
OPTIONS = {
    "devices": "a device expression, such as host or cuda,host; default: the host",
    "threads": "the number of threads of the host; default: all",
    "smallest-part": f"the number of nodes of the smallest part of a model that Motet takes; default: {_SMALLEST}",
    "option.NAME": "an option of motet compile, such as option.precision=bf16",
}


@dataclass(frozen=True)
class ProviderSettings:
    """The options of a session's provider."""

    threads: int | None
    devices: str | None
    smallest: int
    options: dict[str, str]
    context: ContextSettings

    @staticmethod
    def of(entries: dict[str, str]) -> ProviderSettings:
        """The settings in a session's configuration. Raises OptionError."""
        own = {key.removeprefix(PREFIX): value for key, value in entries.items() if key.startswith(PREFIX)}
        options = {key.removeprefix("option."): own.pop(key) for key in list(own) if key.startswith("option.")}
        if unknown := sorted(own.keys() - OPTIONS.keys()):
            raise OptionError(f"provider option {unknown[0]}: no such option; expected one of {', '.join(OPTIONS)}")
        return ProviderSettings(
            threads=_number("threads", own["threads"]) if "threads" in own else None, devices=own.get("devices"),
            smallest=_number("smallest-part", own.get("smallest-part", str(_SMALLEST))), options=options,
            context=ContextSettings.of(entries),
        )


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise OptionError(f"provider option {name}: {text!r} given; expected a number of at least 1")
    return int(text)


@dataclass
class ProviderFactory:
    """The provider of one registered library: it creates a provider for each session."""

    nothing: int  # native code that returns 0
    _api: OnnxruntimeApi | None = None
    _table: EntryTable | None = None
    _sessions: dict[int, SessionProvider] = field(default_factory=dict[int, "SessionProvider"])

    def create(self, name: int, base: int, logger: int, factories: int, most: int, count: int) -> int:
        """CreateEpFactories: stores the address of this factory; offers none to an onnxruntime that is too old."""
        store(count, 0)
        try:
            self._api = OnnxruntimeApi(base)
        except InterfaceError:
            return 0
        self._table = EntryTable({
            1: (1, lambda this: _address(_NAME)), 2: (1, lambda this: _address(_VENDOR)),
            3: (6, self._guard(self._devices)), 4: (7, self._guard(self._open)), 5: (2, self._release),
            6: (1, lambda this: 0), 7: (1, lambda this: _address(_RELEASE)),
            9: (4, self._guard(lambda this, memory, options, out: store(out, 0))),
            10: (2, lambda this, allocator: 0), 11: (2, self._guard(lambda this, out: store(out, 0))),
            12: (1, lambda this: 0),
        })  # fmt: skip
        store(factories, self._table.address)
        store(count, 1)
        return 0

    def retire(self) -> None:
        """Let onnxruntime release what it holds without Python, which ends."""
        for table in (self._table, *(table for session in self._sessions.values() for table in session.tables)):
            if table is not None:
                table.retire(self.nothing)

    def _devices(self, this: int, devices: int, count: int, found: int, most: int, number: int) -> None:
        """GetSupportedDevices: the host."""
        api = self._known()
        hosts = [each for each in addresses(devices, count)
                 if (api.call("HardwareDevice_Type", each) or 0) & 0xFFFFFFFF == CPU][:most]
        for index, device in enumerate(hosts):
            store(found, api.pointer("CreateEpDevice", this, device, None, None), index)
        store(number, len(hosts))

    def _open(
        self, this: int, devices: int, metadata: int, count: int, options: int, logger: int, provider: int
    ) -> None:
        """CreateEp: a provider for a session with these options."""
        api = self._known()
        pairs = api.pointer("GetSessionOptionsConfigEntries", options)
        try:
            settings = ProviderSettings.of(api.entries(pairs))
        finally:
            api.call("ReleaseKeyValuePairs", pairs)
        session = SessionProvider(api, settings)
        self._sessions[session.table.address] = session
        store(provider, session.table.address)

    def _release(self, this: int, provider: int) -> int:
        self._sessions.pop(provider, None)
        return 0

    def _known(self) -> OnnxruntimeApi:
        assert self._api is not None
        return self._api

    def _guard(self, function: Callable[..., Any]) -> Callable[..., int]:
        return guarded(self._known(), function)


class SessionProvider:
    """The provider of one session: takes parts of its model, compiles and runs them."""

    def __init__(self, api: OnnxruntimeApi, settings: ProviderSettings) -> None:
        self._api = api
        self._settings = settings
        self._reader = GraphReader(api)
        self._programs = Programs(api, settings.devices, settings.options, settings.smallest)
        self._parts: dict[int, tuple[EntryTable, PartCall]] = {}
        self.table = EntryTable({
            1: (1, lambda this: _address(_NAME)), 2: (3, guarded(api, self._take)),
            3: (6, guarded(api, self._compile)), 4: (3, self._release),
        })  # fmt: skip

    @property
    def tables(self) -> list[EntryTable]:
        """All structs that onnxruntime holds of this session."""
        return [self.table, *(table for table, _ in self._parts.values())]

    def _take(self, this: int, graph: int, support: int) -> None:
        """GetCapability: names the parts of a model that this provider runs. Bodies of other providers' nodes are left
        to those."""
        api = self._api
        if api.pointer("Graph_GetParentNode", graph):
            return
        nodes = self._reader.nodes(graph)
        own = [node for node in nodes if self._is_context(node)]
        parts = [[node] for node in own] if own else self._programs.parts(graph)
        fusion = (ctypes.c_uint64 * 4)(23, 0, 0, 0)  # OrtNodeFusionOptions
        ctypes.memmove(ctypes.addressof(fusion) + 4, b"\1", 1)  # constants are in the artifact
        for part in parts:
            array = (ctypes.c_void_p * len(part))(*part)
            api.call("EpGraphSupportInfo_AddNodesToFuse", support, array, len(part), fusion)
        _log.info("onnxruntime: %d of %d nodes in %d parts", sum(map(len, parts)), len(nodes), len(parts))

    def _compile(self, this: int, graphs: int, fused: int, count: int, infos: int, contexts: int) -> None:
        """Compile: makes the functions of each part and, for a compiled model, its node."""
        for index, (graph, node) in enumerate(zip(addresses(graphs, count), addresses(fused, count), strict=True)):
            inputs, outputs = self._reader.inputs(node), self._reader.outputs(node)
            [first, *_] = self._reader.nodes(graph)
            is_context = self._is_context(first)
            artifact = read_context(self._api, graph, first) if is_context else self._programs.compile(graph, inputs)
            if self._settings.context.is_written and not is_context:
                made = write_context(
                    self._api, self._settings.context, self._api.text("Graph_GetModelPath", graph),
                    self._api.text("Node_GetName", node), (inputs, outputs), artifact,
                )
                store(contexts, made, index)
            call = PartCall(self._api, artifact, self._settings.threads)
            table = self._functions(call)
            self._parts[table.address] = (table, call)
            store(infos, table.address, index)

    def _functions(self, call: PartCall) -> EntryTable:
        """The functions of a part: create its state, which is none, compute, and release the state."""
        return EntryTable({
            1: (3, guarded(self._api, lambda this, context, state: store(state, this))),
            2: (3, guarded(self._api, lambda this, state, context: call(context))), 3: (2, lambda this, state: 0),
        })  # fmt: skip

    def _release(self, this: int, infos: int, count: int) -> int:
        for address in addresses(infos, count):
            _, call = self._parts.pop(address)
            call.close()
        return 0

    def _is_context(self, node: int) -> bool:
        return self._reader.operator(node) == OPERATOR and is_own(NodeAttributes(self._api).plain(node))


def guarded(api: OnnxruntimeApi, function: Callable[..., Any]) -> Callable[..., int]:
    """A function whose errors become a status."""

    def run(*arguments: int) -> int:
        try:
            function(*arguments)
            return 0
        except CallError as error:
            return api.failure(str(error), INVALID)
        except MotetError as error:
            return api.failure(str(error), FAILURE)
        except BaseException as error:  # an error must not cross native code
            return api.failure(f"{type(error).__name__}: {error}", FAILURE)

    return run


def _address(text: ctypes.c_char_p) -> int:
    return ctypes.cast(text, ctypes.c_void_p).value or 0
