// RUN: motet opt %s --pipeline place-operations,insert-transfers,outline-regions | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-NOT: func.func @main(
// CHECK-LABEL: func.func @main_region_0(
// CHECK-SAME: motet.device = "cpu"
// CHECK: math.exp
// CHECK-LABEL: func.func @main_region_1(
// CHECK-SAME: motet.device = "gpu"
// CHECK: math.absf
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x {motet.affinity = "cpu"} : tensor<4xf32>
  %1 = math.absf %0 {motet.affinity = "gpu"} : tensor<4xf32>
  return %1 : tensor<4xf32>
}
