; The workers of a thread's pool, by the C interface of tvm_ffi.

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
  store i32 ${small_string}, ptr %any, align 8
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
  %how = insertvalue %rammer_any { i32 ${int}, i32 0, i64 0 }, i64 %mode, 2
  store %rammer_any %how, ptr %arguments, align 8
  %wide = zext i32 %workers to i64
  %count = insertvalue %rammer_any { i32 ${int}, i32 0, i64 0 }, i64 %wide, 2
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
  ret i32 ${left_alone}
share:
  %workers = call i32 @llvm.umin.i32(i32 %wanted, i32 %cpus)
  %all = icmp uge i32 %workers, %cpus
  %mode = select i1 %all, i64 ${one_cpu_each}, i64 ${share_all}
  %status = call i32 @rammer_ask(ptr %mask, i32 %cpus, i64 %mode, i32 %workers, i32 %cpus)
  %succeeded = icmp eq i32 %status, 0
  %got = select i1 %succeeded, i32 %cpus, i32 0
  ret i32 %got
}

define i32 @rammer_give_up_pool() {
  %mask = alloca [128 x i64], align 16
  store [128 x i64] zeroinitializer, ptr %mask, align 16
  store i64 1, ptr %mask, align 16
  %status = call i32 @rammer_ask(ptr %mask, i32 1, i64 ${bind_none}, i32 1, i32 1)
  %succeeded = icmp eq i32 %status, 0
  %got = select i1 %succeeded, i32 ${left_alone}, i32 0
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
  %asked = call i32 @rammer_ask(ptr %mask, i32 %cpus, i64 ${bind_none}, i32 %size, i32 %size)
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
