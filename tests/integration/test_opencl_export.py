"""`motet export --format c` for OpenCL: a C program with a context and queue, on the platforms of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.opencl.opening import opencl_device, spirv_device

import motet
from motet.exporting.opencl_source import export_opencl
from motet.exporting.static import find_variant, make_static
from motet.runtime.drivers.opencl.loader import environment_platforms

# Rows of a table by number, times constants, and their sums: constants, memory between commands, and a check.
TEXT = """
#all = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%t: tensor<10x8xf32>, %i: tensor<4xi64>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %w = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
  %zero = arith.constant 0.0 : f32
  %ten = arith.constant 10 : i64
  %e = tensor.empty() : tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>, #all],
      iterator_types = ["parallel", "parallel"]} ins(%i, %w : tensor<4xi64>, tensor<8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%n: i64, %v: f32, %o: f32):
      %c = arith.index_cast %n : i64 to index
      %j = linalg.index 1 : index
      %below = arith.cmpi ult, %n, %ten : i64
      cf.assert %below, "the row is below ten"
      %x = tensor.extract %t[%c, %j] : tensor<10x8xf32>
      %p = arith.mulf %x, %v : f32
      linalg.yield %p : f32
  } -> tensor<4x8xf32>
  %g = linalg.exp ins(%r : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %f = tensor.empty() : tensor<4xf32>
  %s = linalg.fill ins(%zero : f32) outs(%f : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.reduce ins(%g : tensor<4x8xf32>) outs(%s : tensor<4xf32>) dimensions = [1]
    (%in: f32, %acc: f32) { %q = arith.addf %in, %acc : f32 linalg.yield %q : f32 }
  return %r, %z : tensor<4x8xf32>, tensor<4xf32>
}
"""

# Runs the function on the platform and device of its arguments: inputs in files, results to a file.
MAIN = r"""
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#ifndef MOTET_HAS_OPENCL_HEADERS
typedef struct _cl_mem *cl_mem; typedef struct _cl_platform_id *cl_platform_id;
cl_int clGetPlatformIDs(cl_uint, cl_platform_id *, cl_uint *);
cl_int clGetDeviceIDs(cl_platform_id, uint64_t, cl_uint, cl_device_id *, cl_uint *);
cl_context clCreateContext(void *, cl_uint, const cl_device_id *, void *, void *, cl_int *);
cl_command_queue clCreateCommandQueueWithProperties(cl_context, cl_device_id, const uint64_t *, cl_int *);
cl_mem clCreateBuffer(cl_context, uint64_t, size_t, void *, cl_int *);
cl_int clEnqueueReadBuffer(cl_command_queue, cl_mem, cl_uint, size_t, size_t, void *, cl_uint, const cl_event *,
                           cl_event *);
cl_int clEnqueueSVMMemcpy(cl_command_queue, cl_uint, void *, const void *, size_t, cl_uint, const cl_event *,
                          cl_event *);
void *clSVMAlloc(cl_context, uint64_t, size_t, cl_uint);
cl_event clCreateUserEvent(cl_context, cl_int *);
cl_int clSetUserEventStatus(cl_event, cl_int), clWaitForEvents(cl_uint, const cl_event *), clReleaseEvent(cl_event);
cl_int clGetEventInfo(cl_event, cl_uint, size_t, void *, size_t *);
#endif
#define CHECK(call) do { cl_int bad = (call); if (bad) { printf("%s: %d\n", #call, bad); return 2; } } while (0)
int main(int count, char **values) {
    cl_platform_id platforms[8]; cl_device_id device; cl_uint found; cl_int code;
    CHECK(clGetPlatformIDs(8, platforms, &found));
    CHECK(clGetDeviceIDs(platforms[atoi(values[1])], 0xFFFFFFFF, 1, &device, 0));
    cl_context context = clCreateContext(0, 1, &device, 0, 0, &code); CHECK(code);
    uint64_t properties[] = {0x1093, 1, 0};
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, properties, &code); CHECK(code);
    model_program *program; CHECK(model_create(context, device, &program));
    float table[80], rows[32], sums[4]; int64_t index[4];
    FILE *file = fopen("input", "rb");
    if (fread(table, 4, 80, file) != 80 || fread(index, 8, 4, file) != 4) return 3;
    cl_mem tables = clCreateBuffer(context, 1 | 32, sizeof table, table, &code); CHECK(code);
    cl_mem results = clCreateBuffer(context, 1, sizeof rows, 0, &code); CHECK(code);
    void *numbers = clSVMAlloc(context, 1, sizeof index, 64), *summed = clSVMAlloc(context, 1, sizeof sums, 64);
    CHECK(clEnqueueSVMMemcpy(queue, 1, numbers, index, sizeof index, 0, 0, 0));
    for (int call = 0; call < 3; call++) {
        cl_event gate = clCreateUserEvent(context, &code), done; CHECK(code);
        motet_opencl_argument t = {MOTET_CL_MEM, tables}, i = {MOTET_SVM, numbers};
        motet_opencl_argument r = {MOTET_CL_MEM, results}, s = {MOTET_SVM, summed};
        CHECK(model_enqueue(program, queue, t, i, r, s, 1, &gate, &done));
        cl_int status; CHECK(clGetEventInfo(done, 0x11D3, sizeof status, &status, 0));
        if (status == 0) return 4; /* the gate is closed */
        CHECK(clSetUserEventStatus(gate, 0));
        CHECK(clWaitForEvents(1, &done));
        if (model_failed(program)) return printf("%s\n", model_checks[model_failed(program) - 1]), 5;
        clReleaseEvent(gate); clReleaseEvent(done);
    }
    CHECK(clEnqueueReadBuffer(queue, results, 1, 0, sizeof rows, rows, 0, 0, 0));
    CHECK(clEnqueueSVMMemcpy(queue, 1, sums, summed, sizeof sums, 0, 0, 0));
    model_release(program);
    file = fopen("output", "wb"); fwrite(rows, 4, 32, file); fwrite(sums, 4, 4, file);
    return fclose(file) + 0 * count;
}
"""


def built(folder: Path, target: str) -> dict[str, Any]:
    """The program in `folder`; the arguments of `subprocess.run` for it. Skips the test without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    artifact = motet.compile(TEXT, devices=f"opencl{{cpu={target}}}")
    static = make_static(artifact, artifact.functions["main"], find_variant(artifact, target), {})
    for name, content in export_opencl(static, "model").files.items():
        (folder / name).write_bytes(content)
    (folder / "main.c").write_text(MAIN)
    loader = Path(sys.prefix) / "lib/libOpenCL.so.1"
    library = str(loader.resolve()) if loader.exists() else "-l:libOpenCL.so.1"
    subprocess.run(
        [compiler, "-Wall", "-Wextra", "-Werror", "-o", "main", "main.c", "model.c", library,
         "-Wl,--allow-shlib-undefined"], cwd=folder, check=True
    )
    platforms = environment_platforms(Path(sys.prefix))
    folders = {str(loader.resolve().parent), *(str(Path(platform).parent) for platform in platforms)}
    environment = {
        **os.environ, "OCL_ICD_FILENAMES": os.pathsep.join(platforms), "LD_LIBRARY_PATH": os.pathsep.join(folders),
    }
    return {"cwd": folder, "env": environment, "capture_output": True, "text": True, "check": False}


