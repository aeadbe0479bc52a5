// Devices, defaults, links and affinities of other compilers become Motet's own.
// RUN: motet opt %s --pipeline materialize-devices,resolve-promises,verify-devices | filecheck %s
// RUN: motet opt %s --pipeline 'materialize-devices,resolve-promises,assign-devices{gpu=null npu=cuda[1],@gpu}' | filecheck %s --check-prefix=FLAGS

// CHECK: module attributes {motet.default_device = "gpu[1]", motet.links = ["cpu->gpu:unified", "gpu->cpu:transparent,unified"]}
module attributes {
  stream.affinity.default = #hal.device.affinity<@gpu, [1]>,
  stream.topology = #hal.device.topology<links = [
    (@cpu -> @gpu = {unified_memory = true}),
    (@gpu -> @cpu = {transparent_access = true, unified_memory = true})
  ]>
} {
  // CHECK: "motet.device"() {alternatives = ["host"], sym_name = "cpu"}
  // CHECK: "motet.device"() {alternatives = ["cuda", "hip[2]", "@cpu"], sym_name = "gpu"}
  // FLAGS: "motet.device"() {alternatives = ["host"], sym_name = "cpu"}
  // FLAGS: "motet.device"() {alternatives = ["null"], sym_name = "gpu"}
  // FLAGS: "motet.device"() {alternatives = ["cuda[1]", "@gpu"], sym_name = "npu"}
  util.global private @cpu = #hal.device.alias<"local"> : !hal.device
  util.global private @gpu = #hal.device.select<[
    #hal.device.select<[#hal.device.alias<"cuda">, #hal.device.alias<"hip"[2]>]>,
    #hal.device.fallback<@cpu>
  ]> : !hal.device

  // CHECK-LABEL: func.func @f
  // CHECK-SAME: {motet.affinity = "cpu"}
  // CHECK-SAME: {motet.affinity = "gpu|cpu[0,3]"}
  util.func public @f(%x: tensor<4xf32> {iree.abi.affinity = #hal.device.promise<@cpu>})
      -> (tensor<4xf32> {iree.abi.affinity =
          #hal.device.optimal<[#hal.device.affinity<@gpu>, #hal.device.affinity<@cpu, [0, 3]>]>}) {
    // CHECK: "motet.transfer"(%arg0) {to = "gpu[5]"}
    %0 = flow.tensor.transfer %x : tensor<4xf32> to #hal.device.affinity<@gpu, [5]>
    // CHECK: arith.addf {{.*}} {motet.affinity = "gpu"}
    %1 = arith.addf %0, %0 {stream.affinity = #hal.device.affinity<@gpu>} : tensor<4xf32>
    util.return %1 : tensor<4xf32>
  }
}
