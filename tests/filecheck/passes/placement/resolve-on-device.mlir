// RUN: motet opt %s --pipeline resolve-on-device | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @main
// CHECK-SAME: %arg0: tensor<4xf32> {motet.affinity = "gpu"}
func.func @main(%x: tensor<4xf32> {memref.on_device = "gpu"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
