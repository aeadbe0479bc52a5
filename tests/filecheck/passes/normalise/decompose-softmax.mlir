// RUN: motet opt %s --pipeline decompose-softmax | filecheck %s

// CHECK-LABEL: func.func @rows
// CHECK-NOT: linalg.softmax
// CHECK: arith.max
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.divf
func.func @rows(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %0 = linalg.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
