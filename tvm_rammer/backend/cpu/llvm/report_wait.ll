; A region's packed function (name, abort flag) that raises the error of a wait that is over.

@rammer_wait_message = private constant [${size} x i8] c"${message}\00"
@rammer_wait_kind = private constant [13 x i8] c"RuntimeError\00"

define i32 @${report}(ptr %self, ptr %args, i32 %num, ptr %result) {
  %buffer = alloca [512 x i8], align 1
  %parts = alloca ptr, align 8
  %name_at = getelementptr i8, ptr %args, i32 8
  %name = load ptr, ptr %name_at, align 8
  %abort_at = getelementptr i8, ptr %args, i32 24
  %abort = load ptr, ptr %abort_at, align 8
  %veu_at = getelementptr i32, ptr %abort, i32 1
  %veu = load i32, ptr %veu_at, align 4
  %limit_at = getelementptr i32, ptr %abort, i32 2
  %limit = load i32, ptr %limit_at, align 4
  %count_at = getelementptr i32, ptr %abort, i32 3
  %count = load i32, ptr %count_at, align 4
  %other_at = getelementptr i32, ptr %abort, i32 4
  %other = load i32, ptr %other_at, align 4
  %now_at = getelementptr i32, ptr %abort, i32 5
  %now = load i32, ptr %now_at, align 4
  %length = call i32 (ptr, i64, ptr, ...) @snprintf(
      ptr %buffer, i64 512, ptr @rammer_wait_message,
      ptr %name, i32 %veu, i32 %limit, i32 %count, i32 %other, i32 %now)
  store ptr %buffer, ptr %parts, align 8
  call void @TVMFFIErrorSetRaisedFromCStrParts(ptr @rammer_wait_kind, ptr %parts, i32 1)
  ret i32 -1
}
