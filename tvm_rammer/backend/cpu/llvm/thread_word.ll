; A word for each thread. TVM's JIT links no native thread-local variables; libgcc's emulated ones
; work there and in a library, take no pthread key and survive unloading. The word is 0 in a thread
; never seen before, and worth nothing in another process than the one beside it. A process that
; loads and unloads libraries gives all of them one variable, as libgcc keeps what it has given out.

@rammer_thread = internal global { i64, i64, i64, ptr } { i64 8, i64 4, i64 0, ptr null }, align 8
@rammer_thread_at = internal global ptr @rammer_thread, align 8
@rammer_process = internal global i32 0, align 4
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
    [{ i32, ptr, ptr } { i32 65535, ptr @${constructor}, ptr null }]

declare i32 @${constructor}()
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
  %known = select i1 %same, i32 %value, i32 ${lost}
  ret i32 %known
unseen:
  %loading = load i32, ptr @rammer_process, align 4
  %loaded_here = icmp eq i32 %loading, %process
  br i1 %loaded_here, label %new, label %child
child:
  %thread = call i64 (i64, ...) @syscall(i64 ${gettid})
  %narrow = trunc i64 %thread to i32
  %first = icmp eq i32 %narrow, %process
  %came_through = select i1 %first, i32 ${forked}, i32 0
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
