// RUN: motet opt %s --pipeline materialize-devices | filecheck %s

// CHECK: "motet.device"() {alternatives = ["cuda", "hip[2]"], sym_name = "gpu"}
util.global private @gpu = #hal.device.select<[#hal.device.alias<"cuda">, #hal.device.alias<"hip"[2]>]> : !hal.device
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
