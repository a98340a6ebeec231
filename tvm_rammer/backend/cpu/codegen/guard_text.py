"""LLVM IR text of a library's guard: what the CPU lacks, the thread's word, its pool's workers.

The text is linked into a module compiled for the oldest CPU of the architecture, so it runs where
the library's kernels would not. It calls libc, libgcc and the C interface of tvm_ffi, which every
process with TVM's runtime has.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

#: The word of a thread whose pool stays as it is.
LEFT_ALONE = -1
#: Of the thread that came through a fork, if its pool was used before: the workers are lost.
LOST = -2
#: The same, if nobody knows whether its pool was used.
FORKED = -3

# RBX may be the frame's base pointer, so CPUID's result leaves through another register.
_X86_HAS = r"""
%rammer_words = type { i32, i32, i32, i32 }

define %rammer_words @rammer_cpuid(i32 %leaf, i32 %subleaf) {
  %words = call %rammer_words asm sideeffect "xchgq %rbx, ${1:q}\0Acpuid\0Axchgq %rbx, ${1:q}",
      "={ax},=r,={cx},={dx},0,2,~{dirflag},~{fpsr},~{flags}"(i32 %leaf, i32 %subleaf)
  ret %rammer_words %words
}

define i32 @rammer_saved_state() {
  %words = call %rammer_words @rammer_cpuid(i32 1, i32 0)
  %ecx = extractvalue %rammer_words %words, 2
  %osxsave = and i32 %ecx, 134217728
  %readable = icmp ne i32 %osxsave, 0
  br i1 %readable, label %read, label %none
read:
  %xcr0 = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)
  %state = extractvalue { i32, i32 } %xcr0, 0
  ret i32 %state
none:
  ret i32 0
}

define i1 @rammer_has(ptr %row) {
  %words = alloca %rammer_words, align 16
  %fields = load [5 x i32], ptr %row, align 4
  %leaf = extractvalue [5 x i32] %fields, 0
  %subleaf = extractvalue [5 x i32] %fields, 1
  %register = extractvalue [5 x i32] %fields, 2
  %bit = extractvalue [5 x i32] %fields, 3
  %needed = extractvalue [5 x i32] %fields, 4
  %base = and i32 %leaf, -2147483648
  %range = call %rammer_words @rammer_cpuid(i32 %base, i32 0)
  %last = extractvalue %rammer_words %range, 0
  %known = icmp ule i32 %leaf, %last
  %read = call %rammer_words @rammer_cpuid(i32 %leaf, i32 %subleaf)
  store %rammer_words %read, ptr %words, align 16
  %word_at = getelementptr i32, ptr %words, i32 %register
  %word = load i32, ptr %word_at, align 4
  %shifted = lshr i32 %word, %bit
  %present = trunc i32 %shifted to i1
  %state = call i32 @rammer_saved_state()
  %kept = and i32 %state, %needed
  %saved = icmp eq i32 %kept, %needed
  %there = and i1 %known, %present
  %usable = and i1 %there, %saved
  ret i1 %usable
}
"""

_ARM_HAS = """
declare i64 @getauxval(i64)

define i1 @rammer_has(ptr %row) {
  %fields = load [2 x i32], ptr %row, align 4
  %number = extractvalue [2 x i32] %fields, 0
  %bit = extractvalue [2 x i32] %fields, 1
  %wide_number = zext i32 %number to i64
  %wide_bit = zext i32 %bit to i64
  %word = call i64 @getauxval(i64 %wide_number)
  %shifted = lshr i64 %word, %wide_bit
  %present = trunc i64 %shifted to i1
  ret i1 %present
}
"""

# The verdict is the process's: CPUID is slow where a hypervisor intercepts it.
_MISSING = """
@rammer_verdict = internal global i32 -2, align 4
@rammer_rows = private constant [$rows x [$columns x i32]] [$table], align 16

