"""Decoding what Motet wrote into types: decoders of msgspec, one for each type, made by one thread at a time.

Where two threads make what msgspec notes of a type, one may read it before it is whole, which ends the process.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
_making = threading.Lock()


def decode_json(data: bytes | bytearray | str | memoryview, kind: type[_T]) -> _T:
    """Raises msgspec.DecodeError, of which msgspec.ValidationError is one."""
    with _making:
        decoder = _json_decoder(kind)
    return decoder.decode(data)


def decode_msgpack(data: bytes | memoryview, kind: type[_T]) -> _T:
    """Raises msgspec.DecodeError, of which msgspec.ValidationError is one."""
    with _making:
        decoder = _msgpack_decoder(kind)
    return decoder.decode(data)


def convert(content: object, kind: Any) -> Any:
    """`content`, which was decoded without a type, as `kind`, a type or a union. Raises msgspec.ValidationError."""
    with _making:
        _json_decoder(kind)
    return msgspec.convert(content, kind)


@functools.cache
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@functools.cache
def _msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)
