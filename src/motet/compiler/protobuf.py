"""Reads the wire format of protobuf, for messages of which few fields are needed, or that are too large to parse.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

Content = bytes | mmap.mmap

VARINT, FIXED_64, DELIMITED, FIXED_32 = 0, 1, 2, 5  # wire types


def delimited_fields(content: Content, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The length-delimited fields of the message from `start` to `end`: number, start of the field, start and end of
    its content. Raises IndexError if it is not a message."""
    for number, wire, begin, position, finish in fields(content, start, end):
        if wire == DELIMITED:
            yield number, begin, position, finish


def fields(content: Content, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of the message from `start` to `end`: number, wire type, start of the field, start and end of its
    content. Raises IndexError if it is not a message, after the fields before the fault."""
    position = start
    while position < end:
        begin = position
        tag, position = varint(content, position)
        wire = tag & 7
        finish = position
        if wire == VARINT:
            _, finish = varint(content, position)
        elif wire == FIXED_64:
            finish += 8
        elif wire == FIXED_32:
            finish += 4
        elif wire == DELIMITED:
            size, position = varint(content, position)
            finish = position + size
        else:  # groups do not occur in onnx.proto
            raise IndexError("a group")
        if finish > end:
            raise IndexError("a field that ends after its message")
        yield tag >> 3, wire, begin, position, finish
        position = finish


def varint(content: Content, position: int) -> tuple[int, int]:
    """The number at `position`, and its end. Raises IndexError if there is none."""
    value = shift = 0
    while shift < 70:
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise IndexError("a number of more than ten bytes")


def delimited_tag(number: int, length: int) -> bytes:
    """What precedes the content of a length-delimited field."""
    encoded = bytearray([number << 3 | DELIMITED])  # no number here is longer than four bits
    while length > 127:
        encoded.append(length & 127 | 128)
        length >>= 7
    return bytes([*encoded, length])