define i32 @rammer_missing() {
entry:
  %verdict = load atomic i32, ptr @rammer_verdict monotonic, align 4
  %judged = icmp ne i32 %verdict, -2
  br i1 %judged, label %known, label %look
known:
  ret i32 %verdict
look:
  %number = phi i32 [ 0, %entry ], [ %next, %test ]
  %more = icmp ult i32 %number, $rows
  br i1 %more, label %test, label %judge
test:
  %row = getelementptr [$columns x i32], ptr @rammer_rows, i32 %number
  %usable = call i1 @rammer_has(ptr %row)
  %next = add i32 %number, 1
  br i1 %usable, label %look, label %judge
judge:
  %found = phi i32 [ -1, %look ], [ %number, %test ]
  store atomic i32 %found, ptr @rammer_verdict monotonic, align 4
  ret i32 %found
}
"""

# TVM's JIT links no native thread-local variables; libgcc's emulated ones work there and in a
# library, take no pthread key and survive unloading. The word is 0 in a thread never seen before,
# and worth nothing in another process than the one beside it. A process that loads and unloads
# libraries gives all of them one variable, as libgcc keeps what it has given out.
_THREAD = """
@rammer_thread = internal global { i64, i64, i64, ptr } { i64 8, i64 4, i64 0, ptr null }, align 8
@rammer_thread_at = internal global ptr @rammer_thread, align 8
@rammer_process = internal global i32 0, align 4
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
    [{ i32, ptr, ptr } { i32 65535, ptr @$constructor, ptr null }]

declare i32 @$constructor()
declare ptr @__emutls_get_address(ptr)
declare i32 @getpid()
declare i64 @syscall(i64, ...)

define void @rammer_note_process() {
  %process = call i32 @getpid()
  store i32 %process, ptr @rammer_process, align 4
  ret void
}

define void @rammer_share_thread(i64 %address) {
  %variable = inttoptr i64 %address to ptr
  store ptr %variable, ptr @rammer_thread_at, align 8
  ret void
}

define i32 @rammer_recall() {
  %variable = load ptr, ptr @rammer_thread_at, align 8
  %word = call ptr @__emutls_get_address(ptr %variable)
  %value = load i32, ptr %word, align 4
  %process = call i32 @getpid()
  %seen = icmp ne i32 %value, 0
  br i1 %seen, label %remembered, label %unseen
remembered:
  %process_at = getelementptr i32, ptr %word, i32 1
  %remembering = load i32, ptr %process_at, align 4
  %same = icmp eq i32 %remembering, %process
  %known = select i1 %same, i32 %value, i32 $lost
  ret i32 %known
unseen:
  %loading = load i32, ptr @rammer_process, align 4
  %loaded_here = icmp eq i32 %loading, %process
  br i1 %loaded_here, label %new, label %child
child:
  %thread = call i64 (i64, ...) @syscall(i64 $gettid)
  %narrow = trunc i64 %thread to i32
  %first = icmp eq i32 %narrow, %process
  %came_through = select i1 %first, i32 $forked, i32 0
  ret i32 %came_through
new:
  ret i32 0
}

define void @rammer_remember(i32 %value) {
  %variable = load ptr, ptr @rammer_thread_at, align 8
  %word = call ptr @__emutls_get_address(ptr %variable)
  store i32 %value, ptr %word, align 4
  %process = call i32 @getpid()
  %process_at = getelementptr i32, ptr %word, i32 1
  store i32 %process, ptr %process_at, align 4
  ret void
}
"""

_POOL = r"""
%rammer_any = type { i32, i32, i64 }

@rammer_decimal = private constant [3 x i8] c"%d\00"
@rammer_array_name = private constant [9 x i8] c"ffi.Array"
@rammer_array = private constant { ptr, i64 } { ptr @rammer_array_name, i64 9 }
@rammer_pool_name = private constant [25 x i8] c"runtime.config_threadpool"
@rammer_pool = private constant { ptr, i64 } { ptr @rammer_pool_name, i64 25 }
@rammer_task_folder = private constant [16 x i8] c"/proc/self/task\00"
@rammer_count_name = private constant [19 x i8] c"runtime.NumThreads\00"
@rammer_count = private constant { ptr, i64 } { ptr @rammer_count_name, i64 18 }

