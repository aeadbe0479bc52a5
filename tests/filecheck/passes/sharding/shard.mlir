// RUN: motet opt %s --pipeline shard | filecheck %s

// The sum over the divided dimension is added among the devices.
// CHECK: "motet.device"() {{.*}}"d0"
// CHECK: "motet.device"() {{.*}}"@d0"{{.*}}"d1"
// CHECK-LABEL: func.func @main
// CHECK: tensor.extract_slice %arg0[0, 0] [4, 4] [1, 1] {motet.affinity = "d0"}
// CHECK: tensor.extract_slice %arg0[0, 4] [4, 4] [1, 1] {motet.affinity = "d0"}
// CHECK: linalg.matmul {motet.affinity = "d0"}{{.*}}tensor<4x4xf32>, tensor<4x6xf32>
// CHECK: linalg.matmul {motet.affinity = "d1"}{{.*}}tensor<4x4xf32>, tensor<4x6xf32>
// CHECK: linalg.generic
// CHECK: arith.addf
module attributes {motet.mesh = "x=2"} {
  func.func @main(%a: tensor<4x8xf32> {motet.sharding = "[][x]"}, %b: tensor<8x6xf32>) -> tensor<4x6xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<4x6xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
    %p = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%f : tensor<4x6xf32>) -> tensor<4x6xf32>
    return %p : tensor<4x6xf32>
  }
}
