// RUN: motet opt %s --pipeline lower-launches | filecheck %s

// What is launched is a function of the loops; an attribute keeps the launch as it was written.
// CHECK-LABEL: func.func @main
// CHECK: call @k_launch_0(%arg0)
// CHECK-LABEL: func.func private @k_launch_0
// CHECK: scf.for {{.*}} to %c2
// CHECK: scf.for {{.*}} to %c32
// CHECK: memref.load
// CHECK: math.exp
// CHECK: memref.store
module attributes {gpu.container_module} {
  func.func @main(%x: memref<64xf32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c32 = arith.constant 32 : index
    gpu.launch_func @m::@k blocks in (%c2, %c1, %c1) threads in (%c32, %c1, %c1) args(%x : memref<64xf32>)
    return
  }
  gpu.module @m {
    gpu.func @k(%x: memref<64xf32>) kernel {
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %c32 = arith.constant 32 : index
      %base = arith.muli %b, %c32 : index
      %i = arith.addi %base, %t : index
      %v = memref.load %x[%i] : memref<64xf32>
      %e = math.exp %v : f32
      memref.store %e, %x[%i] : memref<64xf32>
      gpu.return
    }
  }
}
