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

// What is computed of constants is in the region of its first reader, though it could run before the transfer.
// CHECK-LABEL: func.func @folded_region_1(
// CHECK-SAME: motet.device = "gpu"
// CHECK: tensor.extract_slice
// CHECK: arith.addf
// CHECK-NOT: func.func @folded_region_2(
func.func @folded(%x: tensor<4xf32>) -> (tensor<4xf32> {stream.affinity = "gpu"}) {
  %w = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]> : tensor<6xf32>
  %part = tensor.extract_slice %w[1] [4] [1] {motet.affinity = "gpu"} : tensor<6xf32> to tensor<4xf32>
  %0 = math.exp %x {motet.affinity = "cpu"} : tensor<4xf32>
  %1 = arith.addf %0, %part {motet.affinity = "gpu"} : tensor<4xf32>
  return %1 : tensor<4xf32>
}
