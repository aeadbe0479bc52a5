// RUN: motet opt %s --pipeline place-operations,fold-transfers | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()
"motet.device"() {sym_name = "npu", alternatives = ["null"]} : () -> ()

// From cpu to gpu to npu is from cpu to npu.
// CHECK-LABEL: func.func @main
// CHECK: %[[E:.*]] = math.exp
// CHECK-NOT: to = "gpu"
// CHECK: %[[T:.*]] = "motet.transfer"(%[[E]]) {{.*}}to = "npu"
// CHECK: math.absf %[[T]]
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {motet.affinity = "npu"}) {
  %0 = math.exp %x {motet.affinity = "cpu"} : tensor<4xf32>
  %1 = "motet.transfer"(%0) {to = "gpu"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "motet.transfer"(%1) {to = "npu"} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = math.absf %2 {motet.affinity = "npu"} : tensor<4xf32>
  return %3 : tensor<4xf32>
}