@pytest.mark.parametrize("uri, target", [("opencl:0", "spirv64"), ("opencl:1", "opencl-c")])
def test_exported_c_runs_on_the_caller_s_queue(uri: str, target: str, tmp_path: Path) -> None:
    number = (spirv_device(uri) if target == "spirv64" else opencl_device(uri)).ordinal
    options = built(tmp_path, target)
    table = np.random.default_rng(3).uniform(-0.3, 0.3, (10, 8)).astype(np.float32)
    index = np.array([9, 0, 4, 4])
    (tmp_path / "input").write_bytes(table.tobytes() + index.tobytes())
    done = subprocess.run(["./main", str(number)], **options)
    assert done.returncode == 0, done.stdout + done.stderr
    result = np.fromfile(tmp_path / "output", np.float32)
    rows = table.astype(np.float64)[index] * np.arange(1, 9)
    np.testing.assert_allclose(result[:32].reshape(4, 8), rows, rtol=1e-6)
    np.testing.assert_allclose(result[32:], np.exp(rows).sum(axis=1), rtol=1e-5)
    (tmp_path / "input").write_bytes(table.tobytes() + np.array([0, 1, 10, 3]).tobytes())
    done = subprocess.run(["./main", str(number)], **options)
    assert done.returncode == 5 and done.stdout.strip().endswith("cf.assert: the row is below ten")
