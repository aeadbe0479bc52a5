// RUN: motet opt %s --pipeline materialize-devices,resolve-promises | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: {motet.affinity = "gpu"}
// CHECK: "motet.transfer"(%arg0) {to = "gpu[5]"}
util.global private @gpu = #hal.device.alias<"cuda"> : !hal.device
func.func @main(%x: tensor<4xf32> {iree.abi.affinity = #hal.device.promise<@gpu>}) -> tensor<4xf32> {
  %0 = flow.tensor.transfer %x : tensor<4xf32> to #hal.device.affinity<@gpu, [5]>
  return %0 : tensor<4xf32>
}