declare i32 @snprintf(ptr, i64, ptr, ...)
declare ptr @opendir(ptr)
declare ptr @readdir(ptr)
declare i32 @closedir(ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @TVMFFIFunctionGetGlobal(ptr, ptr)
declare i32 @TVMFFIFunctionCall(ptr, ptr, i32, ptr)
declare i32 @TVMFFIObjectDecRef(ptr)
declare i64 @llvm.ctpop.i64(i64)
declare i32 @llvm.umin.i32(i32, i32)

define i32 @rammer_count_cpus(ptr %mask) {
entry:
  %unknown = call i32 @sched_getaffinity(i32 0, i64 1024, ptr %mask)
  %failed = icmp ne i32 %unknown, 0
  br i1 %failed, label %none, label %count
none:
  ret i32 0
count:
  %number = phi i64 [ 0, %entry ], [ %next, %count ]
  %sum = phi i64 [ 0, %entry ], [ %grown, %count ]
  %word_at = getelementptr i64, ptr %mask, i64 %number
  %word = load i64, ptr %word_at, align 8
  %ones = call i64 @llvm.ctpop.i64(i64 %word)
  %grown = add i64 %sum, %ones
  %next = add i64 %number, 1
  %more = icmp ult i64 %next, 128
  br i1 %more, label %count, label %counted
counted:
  %cpus = trunc i64 %grown to i32
  ret i32 %cpus
}

define void @rammer_name_cpus(ptr %mask, ptr %names) {
entry:
  br label %look
look:
  %cpu = phi i32 [ 0, %entry ], [ %next, %looked ]
  %named = phi i32 [ 0, %entry ], [ %total, %looked ]
  %word_number = lshr i32 %cpu, 6
  %word_at = getelementptr i64, ptr %mask, i32 %word_number
  %word = load i64, ptr %word_at, align 8
  %place = and i32 %cpu, 63
  %wide_place = zext i32 %place to i64
  %shifted = lshr i64 %word, %wide_place
  %allowed = trunc i64 %shifted to i1
  br i1 %allowed, label %name, label %looked
name:
  %any = getelementptr %rammer_any, ptr %names, i32 %named
  %length_at = getelementptr %rammer_any, ptr %any, i32 0, i32 1
  %text_at = getelementptr %rammer_any, ptr %any, i32 0, i32 2
  store i32 $small_string, ptr %any, align 8
  store i64 0, ptr %text_at, align 8
  %length = call i32 (ptr, i64, ptr, ...)
      @snprintf(ptr %text_at, i64 8, ptr @rammer_decimal, i32 %cpu)
  store i32 %length, ptr %length_at, align 4
  %counted = add i32 %named, 1
  br label %looked
looked:
  %total = phi i32 [ %named, %look ], [ %counted, %name ]
  %next = add i32 %cpu, 1
  %more = icmp ult i32 %next, 8192
  br i1 %more, label %look, label %done
done:
  ret void
}

define i32 @rammer_call(ptr %name, ptr %arguments, i32 %count, ptr %result) {
entry:
  %slot = alloca ptr, align 8
  store ptr null, ptr %slot, align 8
  store %rammer_any zeroinitializer, ptr %result, align 8
  %unknown = call i32 @TVMFFIFunctionGetGlobal(ptr %name, ptr %slot)
  %function = load ptr, ptr %slot, align 8
  %absent = icmp eq ptr %function, null
  br i1 %absent, label %fail, label %found
fail:
  ret i32 -1
found:
  %status = call i32 @TVMFFIFunctionCall(ptr %function, ptr %arguments, i32 %count, ptr %result)
  call i32 @TVMFFIObjectDecRef(ptr %function)
  ret i32 %status
}

define i32 @rammer_ask(ptr %mask, i32 %cpus, i64 %mode, i32 %workers, i32 %size) {
entry:
  %names = alloca %rammer_any, i32 %size, align 16
  %arguments = alloca [3 x %rammer_any], align 16
  %nothing = alloca %rammer_any, align 16
  call void @rammer_name_cpus(ptr %mask, ptr %names)
  %first = load %rammer_any, ptr %names, align 8
  br label %fill
fill:
  %number = phi i32 [ %cpus, %entry ], [ %next, %again ]
  %more = icmp ult i32 %number, %size
  br i1 %more, label %again, label %filled
again:
  %name_at = getelementptr %rammer_any, ptr %names, i32 %number
  store %rammer_any %first, ptr %name_at, align 8
  %next = add i32 %number, 1
  br label %fill
filled:
  %count_at = getelementptr %rammer_any, ptr %arguments, i32 1
  %array_at = getelementptr %rammer_any, ptr %arguments, i32 2
  %how = insertvalue %rammer_any { i32 $int, i32 0, i64 0 }, i64 %mode, 2
  store %rammer_any %how, ptr %arguments, align 8
  %wide = zext i32 %workers to i64
  %count = insertvalue %rammer_any { i32 $int, i32 0, i64 0 }, i64 %wide, 2
  store %rammer_any %count, ptr %count_at, align 8
  %unmade = call i32 @rammer_call(ptr @rammer_array, ptr %names, i32 %size, ptr %array_at)
  %failed = icmp ne i32 %unmade, 0
  br i1 %failed, label %fail, label %configure
fail:
  ret i32 %unmade
configure:
  %status = call i32 @rammer_call(ptr @rammer_pool, ptr %arguments, i32 3, ptr %nothing)
  %object_at = getelementptr %rammer_any, ptr %array_at, i32 0, i32 2
  %object = load ptr, ptr %object_at, align 8
  call i32 @TVMFFIObjectDecRef(ptr %object)
  ret i32 %status
}

define i32 @rammer_configure(i32 %wanted) {
entry:
  %mask = alloca [128 x i64], align 16
  %cpus = call i32 @rammer_count_cpus(ptr %mask)
  %unknown = icmp eq i32 %cpus, 0
  br i1 %unknown, label %leave, label %share
leave:
  ret i32 $left_alone
share:
  %workers = call i32 @llvm.umin.i32(i32 %wanted, i32 %cpus)
  %all = icmp uge i32 %workers, %cpus
  %mode = select i1 %all, i64 $one_cpu_each, i64 $share_all
  %status = call i32 @rammer_ask(ptr %mask, i32 %cpus, i64 %mode, i32 %workers, i32 %cpus)
  %succeeded = icmp eq i32 %status, 0
  %got = select i1 %succeeded, i32 %cpus, i32 0
  ret i32 %got
}

define i32 @rammer_give_up_pool() {
  %mask = alloca [128 x i64], align 16
  store [128 x i64] zeroinitializer, ptr %mask, align 16
  store i64 1, ptr %mask, align 16
  %status = call i32 @rammer_ask(ptr %mask, i32 1, i64 $bind_none, i32 1, i32 1)
  %succeeded = icmp eq i32 %status, 0
  %got = select i1 %succeeded, i32 $left_alone, i32 0
  ret i32 %got
}

define i32 @rammer_count_threads() {
entry:
  %folder = call ptr @opendir(ptr @rammer_task_folder)
  %absent = icmp eq ptr %folder, null
  br i1 %absent, label %unknown, label %count
unknown:
  ret i32 0
count:
  %number = phi i32 [ 0, %entry ], [ %next, %count ]
  %item = call ptr @readdir(ptr %folder)
  %next = add i32 %number, 1
  %more = icmp ne ptr %item, null
  br i1 %more, label %count, label %counted
counted:
  %closed = call i32 @closedir(ptr %folder)
  ret i32 %number
}

define i32 @rammer_pool_is_new() {
entry:
  %mask = alloca [128 x i64], align 16
  %result = alloca %rammer_any, align 16
  %cpus = call i32 @rammer_count_cpus(ptr %mask)
  %unknown = icmp eq i32 %cpus, 0
  br i1 %unknown, label %used, label %ask
ask:
  %size = add i32 %cpus, 1
  %before = call i32 @rammer_count_threads()
  %asked = call i32 @rammer_ask(ptr %mask, i32 %cpus, i64 $bind_none, i32 %size, i32 %size)
  %told = call i32 @rammer_call(ptr @rammer_count, ptr null, i32 0, ptr %result)
  %after = call i32 @rammer_count_threads()
  %restored = call i32 @sched_setaffinity(i32 0, i64 1024, ptr %mask)
  %both = or i32 %asked, %told
  %failed = icmp ne i32 %both, 0
  br i1 %failed, label %used, label %compare
compare:
  %count_at = getelementptr %rammer_any, ptr %result, i32 0, i32 2
  %count = load i64, ptr %count_at, align 8
  %wide = zext i32 %size to i64
  %large = icmp uge i64 %count, %wide
  %started = sub i32 %after, %before
  %enough = icmp sge i32 %started, %cpus
  %grown = and i1 %large, %enough
  %new = zext i1 %grown to i32
  ret i32 %new
used:
  ret i32 0
}
"""

_VALUES = {
    # kTVMFFIInt and kTVMFFISmallStr: a string of at most 7 characters, held in its TVMFFIAny.
    "int": 1,
    "small_string": 11,
    # kSpecifyOneCorePerThread where every CPU gets a worker, else kSpecifyThreadShareAllCore (see
    # tvm_rammer.backend.cpu.host.pool).
    "one_cpu_each": -2,
    "share_all": -3,
    # None of TVM's modes: it sets the number of workers and touches no thread, dead ones neither.
    "bind_none": 0,
    "left_alone": LEFT_ALONE,
    "lost": LOST,
    "forked": FORKED,
}

_HAS = {"x86_64": _X86_HAS, "aarch64": _ARM_HAS}
#: Number of the system call that tells a thread's: older C libraries have no function for it.
_GETTID = {"x86_64": 186, "aarch64": 178}


def guard_functions(architecture: str, rows: Sequence[tuple[int, ...]], constructor: str) -> str:
    """The LLVM IR text of a guard.

    It defines

    - ``rammer_missing()``: the number of the first row that this CPU lacks, or -1;
    - ``rammer_recall()``: the thread's word: 0 if it is new, the number of its CPUs if its pool has
      its workers, :data:`LEFT_ALONE`, :data:`LOST` or :data:`FORKED`;
    - ``rammer_remember(word)``;
    - ``rammer_configure(workers)``: gives the thread's pool its workers; the word to remember, 0 if
      TVM failed;
    - ``rammer_give_up_pool()``: lets the thread work alone, likewise;
    - ``rammer_pool_is_new()``: whether nobody used the thread's pool before: asked for one worker
      more than there are CPUs, a pool that is there neither grows nor starts threads;
    - ``rammer_note_process()``: for the constructor;
    - ``rammer_share_thread(address)``: keeps the words in another variable.

    Parameters
    ----------
    architecture : str
        ``"x86_64"`` or ``"aarch64"``.
    rows : sequence of tuple of int
        Where the CPU reports each feature that the library needs.
    constructor : str
        A C function of the module without arguments; it is called when the library is loaded.
    """
    columns = len(rows[0]) if rows else 1
    table = ", ".join(f"[{columns} x i32] [{_words(row)}]" for row in rows)
    missing = Template(_MISSING).substitute(rows=len(rows), columns=columns, table=table)
    values = {**_VALUES, "gettid": _GETTID[architecture], "constructor": constructor}
    return _HAS[architecture] + missing + Template(_THREAD + _POOL).substitute(values)


def _words(row: tuple[int, ...]) -> str:
    return ", ".join(f"i32 {word}" for word in row)
