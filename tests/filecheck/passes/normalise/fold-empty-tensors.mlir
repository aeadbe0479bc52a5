// RUN: motet opt %s --pipeline fold-empty-tensors | filecheck %s

// A result without elements needs no work.
// CHECK-LABEL: func.func @no_rows
// CHECK-NOT: linalg.matmul
// CHECK: %[[EMPTY:.*]] = tensor.empty() : tensor<0x16xf32>
// CHECK: return %[[EMPTY]]
func.func @no_rows(%a: tensor<0x8xf32>, %b: tensor<8x16xf32>, %c: tensor<0x16xf32>) -> tensor<0x16xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<0x8xf32>, tensor<8x16xf32>) outs(%c : tensor<0x16xf32>) -> tensor<0x16xf32>
  return %y : tensor<0x16xf32>
}

// A reduction over no elements is what it begins with.
// CHECK-LABEL: func.func @no_terms
// CHECK-NEXT: return %arg2
func.func @no_terms(%a: tensor<4x0xf32>, %b: tensor<0x16xf32>, %c: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<4x0xf32>, tensor<0x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}

// CHECK-LABEL: func.func @plain
// CHECK: linalg.matmul
func.func @plain(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %c: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}
