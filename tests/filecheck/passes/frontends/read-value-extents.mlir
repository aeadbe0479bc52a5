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

// What the function of values computes by a loop is not computed twice.
// CHECK-LABEL: func.func @shared(
// CHECK-SAME: %arg1: tensor<?x0xi8> {{.*}}"shared.values", 0, {{.*}}, 0]
// CHECK-SAME: %arg2: tensor<999xi64> {{.*}}"shared.values", 0, {{.*}}, 1]
// CHECK-NOT: scf.for
// CHECK: tensor.extract_slice %arg2
func.func @shared(%x: tensor<999xi64>) -> tensor<?xi64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c999 = arith.constant 999 : index
  %0 = scf.for %i = %c0 to %c999 step %c1 iter_args(%t = %x) -> tensor<999xi64> {
    %v = tensor.extract %t[%c0] : tensor<999xi64>
    %s = tensor.insert %v into %t[%i] : tensor<999xi64>
    scf.yield %s : tensor<999xi64>
  }
  %1 = tensor.extract %0[%c0] : tensor<999xi64>
  %n = arith.index_cast %1 : i64 to index
  %y = tensor.extract_slice %0[0] [%n] [1] : tensor<999xi64> to tensor<?xi64>
  return %y : tensor<?xi64>
}

// CHECK-LABEL: func.func @main.values(
// CHECK-SAME: -> tensor<1xi64>
// CHECK: tensor.from_elements
// CHECK-LABEL: func.func @shared.values(
// CHECK-SAME: -> (tensor<1xi64>, tensor<999xi64>)
// CHECK: scf.for
