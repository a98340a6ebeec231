; Whether this CPU has what a row of the table asks for.

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
