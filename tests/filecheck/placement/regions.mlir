// A function over two devices: operations placed, values moved, and one function for what runs between two moves.
// RUN: motet opt %s --pipeline place-operations,insert-transfers,fold-transfers | filecheck %s
// RUN: motet opt %s --pipeline place-operations,insert-transfers,fold-transfers,outline-regions,erase-devices | filecheck %s --check-prefix=REGIONS

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @f
// REGIONS-NOT: func.func @f(
// REGIONS-LABEL: func.func @f_region_0(
// REGIONS-SAME: motet.device = "cpu"
// REGIONS: math.exp
// REGIONS-LABEL: func.func @f_region_1(
// REGIONS-SAME: motet.device = "gpu"
// REGIONS: arith.constant
// REGIONS: arith.addf
// REGIONS-NOT: motet
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: arith.constant {motet.affinity = "gpu"}
  %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  // CHECK: %[[EXP:.*]] = math.exp %arg0 {motet.affinity = "cpu"}
  // CHECK: %[[MOVED:.*]] = "motet.transfer"(%[[EXP]]) {to = "gpu"}
  // CHECK-NOT: motet.transfer
  %0 = math.exp %x : tensor<4xf32>
  %1 = "motet.transfer"(%0) {to = "gpu"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "motet.transfer"(%1) {to = "cpu"} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "motet.transfer"(%2) {to = "gpu"} : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: arith.addf %[[MOVED]], {{.*}} {motet.affinity = "gpu"}
  %4 = arith.addf %3, %c : tensor<4xf32>
  return %4 : tensor<4xf32>
}
