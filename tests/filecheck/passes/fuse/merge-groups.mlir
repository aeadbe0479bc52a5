// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),hoist-constants,merge-groups' | filecheck %s

// Two groups of two channels become one of four, with filters that are zero between them.
// CHECK-LABEL: func.func @main
// CHECK-SAME: %arg2: tensor<1x4x4x2x2xf16> {motet.parameter = "constant_0.merged_1"}
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg2 : tensor<1x1x4x3x3xf16>, tensor<1x4x4x2x2xf16>)
func.func @main(%x: tensor<1x2x2x3x3xf16>) -> tensor<1x4x2x2xf32> {
  %k = arith.constant dense<[
    [[[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]], [[[1.5, 2.5], [3.5, 4.5]], [[5.5, 6.5], [7.5, 8.5]]]],
    [[[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]], [[[1.5, 2.5], [3.5, 4.5]], [[5.5, 6.5], [7.5, 8.5]]]]
  ]> : tensor<2x2x2x2x2xf16>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x2x2x2x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x2x2x2x2xf32>) -> tensor<1x2x2x2x2xf32>
  %r = linalg.conv_2d_ngchw_gfchw {strides = dense<1> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
    ins(%x, %k : tensor<1x2x2x3x3xf16>, tensor<2x2x2x2x2xf16>) outs(%f : tensor<1x2x2x2x2xf32>)
    -> tensor<1x2x2x2x2xf32>
  %c = tensor.collapse_shape %r [[0], [1, 2], [3], [4]] : tensor<1x2x2x2x2xf32> into tensor<1x4x2x2xf32>
  return %c : tensor<1x4x2x2xf32>
}
