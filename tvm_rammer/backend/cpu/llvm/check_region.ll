; A region's packed function (args, num_args) that raises an error if they do not fit.

define i32 @${check}(ptr %self, ptr %own, i32 %num, ptr %result) {
  %args_at = getelementptr i8, ptr %own, i32 8
  %args = load ptr, ptr %args_at, align 8
  %given_at = getelementptr i8, ptr %own, i32 24
  %given = load i64, ptr %given_at, align 8
  %status = call i32 @rammer_check_arguments(ptr %args, i64 %given, i64 ${count},
      ptr @${check}_name, ptr @${check}_specs, ptr @${check}_texts)
  ret i32 %status
}
