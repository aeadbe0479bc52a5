// RUN: motet opt %s --pipeline drop-casts | filecheck %s

// CHECK-LABEL: func.func @known
// CHECK: tensor.concat dim(0) %arg0, %arg1 : (tensor<1x4xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
func.func @known(%x: tensor<1x4xf32>, %y: tensor<2x4xf32>) -> tensor<3x4xf32> {
  %a = tensor.cast %x : tensor<1x4xf32> to tensor<?x4xf32>
  %b = tensor.cast %y : tensor<2x4xf32> to tensor<?x4xf32>
  %c = tensor.concat dim(0) %a, %b : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<3x4xf32>
  return %c : tensor<3x4xf32>
}

// A result of dynamic extents keeps its operands.
// CHECK-LABEL: func.func @dynamic
// CHECK: %[[CAST:.*]] = tensor.cast
// CHECK: tensor.concat dim(0) %[[CAST]], %arg1
func.func @dynamic(%x: tensor<1x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %a = tensor.cast %x : tensor<1x4xf32> to tensor<?x4xf32>
  %c = tensor.concat dim(0) %a, %y : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  return %c : tensor<?x4xf32>
}
