"""The runtime's native code as LLVM IR: the thread pool, the executor of schedules, the call from Python.

`python -m motet.compiler.codegen.cpu.support` compiles it for each machine to a relocatable object beside the
loader, so that the runtime needs neither a compiler nor a compiled extension.

**Pool.** The tasks of a job are cut in one *share* per thread, generation << 32 | tasks left, always alike, so
that a thread works on what its caches hold from the job before. A thread claims three quarters of what is
left of its own share, by compare-and-swap, and when that is empty half of what is left of those after it: what
it takes from others it has to fetch. The job's description is read after
a claim only, and cannot change before the claimed tasks are reported, so a thread that has claimed nothing
is never waited for. Threads that find no more to claim spin, then sleep, until the *ticket*, which is
generation << 32, changes; the submitter works too, then spins, then sleeps on the count of finished tasks.
(Shares with stealing: Markatos and LeBlanc, "Using Processor Affinity in Loop Scheduling on Shared-Memory
Multiprocessors", 1994.)

**Executor.** Commands run in order in one native call. A command with a single task runs in the caller. Commands
that may run at once are one, a *wave* (`motet_wave`), whose tasks are those of all of them; `motet_wave_logged` also
writes down which thread ran what when. Small commands of which some may run at once and others wait for them are one,
too, a *flow* (`motet_flow`): its tasks are threads that take pieces of the commands in their order, and wait for what a
piece needs, which others have taken before. A submitter that finds
the pool taken works on its own tasks, and looks again after each share.

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
    gettid: int  # the number of the system call
    abi: str = ""


MACHINES = (
    Machine("x86_64", "x86_64-unknown-linux-gnu", "x86-64", "", 202,
            "llvm.x86.sse2.pause()", "llvm.x86.sse2.pause()", 186),
    Machine("aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8", 98,
            "llvm.aarch64.isb(i32 15)", "llvm.aarch64.isb(i32)", 178),
    Machine("riscv64", "riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c,+zihintpause", 98,
            "llvm.riscv.pause()", "llvm.riscv.pause()", 178, "lp64d"),
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
declare i64 @llvm.umin.i64(i64, i64)
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

; Claim tasks of the current job, of share %home first, and run them until none is left to claim.
define internal void @participate(ptr %pool, ptr %lane, i64 %home) nounwind {
entry:
  %p_shares = getelementptr i8, ptr %pool, i64 $SHARES
  %p_workers = getelementptr i8, ptr %pool, i64 $POOL_WORKERS
  %workers = load atomic i64, ptr %p_workers monotonic, align 8
  br label %look
look:
  %at = phi i64 [ %home, %entry ], [ %at, %ran ], [ %after_at, %next ]
  %passed = phi i64 [ 0, %entry ], [ 0, %ran ], [ %passed_now, %next ]
  %count = phi i32 [ 0, %entry ], [ %counted, %ran ], [ %count, %next ]
  %last_target = phi i32 [ 0, %entry ], [ %target, %ran ], [ %last_target, %next ]
  %at_offset = mul i64 %at, $LANE_STRIDE
  %p_share = getelementptr i8, ptr %p_shares, i64 %at_offset
  %first = load atomic i64, ptr %p_share acquire, align 8
  br label %check
check:
  %ticket = phi i64 [ %first, %look ], [ %seen, %claim ]
  %left = trunc i64 %ticket to i32
  %empty = icmp eq i32 %left, 0
  br i1 %empty, label %pass, label %claim
pass:
  %passed_now = add i64 %passed, 1
  %through = icmp ugt i64 %passed_now, %workers
  br i1 %through, label %report, label %next
next:
  %raised = add i64 %at, 1
  %over = icmp ugt i64 %raised, %workers
  %after_at = select i1 %over, i64 0, i64 %raised
  br label %look
claim:
  %own = icmp eq i64 %at, %home
  %portion = lshr i32 %left, 1
  %portion_or_one = call i32 @llvm.umax.i32(i32 %portion, i32 1)
  %rest = lshr i32 %left, 2
  %most = sub i32 %left, %rest
  %share = select i1 %own, i32 %most, i32 %portion_or_one
  %share64 = zext i32 %share to i64
  %claimed = sub i64 %ticket, %share64
  %swap = cmpxchg ptr %p_share, i64 %ticket, i64 %claimed acq_rel acquire
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
  %target64 = zext i32 %target to i64
  %p_base = getelementptr i8, ptr %pool, i64 $POOL_BASE
  %base = load i64, ptr %p_base
  %p_extra = getelementptr i8, ptr %pool, i64 $POOL_EXTRA
  %extra = load i64, ptr %p_extra
  %p_need = getelementptr i8, ptr %pool, i64 $POOL_SCRATCH
  %need = load i64, ptr %p_need
  %left64 = zext i32 %left to i64
  ; The share ends (number + 1) * base + min(number + 1, extra) tasks after the first.
  %begun = add i64 %at, 1
  %even = mul i64 %begun, %base
  %longer = call i64 @llvm.smin.i64(i64 %begun, i64 %extra)
  %before_end = add i64 %even, %longer
  %job_begin = sub i64 %last, %target64
  %share_end = add i64 %job_begin, %before_end
  %begin = sub i64 %share_end, %left64
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
  ; Its share lies in its lane; the submitter's, which is the first, in the lane before the first worker's.
  %p_shares = getelementptr i8, ptr %pool, i64 $SHARES
  %p_own = getelementptr i8, ptr %lane, i64 $LANE_SHARE
  %own = ptrtoint ptr %p_own to i64
  %shares = ptrtoint ptr %p_shares to i64
  %distance = sub i64 %own, %shares
  %home = udiv i64 %distance, $LANE_STRIDE
  br label %awake
awake:
  %known = phi i32 [ 0, %entry ], [ %generation, %take ], [ %past, %sleep ]
  br label %look
look:
  %past = phi i32 [ %known, %awake ], [ %past, %again ]
  %spins = phi i64 [ 0, %awake ], [ %spun, %again ]
  %ticket = load atomic i64, ptr %pool acquire, align 8
  %upper = lshr i64 %ticket, 32
  %generation = trunc i64 %upper to i32
  %work = icmp ne i32 %generation, %past
  br i1 %work, label %take, label %idle
take:
  call void @participate(ptr %pool, ptr %lane, i64 %home)
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
  %ticket = add i64 %old, 4294967296
  %p_workers = getelementptr i8, ptr %pool, i64 $POOL_WORKERS
  %workers = load i64, ptr %p_workers
  %threads = add i64 %workers, 1
  %base = udiv i64 %tasks, %threads
  %extra = urem i64 %tasks, %threads
  %p_base = getelementptr i8, ptr %pool, i64 $POOL_BASE
  store i64 %base, ptr %p_base
  %p_extra = getelementptr i8, ptr %pool, i64 $POOL_EXTRA
  store i64 %extra, ptr %p_extra
  %p_shares = getelementptr i8, ptr %pool, i64 $SHARES
  br label %share
share:
  %number = phi i64 [ 0, %entry ], [ %number_after, %share ]
  %is_longer = icmp ult i64 %number, %extra
  %more_by = zext i1 %is_longer to i64
  %size = add i64 %base, %more_by
  %word = or i64 %ticket, %size
  %share_offset = mul i64 %number, $LANE_STRIDE
  %p_share = getelementptr i8, ptr %p_shares, i64 %share_offset
  store atomic i64 %word, ptr %p_share release, align 8
  %number_after = add i64 %number, 1
  %shared = icmp eq i64 %number_after, %threads
  br i1 %shared, label %publish, label %share
publish:
  store atomic i64 %ticket, ptr %pool seq_cst, align 8
  %p_sleepers = getelementptr i8, ptr %pool, i64 $POOL_SLEEPERS
  %sleepers = load atomic i32, ptr %p_sleepers seq_cst, align 4
  %some = icmp ne i32 %sleepers, 0
  br i1 %some, label %consider, label %work
consider:
  %workers32 = trunc i64 %workers to i32
  %others = sub i32 %target, 1
  %useful = call i32 @llvm.umin.i32(i32 %others, i32 %workers32)
  %awake = sub i32 %workers32, %sleepers
  %lacking = sub i32 %useful, %awake
  %lack = icmp sgt i32 %lacking, 0
  br i1 %lack, label %wake, label %work
wake:
  %p_generation = getelementptr i8, ptr %pool, i64 4
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_generation, i32 $WAKE, i32 %lacking,
                               ptr null, ptr null, i32 0)
  br label %work
work:
  call void @participate(ptr %pool, ptr %lane, i64 0)
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

; A kernel that is several, with their tasks one after the other. %sizes: how many they are, then for each the kernel,
; one after its last task, where its buffers begin among %buffers, and the address of its sizes.
$WAVE
; The same, and each call of a member is noted in a log. %sizes: the address of the log, the number of the first member,
; then what motet_wave is given. The log: how many notes were made, how many there is room for, then for each the
; member, the thread, the first task, one after the last, begin and end in nanoseconds.
$LOGGED_WAVE
; Commands that wait for one another, done by as many threads as there are tasks. %sizes: how many units there are;
; where among %buffers the words of the flow begin, which are zero at first: how many units were taken, and from the
; eighth on how many pieces of each command were done; the address of the units, pairs of a first piece and how many
; follow one another; that of the pieces, triples of a command, its first task and one after the last; that of a log as
; for motet_wave_logged, or null, and the number of the first command. A command is its function, where its buffers
; begin, the address of its sizes, its own number and word, and of how many others it needs how many pieces, pairs of a
; word and a count.
define void @motet_flow(ptr %buffers, ptr %sizes, i64 %first, i64 %last, ptr %scratch) nounwind {
entry:
  %total = load i64, ptr %sizes
  %p_state_at = getelementptr i64, ptr %sizes, i64 1
  %state_at = load i64, ptr %p_state_at
  %state = getelementptr i64, ptr %buffers, i64 %state_at
  %p_units = getelementptr i64, ptr %sizes, i64 2
  %units = load ptr, ptr %p_units
  %p_pieces = getelementptr i64, ptr %sizes, i64 3
  %pieces = load ptr, ptr %p_pieces
  %p_log = getelementptr i64, ptr %sizes, i64 4
  %log = load ptr, ptr %p_log
  %p_base = getelementptr i64, ptr %sizes, i64 5
  %base = load i64, ptr %p_base
  br label %take
take:
  %unit = atomicrmw add ptr %state, i64 1 monotonic
  %there = icmp ult i64 %unit, %total
  br i1 %there, label %begin_unit, label %out
begin_unit:
  %unit_word = shl i64 %unit, 1
  %p_unit = getelementptr i64, ptr %units, i64 %unit_word
  %first_piece = load i64, ptr %p_unit
  %p_length = getelementptr i64, ptr %p_unit, i64 1
  %length = load i64, ptr %p_length
  %end_piece = add i64 %first_piece, %length
  br label %piece
piece:
  %number = phi i64 [ %first_piece, %begin_unit ], [ %number_after, %done ]
  %piece_word = mul i64 %number, 3
  %p_piece = getelementptr i64, ptr %pieces, i64 %piece_word
  %command = load ptr, ptr %p_piece
  %p_begin = getelementptr i64, ptr %p_piece, i64 1
  %begin = load i64, ptr %p_begin
  %p_end = getelementptr i64, ptr %p_piece, i64 2
  %end = load i64, ptr %p_end
  %p_count = getelementptr i64, ptr %command, i64 5
  %count = load i64, ptr %p_count
  br label %need
need:
  %n = phi i64 [ 0, %piece ], [ %n_after, %had ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %one, label %ready
one:
  %need_word = shl i64 %n, 1
  %need_at = add i64 %need_word, 6
  %p_need = getelementptr i64, ptr %command, i64 %need_at
  %word = load i64, ptr %p_need
  %p_wanted = getelementptr i64, ptr %p_need, i64 1
  %wanted = load i64, ptr %p_wanted
  %p_word = getelementptr i64, ptr %state, i64 %word
  br label %look
look:
  %spins = phi i64 [ 0, %one ], [ %spun, %again ], [ 0, %yield ]
  %so_far = load atomic i64, ptr %p_word acquire, align 8
  %enough = icmp uge i64 %so_far, %wanted
  br i1 %enough, label %had, label %wait
wait:
  %spun = add i64 %spins, 1
  %patient = icmp ult i64 %spun, 1024
  br i1 %patient, label %again, label %yield
again:
  call void @$PAUSE
  br label %look
yield:
  call i32 @sched_yield()
  br label %look
had:
  %n_after = add i64 %n, 1
  br label %need
ready:
  %function = load ptr, ptr %command
  %p_offset = getelementptr i64, ptr %command, i64 1
  %offset = load i64, ptr %p_offset
  %own_buffers = getelementptr ptr, ptr %buffers, i64 %offset
  %p_own_sizes = getelementptr i64, ptr %command, i64 2
  %own_sizes = load ptr, ptr %p_own_sizes
  %silent = icmp eq ptr %log, null
  br i1 %silent, label %run, label %run_logged
run:
  $RUN_MEMBER
  br label %done
run_logged:
$FLOW_CALL
done:
  %p_own_word = getelementptr i64, ptr %command, i64 4
  %own_word = load i64, ptr %p_own_word
  %p_own = getelementptr i64, ptr %state, i64 %own_word
  atomicrmw add ptr %p_own, i64 1 release
  %number_after = add i64 %number, 1
  %on = icmp ult i64 %number_after, %end_piece
  br i1 %on, label %piece, label %take
out:
  ret void
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

define internal i32 @run_commands(ptr %program, ptr %externals, ptr %times, ptr %lane,
                                  ptr %scratch) nounwind {
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

# A call of a member: of a wave, of a flow.
RUN_MEMBER = "call void %function(ptr %own_buffers, ptr %own_sizes, i64 %begin, i64 %end, ptr %scratch)"

# The same, noted in the log as $MEMBER, with what has to be read first; goes on at $AFTER.
NOTED_CALL = r"""  %began = call i64 @now()
  $RUN_MEMBER
  %ended = call i64 @now()
  %note = atomicrmw add ptr %log, i64 1 monotonic
