; In a shard: the variable with the address of its dispatcher. TVM turns the functions of a text
; into copies to inline; variables keep their linkage.

@${dispatcher}_at = hidden global ptr @${dispatcher}

declare i32 @${dispatcher}(i32, i32, i32, ptr, ptr, ptr)

define i64 @rammer_own_address() alwaysinline {
  %address = ptrtoint ptr @${dispatcher} to i64
  ret i64 %address
}
