// RUN: motet opt %s --pipeline read-devices,lower-to-tensors,place | filecheck %s

// Each function becomes regions of one device each.
// CHECK-NOT: motet.device"
// CHECK-LABEL: func.func @main_region_0(
// CHECK-SAME: motet.device = "a"
// CHECK: math.exp
// CHECK-LABEL: func.func @main_region_1(
// CHECK-SAME: motet.device = "b"
// CHECK: math.absf
// CHECK-NOT: motet.affinity
util.global private @a = #hal.device.alias<"local"[0]> : !hal.device
util.global private @b = #hal.device.alias<"local"[1]> : !hal.device
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x {stream.affinity = #hal.device.affinity<@a>} : tensor<4xf32>
  %1 = math.absf %0 {stream.affinity = #hal.device.affinity<@b>} : tensor<4xf32>
  return %1 : tensor<4xf32>
}