$READ_ROOM  %fits = icmp ult i64 %note, %room
  br i1 %fits, label %write, label %$AFTER
write:
  %words = mul i64 %note, 6
  %place = add i64 %words, 2
  %p_note = getelementptr i64, ptr %log, i64 %place
$READ_MEMBER  %named = add i64 %base, $MEMBER
  store i64 %named, ptr %p_note
$READ_THREAD  %p_thread = getelementptr i64, ptr %p_note, i64 1
  store i64 %thread, ptr %p_thread
  %p_note_begin = getelementptr i64, ptr %p_note, i64 2
  store i64 %begin, ptr %p_note_begin
  %p_note_end = getelementptr i64, ptr %p_note, i64 3
  store i64 %end, ptr %p_note_end
  %p_began = getelementptr i64, ptr %p_note, i64 4
  store i64 %began, ptr %p_began
  %p_ended = getelementptr i64, ptr %p_note, i64 5
  store i64 %ended, ptr %p_ended
  br label %$AFTER"""
ROOM = """  %p_room = getelementptr i64, ptr %log, i64 1
  %room = load i64, ptr %p_room
"""
THREAD = "  %thread = call i64 (i64, ...) @syscall(i64 $GETTID)\n"
FLOW_MEMBER = """  %p_number = getelementptr i64, ptr %command, i64 3
  %own_number = load i64, ptr %p_number
