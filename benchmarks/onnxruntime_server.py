"""A plain server of an ONNX model for `benchmarks.serve`: onnxruntime behind starlette and uvicorn, binary tensors.

    python benchmarks/onnxruntime_server.py model.onnx THREADS

Needs nothing of Motet, so that it runs in any interpreter with onnxruntime, starlette, uvicorn and httptools. Prints
the address when it starts.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CALLS = 2  # concurrent calls, as `motet serve` has by default
TYPES = {"tensor(float)": ("FP32", "float32"), "tensor(int64)": ("INT64", "int64")}
LENGTH = "inference-header-content-length"


def main() -> None:
    import numpy as np
    import onnxruntime
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(sys.argv[2])
    session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    kinds = {spec.name: TYPES[spec.type] for spec in session.get_inputs()}
    results = [(spec.name, TYPES[spec.type][0]) for spec in session.get_outputs()]
    workers = ThreadPoolExecutor(CALLS)

    async def describe(request: Request) -> Response:
        inputs = [{"name": spec.name, "shape": spec.shape, "datatype": kinds[spec.name][0]}
                  for spec in session.get_inputs()]
        return JSONResponse({"inputs": inputs})

    async def infer(request: Request) -> Response:
        body = await request.body()
        length = int(request.headers[LENGTH])
        feeds: dict[str, Any] = {}
        first = length
        for tensor in json.loads(body[:length])["inputs"]:
            size = tensor["parameters"]["binary_data_size"]
            array = np.frombuffer(body[first : first + size], kinds[tensor["name"]][1])
            feeds[tensor["name"]] = array.reshape(tensor["shape"])
            first += size
        values = await asyncio.get_running_loop().run_in_executor(workers, session.run, None, feeds)
        outputs = [
            {"name": name, "datatype": kind, "shape": value.shape, "parameters": {"binary_data_size": value.nbytes}}
            for (name, kind), value in zip(results, values, strict=True)
        ]
        head = json.dumps({"model_name": "model", "outputs": outputs}).encode()
        content = b"".join((head, *(value.tobytes() for value in values)))
        return Response(content, headers={LENGTH: str(len(head)), "content-type": "application/octet-stream"})

    routes = [Route("/v2/models/model", describe), Route("/v2/models/model/infer", infer, methods=["POST"])]
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    print(f"serving on http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
    config = uvicorn.Config(Starlette(routes=routes), http="httptools", log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main()
