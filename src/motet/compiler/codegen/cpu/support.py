"""The runtime's native code as LLVM IR: the thread pool, the executor of schedules, the call from Python.

`python -m motet.compiler.codegen.cpu.support` compiles it for each machine to a relocatable object beside the
loader, so that the runtime needs neither a compiler nor a compiled extension.

**Pool.** A job is published by one store of the *ticket*, generation << 32 | tasks left. Threads claim a
share of what is left by compare-and-swap: many tasks at first, single ones at the end (guided self-scheduling,
Polychronopoulos and Kuck 1987). The job's description is read after a claim only, and cannot change before
the claimed tasks are reported, so a thread that has claimed nothing is never waited for. Threads without work
spin, then sleep on the ticket's generation; the submitter works too, then spins, then sleeps on the count of
finished tasks.

**Executor.** Commands run in order in one native call. A command with a single task runs in the caller. A
submitter that finds the pool taken works on its own tasks, and looks again after each share.

**Call.** A METH_FASTCALL entry that checks its arrays' fields in place; what does not fit goes to Python.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from string import Template

from llvmlite import binding

import motet.runtime.devices.host as host
from motet.runtime.devices.host import layout

_WAIT, _WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE of <linux/futex.h>, private to the process


@dataclass(frozen=True)
class Machine:
    """`pause` is the intrinsic that eases a spinning processor, with its arguments."""

    name: str
    triple: str
    cpu: str
    features: str
    futex: int  # the number of the system call
    pause: str
    pause_type: str
    abi: str = ""


MACHINES = (
    Machine("x86_64", "x86_64-unknown-linux-gnu", "x86-64", "", 202,
            "llvm.x86.sse2.pause()", "llvm.x86.sse2.pause()"),
    Machine("aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8", 98,
            "llvm.aarch64.isb(i32 15)", "llvm.aarch64.isb(i32)"),
    Machine("riscv64", "riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c,+zihintpause", 98,
            "llvm.riscv.pause()", "llvm.riscv.pause()", "lp64d"),
)

POOL = r"""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare void @$PAUSE_TYPE
declare i64 @llvm.cttz.i64(i64, i1)
declare i32 @llvm.umax.i32(i32, i32)
declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

; Pauses, for measuring how long one takes.
define void @motet_spin(i64 %count) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @$PAUSE
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

; The lane's memory, of at least %need bytes: 64-byte aligned, in huge pages where large; null: there is none.
define internal ptr @ensure(ptr %lane, i64 %need) nounwind {
entry:
  %p_size = getelementptr i8, ptr %lane, i64 $LANE_SIZE
  %size = load i64, ptr %p_size
  %old = load ptr, ptr %lane
  %enough = icmp uge i64 %size, %need
  br i1 %enough, label %as_is, label %grow
as_is:
  ret ptr %old
grow:
  call void @free(ptr %old)
  %large = icmp uge i64 %need, 1048576
  %alignment = select i1 %large, i64 2097152, i64 64
  %below = sub i64 %alignment, 1
  %raised = add i64 %need, %below
  %mask = xor i64 %below, -1
  %rounded = and i64 %raised, %mask
  %new = call ptr @aligned_alloc(i64 %alignment, i64 %rounded)
  store ptr %new, ptr %lane
  %none = icmp eq ptr %new, null
  %had = select i1 %none, i64 0, i64 %rounded
  store i64 %had, ptr %p_size
  %advise = icmp ugt i64 %had, 1048575
  br i1 %advise, label %huge, label %done
huge:
  call i32 @madvise(ptr %new, i64 %rounded, i32 14)
  br label %done
done:
  ret ptr %new
}

