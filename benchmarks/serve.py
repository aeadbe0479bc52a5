"""Latency and throughput of `motet serve` compared with onnxruntime behind the same web framework.

    python -m benchmarks.serve [--artifact build/resnet18.motet] [--model build/resnet18.onnx] [--peer-python PYTHON]

Both servers run at the same time and are loaded alternately by the same client, with one and with several connections;
the best round of each counts. Also sends malformed requests to `motet serve`, and checks that results agree and that it
ends with status 0. PYTHON is an interpreter with onnxruntime, starlette, uvicorn and httptools; by default this one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

LENGTH = "Inference-Header-Content-Length"
MALFORMED = (
    (b"", 400), (b"{", 400), (b"[" * 50000, 400), (b'{"inputs":[]}', 400), (b'{"inputs":[{"name":"none","shape":[1],'
     b'"datatype":"FP32","data":[NaN]}]}', 400), (b"\xff" * 1000, 400), (b"0" * (17 << 20), 413),
)
ROUNDS = 3


@dataclass
class Server:
    """A running server of one model at `path`, and what was measured: latencies in seconds, and requests per second."""

    title: str
    process: subprocess.Popen[str]
    port: int
    path: str
    latencies: list[float] = field(default_factory=list[float])
    rates: dict[int, float] = field(default_factory=dict[int, float])

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body or None, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def measure(self, body: bytes, headers: dict[str, str], clients: int, seconds: float) -> None:
        """Requests of `clients` connections for some seconds; the best round is kept."""
        found: list[list[float]] = [[] for _ in range(clients)]
        end = time.perf_counter() + seconds
        threads = [
            threading.Thread(target=self._client, args=(body, headers, end, latencies)) for latencies in found
        ]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = sum(map(len, found)) / (time.perf_counter() - start)
        self.rates[clients] = max(rate, self.rates.get(clients, 0))
        if clients == 1 and (not self.latencies or np.median(found[0]) < np.median(self.latencies)):
            self.latencies = found[0]

    def _client(self, body: bytes, headers: dict[str, str], end: float, latencies: list[float]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while (start := time.perf_counter()) < end:
            connection.request("POST", f"{self.path}/infer", body, headers)
            response = connection.getresponse()
            content = response.read()
            if response.status != 200:
                raise RuntimeError(f"{self.title}: status {response.status}: {content[:200]!r}")
            latencies.append(time.perf_counter() - start)
        connection.close()


@contextmanager
def started(title: str, command: Sequence[str], name: str) -> Iterator[Server]:
    """Starts a server; stops it by SIGTERM."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        if found is None:
            last = process.communicate(timeout=60)[1].strip().splitlines()[-1:]
            raise RuntimeError(last[0] if last else "it ended without a word")
        server = Server(title, process, int(found[1]), f"/v2/models/{name}")
        for _ in range(100):  # the port is bound before the server listens
            try:
                server.ask("GET", server.path)
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()


def request_of(server: Server) -> tuple[bytes, dict[str, str]]:
    """A request with random inputs of the model's shapes; dynamic extents are 1."""
    random = np.random.default_rng(1)
    inputs: list[dict[str, object]] = []
    parts: list[bytes] = []
    for tensor in json.loads(server.ask("GET", server.path)[1])["inputs"]:
        shape = [max(extent, 1) for extent in tensor["shape"]]
        if tensor["datatype"] == "FP32":
            array = random.standard_normal(shape, dtype=np.float32)
        else:
            array = np.ones(shape, {"INT64": "int64", "INT32": "int32"}[tensor["datatype"]])
        parts.append(array.tobytes())
        inputs.append({"name": tensor["name"], "shape": shape, "datatype": tensor["datatype"],
                       "parameters": {"binary_data_size": array.nbytes}})
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return head + b"".join(parts), {LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}


def result(server: Server, body: bytes, headers: dict[str, str]) -> np.ndarray:
    """The first result of a request, which is of f32."""
    status, content = server.ask("POST", f"{server.path}/infer", body, headers)
    if status != 200:
        raise RuntimeError(f"{server.title}: status {status}: {content[:200]!r}")
    message, end = json.JSONDecoder().raw_decode(content.decode("latin-1"))  # bytes follow the JSON, which is ASCII
    size = message["outputs"][0]["parameters"]["binary_data_size"]
    return np.frombuffer(content[end : end + size], np.float32)


def send_malformed(server: Server) -> int:
    """Sends malformed requests; returns how many got the right status and one JSON error."""
    right = 0
    for body, expected in MALFORMED:
        status, content = server.ask("POST", f"{server.path}/infer", body)
        right += status == expected and list(json.loads(content)) == ["error"]
    return right


def show(servers: Sequence[Server], clients: Sequence[int]) -> None:
    heads = ["server", "p50 ms", "p90 ms", "p99 ms", *(f"{count} clients, 1/s" for count in clients)]
    rows = [
        [server.title, *(f"{np.percentile(server.latencies, q) * 1000:.2f}" for q in (50, 90, 99)),
         *(f"{server.rates[count]:.1f}" for count in clients)]
        for server in servers
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    if len(servers) == 2:
        ours, peer = servers
        ratio = np.median(ours.latencies) / np.median(peer.latencies)
        print(f"latency {ratio:.2f} of the peer's (p50); throughput "
              + ", ".join(f"{ours.rates[count] / peer.rates[count]:.2f}" for count in clients) + " of the peer's")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifact", type=Path, default=Path("build/resnet18.motet"))
    parser.add_argument("--model", type=Path, default=Path("build/resnet18.onnx"))
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each round")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    clients = sorted({1, *given.clients})
    ours = [sys.executable, "-m", "motet", "serve", f"model={given.artifact}", "--port", "0", "--threads",
            str(given.threads)]
    peer = [given.peer_python, str(Path(__file__).with_name("onnxruntime_server.py")), str(given.model),
            str(given.threads)]
    with started("motet serve", ours, "model") as motet:
        try:
            with started("onnxruntime", peer, "model") as onnxruntime:
                compare([motet, onnxruntime], clients, given.seconds)
        except RuntimeError as error:
            print(f"onnxruntime: not measured: {error}")
            compare([motet], clients, given.seconds)
        right = send_malformed(motet)
        print(f"malformed requests: {right} of {len(MALFORMED)} got the right status and one JSON error")
    print(f"motet serve ended with status {motet.process.returncode}")
    return 0 if right == len(MALFORMED) and motet.process.returncode == 0 else 1


def compare(servers: Sequence[Server], clients: Sequence[int], seconds: float) -> None:
    """Measures the servers alternately, after a check that their results agree."""
    requests = [request_of(server) for server in servers]
    values = [result(server, *request) for server, request in zip(servers, requests, strict=True)]
    if not all(np.allclose(values[0], value, rtol=1e-3, atol=1e-3) for value in values):
        raise SystemExit("the servers' results differ")
    for _ in range(ROUNDS):
        for count in clients:
            for server, request in zip(servers, requests, strict=True):
                server.measure(*request, count, seconds)
    show(servers, clients)


if __name__ == "__main__":
    sys.exit(main())