"""

# `motet_wave`, and, logged, `motet_wave_logged`.
WAVE = r"""define void @$NAME(ptr %buffers, ptr %sizes, i64 %first, i64 %last, ptr %scratch) nounwind {
entry:
$READ_LOG  %count = load i64, ptr $LIST
$READ_REST  br label %member
member:
  %number = phi i64 [ 0, %entry ], [ %number_after, %following ]
  %past = phi i64 [ 0, %entry ], [ %until, %following ]
  %from = phi i64 [ %first, %entry ], [ %from_after, %following ]
  %word = shl i64 %number, 2
  %at = add i64 %word, 1
  %entry_of = getelementptr i64, ptr $LIST, i64 %at
  %p_until = getelementptr i64, ptr %entry_of, i64 1
  %until = load i64, ptr %p_until
  %number_after = add i64 %number, 1
  %here = icmp ult i64 %from, %until
  br i1 %here, label %run, label %following
run:
  %function = load ptr, ptr %entry_of
  %p_offset = getelementptr i64, ptr %entry_of, i64 2
  %offset = load i64, ptr %p_offset
  %own_buffers = getelementptr ptr, ptr %buffers, i64 %offset
  %p_own_sizes = getelementptr i64, ptr %entry_of, i64 3
  %own_sizes = load ptr, ptr %p_own_sizes
  %to = call i64 @llvm.umin.i64(i64 %until, i64 %last)
  %begin = sub i64 %from, %past
  %end = sub i64 %to, %past
$CALL
following:
  %from_after = phi i64 [ %from, %member ], [ %to, %run ]$WRITTEN
  %more_tasks = icmp ult i64 %from_after, %last
  %more_members = icmp ult i64 %number_after, %count
  %more = and i1 %more_tasks, %more_members
  br i1 %more, label %member, label %out
out:
  ret void
}
"""
LOG = """  %log = load ptr, ptr %sizes
  %p_base = getelementptr i64, ptr %sizes, i64 1
  %base = load i64, ptr %p_base
  %wave = getelementptr i64, ptr %sizes, i64 2