; Claim tasks of the current job and run them until none is left to claim.
define internal void @participate(ptr %pool, ptr %lane) nounwind {
entry:
  %p_shift = getelementptr i8, ptr %pool, i64 $POOL_SHIFT
  %shift64 = load i64, ptr %p_shift
  %shift = trunc i64 %shift64 to i32
  br label %look
look:
  %count = phi i32 [ 0, %entry ], [ %counted, %ran ]
  %last_target = phi i32 [ 0, %entry ], [ %target, %ran ]
  %first = load atomic i64, ptr %pool acquire, align 8
  br label %check
check:
  %ticket = phi i64 [ %first, %look ], [ %seen, %claim ]
  %left = trunc i64 %ticket to i32
  %empty = icmp eq i32 %left, 0
  br i1 %empty, label %report, label %claim
claim:
  %portion = lshr i32 %left, %shift
  %share = call i32 @llvm.umax.i32(i32 %portion, i32 1)
  %share64 = zext i32 %share to i64
  %claimed = sub i64 %ticket, %share64
  %swap = cmpxchg ptr %pool, i64 %ticket, i64 %claimed acq_rel acquire
  %seen = extractvalue { i64, i1 } %swap, 0
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %prepare, label %check
prepare:
  %p_function = getelementptr i8, ptr %pool, i64 $POOL_FUNCTION
  %function = load ptr, ptr %p_function
  %p_buffers = getelementptr i8, ptr %pool, i64 $POOL_BUFFERS
  %buffers = load ptr, ptr %p_buffers
  %p_sizes = getelementptr i8, ptr %pool, i64 $POOL_SIZES
  %sizes = load ptr, ptr %p_sizes
  %p_end = getelementptr i8, ptr %pool, i64 $POOL_END
  %last = load i64, ptr %p_end
  %p_target = getelementptr i8, ptr %pool, i64 $POOL_TARGET
  %target = load i32, ptr %p_target
  %p_need = getelementptr i8, ptr %pool, i64 $POOL_SCRATCH
  %need = load i64, ptr %p_need
  %left64 = zext i32 %left to i64
  %begin = sub i64 %last, %left64
  %end = add i64 %begin, %share64
  %plain = icmp eq i64 %need, 0
  br i1 %plain, label %run, label %with_scratch
with_scratch:
  %memory = call ptr @ensure(ptr %lane, i64 %need)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %failed, label %run
failed:
  %p_failed = getelementptr i8, ptr %pool, i64 $POOL_FAILED
  store atomic i32 1, ptr %p_failed monotonic, align 4
  br label %ran
run:
  %scratch = phi ptr [ null, %prepare ], [ %memory, %with_scratch ]
  call void %function(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch)
  br label %ran
ran:
  %counted = add i32 %count, %share
  br label %look
report:
  %idle = icmp eq i32 %count, 0
  br i1 %idle, label %out, label %add
add:
  %p_done = getelementptr i8, ptr %pool, i64 $POOL_DONE
  %before = atomicrmw add ptr %p_done, i32 %count seq_cst
  %after = add i32 %before, %count
  %all = icmp eq i32 %after, %last_target
  br i1 %all, label %finished, label %out
finished:
  %p_waiting = getelementptr i8, ptr %pool, i64 $POOL_WAITING
  %waiting = load atomic i32, ptr %p_waiting seq_cst, align 4
  %asleep = icmp ne i32 %waiting, 0
  br i1 %asleep, label %wake, label %out
wake:
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_done, i32 $WAKE, i32 1, ptr null, ptr null, i32 0)
  br label %out
out:
  ret void
}

