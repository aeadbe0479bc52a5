// RUN: motet opt %s --pipeline resolve-aliases | filecheck %s

// CHECK: "motet.device"() {alternatives = ["host[1]", "cuda"], sym_name = "a"}
"motet.device"() {sym_name = "a", alternatives = ["local[1]", "cuda-nvptx", "host[1]"]} : () -> ()
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
