// RUN: motet opt %s --pipeline read-value-extents | filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %arg2: tensor<?x0xi8> {{.*}}motet.value = ["main.values", 0,
// CHECK: %[[N:.*]] = tensor.dim %arg2
// CHECK: tensor.empty(%[[N]])
func.func @main(%v: tensor<f32>, %r: tensor<1xi64>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %0 = tensor.extract %r[%c0] : tensor<1xi64>
  %n = arith.index_cast %0 : i64 to index
  %e = tensor.empty(%n) : tensor<?xf32>
  %s = linalg.broadcast ins(%v : tensor<f32>) outs(%e : tensor<?xf32>) dimensions = [0]
  return %s : tensor<?xf32>
}

// The element of a splat is no extent.
// CHECK-LABEL: func.func @splat(
// CHECK-SAME: %arg2: tensor<?x0xi8>
// CHECK: %[[ELEMENT:.*]] = tensor.extract %arg0[]
// CHECK: tensor.splat %[[ELEMENT]][%{{.*}}]
func.func @splat(%v: tensor<i64>, %r: tensor<1xi64>) -> tensor<?xi64> {
  %c0 = arith.constant 0 : index
  %0 = tensor.extract %r[%c0] : tensor<1xi64>
  %n = arith.index_cast %0 : i64 to index
  %f = tensor.extract %v[] : tensor<i64>
  %s = tensor.splat %f[%n] : tensor<?xi64>
  return %s : tensor<?xi64>
}

// CHECK-LABEL: func.func @main.values(
// CHECK-SAME: -> tensor<1xi64>
// CHECK: tensor.from_elements
