// RUN: motet opt %s --pipeline place-automatically | filecheck %s

"motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
"motet.device"() {sym_name = "gpu", alternatives = ["cuda"]} : () -> ()

// A product of this size pays for its transfers, what the program says of an operation stands.
// CHECK-LABEL: func.func @main
// CHECK: linalg.matmul {motet.affinity = "gpu", motet.stage = {{[0-9]+}}
// CHECK: math.exp {{.*}}motet.affinity = "cpu"
func.func @main(%a: tensor<4096x4096xf32>, %b: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %p = linalg.matmul ins(%a, %b : tensor<4096x4096xf32>, tensor<4096x4096xf32>) outs(%f : tensor<4096x4096xf32>)
    -> tensor<4096x4096xf32>
  %r = math.exp %p {motet.affinity = "cpu"} : tensor<4096x4096xf32>
  return %r : tensor<4096x4096xf32>
}
