// RUN: motet opt %s --pipeline outline-loops | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @main_loop_0_condition
// CHECK: arith.cmpf olt
// CHECK-LABEL: func.func @main_loop_0_body
// CHECK: math.absf {{.*}}motet.affinity = "gpu"
// CHECK-LABEL: func.func @main(
// CHECK-NOT: scf.while
// CHECK: "motet.loop"
// CHECK-SAME: body = "main_loop_0_body"
// CHECK-SAME: condition = "main_loop_0_condition"
func.func @main(%x: tensor<4xf32>, %most: tensor<f32>) -> tensor<4xf32> {
  %r = scf.while (%v = %x) : (tensor<4xf32>) -> tensor<4xf32> {
    %c0 = arith.constant 0 : index
    %first = tensor.extract %v[%c0] : tensor<4xf32>
    %limit = tensor.extract %most[] : tensor<f32>
    %p = arith.cmpf olt, %first, %limit : f32
    scf.condition(%p) %v : tensor<4xf32>
  } do {
  ^bb0(%v: tensor<4xf32>):
    %a = math.exp %v {motet.affinity = "cpu"} : tensor<4xf32>
    %b = math.absf %a {motet.affinity = "gpu"} : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
