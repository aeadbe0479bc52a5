// What cannot be read is one line, at the user's line and column.
// RUN: not motet compile %s --emit program 2>&1 | filecheck %s

func.func @f(%a: memref<4xf32>) {
  %0 = bufferization.to_tensor %a restrict : memref<4xf32>
  // CHECK: error: {{.*}}unknown-operation.mlir:7:8: vendor.magic: unknown operation
  %1 = vendor.magic %0 : tensor<4xf32>
  return
}
