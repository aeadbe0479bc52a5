// RUN: motet opt %s --pipeline verify-devices | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// What names devices that there are passes.
// CHECK-LABEL: func.func @main
// CHECK: math.exp {{.*}} {motet.affinity = "gpu"}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x {motet.affinity = "gpu"} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
