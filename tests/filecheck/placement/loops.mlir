// Turns of a loop over two devices are work of their own; what they insert is inserted behind the loop.
// RUN: motet opt %s --pipeline unroll-placed-loops | filecheck %s
// RUN: motet opt %s --pipeline unroll-placed-loops,place-operations,insert-transfers,fold-transfers,outline-regions,erase-devices | filecheck %s --check-prefix=REGIONS

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @chunks
// CHECK-NOT: scf.for
// CHECK: %[[ONE:.*]] = tensor.extract_slice %arg0[%{{.*}}] [4] [1] {motet.turn = array<i64: 0, 0>}
// CHECK: %[[THERE:.*]] = "motet.transfer"(%[[ONE]]) {motet.turn = array<i64: 0, 0>, to = "gpu"}
// CHECK: %[[EXP:.*]] = math.exp %[[THERE]]
// CHECK: %[[BACK:.*]] = "motet.transfer"(%[[EXP]]) {motet.turn = array<i64: 0, 0>, to = "cpu"}
// CHECK: tensor.extract_slice {{.*}} {motet.turn = array<i64: 0, 1>}
// CHECK: %[[PART:.*]] = tensor.insert_slice %[[BACK]] into %{{.*}} : tensor<4xf32> into tensor<8xf32>
// CHECK: tensor.insert_slice %{{.*}} into %[[PART]]

// Two turns of two regions each, and the one behind the loop.
// REGIONS-COUNT-5: func.func @chunks_region_
// REGIONS-NOT: motet.turn
func.func @chunks(%x: tensor<8xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %e = tensor.empty() : tensor<8xf32>
  %r = scf.for %i = %c0 to %c8 step %c4 iter_args(%acc = %e) -> tensor<8xf32> {
    %a = tensor.extract_slice %x[%i] [4] [1] : tensor<8xf32> to tensor<4xf32>
    %b = "motet.transfer"(%a) {to = "gpu"} : (tensor<4xf32>) -> tensor<4xf32>
    %c = math.exp %b : tensor<4xf32>
    %d = "motet.transfer"(%c) {to = "cpu"} : (tensor<4xf32>) -> tensor<4xf32>
    %t = tensor.insert_slice %d into %acc[%i] [4] [1] : tensor<4xf32> into tensor<8xf32>
    scf.yield %t : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// A loop whose parts run on one device is left alone.
// CHECK-LABEL: func.func @whole
// CHECK: scf.for
// CHECK-NOT: motet.turn
func.func @whole(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %r = scf.for %i = %c0 to %c8 step %c1 iter_args(%v = %x) -> tensor<4xf32> {
    %b = "motet.transfer"(%v) {to = "gpu"} : (tensor<4xf32>) -> tensor<4xf32>
    %c = math.exp %b : tensor<4xf32>
    scf.yield %c : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
