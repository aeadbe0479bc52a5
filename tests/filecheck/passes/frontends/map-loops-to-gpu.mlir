// RUN: motet opt %s --pipeline map-loops-to-gpu | filecheck %s

// CHECK: gpu.container_module
// CHECK: func.func @main
// CHECK: gpu.launch_func @main_0s::@main_0 blocks in {{.*}} threads in (%c256
func.func @main(%x: memref<64x28xf32>, %y: memref<64x28xf32>) {
  affine.for %i = 0 to 64 {
    affine.for %j = 0 to 28 {
      %0 = affine.load %x[%i, %j] : memref<64x28xf32>
      %1 = math.exp %0 : f32
      affine.store %1, %y[%i, %j] : memref<64x28xf32>
    }
  }
  return
}
