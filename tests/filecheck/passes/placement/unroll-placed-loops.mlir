// RUN: motet opt %s --pipeline unroll-placed-loops | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @main
// CHECK-NOT: scf.for
// CHECK: math.exp {{.*}}motet.affinity = "cpu"
// CHECK: math.absf {{.*}}motet.affinity = "gpu"
// CHECK: math.exp {{.*}}motet.affinity = "cpu"
// CHECK: math.absf {{.*}}motet.affinity = "gpu"
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %r = scf.for %i = %c0 to %c2 step %c1 iter_args(%s = %x) -> (tensor<4xf32>) {
    %a = math.exp %s {motet.affinity = "cpu"} : tensor<4xf32>
    %b = math.absf %a {motet.affinity = "gpu"} : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
