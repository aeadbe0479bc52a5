// RUN: motet opt %s --pipeline slice-after-splitting | filecheck %s

// CHECK-LABEL: func.func @heads
// CHECK: %[[SPLIT:.*]] = tensor.expand_shape %arg0 {{\[}}[0], [1, 2]] output_shape [4, 12, 32]
// CHECK: tensor.extract_slice %[[SPLIT]][0, 4, 0] [4, 4, 32] [1, 1, 1]
func.func @heads(%x: tensor<4x384xf32>) -> tensor<4x4x32xf32> {
  %s = tensor.extract_slice %x[0, 128] [4, 128] [1, 1] : tensor<4x384xf32> to tensor<4x128xf32>
  %e = tensor.expand_shape %s [[0], [1, 2]] output_shape [4, 4, 32] : tensor<4x128xf32> into tensor<4x4x32xf32>
  return %e : tensor<4x4x32xf32>
}

// A slice of half a part stays.
// CHECK-LABEL: func.func @halves
// CHECK: tensor.extract_slice %arg0[0, 16]
// CHECK: tensor.expand_shape
func.func @halves(%x: tensor<4x384xf32>) -> tensor<4x4x32xf32> {
  %s = tensor.extract_slice %x[0, 16] [4, 128] [1, 1] : tensor<4x384xf32> to tensor<4x128xf32>
  %e = tensor.expand_shape %s [[0], [1, 2]] output_shape [4, 4, 32] : tensor<4x128xf32> into tensor<4x4x32xf32>
  return %e : tensor<4x4x32xf32>
}
