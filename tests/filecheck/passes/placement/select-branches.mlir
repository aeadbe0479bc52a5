// RUN: motet opt %s --pipeline select-branches | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @main
// CHECK-NOT: scf.if
// CHECK-DAG: %[[A:.*]] = math.exp {{.*}}motet.affinity = "cpu"
// CHECK-DAG: %[[B:.*]] = math.absf {{.*}}motet.affinity = "gpu"
// CHECK: arith.select %arg0, %[[A]], %[[B]]
func.func @main(%c: i1, %x: tensor<4xf32>) -> tensor<4xf32> {
  %r = scf.if %c -> (tensor<4xf32>) {
    %a = math.exp %x {motet.affinity = "cpu"} : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    %b = math.absf %x {motet.affinity = "gpu"} : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// One side has no value: there is nothing to select.
// CHECK-LABEL: func.func @one_side
// CHECK: %[[B:.*]] = math.absf {{.*}}motet.affinity = "gpu"
// CHECK: return %[[B]]
func.func @one_side(%c: i1, %x: tensor<4xf32>) -> tensor<4xf32> {
  %undefined = ub.poison : tensor<4xf32>
  %r:2 = scf.if %c -> (tensor<4xf32>, tensor<4xf32>) {
    %a = math.exp %x {motet.affinity = "cpu"} : tensor<4xf32>
    %b = math.absf %a {motet.affinity = "gpu"} : tensor<4xf32>
    scf.yield %a, %b : tensor<4xf32>, tensor<4xf32>
  } else {
    scf.yield %undefined, %undefined : tensor<4xf32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
