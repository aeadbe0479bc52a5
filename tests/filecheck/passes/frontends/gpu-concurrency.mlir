// RUN: motet opt %s --pipeline map-loops-to-gpu,gpu-concurrency | filecheck %s

// Two launches that need nothing of one another wait for different tokens.
// CHECK: func.func @main
// CHECK: [[T0:%.*]] = gpu.wait async
// CHECK: [[A:%.*]] = gpu.launch_func async {{\[}}[[T0]]{{\]}} @main_0s::@main_0
// CHECK: [[T1:%.*]] = gpu.wait async
// CHECK: [[B:%.*]] = gpu.launch_func async {{\[}}[[T1]]{{\]}} @main_1s::@main_1
// CHECK: gpu.wait {{\[}}[[A]], [[B]]{{\]}}
func.func @main(%x: memref<64x28xf32>, %a: memref<64x28xf32>, %b: memref<64x28xf32>) {
  affine.parallel (%i, %j) = (0, 0) to (64, 28) {
    %0 = affine.load %x[%i, %j] : memref<64x28xf32>
    %1 = math.exp %0 : f32
    affine.store %1, %a[%i, %j] : memref<64x28xf32>
  }
  affine.parallel (%i, %j) = (0, 0) to (64, 28) {
    %0 = affine.load %x[%i, %j] : memref<64x28xf32>
    %1 = math.absf %0 : f32
    affine.store %1, %b[%i, %j] : memref<64x28xf32>
  }
  return
}
