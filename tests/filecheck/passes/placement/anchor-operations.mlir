// RUN: motet opt %s --pipeline anchor-operations | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[X:.*]] = "motet.transfer"(%arg0) {to = "gpu"}
// CHECK: tosa.add %[[X]]
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = "tosa.const"() {values = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = tosa.add %x, %c {motet.affinity = "gpu"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
