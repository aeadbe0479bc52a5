// RUN: motet opt %s --pipeline resolve-globals | filecheck %s

// CHECK-NOT: util.global
// CHECK-LABEL: func.func @main
// CHECK: %[[W:.*]] = arith.constant dense<[1.{{.*}}, 2.{{.*}}]> : tensor<2xf32>
// CHECK: arith.addf %arg0, %[[W]]
util.global private @w = dense<[1.0, 2.0]> : tensor<2xf32>
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %w = util.global.load @w : tensor<2xf32>
  %0 = arith.addf %x, %w : tensor<2xf32>
  return %0 : tensor<2xf32>
}
