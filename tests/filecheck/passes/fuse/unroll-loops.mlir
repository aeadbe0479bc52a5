// RUN: motet opt %s --pipeline unroll-loops | filecheck %s

// CHECK-LABEL: func.func @known
// CHECK-NOT: scf.for
// CHECK: %[[A:.*]] = tensor.extract_slice %arg0[0, 0]
// CHECK: %[[B:.*]] = arith.addf %arg1, %[[A]]
// CHECK: %[[C:.*]] = tensor.extract_slice %arg0[1, 0]
// CHECK: arith.addf %[[B]], %[[C]]
func.func @known(%x: tensor<2x4xf32>, %begin: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %r = scf.for %i = %c0 to %c2 step %c1 iter_args(%s = %begin) -> (tensor<4xf32>) {
    %a = tensor.extract_slice %x[%i, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
    %b = arith.addf %s, %a : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @unknown
// CHECK: scf.for
func.func @unknown(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> (tensor<4xf32>) {
    %b = arith.addf %s, %x : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
