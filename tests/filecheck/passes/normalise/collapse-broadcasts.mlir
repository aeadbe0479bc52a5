// RUN: motet opt %s --pipeline collapse-broadcasts | filecheck %s

#whole = affine_map<(a, b, c, d) -> (a, b, c, d)>
#matrix = affine_map<(a, b, c, d) -> (c, d)>
#stack = affine_map<(a, b, c, d) -> (b, c, d)>

// CHECK-LABEL: func.func @known
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<64x128xf32>) outs(%{{.*}} : tensor<16x64x128xf32>)
// CHECK-NOT: tensor.collapse_shape
func.func @known(%w: tensor<64x128xf32>) -> tensor<16x64x128xf32> {
  %0 = tensor.empty() : tensor<2x8x64x128xf32>
  %b = linalg.generic {
      indexing_maps = [#matrix, #whole], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<64x128xf32>) outs(%0 : tensor<2x8x64x128xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2x8x64x128xf32>
  %c = tensor.collapse_shape %b [[0, 1], [2], [3]] : tensor<2x8x64x128xf32> into tensor<16x64x128xf32>
  return %c : tensor<16x64x128xf32>
}

// CHECK-LABEL: func.func @dynamic
// CHECK: %[[n:.*]] = arith.muli
// CHECK: tensor.empty(%[[n]]) : tensor<?x64x128xf32>
// CHECK-NOT: tensor.collapse_shape
func.func @dynamic(%w: tensor<64x128xf32>, %n: index) -> tensor<?x64x128xf32> {
  %0 = tensor.empty(%n) : tensor<?x8x64x128xf32>
  %b = linalg.generic {
      indexing_maps = [#matrix, #whole], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<64x128xf32>) outs(%0 : tensor<?x8x64x128xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<?x8x64x128xf32>
  %c = tensor.collapse_shape %b [[0, 1], [2], [3]] : tensor<?x8x64x128xf32> into tensor<?x64x128xf32>
  return %c : tensor<?x64x128xf32>
}

// The input has one of the dimensions that are merged: no element of it is found by the merged one.
// CHECK-LABEL: func.func @stack
// CHECK: tensor.collapse_shape
func.func @stack(%w: tensor<8x64x128xf32>) -> tensor<16x64x128xf32> {
  %0 = tensor.empty() : tensor<2x8x64x128xf32>
  %b = linalg.generic {
      indexing_maps = [#stack, #whole], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<8x64x128xf32>) outs(%0 : tensor<2x8x64x128xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2x8x64x128xf32>
  %c = tensor.collapse_shape %b [[0, 1], [2], [3]] : tensor<2x8x64x128xf32> into tensor<16x64x128xf32>
  return %c : tensor<16x64x128xf32>
}
