"""What is wrong with devices in programs and on command lines: one error each, at its place, with the choices."""

from __future__ import annotations

import pytest
from tests.prepared import load_mlir
from tests.unit.compiler.placement.modules import FILE, spelled

from motet.artifact.device_flags import print_alternative
from motet.compiler.placement.place import Place
from motet.compiler.targets.device_flags import parse_device_flags, parse_device_flags_or_uris
from motet.errors import CompileError, MotetError, OptionError

A = 'util.global private @a = #hal.device.alias<"local"> : !hal.device\n'
B = 'util.global private @b = #hal.device.alias<"local"[1]> : !hal.device\n'
F = "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T }"


def error_of(text: str, flags: tuple[str, ...] = ()) -> MotetError:
    with pytest.raises(MotetError) as caught:
        load_mlir(spelled(text), FILE, Place(parse_device_flags(flags), automatic=False))
    assert "\n" not in str(caught.value)
    return caught.value


def device(attribute: str) -> str:
    return f"util.global private @a = {attribute} : !hal.device\n"


def placed(affinity: str) -> str:
    return A + B + "func.func @f(%x: $T) -> $T {\n  %0 = math.exp %x {stream.affinity = " + affinity + "} : $T\n" \
        "  return %0 : $T }"


# By what is wrong: the text, the place (0: that of the file), and pieces of the message.
PROGRAMS = {
    "unknown alias": (device('#hal.device.alias<"opencll">'), "1:44", ["alias 'opencll': unknown", "cuda, hip, host"]),
    "ordinal no number": (device('#hal.device.alias<"local"[x]>'), "1:52", ["'local'", "an ordinal", "there is x"]),
    "ordinal below zero": (device('#hal.device.alias<"local"[-1]>'), "1:52", ["an ordinal, a number from 0", "is -1"]),
    "text behind the ordinal": (device('#hal.device.alias<"local"[3]xyz>'), "1:54", ["expected '>' or ','", "is xyz"]),
    "ordinal in words": (
        device('#hal.device.target<"local", {ordinal = "one"}>'), "1:65", ["ordinal: expected a number", '"one"'],
    ),
    "ordinal of a target below zero": (
        device('#hal.device.target<"local", {ordinal = -2 : index}>'), "1:65", ["ordinal: expected a number", "-2"],
    ),
    "target without a name": (device("#hal.device.target<local>"), "1:45", ["the name of a device in quotes"]),
    "target with an odd name": (device('#hal.device.target<"a b">'), "1:45", ["'a b'", "letters, digits"]),
    "no ordinal": (device("#hal.device.ordinal<>"), "1:46", ["a device's number, from 0"]),
    "select among none": (device("#hal.device.select<[]>"), "1:26", ["selects among no devices", "at least one"]),
    "select of a number": (device("#hal.device.select<[1]>"), "1:46", ["expected one of #hal.device.alias", "is 1"]),
    "select of an affinity": (
        device("#hal.device.select<[#hal.device.affinity<@a>]>"), "1:46", ["expected one of #hal.device.alias"],
    ),
    "unknown attribute": (device("#hal.device.choice<[]>"), "1:26", ["#hal.device.choice: unknown", "select"]),
    "fallback to nothing": (device("#hal.device.fallback<>"), "1:47", ["the name of a device"]),
    "fallback to an unknown device": (
        device("#hal.device.fallback<@z>") + B + F, "1:1", ["@a: its fallback @z names no device", "declared: @a, @b"],
    ),
    "fallback to another function": (
        device("#hal.device.fallback<@f>") + F, "1:1", ["fallback @f is a func.func, not a device", "declared: @a"],
    ),
    "fallback to itself": (device("#hal.device.fallback<@a>") + F, "1:1", ["@a -> @a"]),
    "a circle of fallbacks": (
        device("#hal.device.fallback<@b>")
        + 'util.global private @b = #hal.device.select<[#hal.device.alias<"cuda">, #hal.device.fallback<@c>]> '
        ": !hal.device util.global private @c = #hal.device.fallback<@a> : !hal.device " + F,
        "1:1", ["@a -> @b -> @c -> @a"],
    ),
    "a device without a value": (
        "util.global private @a : !hal.device\n" + F, "1:1",
        ["@a: nothing says what it may be", "--device a=host"],
    ),
    "a name twice": (A + A + F, "2:1", ["@a: the name is taken", "1:1"]),
    "queue beyond the last": (
        placed("#hal.device.affinity<@a, [64]>"), "4:65", ["expected a queue, a number from 0 to 63", "64"],
    ),
    "queue below zero": (placed("#hal.device.affinity<@a, [-1]>"), "4:65", ["from 0 to 63", "-1"]),
    "no queue": (placed("#hal.device.affinity<@a, []>"), "4:64", ["list of queues is empty", "0 to 63"]),
    "queue no number": (placed("#hal.device.affinity<@a, [x]>"), "4:65", ["expected a queue", "x"]),
    "choice among none": (placed("#hal.device.optimal<[]>"), "4:39", ["lists no affinity", "at least one"]),
    "choice of a device": (
        placed('#hal.device.optimal<[#hal.device.alias<"local">]>'), "4:60", ["expected one of #hal.device.affinity"],
    ),
    "an affinity in words": (placed('"b"'), "4:8", ['stream.affinity: "b"', "expected #hal.device.affinity<@name>"]),
    "an affinity that is a number": (placed("1 : i64"), "4:8", ["stream.affinity: expected one of #hal.device.aff"]),
    "an affinity that is a device": (
        placed('#hal.device.alias<"local">'), "4:8", ["stream.affinity: expected one of #hal.device.affinity"],
    ),
    "a default inside a function": (
        A + "func.func @f(%x: $T) -> $T {\n  %0 = math.exp %x {stream.affinity.default = $A} : $T\n  return %0 : $T }",
        "3:8", ["math.exp: stream.affinity.default: expected on a module or function"],
    ),
    "an affinity to nothing": (placed("#hal.device.affinity<@z>"), "4:8", ["math.exp: affinity to @z", "@a, @b"]),
    "a promise of nothing": (placed("#hal.device.promise<@z>"), "4:8", ["@z names no device; declared: @a, @b"]),
    "a choice with nothing in it": (
        placed("#hal.device.optimal<[#hal.device.affinity<@a>, #hal.device.affinity<@z>]>"), "4:8", ["@z names no"],
    ),
    "an affinity to a global of data": (
        "util.global private @w = dense<1.0> : $T\n" + placed("#hal.device.affinity<@w>"), "5:8",
        ["affinity to @w names no device", "@a, @b"],
    ),
    "an affinity to a function": (
        placed("#hal.device.affinity<@f>"), "4:8", ["affinity to @f is a func.func, not a device", "@a, @b"],
    ),
    "a transfer to nothing": (
        A + "func.func @f(%x: $T) -> $T {\n  %0 = $move %x : $T to #hal.device.promise<@z>\n  return %0 : $T }", "3:8",
        ["transfer to @z names no device; declared: @a", "--device z="],
    ),
    "a transfer to words": (
        A + 'func.func @f(%x: $T) -> $T {\n  %0 = $move %x : $T to "a"\n  return %0 : $T }', "3:51", ["there is \"a\""],
    ),
    "a transfer to a device": (
        A + 'func.func @f(%x: $T) -> $T {\n  %0 = $move %x : $T to #hal.device.alias<"local">\n  return %0 : $T }',
        "3:51", ["expected one of #hal.device.affinity"],
    ),
    "a transfer that does not say where to": (
        A + "func.func @f(%x: $T) -> $T {\n  %0 = $move %x : $T\n  return %0 : $T }", "4:3", ["expected `to`"],
    ),
    "a transfer that changes the type": (
        A + "func.func @f(%x: $T) -> tensor<4xi32> {\n"
        "  %0 = \"motet.transfer\"(%x) {to = \"a\"} : ($T) -> tensor<4xi32>\n  return %0 : tensor<4xi32> }", "3:8",
        ["one tensor, and a result of its type"],
    ),
    "an argument's affinity to nothing": (
        A + "func.func @f(%x: $T {$pin #hal.device.promise<@z>}) -> $T { return %x : $T }", "2:1",
        ["@f: argument 0: affinity to @z", "@a"],
    ),
    "a result's affinity to nothing": (
        A + "func.func @f(%x: $T) -> ($T {$pin #hal.device.promise<@z>}) { return %x : $T }", "2:1",
        ["@f: result 0: affinity to @z", "@a"],
    ),
    "a pin in words": (
        A + 'func.func @f(%x: $T {$pin "a"}) -> $T { return %x : $T }', "2:1", ['iree.abi.affinity: "a"'],
    ),
    "a function's pin to nothing": (
        A + "func.func @f(%x: $T) -> $T attributes {$pin $C} { return %x : $T }", "2:1", ["affinity to @c names no"],
    ),
    "a promise in an attribute of others": (
        A + "func.func @f(%x: $T) -> $T attributes {some.list = [{k = #hal.device.promise<@z>}]} { return %x : $T }",
        "2:1", ["@z names no device"],
    ),
    "a default that is nothing": (
        "module attributes {stream.affinity.default = #hal.device.affinity<@z>} {\n" + A + F + "}", "1:1",
        ["default device @z names no device; declared: @a"],
    ),
    "a default by a name that nobody has": (
        'module attributes {hal.device.default = "nosuch"} {\n' + A + F + "}", "1:1",
        ["default device @nosuch names no device; declared: @a"],
    ),
    "a default by a number that is too high": (
        "module attributes {hal.device.default = 5 : index} {\n" + A + F + "}", "1:1",
        ["default device 5: expected a number from 0 to 0", "there is a"],
    ),
    "a default that is neither": (
        "module attributes {hal.device.default = [1]} {\n" + A + F + "}", "1:1",
        ["hal.device.default: [1]", "the name of a device, or its number"],
    ),
    "targets that are no list": (
        'module attributes {hal.device.targets = "local"} {\n' + F + "}", "1:1",
        ['hal.device.targets: "local"', "a list of devices"],
    ),
    "no targets": ("module attributes {hal.device.targets = []} {\n" + F + "}", "1:1", ["lists no devices"]),
    "a target of no alternatives": (
        "module attributes {hal.device.targets = [[]]} {\n" + F + "}", "1:1", ["__device_0: its list is empty"],
    ),
    "a link to nothing": (
        "module attributes {stream.topology = #hal.device.topology<links = [(@a -> @z = {unified_memory = true})]>} {\n"
        + A + F + "}", "1:1", ["link @a -> @z: @z names no device", "declared: @a"],
    ),
    "a link's unknown property": (
        "module attributes {stream.topology = #hal.device.topology<links = [(@a -> @a = {fast = true})]>} {\n"
        + A + F + "}", "1:88", ["fast is unknown", "transparent_access or unified_memory"],
    ),
    "operations of lowered programs": (
        A + "func.func @f(%x: $T) -> $T {\n  %0 = hal.device.allocator %x : $T\n  return %0 : $T }", "3:8",
        ["hal.device.allocator", "lowered already"],
    ),
    "an assertion in a branch on two devices": (
        A + B + "func.func @f(%p: i1, %x: $T) -> $T {\n  %0 = scf.if %p -> $T { %1 = math.exp %x {$on $A} : $T "
        "%2 = math.tanh %1 {$on $B} : $T scf.yield %2 : $T } else {\n  cf.assert %p, \"no\" scf.yield %x : $T }\n"
        "  return %0 : $T }", "5:3", ["scf.if: its parts are placed on several devices", "cf.assert"],
    ),
    "a part of a branch elsewhere than the branch": (
        A + B + "func.func @f(%p: i1, %x: $T) -> $T {\n  %0 = scf.if %p -> $T { %1 = math.exp %x {$on $B} : $T "
        "scf.yield %1 : $T } else { scf.yield %x : $T } {$on $A}\n  return %0 : $T }", "4:8",
        ["scf.if: its parts are placed on @a and @b"],
    ),
    "a part of a branch on other queues than the branch": (
        A + B + "func.func @f(%p: i1, %x: $T) -> $T {\n  %0 = scf.if %p -> $T { "
        "%1 = math.exp %x {$on #hal.device.affinity<@a, [1]>} : $T scf.yield %1 : $T } else { scf.yield %x : $T } "
        "{$on #hal.device.affinity<@a, [0]>}\n  return %0 : $T }", "4:8",
        ["scf.if: its parts are placed on @a[0] and @a[1]"],
    ),
    "a function that calls itself": (
        A + "func.func @f(%x: $T) -> $T {\n  %0 = func.call @f(%x) : ($T) -> $T\n  return %0 : $T }", "3:8",
        ["call of @f: it calls itself"],
    ),
    "an immutable global that is written": (
        A + "util.global private @w = dense<1.0> : $T\nfunc.func @f(%x: $T) {\n"
        "  util.global.store %x, @w : $T\n  return }", "4:3",
        ["util.global.store: @w is immutable", "util.initializer"],
    ),
    "a store of another type": (
        A + "util.global private mutable @w = dense<1.0> : $T\nfunc.func @f(%x: tensor<5xf32>) {\n"
        "  util.global.store %x, @w : tensor<5xf32>\n  return }", "4:3",
        ["@w is tensor<4xf32>; tensor<5xf32> is stored in it"],
    ),
    "a load of another type": (
        A + "util.global private mutable @w = dense<1.0> : $T\nfunc.func @f(%x: $T) -> tensor<5xf32> {\n"
        "  util.global.store %x, @w : $T\n  %0 = util.global.load @w : tensor<5xf32>\n  return %0 : tensor<5xf32> }",
        "5:8", ["@w is tensor<4xf32>; tensor<5xf32> is loaded"],
    ),
    "a store to a global that there is not": (
        A + "util.global private mutable @w = dense<1.0> : $T\nfunc.func @f(%x: $T) {\n"
        "  util.global.store %x, @v : $T\n  return }", "4:3", ["@v names no global; globals: @w"],
    ),
    "a store to a device": (
        A + "func.func @f(%x: $T) {\n  util.global.store %x, @a : $T\n  return }", "3:3",
        ["@a names no global; globals: none"],
    ),
    "a store in a loop without an order": (
        A + "util.global private mutable @w = dense<1.0> : $T\nfunc.func @f(%x: $T) {\n"
        "  %0 = arith.constant 0 : index\n  %1 = arith.constant 4 : index\n  %2 = arith.constant 1 : index\n"
        "  scf.parallel (%i) = (%0) to (%1) step (%2) {\n    util.global.store %x, @w : $T\n  }\n  return }", "7:3",
        ["util.global.store @w: inside of scf.parallel", "scf.for"],
    ),
    "state of a dynamic extent": (
        A + "util.global private mutable @w : tensor<?xf32>\nfunc.func @f(%x: tensor<?xf32>) {\n"
        "  util.global.store %x, @w : tensor<?xf32>\n  return }", "2:1",
        ["util.global @w: it is tensor<?xf32>", "known extents"],
    ),
    "state whose value is of another type": (
        A + "util.global private mutable @w : $T = dense<1.0> : tensor<5xf32>\nfunc.func @f(%x: $T) {\n"
        "  util.global.store %x, @w : $T\n  return }", "2:1", ["it is tensor<4xf32>, its value tensor<5xf32>"],
    ),
    "state that is complex": (
        A + "util.global private mutable @w : tensor<4xcomplex<f32>>\nfunc.func @f(%x: tensor<4xcomplex<f32>>) {\n"
        "  util.global.store %x, @w : tensor<4xcomplex<f32>>\n  return }", "2:1", ["it is tensor<4xcomplex<f32>>"],
    ),
    "state whose value is outside": (
        A + 'util.global private mutable @w = #flow.parameter.named<"m"::"w"> : $T\nfunc.func @f(%x: $T) {\n'
        "  util.global.store %x, @w : $T\n  return }", "2:1", ["@w: its value is #flow.parameter"],
    ),
    "a store by an address": (
        A + "func.func @f(%x: $T, %p: !util.ptr<$T>) {\n  util.global.store.indirect %x, %p : $T -> !util.ptr<$T>\n"
        "  return }", "3:3", ["addresses of globals", "util.global.store %value, @name"],
    ),
    "a function with the name of that of initial values": (
        A + "util.global private mutable @w = dense<1.0> : $T\nfunc.func @motet.initial_state(%x: $T) {\n"
        "  util.global.store %x, @w : $T\n  return }", "3:1", ["expected another name"],
    ),
    "a global with data from outside": (
        'util.global private @w = #flow.parameter.named<"model"::"w"> : $T\nfunc.func @f() -> $T {\n'
        "  %0 = util.global.load @w : $T\n  return %0 : $T }", "1:1", ["@w: its value is #flow.parameter", "dense<"],
    ),
    "a global without data": (
        "util.global private @w : $T\nfunc.func @f() -> $T {\n  %0 = util.global.load @w : $T\n  return %0 : $T }",
        "1:1", ["@w: its value is nothing"],
    ),
    "a global that is not there": (
        "util.global private @w = dense<1.0> : $T\nfunc.func @f() -> $T {\n  %0 = util.global.load @v : $T\n"
        "  return %0 : $T }", "3:8", ["@v names no global; globals: @w"],
    ),
    "a device loaded as data": (
        A + "func.func @f() -> $T {\n  %0 = util.global.load @a : $T\n  return %0 : $T }", "3:8",
        ["@a is a device, not a value"],
    ),
    "a global of another type": (
        "util.global private @w = dense<1.0> : tensor<5xf32>\nfunc.func @f() -> $T {\n"
        "  %0 = util.global.load @w : $T\n  return %0 : $T }", "3:8", ["@w is tensor<5xf32>", "tensor<4xf32>"],
    ),
    "Motet's own device without alternatives": (
        '"motet.device"() {sym_name = "a"} : () -> ()\n' + F, "1:1", ["motet.device @a: nothing says what it may be"],
    ),
    "Motet's own device without a name": (
        '"motet.device"() {alternatives = ["host"]} : () -> ()\n' + F, "1:1", ["motet.device: it has no name"],
    ),
    "Motet's own device with a bad alternative": (
        '"motet.device"() {sym_name = "a", alternatives = ["host[x]"]} : () -> ()\n' + F, "1:1",
        ["motet.device @a: device 'host[x]': column 6", "expected an ordinal"],
    ),
    "Motet's own device twice": (
        '"motet.device"() {sym_name = "a", alternatives = ["host"]} : () -> ()\n' * 2 + F, "2:1", ["symbol named 'a'"],
    ),
    "Motet's own device inside a function": (
        'func.func @f() {\n  "motet.device"() {sym_name = "a", alternatives = ["host"]} : () -> ()\n  return }', "2:3",
        ["motet.device: expected outside all functions"],
    ),
    "a name that affinities cannot say": (
        'util.global private @"my device" = #hal.device.alias<"local"> : !hal.device\n' + F, "1:1",
        ['device @"my device": expected a name of letters'],
    ),
    "Motet's own default, misspelt": (
        'module attributes {motet.default_device = "a["} {\n' + A + F + "}", "1:1", ["motet.default_device: affinity"],
    ),
    "a default that is no affinity": (
        "module attributes {motet.default_device = 1.5 : f32} {\n" + A + F + "}", "1:1",
        ["motet.default_device: expected one of #hal.device.affinity"],
    ),
    "a load of nothing": (
        'func.func @f() -> $T {\n  %0 = "util.global.load"() : () -> $T\n  return %0 : $T }', "2:8",
        ["util.global.load: it loads nothing"],
    ),
    "a pinned memref that a call passes": (
        A + "func.func @f(%x: memref<4xf32>) {\n  func.call @g(%x) : (memref<4xf32>) -> ()\n  return }\n"
        "func.func private @g(%x: memref<4xf32> {$on $A}) { return }", "3:3", ["call of @g: it wants memref<4xf32>"],
    ),
    "devices and a module in a module": (
        A + "module { func.func @f() { return } }", "0", ["no public function"],
    ),
    "Motet's own affinity, misspelt": (
        A + 'func.func @f(%x: $T) -> $T {\n  %0 = math.exp %x {motet.affinity = "a["} : $T\n  return %0 : $T }', "3:8",
        ["motet.affinity: affinity 'a['", "DEVICE[QUEUE,…]"],
    ),
    "Motet's own link, misspelt": (
        'module attributes {motet.links = ["a-b"]} {\n' + A + F + "}", "1:1", ["motet.links: link 'a-b'"],
    ),
}


