// Spellings of earlier MLIR read as those of today.
// RUN: motet compile %s --emit program | filecheck %s

// CHECK-DAG: #[[MK:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[NK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[MN:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-LABEL: func.func @f
func.func @f(%a: tensor<4x8xf32>, %b: tensor<6x8xf32>, %c: tensor<4x6xf32>) -> tensor<2x2x6xf32> {
  // CHECK: linalg.matmul indexing_maps = [#[[MK]], #[[NK]], #[[MN]]] ins(%arg0, %arg1
  %0 = linalg.matmul_transpose_b ins(%a, %b : tensor<4x8xf32>, tensor<6x8xf32>)
    outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  // CHECK: tensor.empty() : tensor<4x6xf32>
  %1 = linalg.init_tensor [4, 6] : tensor<4x6xf32>
  // CHECK: linalg.elementwise kind=#linalg.elementwise_kind<tanh>
  %2 = linalg.elemwise_unary {fun = #linalg.unary_fn<tanh>} ins(%0 : tensor<4x6xf32>)
    outs(%1 : tensor<4x6xf32>) -> tensor<4x6xf32>
  // CHECK: arith.maximumf
  %3 = arith.maxf %2, %c : tensor<4x6xf32>
  // CHECK: tensor.expand_shape {{.*}} output_shape [2, 2, 6]
  %4 = tensor.expand_shape %3 [[0, 1], [2]] : tensor<4x6xf32> into tensor<2x2x6xf32>
  return %4 : tensor<2x2x6xf32>
}
