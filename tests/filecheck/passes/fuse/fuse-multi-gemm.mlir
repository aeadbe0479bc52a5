// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),fuse-multi-gemm' | filecheck %s

#same = affine_map<(a, b) -> (a, b)>

// CHECK-LABEL: func.func @main
// CHECK-COUNT-3: motet.joined = 0
func.func @main(
    %a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %c: tensor<4x8xf32>, %d: tensor<8x16xf32>, %begin: tensor<4x16xf32>
) -> tensor<4x16xf32> {
  %1 = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x16xf32>) outs(%begin : tensor<4x16xf32>) -> tensor<4x16xf32>
  %2 = linalg.matmul ins(%c, %d : tensor<4x8xf32>, tensor<8x16xf32>) outs(%begin : tensor<4x16xf32>) -> tensor<4x16xf32>
  %e = tensor.empty() : tensor<4x16xf32>
  %3 = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%1, %2 : tensor<4x16xf32>, tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %v = arith.addf %l, %r : f32
    linalg.yield %v : f32
  } -> tensor<4x16xf32>
  return %3 : tensor<4x16xf32>
}
