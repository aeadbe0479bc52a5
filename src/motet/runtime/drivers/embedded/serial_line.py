"""A device on a serial line: the agent reads and writes memory and runs batches in answer to frames (`protocol.py`)."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable

import numpy as np

from motet.runtime.drivers.common.link import DeviceLink, LinkLost
from motet.runtime.drivers.embedded.image import AgentImage
from motet.runtime.drivers.embedded.protocol import ABORT, ANSWER, BOARD_TYPE, DIGEST, PAYLOAD, REQUEST, LineFrame

_ATTEMPTS = 3
_PATIENCE = 5.0  # seconds for the answer to a frame
_LOOK = 0.05
_HEAD = struct.Struct("<BQI")


class SerialTransport:
    """See `Transport`. This object closes `line`."""

    def __init__(self, line: DeviceLink, image: AgentImage, boot: float) -> None:
        self._link = line
        self._received = bytearray()
        self._identify(image, boot)

    def read(self, address: int, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            count = min(PAYLOAD, size - len(content))
            content += self._ask(LineFrame.READ, address + len(content), count)
        return bytes(content)

    def write(self, address: int, data: bytes) -> None:
        for at in range(0, len(data), PAYLOAD):
            part = data[at : at + PAYLOAD]
            self._ask(LineFrame.WRITE, address + at, len(part), part)

    def run(self, limit: float, aborted: Callable[[], bool]) -> bool:
        self._send(LineFrame.RUN, 0, 0)
        end = time.monotonic() + limit
        while (now := time.monotonic()) < end:
            if self._answered(min(end, now + _LOOK)):
                return True
            if aborted():
                return False
        return False

    def finish(self, limit: float) -> bool:
        end = time.monotonic() + limit
        while (now := time.monotonic()) < end:
            self._link.send(bytes([ABORT]), _PATIENCE)
            if self._answered(min(end, now + 4 * _LOOK)):
                return True
        return False

    def close(self) -> None:
        self._link.close()

    # -- frames ----------------------------------------------------------------------------------

    def _identify(self, image: AgentImage, boot: float) -> None:
        end = time.monotonic() + boot
        while True:
            self._send(LineFrame.IDENTIFY, 0, 0)
            answer = self._receive(min(end, time.monotonic() + 1.0))
            if answer is not None and answer[0] == LineFrame.IDENTIFY:
                break
            if time.monotonic() >= end:
                raise LinkLost(
                    f"no agent answers on the line within {boot:g} s (boot=SECONDS); flash {image.where} and start it"
                )
        if len(answer[1]) != BOARD_TYPE.itemsize:
            raise LinkLost("the agent on the line is of another version; flash this version's image")
        board = np.frombuffer(answer[1], BOARD_TYPE)[0]
        if int(board["digest"]) != DIGEST or int(board["pointer_bytes"]) != image.pointer_bytes:
            raise LinkLost(
                f"the agent on the line has version {int(board['digest']):#010x} and pointers of "
                f"{int(board['pointer_bytes'])} bytes; expected {DIGEST:#010x} and {image.pointer_bytes}: flash "
                f"{image.where}"
            )
        flashed = self.read(image.symbols["motet_board"], BOARD_TYPE.itemsize)
        ends = [int(end) for _, end in board["heap"] if end]
        if flashed != answer[1] or ends != [end for _, end in image.heap]:
            raise LinkLost(f"the agent on the line is of another machine; flash {image.where}, or name its machine")

    def _ask(self, kind: LineFrame, address: int, size: int, data: bytes = b"") -> bytes:
        for _ in range(_ATTEMPTS):
            self._send(kind, address, size, data)
            answer = self._receive(time.monotonic() + _PATIENCE)
            if answer is not None and answer[0] == kind:
                return answer[1]
        raise LinkLost(f"the agent does not answer ({kind.name.lower()} of {size} bytes at {address:#x})")

    def _answered(self, end: float) -> bool:
        answer = self._receive(end)
        return answer is not None and answer[0] == LineFrame.RUN

    def _send(self, kind: LineFrame, address: int, size: int, data: bytes = b"") -> None:
        body = _HEAD.pack(kind, address, size) + data
        self._link.send(bytes([REQUEST]) + body + struct.pack("<I", zlib.crc32(body)), _PATIENCE)

    def _receive(self, end: float) -> tuple[int, bytes] | None:
        """The next whole frame's kind and content; None at `end`. A damaged frame is dropped."""
        while True:
            begin = self._received.find(ANSWER)
            del self._received[: begin if begin >= 0 else len(self._received)]
            if len(self._received) >= 1 + _HEAD.size:
                kind, _, size = _HEAD.unpack_from(self._received, 1)
                whole = 1 + _HEAD.size + size + 4
                if size > PAYLOAD:
                    del self._received[:1]
                    continue
                if len(self._received) >= whole:
                    body = bytes(self._received[1 : whole - 4])
                    good = zlib.crc32(body) == struct.unpack_from("<I", self._received, whole - 4)[0]
                    del self._received[: whole if good else 1]
                    if good:
                        return kind, body[_HEAD.size :]
                    continue
            if not (more := self._link.receive(end)):
                return None
            self._received += more
