"""`motet serve` as clients meet it: equal results, joined calls, one JSON error for each mistake, no request lost."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import run_motet
from tests.integration.served import Server, as_binary, as_json, exchange, read_binary

import motet

for _needed in ("uvicorn", "starlette", "httptools", "prometheus_client"):
    pytest.importorskip(_needed)

_ROWS = """
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %empty = tensor.empty(%n) : tensor<?x4xf32>
  %r = linalg.mul ins(%x, %x : tensor<?x4xf32>, tensor<?x4xf32>) outs(%empty : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %r : tensor<?x4xf32>
}
"""
_SUMS = """
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %few = tensor.empty() : tensor<4xf32>
  %start = linalg.fill ins(%zero : f32) outs(%few : tensor<4xf32>) -> tensor<4xf32>
  %sum = linalg.reduce { arith.addf } ins(%x : tensor<?x4xf32>) outs(%start : tensor<4xf32>) dimensions = [0]
  %empty = tensor.empty(%n) : tensor<?x4xf32>
  %r = linalg.broadcast ins(%sum : tensor<4xf32>) outs(%empty : tensor<?x4xf32>) dimensions = [0]
  return %r : tensor<?x4xf32>
}
"""
_MIXED = """
func.func @main(%x: tensor<2x3xf32>, %i: tensor<3xi32>, %h: tensor<2xf16>)
    -> (tensor<2x3xf32>, tensor<3xi32>, tensor<2xf16>) {
  %a = tensor.empty() : tensor<2x3xf32>
  %b = tensor.empty() : tensor<3xi32>
  %c = tensor.empty() : tensor<2xf16>
  %r = linalg.div ins(%x, %x : tensor<2x3xf32>, tensor<2x3xf32>) outs(%a : tensor<2x3xf32>) -> tensor<2x3xf32>
  %s = linalg.mul ins(%i, %i : tensor<3xi32>, tensor<3xi32>) outs(%b : tensor<3xi32>) -> tensor<3xi32>
  %t = linalg.add ins(%h, %h : tensor<2xf16>, tensor<2xf16>) outs(%c : tensor<2xf16>) -> tensor<2xf16>
  return %r, %s, %t : tensor<2x3xf32>, tensor<3xi32>, tensor<2xf16>
}
"""
_SLOW = """
func.func @main(%x: tensor<192x192xf32>) -> tensor<192x192xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 8000 : index
  %zero = arith.constant 0.0 : f32
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> (tensor<192x192xf32>) {
    %e = tensor.empty() : tensor<192x192xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<192x192xf32>) -> tensor<192x192xf32>
    %p = linalg.matmul ins(%a, %x : tensor<192x192xf32>, tensor<192x192xf32>) outs(%f : tensor<192x192xf32>)
      -> tensor<192x192xf32>
    scf.yield %p : tensor<192x192xf32>
  }
  return %r : tensor<192x192xf32>
}
"""
ROWS, MIXED = "/v2/models/rows/infer", "/v2/models/mixed/infer"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, text in (("rows", _ROWS), ("mixed", _MIXED), ("sums", _SUMS), ("slow", _SLOW)):
        (folder / f"{name}.mlir").write_text(text)
        motet.compile(folder / f"{name}.mlir").save(folder / f"{name}.motet")
    for name in ("folder", "empty"):
        (folder / name).mkdir()
    shutil.copy(folder / "rows.motet", folder / "folder")
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    with Server(
        models / "folder", f"mixed={models / 'mixed.motet'}", "--max-batch", "8", "--max-delay-ms", "20",
        "--max-body", "300000", "--max-json", "100000", "--header-timeout", "1", "--max-connections", "64",
    ) as started:
        yield started


def random_rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 4), dtype=np.float32)


# -- round trips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True])
def test_json_carries_every_bit(server: Server, models: Path, nested: bool) -> None:
    x = random_rows(3)
    status, _, body = server.ask("POST", ROWS, as_json({"arg0": x}, nested, id="seven"))
    answer = json.loads(body)
    assert (status, answer["id"], answer["model_name"]) == (200, "seven", "rows")
    given = np.array(answer["outputs"][0]["data"], np.float32).reshape(answer["outputs"][0]["shape"])
    with motet.load(models / "rows.motet") as session:
        assert np.array_equal(given, session(x)) and np.array_equal(given, x * x)


def test_binary_tensors_of_several_types(server: Server, models: Path) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3), dtype=np.float32)
    x[0, 0] = 0  # 0/0: binary tensors carry NaN
    arrays = {"arg0": x, "arg1": np.array([1, -2, 3], np.int32), "arg2": np.array([0.5, 2], np.float16)}
    body, headers = as_binary(arrays, parameters={"binary_data_output": True})
    status, got, answer = server.ask("POST", MIXED, body, headers)
    assert status == 200
    with motet.load(models / "mixed.motet") as session:
        for mine, own in zip(read_binary(got, answer), session(*arrays.values()), strict=True):
            assert np.array_equal(mine, own, equal_nan=own.dtype.kind == "f")


def test_outputs_are_chosen_each_in_its_form(server: Server) -> None:
    arrays = {"arg0": np.ones((2, 3), np.float32), "arg1": np.arange(3, dtype=np.int32), "arg2": np.ones(2, np.float16)}
    wanted = [{"name": "result2", "parameters": {"binary_data": True}}, {"name": "result1"}]
    status, headers, body = server.ask("POST", MIXED, as_json(arrays, outputs=wanted))
    length = int(headers["inference-header-content-length"])
    first, second = json.loads(body[:length])["outputs"]
    assert status == 200 and first["name"] == "result2" and second["data"] == [0, 1, 4]
    assert np.array_equal(np.frombuffer(body[length:], np.float16), [2, 2])


def test_no_rows_are_a_call(server: Server) -> None:
    status, _, body = server.ask("POST", ROWS, as_json({"arg0": random_rows(0)}))
    assert status == 200 and json.loads(body)["outputs"][0]["shape"] == [0, 4]


def test_metadata_and_health(server: Server) -> None:
    tensor = {"datatype": "FP32", "shape": [-1, 4]}
    for path in ("/v2/models/rows", "/v2/models/rows/versions/1"):
        status, _, body = server.ask("GET", path)
        assert status == 200 and json.loads(body) == {
            "name": "rows", "versions": ["1"], "platform": "motet", "inputs": [{"name": "arg0", **tensor}],
            "outputs": [{"name": "result0", **tensor}],
        }
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/mixed/ready", "/metrics"):
        assert server.ask("GET", path)[0] == 200


# -- mistakes --------------------------------------------------------------------------------------


def rows_json(**changes: object) -> bytes:
    tensor = {"name": "arg0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4], **changes}
    return json.dumps({"inputs": [tensor]}).encode()


def rows_text(data: str, shape: str = "[1,4]", more: str = "") -> bytes:
    return f'{{"inputs":[{{"name":"arg0","shape":{shape},"datatype":"FP32","data":{data}}}]{more}}}'.encode()


def mixed_text(i: str = "[1,2,3]", h: str = "[1,2]") -> bytes:
    x = '{"name":"arg0","shape":[2,3],"datatype":"FP32","data":[1,1,1,1,1,1]}'
    return (f'{{"inputs":[{x},{{"name":"arg1","shape":[3],"datatype":"INT32","data":{i}}},'
            f'{{"name":"arg2","shape":[2],"datatype":"FP16","data":{h}}}]}}').encode()


def binary(
    size: object = 16, given: int = 16, length: str | None = None, **changes: object
) -> tuple[bytes, dict[str, str]]:
    tensor = {"name": "arg0", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": size}, **changes}
    head = json.dumps({"inputs": [tensor]}).encode()
    return head + b"\0" * given, {"Inference-Header-Content-Length": length or str(len(head))}


POST: list[tuple[str, int, bytes, dict[str, str]]] = [
    ("no body", 400, b"", {}), ("no JSON", 400, b"hello", {}), ("truncated JSON", 400, rows_json()[:-5], {}),
    ("trailing text", 400, rows_json() + b"x", {}), ("an array", 400, b"[]", {}), ("null", 400, b"null", {}),
    ("a number", 400, b"1", {}), ("not UTF-8", 400, b'{"inputs":[{"name":"\xff\xfe"}]}', {}),
    ("NUL bytes", 400, b"\0" * 99, {}),
    ("no inputs", 400, b"{}", {}), ("empty inputs", 400, b'{"inputs":[]}', {}),
    ("inputs of null", 400, b'{"inputs":null}', {}), ("inputs by name", 400, b'{"inputs":{"arg0":[1]}}', {}),
    ("wrong name", 400, rows_json(name="x"), {}), ("long name", 400, rows_json(name="x" * 9999), {}),
    ("name of a number", 400, rows_json(name=1), {}),
    ("input twice", 400, json.dumps({"inputs": [json.loads(rows_json())["inputs"][0]] * 2}).encode(), {}),
    ("wrong datatype", 400, rows_json(datatype="FP64"), {}), ("unknown datatype", 400, rows_json(datatype="FP31"), {}),
    ("BYTES", 400, rows_json(datatype="BYTES", data=["a"] * 4), {}),
    ("datatype null", 400, rows_json(datatype=None), {}),
    ("wrong extent", 400, rows_json(shape=[1, 5]), {}), ("wrong rank", 400, rows_json(shape=[4]), {}),
    ("scalar", 400, rows_json(shape=[]), {}), ("negative extent", 400, rows_json(shape=[-1, 4]), {}),
    ("extent of 1.5", 400, rows_json(shape=[1.5, 4]), {}), ("huge extent", 400, rows_json(shape=[1 << 61, 4]), {}),
    ("extent of 2^70", 400, rows_json(shape=[1 << 70, 4]), {}), ("9,999 extents", 400, rows_json(shape=[1] * 9999), {}),
    ("too few numbers", 400, rows_json(data=[1, 2, 3]), {}), ("too many numbers", 400, rows_json(data=[1] * 5), {}),
    ("no data", 400, b'{"inputs":[{"name":"arg0","shape":[1,4],"datatype":"FP32"}]}', {}),
    ("data null", 400, rows_json(data=None), {}), ("data of a number", 400, rows_json(data=1), {}),
    ("texts", 400, rows_json(data=["1", "2", "3", "4"]), {}), ("truth values", 400, rows_json(data=[True] * 4), {}),
    ("null elements", 400, rows_json(data=[None] * 4), {}), ("objects", 400, rows_json(data=[{}] * 4), {}),
    ("ragged", 400, rows_json(shape=[2, 4], data=[[1, 2, 3, 4], [1]]), {}),
    ("transposed nesting", 400, rows_json(data=[[1], [2], [3], [4]]), {}),
    ("nested too deep", 400, rows_json(data=[[[1, 2, 3, 4]]]), {}),
    ("40,000 brackets", 400, rows_text("[" * 40000 + "]" * 40000), {}),
    ("open brackets", 400, b"[" * 90000, {}), ("deep parameters", 400, rows_text("[1,2,3,4]", more=',"parameters":'
     + '{"a":' * 15000 + "1" + "}" * 15000), {}),
    ("NaN", 400, rows_text("[NaN,1,1,1]"), {}), ("Infinity", 400, rows_text("[Infinity,1,1,1]"), {}),
    ("1e400", 400, rows_text("[1e400,1,1,1]"), {}), ("1e39 for FP32", 400, rows_text("[1e39,1,1,1]"), {}),
    ("5,000 digits", 400, rows_text("[" + "1" * 5000 + ",1,1,1]"), {}),
    ("2^31 for INT32", 400, mixed_text(i="[2147483648,1,1]"), {}),
    ("2^80 for INT32", 400, mixed_text(i=f"[{1 << 80},1,1]"), {}),
    ("1.5 for INT32", 400, mixed_text(i="[1.5,1,1]"), {}), ("70000 for FP16", 400, mixed_text(h="[70000,1]"), {}),
    ("unknown output", 400, rows_text("[1,2,3,4]", more=',"outputs":[{"name":"y"}]'), {}),
    ("output twice", 400, rows_text("[1,2,3,4]", more=',"outputs":[{"name":"result0"},{"name":"result0"}]'), {}),
    ("id of a number", 400, rows_text("[1,2,3,4]", more=',"id":7'), {}),
    ("flag of a text", 400, rows_text("[1,2,3,4]", more=',"parameters":{"binary_data_output":"yes"}'), {}),
    ("binary truncated", 400, *binary(given=15)), ("binary with more", 400, *binary(given=17)),
    ("binary without bytes", 400, *binary(given=0)), ("binary of a wrong size", 400, *binary(size=12)),
    ("binary of a negative size", 400, *binary(size=-16)), ("binary size as text", 400, *binary(size="16")),
    ("binary and data", 400, *binary(data=[1, 2, 3, 4])), ("header longer than the body", 400, *binary(length="99999")),
    ("header length negative", 400, *binary(length="-1")), ("header length text", 400, *binary(length="ten")),
    ("header length huge", 400, *binary(length="9" * 40)),
    ("gzip", 415, gzip.compress(rows_json()), {"Content-Encoding": "gzip"}),
    ("deflate", 415, rows_json(), {"Content-Encoding": "deflate"}),
    ("XML", 415, b"<x/>", {"Content-Type": "application/xml"}),
    ("form", 415, b"a=1", {"Content-Type": "multipart/form-data"}),
    ("too large for JSON", 413, rows_json(name="x" * 150000), {}), ("too large", 413, b"0" * 400000, {}),
    ("accepts only XML", 406, rows_json(), {"Accept": "application/xml"}),
    ("accepts no JSON", 406, rows_json(), {"Accept": "application/json;q=0"}),
]
OTHER = [
    ("GET", ROWS, 405), ("PUT", ROWS, 405), ("DELETE", "/v2/models/rows", 405), ("POST", "/v2/models/rows", 405),
    ("POST", "/v2/health/live", 405), ("PATCH", "/metrics", 405), ("GET", "/", 404), ("GET", "/v2/model", 404),
    ("POST", "/v2/models/none/infer", 404), ("GET", "/v2/models/rows/versions/2", 404),
    ("GET", "/v2/models/..%2f..", 404),
    ("POST", "/v2/models/rows/infer/x", 404), ("GET", "/v2/models/%00", 404), ("GET", "/" + "a" * 3000, 404),
]


def check_error(status: int, headers: dict[str, str], body: bytes, expected: int) -> None:
    message = json.loads(body)
    assert status == expected, message
    assert headers["content-type"] == "application/json" and list(message) == ["error"]
    text = message["error"]
    assert isinstance(text, str) and text and "\n" not in text and "Traceback" not in text and len(text) < 1000
    assert "jSON" not in text


@pytest.mark.parametrize(("status", "body", "headers"), [each[1:] for each in POST], ids=[each[0] for each in POST])
def test_a_malformed_request_gets_one_error(server: Server, status: int, body: bytes, headers: dict[str, str]) -> None:
    path = MIXED if b"arg1" in body else ROWS
    check_error(*server.ask("POST", path, body, headers), status)


@pytest.mark.parametrize(("method", "path", "status"), OTHER, ids=[f"{m} {p[:40]}" for m, p, _ in OTHER])
def test_a_wrong_path_or_method_gets_one_error(server: Server, method: str, path: str, status: int) -> None:
    check_error(*server.ask(method, path), status)


def test_a_result_that_json_lacks_is_not_acceptable(server: Server) -> None:
    arrays = {"arg0": np.zeros((2, 3), np.float32), "arg1": np.zeros(3, np.int32), "arg2": np.zeros(2, np.float16)}
    check_error(*server.ask("POST", MIXED, as_json(arrays)), 406)


def raw(server: Server, data: bytes, timeout: float = 10) -> bytes:
    """All that the server sends for `data` until it closes the connection."""
    parts: list[bytes] = []
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as connection:
        connection.sendall(data)
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, 400), (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400), (b"POST " + ROWS.encode() + b" HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST " + ROWS.encode() + b" HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 100000 + b"\r\n\r\n", 431), (b"GET /" + b"a" * 100000, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", 408), (b"", 408),
    ],
    ids=["TLS", "no HTTP", "HTTP/9.9", "negative length", "two lengths", "long header", "long path", "half a header",
         "silence"],
)
def test_what_is_not_http_gets_one_error(server: Server, data: bytes, status: int) -> None:
    head, _, body = raw(server, data).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert list(json.loads(body)) == ["error"]


def test_a_client_that_leaves_is_forgotten(server: Server) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"POST {ROWS} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    deadline = time.monotonic() + 10
    while server.metric("motet_requests_in_flight") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.metric("motet_requests_in_flight") == 0


def test_connections_are_limited(server: Server) -> None:
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(70)]
    try:
        answers = [connection.recv(65536) for connection in held[64:]]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
    finally:
        for connection in held:
            connection.close()
    time.sleep(0.2)
    assert server.ask("GET", "/v2/health/ready")[0] == 200


# -- load ------------------------------------------------------------------------------------------


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs `work` on `count` threads; raises what one of them raises."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failures:
        raise failures[0]


def test_calls_are_joined_and_no_request_is_lost_or_mixed_up(server: Server) -> None:
    counts: Counter[int] = Counter()
    lock = threading.Lock()
    calls, requests = (server.metric(f'motet_batch_requests_{kind}{{model="rows"}}') for kind in ("count", "sum"))

    def work(number: int) -> None:
        connection = server.connect()
        mine: Counter[int] = Counter()
        for turn in range(125):
            x = random_rows(1 + (number + turn) % 3, number * 1000 + turn)
            body, headers = as_binary({"arg0": x}, parameters={"binary_data_output": True})
            status, got, answer = exchange(connection, "POST", ROWS, body, headers)
            mine[status] += 1
            assert status == 200 and np.array_equal(read_binary(got, answer)[0], x * x)
        connection.close()
        with lock:
            counts.update(mine)

    in_threads(8, work)  # once, so that memory is allocated
    before = server.resident()
    in_threads(8, work)
    assert counts == {200: 2000}
    assert server.metric('motet_batch_requests_sum{model="rows"}') == requests + 2000
    assert server.metric('motet_batch_requests_count{model="rows"}') - calls < 1500  # several requests for each call
    assert server.metric('motet_batch_rows_bucket{le="8.0",model="rows"}') == server.metric(
        'motet_batch_rows_count{model="rows"}')
    assert server.metric('motet_queue_length{model="rows"}') == 0
    assert server.resident() - before < 8 << 20


def test_malformed_requests_leave_memory_flat(server: Server) -> None:
    def all_of_them() -> None:
        for _, status, body, headers in POST:
            assert server.ask("POST", ROWS, body, headers)[0] in (status, 400)

    all_of_them()
    before = server.resident()
    for _ in range(4):
        all_of_them()
    assert server.resident() - before < 8 << 20


def test_sigterm_under_load_loses_no_request(models: Path) -> None:
    with Server(models / "rows.motet", "--max-batch", "4", "--max-delay-ms", "5") as server:
        statuses: Counter[int] = Counter()
        lock = threading.Lock()

        def work(number: int) -> None:
            connection = server.connect()
            for turn in range(100000):
                x = random_rows(1, number * 100000 + turn)
                body, headers = as_binary({"arg0": x}, parameters={"binary_data_output": True})
                status, got, answer = exchange(connection, "POST", ROWS, body, headers)
                with lock:
                    statuses[status] += 1
                assert np.array_equal(read_binary(got, answer)[0], x * x)
                if got.get("connection") == "close":  # the server drains
                    return

        stop = threading.Timer(0.7, server.process.send_signal, [signal.SIGTERM])
        stop.start()
        in_threads(6, work)
        assert server.process.wait(20) == 0
        assert list(statuses) == [200] and statuses[200] > 20
        assert server.process.communicate()[1] == ""


def test_slow_calls_are_bounded(models: Path) -> None:
    with Server(
        models / "slow.motet", "--timeout", "0.15", "--in-flight", "1", "--max-requests", "6", "--threads", "1",
    ) as server:
        x = np.eye(192, dtype=np.float32)
        body, headers = as_binary({"arg0": x})
        seen: Counter[int] = Counter()
        lock = threading.Lock()

        def work(number: int) -> None:
            status, got, answer = server.ask("POST", "/v2/models/slow/infer", body, headers)
            with lock:
                seen[status] += 1
            check_error(status, got, answer, status)
            assert (status == 504) == ("retry-after" not in got)

        in_threads(12, work)
        # One call runs longer than the limit; requests behind it wait too long; the others are too many.
        assert set(seen) == {504, 503, 429} and seen[504] == 1 and seen[429] >= 4
        assert server.ask("GET", "/v2/health/live")[0] == 200


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["sums.motet", "--max-batch", "4"], 1, "rows are not independent"),
        (["mixed.motet", "--max-batch", "4"], 1, "the leading extent of arg0 is not dynamic"),
        (["none.motet"], 1, "none.motet"), (["a/b=rows.motet"], 1, "expected NAME=FILE"),
        (["rows.motet", "rows=mixed.motet"], 1, "a model rows is served already"),
        (["rows.motet", "."], 1, "a model rows is served already"),
        (["empty"], 1, "a folder with neither an artifact (*.motet) nor a language model"),
        (["rows.motet", "--host", "203.0.113.1"], 1, "cannot be bound"),
        (["rows.motet", "--port", "99999"], 2, "--port"),
        ([], 2, "missing argument"),
    ],
    ids=["dependent rows", "fixed rows", "no file", "bad name", "two of a name", "a file and its folder",
         "empty folder", "foreign address", "bad port",
         "no model"],
)
def test_a_server_that_cannot_start_says_why(models: Path, arguments: list[str], status: int, said: str) -> None:
    outcome = run_motet("serve", *arguments, folder=models, timeout=60)
    assert outcome.returncode == status and said in outcome.stderr and "Traceback" not in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1
