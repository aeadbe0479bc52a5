// StableHLO is recognised by its operations and lowered to linalg.
// RUN: motet compile %s --emit program | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NOT: stablehlo
func.func public @main(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>) -> tensor<8x6xf32> {
  // CHECK: linalg.matmul
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  // CHECK: math.erf
  %1 = chlo.erf %0 : tensor<4x6xf32> -> tensor<4x6xf32>
  // CHECK: tensor.concat dim(0)
  %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  // CHECK: return
  return %2 : tensor<8x6xf32>
}