"""

CALL = r"""
declare extern_weak ptr @PyTuple_GetItem(ptr, i64)
declare extern_weak ptr @PyLong_AsVoidPtr(ptr)
declare extern_weak ptr @PyEval_SaveThread()
declare extern_weak void @PyEval_RestoreThread(ptr)
declare extern_weak ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare extern_weak ptr @PyObject_CallNoArgs(ptr)
declare extern_weak void @Py_IncRef(ptr)
declare extern_weak void @Py_DecRef(ptr)
declare extern_weak ptr @PyTuple_New(i64)
declare extern_weak i32 @PyTuple_SetItem(ptr, i64, ptr)

; The address of the data of %object, where it is an ndarray as %spec says; null where not.
define internal ptr @checked(ptr %object, ptr %spec, ptr %type) nounwind {
entry:
  %p_type = getelementptr i8, ptr %object, i64 $ARRAY_TYPE
  %its_type = load ptr, ptr %p_type
  %same_type = icmp eq ptr %its_type, %type
  br i1 %same_type, label %array, label %no
array:
  %p_descriptor = getelementptr i8, ptr %object, i64 $ARRAY_DESCRIPTOR
  %descriptor = load ptr, ptr %p_descriptor
  %wanted_descriptor = load ptr, ptr %spec
  %same_descriptor = icmp eq ptr %descriptor, %wanted_descriptor
  %p_rank = getelementptr i8, ptr %object, i64 $ARRAY_RANK
  %rank = load i32, ptr %p_rank
  %p_wanted_rank = getelementptr i8, ptr %spec, i64 $SPEC_RANK
  %wanted_rank = load i32, ptr %p_wanted_rank
  %same_rank = icmp eq i32 %rank, %wanted_rank
  %p_flags = getelementptr i8, ptr %object, i64 $ARRAY_FLAGS
  %flags = load i32, ptr %p_flags
  %p_needed = getelementptr i8, ptr %spec, i64 $SPEC_FLAGS
  %needed = load i32, ptr %p_needed
  %had = and i32 %flags, %needed
  %all_flags = icmp eq i32 %had, %needed
  %both = and i1 %same_descriptor, %same_rank
  %good = and i1 %both, %all_flags
  br i1 %good, label %shape, label %no
shape:
  %p_shape = getelementptr i8, ptr %object, i64 $ARRAY_SHAPE
  %extents = load ptr, ptr %p_shape
  %p_wanted_shape = getelementptr i8, ptr %spec, i64 $SPEC_SHAPE
  %wanted_extents = load ptr, ptr %p_wanted_shape
  %count = zext i32 %rank to i64
  br label %axis
axis:
  %i = phi i64 [ 0, %shape ], [ %i_after, %compare ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %yes
compare:
  %p_extent = getelementptr i64, ptr %extents, i64 %i
  %extent = load i64, ptr %p_extent
  %p_wanted = getelementptr i64, ptr %wanted_extents, i64 %i
  %wanted = load i64, ptr %p_wanted
  %i_after = add i64 %i, 1
  %same = icmp eq i64 %extent, %wanted
  br i1 %same, label %axis, label %no
yes:
  %p_data = getelementptr i8, ptr %object, i64 $ARRAY_DATA
  %data = load ptr, ptr %p_data
  ret ptr %data
no:
  ret ptr null
}

; Whether %bytes bytes at %address overlap any of the first %count arrays, number %except left out.
define internal i1 @overlaps(ptr %call, ptr %table, ptr %address, i64 %bytes, i64 %except, i64 %count) nounwind {
entry:
  %p_specs = getelementptr i8, ptr %call, i64 $CALL_SPECS
  %specs = load ptr, ptr %p_specs
  %begin = ptrtoint ptr %address to i64
  %end = add i64 %begin, %bytes
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_after, %following ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %no
one:
  %at = mul i64 %i, $SPEC_STRIDE
  %spec = getelementptr i8, ptr %specs, i64 %at
  %p_external = getelementptr i8, ptr %spec, i64 $SPEC_EXTERNAL
  %external = load i64, ptr %p_external
  %p_its = getelementptr i64, ptr %table, i64 %external
  %its_begin = load i64, ptr %p_its
  %p_bytes = getelementptr i8, ptr %spec, i64 $SPEC_BYTES
  %its_bytes = load i64, ptr %p_bytes
  %its_end = add i64 %its_begin, %its_bytes
  %left = icmp ult i64 %begin, %its_end
  %right = icmp ult i64 %its_begin, %end
  %excepted = icmp ne i64 %i, %except
  %touch = and i1 %left, %right
  %hit = and i1 %touch, %excepted
  br i1 %hit, label %yes, label %following
following:
  %i_after = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; One result: the destination that was passed (%given), the input it is written to, an array of its factory's
; making, or a new one. Gives a new reference, or null: 0 with an error set, 1 (in %odd) where nothing is wrong but
; the call must go the long way.
define internal ptr @result(ptr %call, ptr %table, ptr %args, i64 %number, i1 %given, ptr %odd) nounwind {
entry:
  %p_inputs = getelementptr i8, ptr %call, i64 $CALL_INPUTS
  %inputs = load i64, ptr %p_inputs
  %p_type = getelementptr i8, ptr %call, i64 $CALL_ARRAY_TYPE
  %type = load ptr, ptr %p_type
  %p_specs = getelementptr i8, ptr %call, i64 $CALL_SPECS
  %specs = load ptr, ptr %p_specs
  %place = add i64 %inputs, %number
  %at = mul i64 %place, $SPEC_STRIDE
  %spec = getelementptr i8, ptr %specs, i64 %at
  %p_bytes = getelementptr i8, ptr %spec, i64 $SPEC_BYTES
  %bytes = load i64, ptr %p_bytes
  br i1 %given, label %destination, label %own
destination:
  %p_passed = getelementptr ptr, ptr %args, i64 %place
  %passed = load ptr, ptr %p_passed
  %passed_data = call ptr @checked(ptr %passed, ptr %spec, ptr %type)
  %unfit = icmp eq ptr %passed_data, null
  br i1 %unfit, label %other, label %apart
apart:
  %shared = call i1 @overlaps(ptr %call, ptr %table, ptr %passed_data, i64 %bytes, i64 -1, i64 %place)
  br i1 %shared, label %other, label %refer
own:
  %p_input = getelementptr i8, ptr %spec, i64 $SPEC_INPUT
  %input = load i64, ptr %p_input
  %fresh = icmp slt i64 %input, 0
  br i1 %fresh, label %make, label %in_place
in_place:
  %p_argument = getelementptr ptr, ptr %args, i64 %input
  %argument = load ptr, ptr %p_argument
  %p_argument_data = getelementptr i8, ptr %argument, i64 $ARRAY_DATA
  %argument_data = load ptr, ptr %p_argument_data
  %touched = call i1 @overlaps(ptr %call, ptr %table, ptr %argument_data, i64 %bytes, i64 %input, i64 %inputs)
  br i1 %touched, label %other, label %refer
refer:
  %existing = phi ptr [ %passed, %apart ], [ %argument, %in_place ]
  %existing_data = phi ptr [ %passed_data, %apart ], [ %argument_data, %in_place ]
  call void @Py_IncRef(ptr %existing)
  br label %enter
make:
  %p_factory = getelementptr i8, ptr %spec, i64 $SPEC_FACTORY
  %factory = load ptr, ptr %p_factory
  %plain = icmp eq ptr %factory, null
  br i1 %plain, label %empty, label %ask
ask:
  %asked = call ptr @PyObject_CallNoArgs(ptr %factory)
  br label %made
empty:
  %p_empty = getelementptr i8, ptr %call, i64 $CALL_PYARRAY_EMPTY
  %new_array = load ptr, ptr %p_empty
  %descriptor = load ptr, ptr %spec
  call void @Py_IncRef(ptr %descriptor)
  %p_rank = getelementptr i8, ptr %spec, i64 $SPEC_RANK
  %rank = load i32, ptr %p_rank
  %p_shape = getelementptr i8, ptr %spec, i64 $SPEC_SHAPE
  %shape = load ptr, ptr %p_shape
  %emptied = call ptr %new_array(i32 %rank, ptr %shape, ptr %descriptor, i32 0)
  br label %made
made:
  %new = phi ptr [ %asked, %ask ], [ %emptied, %empty ]
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %error, label %verify
verify:
  %new_data = call ptr @checked(ptr %new, ptr %spec, ptr %type)
  %wrong = icmp eq ptr %new_data, null
  br i1 %wrong, label %drop, label %enter
drop:
  call void @Py_DecRef(ptr %new)
  br label %other
enter:
  %object = phi ptr [ %existing, %refer ], [ %new, %verify ]
  %data = phi ptr [ %existing_data, %refer ], [ %new_data, %verify ]
  %p_external = getelementptr i8, ptr %spec, i64 $SPEC_EXTERNAL
  %external = load i64, ptr %p_external
  %p_entry = getelementptr ptr, ptr %table, i64 %external
  store ptr %data, ptr %p_entry
  ret ptr %object
other:
  store i8 1, ptr %odd
  ret ptr null
error:
  store i8 0, ptr %odd
  ret ptr null
}

define internal void @drop_all(ptr %objects, i64 %count) nounwind {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_after, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %p_object = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %p_object
  call void @Py_DecRef(ptr %object)
  %i_after = add i64 %i, 1
  br label %next
end:
  ret void
}

; What the caller gets: nothing, the one result, or a tuple. Takes over the references.
define internal ptr @returned(ptr %call, ptr %objects, i64 %count) nounwind {
entry:
  switch i64 %count, label %several [ i64 0, label %nothing
                                      i64 1, label %single ]
nothing:
  %p_none = getelementptr i8, ptr %call, i64 $CALL_NONE
  %none = load ptr, ptr %p_none
  call void @Py_IncRef(ptr %none)
  ret ptr %none
single:
  %only = load ptr, ptr %objects
  ret ptr %only
several:
  %tuple = call ptr @PyTuple_New(i64 %count)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %error, label %fill
fill:
  %i = phi i64 [ 0, %several ], [ %i_after, %fill ]
  %p_object = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %p_object
  call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %object)
  %i_after = add i64 %i, 1
  %more = icmp ult i64 %i_after, %count
  br i1 %more, label %fill, label %end
end:
  ret ptr %tuple
error:
  call void @drop_all(ptr %objects, i64 %count)
  ret ptr null
}

; The method: METH_FASTCALL | METH_KEYWORDS. %self is a tuple whose first item is the address of the Call.
define ptr @motet_call(ptr %self, ptr %args, i64 %given, ptr %names) nounwind {
entry:
  %odd = alloca i8
  %item = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %call = call ptr @PyLong_AsVoidPtr(ptr %item)
  %program = load ptr, ptr %call
  %pool = load ptr, ptr %program
  %p_inputs = getelementptr i8, ptr %call, i64 $CALL_INPUTS
  %inputs = load i64, ptr %p_inputs
  %p_results = getelementptr i8, ptr %call, i64 $CALL_RESULTS
  %results = load i64, ptr %p_results
  %p_type = getelementptr i8, ptr %call, i64 $CALL_ARRAY_TYPE
  %type = load ptr, ptr %p_type
  %p_specs = getelementptr i8, ptr %call, i64 $CALL_SPECS
  %specs = load ptr, ptr %p_specs
  %p_externals = getelementptr i8, ptr %call, i64 $CALL_EXTERNALS
  %externals = load i64, ptr %p_externals
  %entries = add i64 %externals, 1
  %block = alloca i64, i64 %entries, align 16
  %table = getelementptr i64, ptr %block, i64 1
  %objects = alloca ptr, i64 %results, align 16
  %named = icmp ne ptr %names, null
  br i1 %named, label %long_way, label %count
count:
  %all = add i64 %inputs, %results
  %exact = icmp eq i64 %given, %inputs
  br i1 %exact, label %ready, label %destinations
destinations:
  %p_allowed = getelementptr i8, ptr %call, i64 $CALL_DESTINATIONS
  %allowed = load i64, ptr %p_allowed
  %may = icmp ne i64 %allowed, 0
  %fits = icmp eq i64 %given, %all
  %both = and i1 %may, %fits
  br i1 %both, label %ready, label %long_way
ready:
  %passed = phi i1 [ false, %count ], [ true, %destinations ]
  %p_parallel = getelementptr i8, ptr %program, i64 $PROGRAM_PARALLEL
  %parallel = load i64, ptr %p_parallel
  %p_started = getelementptr i8, ptr %pool, i64 $POOL_STARTED
  %started = load atomic i32, ptr %p_started monotonic, align 4
  %lone = icmp eq i64 %parallel, 0
  %running = icmp ne i32 %started, 0
  %able = or i1 %lone, %running
  br i1 %able, label %fix, label %long_way
fix:
  %p_fixed = getelementptr i8, ptr %call, i64 $CALL_FIXED
  %fixed = load ptr, ptr %p_fixed
  store i64 0, ptr %block
  br label %copy
copy:
  %k = phi i64 [ 0, %fix ], [ %k_after, %copy_one ]
  %copying = icmp ult i64 %k, %externals
  br i1 %copying, label %copy_one, label %next_input
copy_one:
  %p_constant = getelementptr i64, ptr %fixed, i64 %k
  %constant = load i64, ptr %p_constant
  %p_slot = getelementptr i64, ptr %table, i64 %k
  store i64 %constant, ptr %p_slot
  %k_after = add i64 %k, 1
  br label %copy
next_input:
  %i = phi i64 [ 0, %copy ], [ %i_after, %enter_input ]
  %more_inputs = icmp ult i64 %i, %inputs
  br i1 %more_inputs, label %input, label %next_result
input:
  %p_argument = getelementptr ptr, ptr %args, i64 %i
  %argument = load ptr, ptr %p_argument
  %at = mul i64 %i, $SPEC_STRIDE
  %spec = getelementptr i8, ptr %specs, i64 %at
  %data = call ptr @checked(ptr %argument, ptr %spec, ptr %type)
  %unfit = icmp eq ptr %data, null
  br i1 %unfit, label %long_way, label %enter_input
enter_input:
  %p_external = getelementptr i8, ptr %spec, i64 $SPEC_EXTERNAL
  %external = load i64, ptr %p_external
  %p_entry = getelementptr ptr, ptr %table, i64 %external
  store ptr %data, ptr %p_entry
  %i_after = add i64 %i, 1
  br label %next_input
next_result:
  %j = phi i64 [ 0, %next_input ], [ %j_after, %enter_result ]
  %more_results = icmp ult i64 %j, %results
  br i1 %more_results, label %make, label %arena
make:
  %object = call ptr @result(ptr %call, ptr %table, ptr %args, i64 %j, i1 %passed, ptr %odd)
  %without = icmp eq ptr %object, null
  br i1 %without, label %unmade, label %enter_result
enter_result:
  %p_object = getelementptr ptr, ptr %objects, i64 %j
  store ptr %object, ptr %p_object
  %j_after = add i64 %j, 1
  br label %next_result
unmade:
  call void @drop_all(ptr %objects, i64 %j)
  %why = load i8, ptr %odd
  %other_way = icmp ne i8 %why, 0
  br i1 %other_way, label %long_way, label %failed
failed:
  ret ptr null
arena:
  %p_arena_external = getelementptr i8, ptr %call, i64 $CALL_ARENA_EXTERNAL
  %arena_external = load i64, ptr %p_arena_external
  %p_free = getelementptr i8, ptr %call, i64 $CALL_ARENAS_FREE
  %no_arena = icmp slt i64 %arena_external, 0
  br i1 %no_arena, label %run, label %look
look:
  %free = load atomic i64, ptr %p_free monotonic, align 8
  %none_free = icmp eq i64 %free, 0
  br i1 %none_free, label %no_room, label %try
no_room:
  call void @drop_all(ptr %objects, i64 %results)
  br label %long_way
try:
  %number = call i64 @llvm.cttz.i64(i64 %free, i1 false)
  %bit = shl i64 1, %number
  %rest = xor i64 %free, %bit
  %swap = cmpxchg ptr %p_free, i64 %free, i64 %rest acquire monotonic
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %use, label %look
use:
  %p_arenas = getelementptr i8, ptr %call, i64 $CALL_ARENAS
  %arenas = load ptr, ptr %p_arenas
  %p_arena = getelementptr i64, ptr %arenas, i64 %number
  %arena_address = load i64, ptr %p_arena
  %p_arena_entry = getelementptr i64, ptr %table, i64 %arena_external
  store i64 %arena_address, ptr %p_arena_entry
  br label %run
run:
  %taken = phi i64 [ 0, %arena ], [ %bit, %use ]
  %p_release = getelementptr i8, ptr %call, i64 $CALL_RELEASE
  %release = load i64, ptr %p_release
  %free_lock = icmp ne i64 %release, 0
  br i1 %free_lock, label %unlocked, label %locked
locked:
  %status_locked = call i32 @motet_run(ptr %program, ptr %table, ptr null)
  br label %ran
unlocked:
  %state = call ptr @PyEval_SaveThread()
  %status_unlocked = call i32 @motet_run(ptr %program, ptr %table, ptr null)
  call void @PyEval_RestoreThread(ptr %state)
  br label %ran
ran:
  %status = phi i32 [ %status_locked, %locked ], [ %status_unlocked, %unlocked ]
  %had_arena = icmp ne i64 %taken, 0
  br i1 %had_arena, label %leave, label %conclude
leave:
  atomicrmw or ptr %p_free, i64 %taken release
  br label %conclude
conclude:
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %no_memory, label %done
no_memory:
  call void @drop_all(ptr %objects, i64 %results)
  %p_failure = getelementptr i8, ptr %call, i64 $CALL_FAILURE
  %failure = load ptr, ptr %p_failure
  %raised = call ptr @PyObject_CallNoArgs(ptr %failure)
  ret ptr %raised
done:
  %answer = call ptr @returned(ptr %call, ptr %objects, i64 %results)
  ret ptr %answer
long_way:
  %p_fallback = getelementptr i8, ptr %call, i64 $CALL_FALLBACK
  %fallback = load ptr, ptr %p_fallback
  %long = call ptr @PyObject_Vectorcall(ptr %fallback, ptr %args, i64 %given, ptr %names)
  ret ptr %long
}
"""


def _noted_call(member: str, after: str, room: str = "", read: str = "", thread: str = "") -> str:
    return Template(NOTED_CALL).substitute(
        RUN_MEMBER=RUN_MEMBER, MEMBER=member, AFTER=after, READ_ROOM=room, READ_MEMBER=read, READ_THREAD=thread
    )


def _executor() -> str:
    """The executor with its two forms of waves."""
    plain = {"NAME": "motet_wave", "LIST": "%sizes", "READ_LOG": "", "READ_REST": "", "WRITTEN": ""}
    logged = {
        "NAME": "motet_wave_logged", "LIST": "%wave", "READ_LOG": LOG, "READ_REST": ROOM + THREAD,
        "WRITTEN": ", [ %to, %write ]",
    }
    return Template(EXECUTOR).safe_substitute(
        RUN_MEMBER=RUN_MEMBER,
        WAVE=Template(WAVE).substitute(plain, CALL=f"  {RUN_MEMBER}\n  br label %following"),
        LOGGED_WAVE=Template(WAVE).substitute(logged, CALL=_noted_call("%number", "following")),
        FLOW_CALL=_noted_call("%own_number", "done", ROOM, FLOW_MEMBER, THREAD),
    )


def support_ir(machine: Machine) -> str:
    """The support code of a machine as LLVM IR."""
    constants = {"FUTEX": machine.futex, "GETTID": machine.gettid, "WAIT": _WAIT, "WAKE": _WAKE}
    words: dict[str, object] = {
        **constants, "PAUSE": machine.pause, "PAUSE_TYPE": machine.pause_type, "SHARES": layout.SHARES,
    }
    tables: tuple[type[IntEnum], ...] = (
        layout.Pool, layout.Lane, layout.Program, layout.Command, layout.Call, layout.Spec, layout.Array,
    )
    for table in tables:
        name = table.__name__.upper()
        words.update({f"{name}_{field.name}": int(field) for field in table.__members__.values()})
    return Template(POOL + _executor() + CALL).substitute(words)


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
