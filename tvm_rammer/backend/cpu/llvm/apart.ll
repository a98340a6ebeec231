; Whether two tensors lie in different memory. What is told is which address each has, and not what
; is there: no promise about who writes where has a part in it.

define i1 @${apart}(ptr %one, ptr %other) alwaysinline {
  %result = icmp ne ptr %one, %other
  ret i1 %result
}
