// RUN: motet opt %s --pipeline flatten-concats | filecheck %s

// A rotation of two axes copies four parts of its argument.
// CHECK-LABEL: func.func @rotation
// CHECK-NOT: tensor.concat
// CHECK: %[[A:.*]] = tensor.extract_slice %arg0[3, 5] [4, 3] [1, 1]
// CHECK: tensor.insert_slice %[[A]] into {{.*}}[0, 0] [4, 3] [1, 1]
// CHECK: %[[B:.*]] = tensor.extract_slice %arg0[0, 5] [3, 3] [1, 1]
// CHECK: tensor.insert_slice %[[B]] into {{.*}}[4, 0] [3, 3] [1, 1]
// CHECK: %[[C:.*]] = tensor.extract_slice %arg0[3, 0] [4, 5] [1, 1]
// CHECK: tensor.insert_slice %[[C]] into {{.*}}[0, 3] [4, 5] [1, 1]
// CHECK: %[[D:.*]] = tensor.extract_slice %arg0[0, 0] [3, 5] [1, 1]
// CHECK: %[[R:.*]] = tensor.insert_slice %[[D]] into {{.*}}[4, 3] [3, 5] [1, 1]
// CHECK: return %[[R]]
func.func @rotation(%x: tensor<7x8xf32>) -> tensor<7x8xf32> {
  %a = tensor.extract_slice %x[3, 0] [4, 8] [1, 1] : tensor<7x8xf32> to tensor<4x8xf32>
  %b = tensor.extract_slice %x[0, 0] [3, 8] [1, 1] : tensor<7x8xf32> to tensor<3x8xf32>
  %c = tensor.concat dim(0) %a, %b : (tensor<4x8xf32>, tensor<3x8xf32>) -> tensor<7x8xf32>
  %d = tensor.extract_slice %c[0, 5] [7, 3] [1, 1] : tensor<7x8xf32> to tensor<7x3xf32>
  %e = tensor.extract_slice %c[0, 0] [7, 5] [1, 1] : tensor<7x8xf32> to tensor<7x5xf32>
  %f = tensor.concat dim(1) %d, %e : (tensor<7x3xf32>, tensor<7x5xf32>) -> tensor<7x8xf32>
  return %f : tensor<7x8xf32>
}

// What is read as a whole is stored, and copied from there.
// CHECK-LABEL: func.func @stored
// CHECK: tensor.concat
// CHECK: tensor.concat
func.func @stored(%x: tensor<3xf32>, %y: tensor<4xf32>) -> (tensor<7xf32>, tensor<10xf32>) {
  %a = tensor.concat dim(0) %x, %y : (tensor<3xf32>, tensor<4xf32>) -> tensor<7xf32>
  %b = tensor.concat dim(0) %a, %x : (tensor<7xf32>, tensor<3xf32>) -> tensor<10xf32>
  return %a, %b : tensor<7xf32>, tensor<10xf32>
}
