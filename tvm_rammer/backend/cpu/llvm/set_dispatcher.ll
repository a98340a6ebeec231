; In the module of the entries: tells where a dispatcher is that was compiled in memory.

define void @rammer_set_dispatcher(i32 %shard, i64 %address) {
  %dispatcher = inttoptr i64 %address to ptr
  switch i32 %shard, label %done [ ${cases} ]
${blocks}
done:
  ret void
}
