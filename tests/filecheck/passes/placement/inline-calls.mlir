// RUN: motet opt %s --pipeline inline-calls | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @main
// CHECK-NOT: call
// CHECK: %[[X:.*]] = "motet.transfer"(%arg0) {to = "gpu"}
// CHECK: math.exp %[[X]] {motet.affinity = "gpu"}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @g(%y: tensor<4xf32> {motet.affinity = "gpu"}) -> tensor<4xf32> attributes {motet.affinity = "gpu"} {
  %0 = math.exp %y : tensor<4xf32>
  return %0 : tensor<4xf32>
}
