"""`motet serve` as a process, and a client of it, for tests."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from tests.integration.conftest import environment

NAMES = {"float32": "FP32", "int32": "INT32", "float16": "FP16", "int64": "INT64", "bool": "BOOL"}


class Server:
    """A server on a free port of 127.0.0.1; ends with the block."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "motet", "serve", *map(str, arguments), "--port", "0"], env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if found is None:
            raise RuntimeError(f"{line}{self.process.communicate(timeout=60)}")
        self.port = int(found[1])

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=60)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.communicate()

    def connect(self, timeout: float = 60) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def resident(self) -> int:
        """Bytes of memory that the process uses now."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) << 10

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and body of one response."""
        connection = self.connect()
        try:
            return exchange(connection, method, path, body, headers)
        finally:
            connection.close()

    def metric(self, line: str) -> float:
        """The value of a metric, such as `motet_queue_length{model="x"}`; 0 if it is not there."""
        for each in self.ask("GET", "/metrics")[2].decode().splitlines():
            if each.startswith(line + " "):
                return float(each.rsplit(" ", 1)[1])
        return 0.0


def exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def as_json(arrays: dict[str, np.ndarray], nested: bool = False, **more: Any) -> bytes:
    inputs = [
        {"name": name, "shape": list(array.shape), "datatype": NAMES[array.dtype.name],
         "data": (array if nested else array.ravel()).tolist()}
        for name, array in arrays.items()
    ]
    return json.dumps({"inputs": inputs, **more}).encode()


def as_binary(arrays: dict[str, np.ndarray], **more: Any) -> tuple[bytes, dict[str, str]]:
    """A body and its headers."""
    inputs = [
        {"name": name, "shape": list(array.shape), "datatype": NAMES[array.dtype.name],
         "parameters": {"binary_data_size": array.nbytes}}
        for name, array in arrays.items()
    ]
    head = json.dumps({"inputs": inputs, **more}).encode()
    length = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    return head + b"".join(array.tobytes() for array in arrays.values()), length


def read_binary(headers: dict[str, str], body: bytes) -> list[np.ndarray]:
    length = int(headers["inference-header-content-length"])
    kinds = {name: kind for kind, name in NAMES.items()}
    arrays: list[np.ndarray] = []
    rest = body[length:]
    for output in json.loads(body[:length])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        arrays.append(np.frombuffer(rest[:size], kinds[output["datatype"]]).reshape(output["shape"]))
        rest = rest[size:]
    assert not rest
    return arrays
