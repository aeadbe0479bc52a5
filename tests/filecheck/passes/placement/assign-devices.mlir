// RUN: motet opt %s --pipeline 'assign-devices{gpu=null npu=cuda[1],@gpu}' | filecheck %s

// CHECK-DAG: "motet.device"() {alternatives = ["host"], sym_name = "cpu"}
// CHECK-DAG: "motet.device"() {alternatives = ["null"], sym_name = "gpu"}
// CHECK-DAG: "motet.device"() {alternatives = ["cuda[1]", "@gpu"], sym_name = "npu"}
"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda"]} : () -> ()
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