@pytest.mark.parametrize(("text", "place", "pieces"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_programs_that_mean_nothing(text: str, place: str, pieces: list[str]):
    error = error_of(text)
    assert isinstance(error, CompileError)
    assert [piece for piece in pieces if piece not in str(error)] == [], str(error)
    assert str(error.location) == (f"{FILE}:{place}" if place != "0" else FILE)


FLAGS = {
    "unknown family": (["gpu=cudaa"], [
        "device 'gpu': cudaa is no family of devices",
        "available: host, null, riscv, embedded, opencl, cuda, hip, intel",
    ]),
    "ordinal no number": (["local[x]"], ["column 7", "an ordinal"]),
    "text behind an ordinal": (["local[3]xyz"], ["column 9", "there is 'xyz'"]),
    "nothing behind a comma": (["host,"], ["column 6", "the end"]),
    "nothing at all": ([""], ["column 1"]),
    "a name twice": (["a=host", "a=null"], ["device 'a': the name is given twice"]),
    "some with names": (["a=host", "null"], ["'null'", "it has no name, but 'a' has one"]),
    "an attribute that means nothing": (["#hal.device.alias<\"nope\">"], ["alias 'nope': unknown", "column 19"]),
    "an affinity as a device": (["#hal.device.affinity<@a>"], ["column 1", "expected one of #hal.device.alias"]),
}


@pytest.mark.parametrize(("flags", "pieces"), FLAGS.values(), ids=FLAGS.keys())
def test_flags_that_mean_nothing(flags: list[str], pieces: list[str]):
    error = error_of(F, tuple(flags))
    assert isinstance(error, OptionError)
    assert [piece for piece in pieces if piece not in str(error)] == [], str(error)


def test_flags_that_fall_back_to_nothing():
    assert "device @gpu: its fallback @cpu names no device; declared: @gpu" in str(error_of(F, ("gpu=cuda,@cpu",)))


def test_flags_that_fall_back_in_a_circle():
    assert "@a -> @b -> @a" in str(error_of(F, ("a=cuda,@b", "b=@a")))


def test_more_flags_than_devices():
    error = error_of(A + F, ("null", "null[1]"))
    assert isinstance(error, OptionError)
    assert "device 'null[1]': the program has only a" in str(error)


PROMISED = "func.func @f(%x: $T) -> $T {\n  %0 = math.exp %x {$on $B} : $T\n  return %0 : $T }"


def test_a_misspelt_flag_for_a_device_that_the_program_promises():
    error = str(error_of(PROMISED, ("a=host", "bb=null")))
    assert error.startswith(f"{FILE}:2:8: math.exp: affinity to @b names no device; declared: @a, @bb; ")


def test_a_flag_for_a_device_that_the_program_does_not_promise(caplog: pytest.LogCaptureFixture):
    load_mlir(spelled(PROMISED), FILE, Place(parse_device_flags(("first=host", "b=null", "bb=null")), automatic=False))
    assert caplog.messages == ["device 'bb': the program has no device of that name; available: b"]


def test_a_physical_device_leaves_the_fallbacks_of_the_device_that_it_is_for():
    text = A + '"motet.device"() {sym_name = "b", alternatives = ["riscv", "@a", "null"]} : () -> ()\n' + F
    for flag, left in (("b=null/1", ["null", "@a"]), ("b=null", ["null"])):
        flags = parse_device_flags_or_uris((flag,))
        placement = load_mlir(spelled(text), FILE, Place(flags, automatic=False)).placement
        assert placement is not None
        assert [print_alternative(one) for one in placement.devices[1].alternatives] == left


def test_a_flag_without_a_name_next_to_flags_for_all_devices():
    flags = parse_device_flags_or_uris(("a=host", "null/1"))
    with pytest.raises(OptionError, match="device 'null/1': it has no name, and other flags name all devices"):
        load_mlir(spelled(A + F), FILE, Place(flags, automatic=False))


def test_a_placed_program_without_devices():
    error = error_of("func.func @f(%x: $T) -> $T {\n  %0 = math.exp %x {$on $B} : $T\n  return %0 : $T }")
    assert str(error) == (
        f"{FILE}:2:8: math.exp: affinity to @b names no device; declared: none; declare it in the program, "
        "or give --device b=…"
    )


@pytest.mark.parametrize("family", ["metal", "vulkan", "level_zero"])
def test_a_family_that_no_code_can_be_made_for(family: str):
    error = str(error_of(F, (family,)))
    available = "host, null, riscv, embedded, opencl, cuda, hip, intel"
    assert error == f"device '{family}': no code can be made for {family}; available: {available}"
