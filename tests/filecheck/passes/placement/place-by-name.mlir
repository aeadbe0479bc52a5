// RUN: motet opt %s --pipeline 'place-by-name{layer*=gpu}' | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: math.exp %arg0 : tensor
// CHECK: math.absf {{.*}} {motet.affinity = "gpu"}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x : tensor<4xf32> loc("stem")
  %1 = math.absf %0 : tensor<4xf32> loc("layer1.relu")
  return %1 : tensor<4xf32>
}
