// Loops up to sizes that are known when running alone are operations of linalg on tensors of such sizes.
// RUN: motet compile %s --emit program | filecheck %s

// CHECK-LABEL: func.func @product
// CHECK-SAME: (%arg0: tensor<?x?xf32>, %arg1: tensor<?x?xf32>) -> tensor<?x?xf32>
// CHECK-NOT: scf.
// CHECK: tensor.extract_slice %arg1[0, 0] [%{{.*}}, %{{.*}}] [1, 1] : tensor<?x?xf32> to tensor<?x?xf32>
// CHECK: linalg.{{generic|matmul}}
// CHECK-NOT: scf.
// CHECK: return %{{.*}} : tensor<?x?xf32>
func.func @product(%a: memref<?x?xf32>, %b: memref<?x?xf32>) -> memref<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = memref.dim %a, %c0 : memref<?x?xf32>
  %k = memref.dim %a, %c1 : memref<?x?xf32>
  %n = memref.dim %b, %c1 : memref<?x?xf32>
  %c = memref.alloc(%m, %n) : memref<?x?xf32>
  affine.for %i = 0 to %m {
    affine.for %j = 0 to %n {
      %s = affine.for %p = 0 to %k iter_args(%t = %zero) -> f32 {
        %0 = affine.load %a[%i, %p] : memref<?x?xf32>
        %1 = affine.load %b[%p, %j] : memref<?x?xf32>
        %2 = arith.mulf %0, %1 : f32
        %3 = arith.addf %t, %2 : f32
        affine.yield %3 : f32
      }
      affine.store %s, %c[%i, %j] : memref<?x?xf32>
    }
  }
  return %c : memref<?x?xf32>
}

// The stored rows are those up to the first of two ends.
// CHECK-LABEL: func.func @first
// CHECK: %[[LEAST:.*]] = arith.minsi
// CHECK: %[[ROWS:.*]] = arith.maxsi %[[LEAST]]
// CHECK: linalg.{{generic|matvec}}
// CHECK: tensor.insert_slice %{{.*}} into %arg2[0] [%[[ROWS]]] [1]
// CHECK-NOT: scf.
// CHECK: return
func.func @first(%x: memref<?x?xf32>, %v: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = memref.dim %x, %c0 : memref<?x?xf32>
  %k = memref.dim %v, %c0 : memref<?xf32>
  %n = memref.dim %y, %c0 : memref<?xf32>
  affine.for %i = 0 to min affine_map<()[s0, s1] -> (s0, s1)>()[%m, %n] {
    %s = affine.for %p = 0 to %k iter_args(%t = %zero) -> f32 {
      %0 = affine.load %x[%i, %p] : memref<?x?xf32>
      %1 = affine.load %v[%p] : memref<?xf32>
      %2 = arith.mulf %0, %1 : f32
      %3 = arith.addf %t, %2 : f32
      affine.yield %3 : f32
    }
    affine.store %s, %y[%i] : memref<?xf32>
  }
  return
}

// Little work on parts of sizes that are not known stays a loop.
// CHECK-LABEL: func.func @shorter
// CHECK: scf.for
func.func @shorter(%x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %m = memref.dim %y, %c0 : memref<?xf32>
  affine.for %i = 0 to min affine_map<()[s0, s1] -> (s0, s1)>()[%n, %m] {
    %0 = affine.load %x[%i] : memref<?xf32>
    affine.store %0, %y[%i] : memref<?xf32>
  }
  return
}
