// RUN: motet opt %s --pipeline place-loops-on-fallback | filecheck %s

"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()
"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()

// CHECK-LABEL: func.func @main
// CHECK: scf.while
// CHECK: } attributes {motet.affinity = "cpu"}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %r = scf.while (%s = %x) : (tensor<4xf32>) -> tensor<4xf32> {
    %v = tensor.extract %s[%c0] : tensor<4xf32>
    %more = arith.cmpf ogt, %v, %zero : f32
    scf.condition(%more) %s : tensor<4xf32>
  } do {
  ^bb0(%t: tensor<4xf32>):
    %n = arith.subf %t, %t : tensor<4xf32>
    scf.yield %n : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
