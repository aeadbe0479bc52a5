// RUN: motet opt %s --pipeline fold-uninitialized-slices | filecheck %s

// CHECK-LABEL: func.func @slice
// CHECK-NOT: tensor.extract_slice
// CHECK: %[[EMPTY:.*]] = tensor.empty() : tensor<2x12x8xf32>
// CHECK: tensor.insert_slice %arg0 into %[[EMPTY]]
func.func @slice(%x: tensor<2x12x4xf32>) -> tensor<2x12x8xf32> {
  %0 = tensor.empty() : tensor<2x12x11xf32>
  %1 = tensor.extract_slice %0[0, 0, 1] [2, 12, 8] [1, 1, 1] : tensor<2x12x11xf32> to tensor<2x12x8xf32>
  %2 = tensor.insert_slice %x into %1[0, 0, 0] [2, 12, 4] [1, 1, 1] : tensor<2x12x4xf32> into tensor<2x12x8xf32>
  return %2 : tensor<2x12x8xf32>
}

// CHECK-LABEL: func.func @reshape
// CHECK-NOT: tensor.expand_shape
// CHECK: tensor.empty() : tensor<2x3xf32>
func.func @reshape(%x: f32) -> tensor<2x3xf32> {
  %e = tensor.empty() : tensor<6xf32>
  %s = tensor.expand_shape %e [[0, 1]] output_shape [2, 3] : tensor<6xf32> into tensor<2x3xf32>
  %f = linalg.fill ins(%x : f32) outs(%s : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %f : tensor<2x3xf32>
}
