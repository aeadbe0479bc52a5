// RUN: motet opt %s --pipeline lower-to-tensors | filecheck %s

// Calls are inlined, memory becomes tensors, a loop over it linalg.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %arg0: tensor<4xf32>, %arg1: tensor<4xf32>
// CHECK-SAME: motet.destination = 1
// CHECK: linalg.generic
// CHECK-NOT: call
// CHECK-NOT: memref
func.func @main(%x: memref<4xf32>, %y: memref<4xf32>) {
  call @exponentials(%x, %y) : (memref<4xf32>, memref<4xf32>) -> ()
  return
}
func.func private @exponentials(%x: memref<4xf32>, %y: memref<4xf32>) {
  affine.for %i = 0 to 4 {
    %0 = affine.load %x[%i] : memref<4xf32>
    %1 = math.exp %0 : f32
    affine.store %1, %y[%i] : memref<4xf32>
  }
  return
}

// A scalar becomes a tensor of rank 0; an extent that follows from a value, an extent of an input.
// CHECK-LABEL: func.func @first(
// CHECK-SAME: %arg0: tensor<8xf32>, %arg1: tensor<i64>, %arg2: tensor<?x0xi8>
// CHECK: tensor.extract_slice %arg0
func.func @first(%x: tensor<8xf32>, %n: i64) -> tensor<?xf32> {
  %0 = arith.index_cast %n : i64 to index
  %1 = tensor.extract_slice %x[0] [%0] [1] : tensor<8xf32> to tensor<?xf32>
  return %1 : tensor<?xf32>
}

// What is on tensors stays as it is, with its device.
// CHECK-LABEL: func.func @tensors(
// CHECK-NEXT: %0 = math.exp %arg0 {motet.affinity = "a"} : tensor<4xf32>
// CHECK-NEXT: return %0
func.func @tensors(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x {motet.affinity = "a"} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
