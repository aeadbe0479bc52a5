"""The executor of schedules as LLVM IR, part of the executor (`source.py`).

Commands run in order in one native call. A command with a single task runs in the caller's thread. Commands that may
run concurrently form a *wave* (`motet_wave`), one command with the tasks of all; `motet_wave_logged` also records which
thread ran what when. Small commands with dependences among them form a *flow* (`motet_flow`): its tasks are threads
that take pieces of the commands in order and wait for the dependences of a piece, which other threads have taken
before. A submitter that finds the pool busy runs its tasks itself, and checks the pool again after each share.
"""

from __future__ import annotations

from string import Template

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

# A call of a member of a wave or a flow.
RUN_MEMBER = "call void %function(ptr %own_buffers, ptr %own_sizes, i64 %begin, i64 %end, ptr %scratch)"

# The same, recorded in the log as $MEMBER, with its preceding loads; continues at $AFTER.
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


def _noted_call(member: str, after: str, room: str = "", read: str = "", thread: str = "") -> str:
    return Template(NOTED_CALL).substitute(
        RUN_MEMBER=RUN_MEMBER, MEMBER=member, AFTER=after, READ_ROOM=room, READ_MEMBER=read, READ_THREAD=thread
    )


def executor() -> str:
    """The executor with both variants of waves."""
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
