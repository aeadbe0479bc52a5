// RUN: motet opt %s --pipeline erase-devices | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-NOT: motet
// CHECK-LABEL: func.func @main(%arg0: tensor<4xf32>)
// CHECK-NEXT: math.exp %arg0 : tensor<4xf32>
// CHECK-NOT: motet
func.func @main(%x: tensor<4xf32> {motet.affinity = "gpu"}) -> tensor<4xf32> {
  %0 = "motet.transfer"(%x) {to = "gpu"} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = math.exp %0 {motet.affinity = "gpu"} : tensor<4xf32>
  return %1 : tensor<4xf32>
}
