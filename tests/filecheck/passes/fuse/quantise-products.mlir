// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),quantise-products' | filecheck %s

// One scale for each row, computed in the call, and one for each column of the weights.
// CHECK-LABEL: func.func @main
// CHECK: math.absf
// CHECK: arith.maximumf
// CHECK: -> tensor<?xf32>
// CHECK: math.roundeven
// CHECK: arith.fptosi
// CHECK: -> tensor<?x32xi8>
// CHECK: arith.sitofp
// CHECK: -> tensor<8xf32>
// CHECK: -> tensor<32x8xi8>
// CHECK: ins(%{{.*}}, %{{.*}} : tensor<?x32xf32>, tensor<32x8xf32>)
func.func @main(%x: tensor<?x32xf32>, %w: tensor<32x8xf32> {motet.parameter = "w"}, %c: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %p = linalg.matmul ins(%x, %w : tensor<?x32xf32>, tensor<32x8xf32>) outs(%c : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %p : tensor<?x8xf32>
}

// Two operands that are computed, and short sums, stay as they are.
// CHECK-LABEL: func.func @others
// CHECK-NOT: roundeven
func.func @others(%x: tensor<4x32xf32>, %y: tensor<32x8xf32>, %w: tensor<8x5xf32> {motet.parameter = "w"},
                  %c: tensor<4x8xf32>, %d: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %p = linalg.matmul ins(%x, %y : tensor<4x32xf32>, tensor<32x8xf32>) outs(%c : tensor<4x8xf32>) -> tensor<4x8xf32>
  %q = linalg.matmul ins(%p, %w : tensor<4x8xf32>, tensor<8x5xf32>) outs(%d : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %q : tensor<4x5xf32>
}
