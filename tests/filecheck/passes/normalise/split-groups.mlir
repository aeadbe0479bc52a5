// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),split-groups,canonicalize' | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[SPLIT:.*]] = tensor.expand_shape %arg0 {{.*}} into tensor<1x4x2x6x6xf32>
// CHECK: %[[PAD:.*]] = tensor.pad %[[SPLIT]]
// CHECK: %[[CONV:.*]] = linalg.generic {{.*}} ins(%[[PAD]], %arg1
// CHECK: %[[RELU:.*]] = linalg.generic {{.*}} ins(%[[CONV]]
// CHECK: arith.maximumf
// CHECK: tensor.collapse_shape %[[RELU]]
func.func @main(%x: tensor<1x8x6x6xf32>, %k: tensor<4x2x2x3x3xf32>) -> tensor<1x8x6x6xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %zero : f32
  } : tensor<1x8x6x6xf32> to tensor<1x8x8x8xf32>
  %e = tensor.expand_shape %p [[0], [1, 2], [3], [4]] output_shape [1, 4, 2, 8, 8]
    : tensor<1x8x8x8xf32> into tensor<1x4x2x8x8xf32>
  %o = tensor.empty() : tensor<1x4x2x6x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<1x4x2x6x6xf32>) -> tensor<1x4x2x6x6xf32>
  %r = linalg.conv_2d_ngchw_gfchw {strides = dense<1> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
    ins(%e, %k : tensor<1x4x2x8x8xf32>, tensor<4x2x2x3x3xf32>) outs(%f : tensor<1x4x2x6x6xf32>)
    -> tensor<1x4x2x6x6xf32>
  %c = tensor.collapse_shape %r [[0], [1, 2], [3], [4]] : tensor<1x4x2x6x6xf32> into tensor<1x8x6x6xf32>
  %w = tensor.empty() : tensor<1x8x6x6xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<1x8x6x6xf32>) outs(%w : tensor<1x8x6x6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.maximumf %in, %zero : f32
    linalg.yield %v : f32
  } -> tensor<1x8x6x6xf32>
  return %y : tensor<1x8x6x6xf32>
}

// CHECK-LABEL: func.func @dynamic_batch
// CHECK: %[[SPLIT:.*]] = tensor.expand_shape %arg0 {{.*}} into tensor<?x4x2x6x6xf32>
// CHECK: %[[PAD:.*]] = tensor.pad %[[SPLIT]]
// CHECK: %[[CONV:.*]] = linalg.generic {{.*}} ins(%[[PAD]], %arg1
// CHECK: %[[RELU:.*]] = linalg.generic {{.*}} ins(%[[CONV]]
// CHECK: arith.maximumf
// CHECK: tensor.collapse_shape %[[RELU]]
func.func @dynamic_batch(%x: tensor<?x8x6x6xf32>, %k: tensor<4x2x2x3x3xf32>) -> tensor<?x8x6x6xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8x6x6xf32>
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %zero : f32
  } : tensor<?x8x6x6xf32> to tensor<?x8x8x8xf32>
  %e = tensor.expand_shape %p [[0], [1, 2], [3], [4]] output_shape [%n, 4, 2, 8, 8]
    : tensor<?x8x8x8xf32> into tensor<?x4x2x8x8xf32>
  %o = tensor.empty(%n) : tensor<?x4x2x6x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<?x4x2x6x6xf32>) -> tensor<?x4x2x6x6xf32>
  %r = linalg.conv_2d_ngchw_gfchw {strides = dense<1> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
    ins(%e, %k : tensor<?x4x2x8x8xf32>, tensor<4x2x2x3x3xf32>) outs(%f : tensor<?x4x2x6x6xf32>)
    -> tensor<?x4x2x6x6xf32>
  %c = tensor.collapse_shape %r [[0], [1, 2], [3], [4]] : tensor<?x4x2x6x6xf32> into tensor<?x8x6x6xf32>
  %w = tensor.empty(%n) : tensor<?x8x6x6xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<?x8x6x6xf32>) outs(%w : tensor<?x8x6x6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.maximumf %in, %zero : f32
    linalg.yield %v : f32
  } -> tensor<?x8x6x6xf32>
  return %y : tensor<?x8x6x6xf32>
}
