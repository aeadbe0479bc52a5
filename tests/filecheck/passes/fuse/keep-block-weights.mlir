// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),hoist-constants,keep-block-weights{smallest=64}' | filecheck %s

#all = affine_map<(a, b, c) -> (a, b, c)>
#each = affine_map<(a, b, c) -> (a, 0, c)>

// Rows in blocks of 16: words of eight numbers, and one scale for each block and column.
// CHECK-LABEL: func.func @blocks
// CHECK-SAME: tensor<2x2x8xi32> {motet.parameter = "blocks_
// CHECK-SAME: tensor<2x8xf16> {motet.parameter = "blocks_
// CHECK: tensor.expand_shape %arg0 {{.*}} tensor<3x32xf32> into tensor<3x2x2x8xf32>
// CHECK: linalg.generic {{.*}} ins({{.*}} : tensor<3x2x2x8xf32>, tensor<2x2x8xi32>, tensor<2x8xf16>)
// CHECK: linalg.index
// CHECK: arith.shli
// CHECK: arith.shrsi
// CHECK: arith.sitofp
// CHECK-NOT: tensor<32x8xf32>
func.func @blocks(%x: tensor<3x32xf32>) -> tensor<3x8xf32> {
  %bytes = arith.constant dense<"0xff000102030405060707f9fafbfcfdfe00000000000000000001020304050607ff000102030405060707f9fafbfcfdfe00000000000000000001020304050607ff000102030405060707f9fafbfcfdfe00000000000000000001020304050607ff000102030405060707f9fafbfcfdfe00000000000000000001020304050607ff000102030405060707f9fafbfcfdfe00000000000000000001020304050607ff000102030405060707f9fafbfcfdfe00000000000000000001020304050607ff000102030405060707f9fafbfcfdfe00000000000000000001020304050607ff000102030405060707f9fafbfcfdfe00000000000000000001020304050607"> : tensor<2x16x8xi8>
  %scales = arith.constant dense<[[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]], [[0.5, 0.25, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]]> : tensor<2x1x8xf32>
  %a = tensor.empty() : tensor<2x16x8xf32>
  %w = linalg.generic {indexing_maps = [#all, #each, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%bytes, %scales : tensor<2x16x8xi8>, tensor<2x1x8xf32>) outs(%a : tensor<2x16x8xf32>) {
  ^bb0(%in: i8, %s: f32, %out: f32):
    %f = arith.sitofp %in : i8 to f32
    %r = arith.mulf %f, %s : f32
    linalg.yield %r : f32
  } -> tensor<2x16x8xf32>
  %m = tensor.collapse_shape %w [[0, 1], [2]] : tensor<2x16x8xf32> into tensor<32x8xf32>
  %e = tensor.empty() : tensor<3x8xf32>
  %z = arith.constant 0.0 : f32
  %c = linalg.fill ins(%z : f32) outs(%e : tensor<3x8xf32>) -> tensor<3x8xf32>
  %y = linalg.matmul ins(%x, %m : tensor<3x32xf32>, tensor<32x8xf32>) outs(%c : tensor<3x8xf32>) -> tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}

// Weights that are floats stay as they are.
// CHECK-LABEL: func.func @floats
// CHECK-NOT: arith.shli
func.func @floats(%x: tensor<3x32xf32>, %w: tensor<32x8xf32>) -> tensor<3x8xf32> {
  %e = tensor.empty() : tensor<3x8xf32>
  %z = arith.constant 0.0 : f32
  %c = linalg.fill ins(%z : f32) outs(%e : tensor<3x8xf32>) -> tensor<3x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<3x32xf32>, tensor<32x8xf32>) outs(%c : tensor<3x8xf32>) -> tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}
