// RUN: motet opt %s --pipeline place-operations | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// An operation runs where the values are that it reads, if the program does not say where.
// CHECK-LABEL: func.func @main
// CHECK: math.exp %arg0 {motet.affinity = "cpu"}
// CHECK: math.absf {{.*}} {motet.affinity = "gpu"}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x : tensor<4xf32>
  %1 = "motet.transfer"(%0) {to = "gpu"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = math.absf %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}
