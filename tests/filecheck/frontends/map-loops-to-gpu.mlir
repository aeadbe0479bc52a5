// RUN: motet opt %s --pipeline map-loops-to-gpu,gpu-concurrency | filecheck %s

// Two nests of loops that need nothing of one another, and one of both: two launches of full blocks, joined for the
// third. The loop of one turn outside costs no threads.

// CHECK: gpu.container_module
// CHECK: func.func @main
// CHECK: [[T0:%.*]] = gpu.wait async
// CHECK: [[A:%.*]] = gpu.launch_func async {{\[}}[[T0]]{{\]}} @main_0s::@main_0 {{.*}} threads in (%c256
// CHECK: [[T1:%.*]] = gpu.wait async
// CHECK: [[B:%.*]] = gpu.launch_func async {{\[}}[[T1]]{{\]}} @main_1s::@main_1
// CHECK: [[T2:%.*]] = gpu.wait async {{\[}}[[A]], [[B]]{{\]}}
// CHECK: [[C:%.*]] = gpu.launch_func async {{\[}}[[T2]]{{\]}} @main_2s::@main_2
// CHECK: gpu.wait {{\[}}[[C]]{{\]}}
func.func @main(%x: memref<1x64x28xf32>, %a: memref<1x64x28xf32>, %b: memref<1x64x28xf32>, %y: memref<1x64x28xf32>) {
  affine.for %i = 0 to 1 {
    affine.for %j = 0 to 64 {
      affine.for %k = 0 to 28 {
        %0 = affine.load %x[%i, %j, %k] : memref<1x64x28xf32>
        %1 = math.absf %0 : f32
        affine.store %1, %a[%i, %j, %k] : memref<1x64x28xf32>
      }
    }
  }
  affine.parallel (%j, %k) = (0, 0) to (64, 28) {
    %0 = affine.load %x[0, %j, %k] : memref<1x64x28xf32>
    %1 = math.exp %0 : f32
    affine.store %1, %b[0, %j, %k] : memref<1x64x28xf32>
  }
  affine.for %j = 0 to 64 {
    affine.for %k = 0 to 28 {
      %0 = affine.load %a[0, %j, %k] : memref<1x64x28xf32>
      %1 = affine.load %b[0, %j, %k] : memref<1x64x28xf32>
      %2 = arith.addf %0, %1 : f32
      affine.store %2, %y[0, %j, %k] : memref<1x64x28xf32>
    }
  }
  return
}

// A loop that hands a value from turn to turn stays with the host.
// CHECK-LABEL: func.func @sum
// CHECK-NOT: gpu.launch_func
// CHECK: scf.for
func.func @sum(%x: memref<64xf32>, %s: memref<f32>) {
  affine.for %i = 0 to 64 {
    %0 = affine.load %x[%i] : memref<64xf32>
    %1 = affine.load %s[] : memref<f32>
    %2 = arith.addf %0, %1 : f32
    affine.store %2, %s[] : memref<f32>
  }
  return
}

// A thread has a little memory of its own, but not as much as the second loop's turns allocate, nor memory of a size
// that is not known.
// CHECK-LABEL: func.func @memory
// CHECK: gpu.launch_func {{.*}}@memory_0s::@memory_0
// CHECK-NOT: gpu.launch_func
// CHECK: scf.parallel
// CHECK: memref.alloc() : memref<4096xf32>
// CHECK: scf.parallel
// CHECK: memref.alloc(%{{.*}}) : memref<?xf32>
// CHECK-NOT: gpu.launch_func
func.func @memory(%x: memref<64xf32>, %n: index) {
  affine.parallel (%i) = (0) to (64) {
    %m = memref.alloc() : memref<4xf32>
    %0 = affine.load %x[%i] : memref<64xf32>
    affine.store %0, %m[1] : memref<4xf32>
    %1 = affine.load %m[1] : memref<4xf32>
    affine.store %1, %x[%i] : memref<64xf32>
    memref.dealloc %m : memref<4xf32>
  }
  affine.parallel (%i) = (0) to (64) {
    %m = memref.alloc() : memref<4096xf32>
    %0 = affine.load %x[%i] : memref<64xf32>
    affine.store %0, %m[%i] : memref<4096xf32>
    %1 = affine.load %m[%i] : memref<4096xf32>
    affine.store %1, %x[%i] : memref<64xf32>
    memref.dealloc %m : memref<4096xf32>
  }
  affine.parallel (%i) = (0) to (64) {
    %m = memref.alloc(%n) : memref<?xf32>
    %0 = affine.load %x[%i] : memref<64xf32>
    affine.store %0, %m[0] : memref<?xf32>
    %1 = affine.load %m[0] : memref<?xf32>
    affine.store %1, %x[%i] : memref<64xf32>
    memref.dealloc %m : memref<?xf32>
  }
  return
}
// CHECK: gpu.module @main_0s
// CHECK: gpu.global_id x
// CHECK: math.absf
