// RUN: motet opt %s --pipeline place-operations,insert-transfers,outline-regions,check-code | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// Code can be made for both devices: the regions stay as they are.
// CHECK-LABEL: func.func @main_region_0
// CHECK-SAME: motet.device = "gpu"
// CHECK: math.exp
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x {motet.affinity = "gpu"} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
