; In the module of the entries, for each shard: its variable without a value, which the linker or
; rammer_set_dispatcher replaces, and the call through it.

@${dispatcher}_at = weak hidden global ptr null

define i32 @${dispatcher}(
    i32 %kernel, i32 %start, i32 %stop, ptr %bases, ptr %operands, ptr %abort) {
  %dispatcher = load ptr, ptr @${dispatcher}_at, align 8
  %status = call i32 %dispatcher(
      i32 %kernel, i32 %start, i32 %stop, ptr %bases, ptr %operands, ptr %abort)
  ret i32 %status
}
