; The first row that this CPU lacks. The verdict is the process's: CPUID is slow where a hypervisor
; intercepts it.

@rammer_verdict = internal global i32 -2, align 4
@rammer_rows = private constant [${rows} x [${columns} x i32]] [${table}], align 16

define i32 @rammer_missing() {
entry:
  %verdict = load atomic i32, ptr @rammer_verdict monotonic, align 4
  %judged = icmp ne i32 %verdict, -2
  br i1 %judged, label %known, label %look
known:
  ret i32 %verdict
look:
  %number = phi i32 [ 0, %entry ], [ %next, %test ]
  %more = icmp ult i32 %number, ${rows}
  br i1 %more, label %test, label %judge
test:
  %row = getelementptr [${columns} x i32], ptr @rammer_rows, i32 %number
  %usable = call i1 @rammer_has(ptr %row)
  %next = add i32 %number, 1
  br i1 %usable, label %look, label %judge
judge:
  %found = phi i32 [ -1, %look ], [ %number, %test ]
  store atomic i32 %found, ptr @rammer_verdict monotonic, align 4
  ret i32 %found
}
