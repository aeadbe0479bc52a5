// RUN: motet opt %s --pipeline normalise,outline-kernels,fold-constants | filecheck %s

// The first table, of 16,384 numbers made of four, is computed now; the second one, of 131,072, in each call.
// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<16x1024xf32> {motet.parameter = "folded_
// CHECK-NOT: tensor<128x1024xf32> {motet.parameter
// CHECK: -> tensor<128x1024xf32>
func.func @main(%x: tensor<1024x2xf32>) -> (tensor<16x2xf32>, tensor<128x2xf32>) {
  %w = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %zero = arith.constant 0.0 : f32
  %e16 = tensor.empty() : tensor<16x1024xf32>
  %t16 = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]
  } outs(%e16 : tensor<16x1024xf32>) {
  ^body(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %k = arith.muli %i, %j : index
    %four = arith.constant 4 : index
    %p = arith.remui %k, %four : index
    %v = tensor.extract %w[%p] : tensor<4xf32>
    %s = arith.mulf %v, %v : f32
    linalg.yield %s : f32
  } -> tensor<16x1024xf32>
  %a16 = tensor.empty() : tensor<16x2xf32>
  %f16 = linalg.fill ins(%zero : f32) outs(%a16 : tensor<16x2xf32>) -> tensor<16x2xf32>
  %r16 = linalg.matmul ins(%t16, %x : tensor<16x1024xf32>, tensor<1024x2xf32>) outs(%f16 : tensor<16x2xf32>) -> tensor<16x2xf32>
  %e128 = tensor.empty() : tensor<128x1024xf32>
  %t128 = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]
  } outs(%e128 : tensor<128x1024xf32>) {
  ^body(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %k = arith.muli %i, %j : index
    %four = arith.constant 4 : index
    %p = arith.remui %k, %four : index
    %v = tensor.extract %w[%p] : tensor<4xf32>
    %s = arith.mulf %v, %v : f32
    linalg.yield %s : f32
  } -> tensor<128x1024xf32>
  %a128 = tensor.empty() : tensor<128x2xf32>
  %f128 = linalg.fill ins(%zero : f32) outs(%a128 : tensor<128x2xf32>) -> tensor<128x2xf32>
  %r128 = linalg.matmul ins(%t128, %x : tensor<128x1024xf32>, tensor<1024x2xf32>) outs(%f128 : tensor<128x2xf32>) -> tensor<128x2xf32>
  return %r16, %r128 : tensor<16x2xf32>, tensor<128x2xf32>
}
