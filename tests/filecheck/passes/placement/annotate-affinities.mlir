// RUN: motet opt %s --pipeline annotate-affinities | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda", "@cpu"]} : () -> ()

// CHECK-LABEL: func.func @main
// CHECK: math.exp {{.*}}motet.affinities.execution = "cpu"{{.*}}motet.affinities.uses = ["gpu"]
// CHECK: "motet.transfer"{{.*}}motet.affinities.operands = ["cpu"]{{.*}}motet.affinities.results = ["gpu"]
// CHECK: math.absf {{.*}}motet.affinities.execution = "gpu"
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x : tensor<4xf32>
  %1 = "motet.transfer"(%0) {to = "gpu"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = math.absf %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}
