// RUN: motet opt %s --pipeline place-operations,insert-transfers | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @main
// CHECK: %[[E:.*]] = math.exp %arg0 {motet.affinity = "cpu"}
// CHECK: %[[T:.*]] = "motet.transfer"(%[[E]]) {to = "gpu"}
// CHECK: math.absf %[[T]] {motet.affinity = "gpu"}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x {motet.affinity = "cpu"} : tensor<4xf32>
  %1 = math.absf %0 {motet.affinity = "gpu"} : tensor<4xf32>
  return %1 : tensor<4xf32>
}
