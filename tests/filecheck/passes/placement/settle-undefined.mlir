// RUN: motet opt %s --pipeline settle-undefined | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[X:.*]]: tensor<?xf32>, %[[C:.*]]: i1
// CHECK-NOT: ub.poison
// CHECK-DAG: %[[EMPTY:.*]] = tensor.empty() : tensor<4xf32>
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[ONE:.*]] = arith.constant 0.000000e+00 : bf16
// CHECK-DAG: %[[NONE:.*]] = tensor.empty({{.*}}) : tensor<?x2xi8>
// CHECK: return %[[EMPTY]], %[[ZERO]], %[[ONE]], %[[X]], %[[NONE]]
func.func @main(%x: tensor<?xf32>, %c: i1) -> (tensor<4xf32>, index, bf16, tensor<?xf32>, tensor<?x2xi8>) {
  %0 = ub.poison : tensor<4xf32>
  %1 = ub.poison : index
  %2 = ub.poison : bf16
  %3 = ub.poison : tensor<?xf32>
  %4 = ub.poison : tensor<?x2xi8>
  %unread = ub.poison : tensor<2xf32>
  return %0, %1, %2, %3, %4 : tensor<4xf32>, index, bf16, tensor<?xf32>, tensor<?x2xi8>
}