; The life of a worker; returns when the pool stops.
define void @motet_worker(ptr %pool, ptr %lane) nounwind {
entry:
  %p_sleepers = getelementptr i8, ptr %pool, i64 $POOL_SLEEPERS
  %p_stop = getelementptr i8, ptr %pool, i64 $POOL_STOP
  %p_generation = getelementptr i8, ptr %pool, i64 4
  %p_spin = getelementptr i8, ptr %pool, i64 $POOL_SPIN
  %limit = load i64, ptr %p_spin
  br label %awake
awake:
  br label %look
look:
  %spins = phi i64 [ 0, %awake ], [ %spun, %again ]
  %ticket = load atomic i64, ptr %pool acquire, align 8
  %left = trunc i64 %ticket to i32
  %work = icmp ne i32 %left, 0
  br i1 %work, label %take, label %idle
take:
  call void @participate(ptr %pool, ptr %lane)
  br label %awake
idle:
  %stop = load atomic i32, ptr %p_stop monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %end, label %wait
wait:
  %spun = add i64 %spins, 1
  %patient = icmp ult i64 %spun, %limit
  br i1 %patient, label %again, label %sleep
again:
  call void @$PAUSE
  br label %look
sleep:
  atomicrmw add ptr %p_sleepers, i32 1 seq_cst
  %upper = lshr i64 %ticket, 32
  %generation = trunc i64 %upper to i32
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_generation, i32 $WAIT, i32 %generation,
                               ptr null, ptr null, i32 0)
  atomicrmw sub ptr %p_sleepers, i32 1 seq_cst
  br label %awake
end:
  ret void
}

; Tell the workers to return. The new generation keeps one that is about to sleep from it.
define void @motet_stop(ptr %pool) nounwind {
  %p_stop = getelementptr i8, ptr %pool, i64 $POOL_STOP
  store atomic i32 1, ptr %p_stop seq_cst, align 4
  atomicrmw add ptr %pool, i64 4294967296 seq_cst
  %p_generation = getelementptr i8, ptr %pool, i64 4
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_generation, i32 $WAKE, i32 2147483647,
                               ptr null, ptr null, i32 0)
  ret void
}

; Run tasks [%begin, %end) in all threads; the caller holds the pool's lock.
define internal void @fork_join(ptr %pool, ptr %function, ptr %buffers, ptr %sizes, i64 %begin, i64 %end,
                                i64 %need, ptr %lane) nounwind {
entry:
  %p_function = getelementptr i8, ptr %pool, i64 $POOL_FUNCTION
  store ptr %function, ptr %p_function
  %p_buffers = getelementptr i8, ptr %pool, i64 $POOL_BUFFERS
  store ptr %buffers, ptr %p_buffers
  %p_sizes = getelementptr i8, ptr %pool, i64 $POOL_SIZES
  store ptr %sizes, ptr %p_sizes
  %p_end = getelementptr i8, ptr %pool, i64 $POOL_END
  store i64 %end, ptr %p_end
  %tasks = sub i64 %end, %begin
  %target = trunc i64 %tasks to i32
  %p_target = getelementptr i8, ptr %pool, i64 $POOL_TARGET
  store i64 %tasks, ptr %p_target
  %p_need = getelementptr i8, ptr %pool, i64 $POOL_SCRATCH
  store i64 %need, ptr %p_need
  %p_done = getelementptr i8, ptr %pool, i64 $POOL_DONE
  store atomic i32 0, ptr %p_done monotonic, align 4
  %old = load atomic i64, ptr %pool monotonic, align 8
  %upper = and i64 %old, -4294967296
  %next = add i64 %upper, 4294967296
  %ticket = or i64 %next, %tasks
  store atomic i64 %ticket, ptr %pool seq_cst, align 8
  %p_sleepers = getelementptr i8, ptr %pool, i64 $POOL_SLEEPERS
  %sleepers = load atomic i32, ptr %p_sleepers seq_cst, align 4
  %some = icmp ne i32 %sleepers, 0
  br i1 %some, label %consider, label %work
consider:
  %p_workers = getelementptr i8, ptr %pool, i64 $POOL_WORKERS
  %workers = load i32, ptr %p_workers
  %others = sub i32 %target, 1
  %useful = call i32 @llvm.umin.i32(i32 %others, i32 %workers)
  %awake = sub i32 %workers, %sleepers
  %lacking = sub i32 %useful, %awake
  %lack = icmp sgt i32 %lacking, 0
  br i1 %lack, label %wake, label %work
wake:
  %p_generation = getelementptr i8, ptr %pool, i64 4
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_generation, i32 $WAKE, i32 %lacking,
                               ptr null, ptr null, i32 0)
  br label %work
