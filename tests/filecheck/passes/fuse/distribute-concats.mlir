// RUN: motet opt %s --pipeline distribute-concats | filecheck %s

#same = affine_map<(a, b) -> (a, b)>

// CHECK-LABEL: func.func @main
// CHECK: %[[X:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<4x2xf32>)
// CHECK: %[[Z:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<4x6xf32>)
// CHECK: %[[R:.*]] = tensor.concat dim(1) %[[X]], %[[Z]] {motet.together}
// CHECK: return %[[R]]
func.func @main(%a: tensor<4x2xf32>, %b: tensor<4x6xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c = tensor.concat dim(1) %a, %b : (tensor<4x2xf32>, tensor<4x6xf32>) -> tensor<4x8xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%c, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %w = arith.addf %in, %other : f32
    linalg.yield %w : f32
  } -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
