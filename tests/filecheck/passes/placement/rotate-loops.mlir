// RUN: motet opt %s --pipeline rotate-loops | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @main
// CHECK: scf.while
// CHECK-NOT: scf.if
// CHECK: scf.condition
// CHECK: } do {
// CHECK: math.absf {{.*}}motet.affinity = "gpu"
func.func @main(%x: tensor<4xf32>, %most: tensor<f32>) -> tensor<4xf32> {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %c0 = arith.constant 0 : index
  %r = scf.while (%v = %x) : (tensor<4xf32>) -> tensor<4xf32> {
    %first = tensor.extract %v[%c0] : tensor<4xf32>
    %limit = tensor.extract %most[] : tensor<f32>
    %p = arith.cmpf olt, %first, %limit : f32
    %a:2 = scf.if %p -> (tensor<4xf32>, i32) {
      %e = math.exp %v {motet.affinity = "cpu"} : tensor<4xf32>
      %b = math.absf %e {motet.affinity = "gpu"} : tensor<4xf32>
      scf.yield %b, %one : tensor<4xf32>, i32
    } else {
      scf.yield %v, %zero : tensor<4xf32>, i32
    }
    %again = arith.trunci %a#1 : i32 to i1
    scf.condition(%again) %a#0 : tensor<4xf32>
  } do {
  ^bb0(%v: tensor<4xf32>):
    scf.yield %v : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