work:
  call void @participate(ptr %pool, ptr %lane)
  %p_spin = getelementptr i8, ptr %pool, i64 $POOL_SPIN
  %limit = load i64, ptr %p_spin
  br label %look
look:
  %spins = phi i64 [ 0, %work ], [ %spun, %again ]
  %done = load atomic i32, ptr %p_done acquire, align 4
  %all = icmp eq i32 %done, %target
  br i1 %all, label %end_of_job, label %wait
wait:
  %spun = add i64 %spins, 1
  %patient = icmp ult i64 %spun, %limit
  br i1 %patient, label %again, label %sleep
again:
  call void @$PAUSE
  br label %look
sleep:
  %p_waiting = getelementptr i8, ptr %pool, i64 $POOL_WAITING
  store atomic i32 1, ptr %p_waiting seq_cst, align 4
  br label %doze
doze:
  %now = load atomic i32, ptr %p_done seq_cst, align 4
  %complete = icmp eq i32 %now, %target
  br i1 %complete, label %rise, label %down
down:
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_done, i32 $WAIT, i32 %now, ptr null, ptr null, i32 0)
  br label %doze
rise:
  store atomic i32 0, ptr %p_waiting monotonic, align 4
  br label %end_of_job
end_of_job:
  ret void
}

; Run tasks [0, %tasks): in all threads while the pool is free, in this one while another submitter has it.
define internal i32 @parallel(ptr %pool, ptr %function, ptr %buffers, ptr %sizes, i64 %tasks, i64 %need,
                              ptr %lane, ptr %scratch) nounwind {
entry:
  %p_lock = getelementptr i8, ptr %pool, i64 $POOL_LOCK
  %p_shift = getelementptr i8, ptr %pool, i64 $POOL_SHIFT
  %shift = load i64, ptr %p_shift
  br label %look
look:
  %begin = phi i64 [ 0, %entry ], [ %end, %alone ]
  %held = load atomic i32, ptr %p_lock monotonic, align 4
  %free = icmp eq i32 %held, 0
  br i1 %free, label %try, label %alone
try:
  %swap = cmpxchg ptr %p_lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %together, label %alone
together:
  %p_failed = getelementptr i8, ptr %pool, i64 $POOL_FAILED
  store atomic i32 0, ptr %p_failed monotonic, align 4
  call void @fork_join(ptr %pool, ptr %function, ptr %buffers, ptr %sizes, i64 %begin, i64 %tasks,
                       i64 %need, ptr %lane)
  %failed = load atomic i32, ptr %p_failed monotonic, align 4
  store atomic i32 0, ptr %p_lock release, align 4
  ret i32 %failed
alone:
  %left = sub i64 %tasks, %begin
  %portion = lshr i64 %left, %shift
  %share = call i64 @llvm.umax.i64(i64 %portion, i64 1)
  %end = add i64 %begin, %share
  call void %function(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch)
  %more = icmp ult i64 %end, %tasks
  br i1 %more, label %look, label %finished
finished:
  ret i32 0
}
"""

EXECUTOR = r"""
define internal i64 @now() nounwind {
  %time = alloca { i64, i64 }
  call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %p_rest = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %p_rest
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; A free submitter's lane; its number is marked busy.
define internal i64 @take_lane(ptr %pool) nounwind {
entry:
  %p_busy = getelementptr i8, ptr %pool, i64 $POOL_LANES_BUSY
  br label %look
look:
  %busy = load atomic i64, ptr %p_busy monotonic, align 8
  %free = xor i64 %busy, -1
  %none = icmp eq i64 %free, 0
  br i1 %none, label %wait, label %try
wait:
  call i32 @sched_yield()
  br label %look
try:
  %lane = call i64 @llvm.cttz.i64(i64 %free, i1 false)
  %bit = shl i64 1, %lane
  %taken = or i64 %busy, %bit
  %swap = cmpxchg ptr %p_busy, i64 %busy, i64 %taken acquire monotonic
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %end, label %look
end:
  ret i64 %lane
}

; Run a program. %externals[-1] is zero. %times, where not null, gets each command's nanoseconds.
; Returns 0, or 1 where there was no memory for scratch.
define i32 @motet_run(ptr %program, ptr %externals, ptr %times) nounwind {
entry:
  %pool = load ptr, ptr %program
  %p_need = getelementptr i8, ptr %program, i64 $PROGRAM_SCRATCH
  %need = load i64, ptr %p_need
  %plain = icmp eq i64 %need, 0
  br i1 %plain, label %without, label %with
without:
  %quick = call i32 @run_commands(ptr %program, ptr %externals, ptr %times, ptr null, ptr null)
  ret i32 %quick
with:
  %number = call i64 @take_lane(ptr %pool)
  %offset = mul i64 %number, $LANE_STRIDE
  %lanes = getelementptr i8, ptr %pool, i64 $POOL_LANES
  %lane = getelementptr i8, ptr %lanes, i64 %offset
  %scratch = call ptr @ensure(ptr %lane, i64 %need)
  %none = icmp eq ptr %scratch, null
  br i1 %none, label %release, label %run
run:
  %status = call i32 @run_commands(ptr %program, ptr %externals, ptr %times, ptr %lane, ptr %scratch)
  br label %release
release:
  %result = phi i32 [ 1, %with ], [ %status, %run ]
  %bit = shl i64 1, %number
  %others = xor i64 %bit, -1
  %p_busy = getelementptr i8, ptr %pool, i64 $POOL_LANES_BUSY
  atomicrmw and ptr %p_busy, i64 %others release
  ret i32 %result
}

; The same for a block that begins with the zero.
define i32 @motet_run_block(ptr %program, ptr %block, ptr %times) nounwind {
  %externals = getelementptr i64, ptr %block, i64 1
  %status = call i32 @motet_run(ptr %program, ptr %externals, ptr %times)
  ret i32 %status
}

define internal i32 @run_commands(ptr %program, ptr %externals, ptr %times, ptr %lane, ptr %scratch) nounwind {
entry:
  %pool = load ptr, ptr %program
  %p_need = getelementptr i8, ptr %program, i64 $PROGRAM_SCRATCH
  %need = load i64, ptr %p_need
  %p_most = getelementptr i8, ptr %program, i64 $PROGRAM_MOST_BUFFERS
  %most = load i64, ptr %p_most
  %buffers = alloca ptr, i64 %most, align 16
  %p_commands = getelementptr i8, ptr %program, i64 $PROGRAM_COMMANDS
  %commands = load ptr, ptr %p_commands
  %p_count = getelementptr i8, ptr %program, i64 $PROGRAM_COUNT
  %count = load i64, ptr %p_count
  %p_workers = getelementptr i8, ptr %pool, i64 $POOL_WORKERS
  %workers = load i64, ptr %p_workers
  %alone = icmp eq i64 %workers, 0
  %timed = icmp ne ptr %times, null
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_after, %after ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %command, label %finished
command:
  %at = mul i64 %i, $COMMAND_STRIDE
  %this = getelementptr i8, ptr %commands, i64 %at
  %function = load ptr, ptr %this
  %p_tasks = getelementptr i8, ptr %this, i64 $COMMAND_TASKS
  %tasks = load i64, ptr %p_tasks
  %p_references = getelementptr i8, ptr %this, i64 $COMMAND_REFERENCES
  %references = load ptr, ptr %p_references
  %p_number = getelementptr i8, ptr %this, i64 $COMMAND_COUNT
  %number = load i64, ptr %p_number
  %p_sizes = getelementptr i8, ptr %this, i64 $COMMAND_SIZES
  %sizes = load ptr, ptr %p_sizes
  br label %resolve
resolve:
  %j = phi i64 [ 0, %command ], [ %j_after, %one ]
  %unresolved = icmp ult i64 %j, %number
  br i1 %unresolved, label %one, label %ready
one:
  %reference = getelementptr { i64, i64 }, ptr %references, i64 %j
  %index = load i64, ptr %reference
  %p_offset = getelementptr i64, ptr %reference, i64 1
  %offset = load i64, ptr %p_offset
  %p_base = getelementptr i64, ptr %externals, i64 %index
  %base = load i64, ptr %p_base
  %address = add i64 %base, %offset
  %p_buffer = getelementptr i64, ptr %buffers, i64 %j
  store i64 %address, ptr %p_buffer
  %j_after = add i64 %j, 1
  br label %resolve
ready:
  br i1 %timed, label %start_clock, label %dispatch
start_clock:
  %began = call i64 @now()
  br label %dispatch
dispatch:
  %start = phi i64 [ 0, %ready ], [ %began, %start_clock ]
  %single = icmp ult i64 %tasks, 2
  %here = or i1 %single, %alone
  br i1 %here, label %serial, label %shared
serial:
  call void %function(ptr %buffers, ptr %sizes, i64 0, i64 %tasks, ptr %scratch)
  br label %ran
shared:
  %status = call i32 @parallel(ptr %pool, ptr %function, ptr %buffers, ptr %sizes, i64 %tasks, i64 %need,
                               ptr %lane, ptr %scratch)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %ran
ran:
  br i1 %timed, label %stop_clock, label %after
stop_clock:
  %ended = call i64 @now()
  %took = sub i64 %ended, %start
  %p_time = getelementptr i64, ptr %times, i64 %i
  store i64 %took, ptr %p_time
  br label %after
after:
  %i_after = add i64 %i, 1
  br label %next
finished:
  ret i32 0
failed:
  ret i32 1
}

; A kernel: copies buffers[0] to buffers[1], sizes[0] bytes, in tasks of sizes[1] bytes.
define void @motet_copy(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) nounwind {
  %from = load ptr, ptr %buffers
  %p_to = getelementptr ptr, ptr %buffers, i64 1
  %to = load ptr, ptr %p_to
  %bytes = load i64, ptr %sizes
  %p_block = getelementptr i64, ptr %sizes, i64 1
  %block = load i64, ptr %p_block
  %first = mul i64 %begin, %block
  %limit = mul i64 %end, %block
  %last = call i64 @llvm.smin.i64(i64 %limit, i64 %bytes)
  %length = sub i64 %last, %first
  %source = getelementptr i8, ptr %from, i64 %first
  %destination = getelementptr i8, ptr %to, i64 %first
  call void @llvm.memmove.p0.p0.i64(ptr %destination, ptr %source, i64 %length, i1 false)
  ret void
}
"""


def support_ir(machine: Machine) -> str:
    """The support code of a machine as LLVM IR."""
    constants = {"FUTEX": machine.futex, "WAIT": _WAIT, "WAKE": _WAKE}
    words: dict[str, object] = {**constants, "PAUSE": machine.pause, "PAUSE_TYPE": machine.pause_type}
    tables: tuple[type[IntEnum], ...] = (
        layout.Pool, layout.Lane, layout.Program, layout.Command, layout.Call, layout.Spec, layout.Array,
    )
    for table in tables:
        name = table.__name__.upper()
        words.update({f"{name}_{field.name}": int(field) for field in table.__members__.values()})
    return Template(POOL + EXECUTOR).substitute(words)


def build(machine: Machine) -> bytes:
    """The support code of a machine as a relocatable object."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", codemodel="small", abiname=machine.abi
    )
    module = binding.parse_assembly(support_ir(machine))
    module.triple = machine.triple
    module.data_layout = str(target.target_data)
    module.verify()
    return target.emit_object(module)


def path(machine: Machine) -> Path:
    """Where the runtime looks for the object."""
    return Path(str(host.__file__)).parent / f"support-{machine.name}.o"


def main() -> None:
    for machine in MACHINES:
        data = build(machine)
        path(machine).write_bytes(data)
        sys.stdout.write(f"{path(machine)}: {len(data):,} bytes\n")


if __name__ == "__main__":
    main()
