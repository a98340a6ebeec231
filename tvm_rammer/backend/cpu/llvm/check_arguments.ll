; The arguments of all regions' kernels, checked in one loop.

define ptr @rammer_tensor(ptr %args, i32 %number) alwaysinline {
  %any = getelementptr [16 x i8], ptr %args, i32 %number
  %kind = load i32, ptr %any, align 8
  %value_at = getelementptr i8, ptr %any, i32 8
  %value = load ptr, ptr %value_at, align 8
  %behind_head = getelementptr i8, ptr %value, i32 24
  %is_object = icmp eq i32 %kind, 70
  %is_pointer = icmp eq i32 %kind, 7
  %given = select i1 %is_pointer, ptr %value, ptr null
  %tensor = select i1 %is_object, ptr %behind_head, ptr %given
  ret ptr %tensor
}

define ptr @rammer_data(ptr %args, i32 %number) alwaysinline {
  %tensor = call ptr @rammer_tensor(ptr %args, i32 %number)
  %memory = load ptr, ptr %tensor, align 8
  %offset_at = getelementptr i8, ptr %tensor, i32 40
  %offset = load i64, ptr %offset_at, align 8
  %data = getelementptr i8, ptr %memory, i64 %offset
  ret ptr %data
}

define i64 @rammer_extent(ptr %args, i32 %number) alwaysinline {
  %tensor = call ptr @rammer_tensor(ptr %args, i32 %number)
  %shape_at = getelementptr i8, ptr %tensor, i32 24
  %shape = load ptr, ptr %shape_at, align 8
  %extent = load i64, ptr %shape, align 8
  ret i64 %extent
}

define i32 @rammer_check_arguments(
    ptr %args, i64 %given, i64 %count, ptr %name, ptr %specs, ptr %texts) alwaysinline {
entry:
  %buffer = alloca [1024 x i8], align 1
  %parts = alloca ptr, align 8
  store ptr %buffer, ptr %parts, align 8
  %complete = icmp eq i64 %given, %count
  br i1 %complete, label %argument, label %another_count
argument:
  %number = phi i64 [ 0, %entry ], [ %next, %fits ]
  %position = trunc i64 %number to i32
  %spec_at = getelementptr ptr, ptr %specs, i64 %number
  %spec = load ptr, ptr %spec_at, align 8
  %tensor = call ptr @rammer_tensor(ptr %args, i32 %position)
  %no_tensor = icmp eq ptr %tensor, null
  br i1 %no_tensor, label %wrong, label %dtype
dtype:
  %dtype_at = getelementptr i8, ptr %tensor, i32 20
  %dtype_given = load i32, ptr %dtype_at, align 4
  %dtype_wide = zext i32 %dtype_given to i64
  %dtype_wanted = load i64, ptr %spec, align 8
  %same_dtype = icmp eq i64 %dtype_wide, %dtype_wanted
  br i1 %same_dtype, label %device, label %wrong
device:
  %device_at = getelementptr i8, ptr %tensor, i32 8
  %device_type = load i32, ptr %device_at, align 4
  %on_cpu = icmp eq i32 %device_type, 1
  br i1 %on_cpu, label %axes, label %wrong
axes:
  %axes_at = getelementptr i8, ptr %tensor, i32 16
  %axes_given = load i32, ptr %axes_at, align 4
  %num_axes = zext i32 %axes_given to i64
  %axes_wanted_at = getelementptr i64, ptr %spec, i32 1
  %axes_wanted = load i64, ptr %axes_wanted_at, align 8
  %same_axes = icmp eq i64 %num_axes, %axes_wanted
  br i1 %same_axes, label %sizes, label %wrong
sizes:
  %extents = getelementptr i64, ptr %spec, i32 2
  %shape_at = getelementptr i8, ptr %tensor, i32 24
  %shape = load ptr, ptr %shape_at, align 8
  %strides_at = getelementptr i8, ptr %tensor, i32 32
  %strides = load ptr, ptr %strides_at, align 8
  %no_strides = icmp eq ptr %strides, null
  br label %next_axis
next_axis:
  %left = phi i64 [ %num_axes, %sizes ], [ %axis, %dense ]
  %elements = phi i64 [ 1, %sizes ], [ %more, %dense ]
  %gap = phi i64 [ -1, %sizes ], [ %found_gap, %dense ]
  %no_more = icmp eq i64 %left, 0
  br i1 %no_more, label %memory, label %extent
extent:
  %axis = sub i64 %left, 1
  %extent_at = getelementptr i64, ptr %shape, i64 %axis
  %extent_given = load i64, ptr %extent_at, align 8
  %extent_wanted_at = getelementptr i64, ptr %extents, i64 %axis
  %extent_wanted = load i64, ptr %extent_wanted_at, align 8
  %any = icmp slt i64 %extent_wanted, 0
  %same_extent = icmp eq i64 %extent_given, %extent_wanted
  %extent_fits = or i1 %any, %same_extent
  br i1 %extent_fits, label %stride, label %wrong
stride:
  %more = mul i64 %elements, %extent_given
  %single = icmp eq i64 %extent_given, 1
  %no_stride = or i1 %single, %no_strides
  br i1 %no_stride, label %dense, label %stride_given
stride_given:
  %stride_at = getelementptr i64, ptr %strides, i64 %axis
  %stride_found = load i64, ptr %stride_at, align 8
  %compact = icmp eq i64 %stride_found, %elements
  %gap_here = select i1 %compact, i64 %gap, i64 %axis
  br label %dense
dense:
  %found_gap = phi i64 [ %gap, %stride ], [ %gap_here, %stride_given ]
  br label %next_axis
memory:
  %empty = icmp eq i64 %elements, 0
  br i1 %empty, label %fits, label %gaps
gaps:
  %gapless = icmp slt i64 %gap, 0
  br i1 %gapless, label %data, label %apart
apart:
  %gap_at = getelementptr i64, ptr %strides, i64 %gap
  %gap_stride = load i64, ptr %gap_at, align 8
  br label %wrong
data:
  %data_at = load ptr, ptr %tensor, align 8
  %no_data = icmp eq ptr %data_at, null
  br i1 %no_data, label %wrong, label %fits
fits:
  %next = add i64 %number, 1
  %all = icmp eq i64 %next, %count
  br i1 %all, label %done, label %argument
done:
  ret i32 0
wrong:
  %reason = phi i64 [ 0, %argument ], [ 1, %dtype ], [ 2, %device ], [ 3, %axes ], [ 4, %extent ],
      [ 5, %apart ], [ 6, %data ]
  %found = phi i64 [ 0, %argument ], [ 0, %dtype ], [ 0, %device ], [ %num_axes, %axes ],
      [ %extent_given, %extent ], [ %gap_stride, %apart ], [ 0, %data ]
  %place = phi i64 [ 0, %argument ], [ 0, %dtype ], [ 0, %device ], [ 0, %axes ],
      [ %axis, %extent ], [ %gap, %apart ], [ 0, %data ]
  %text_at = getelementptr ptr, ptr %texts, i64 %number
  %text = load ptr, ptr %text_at, align 8
  %message_at = getelementptr ptr, ptr @rammer_argument_messages, i64 %reason
  %message = load ptr, ptr %message_at, align 8
  %written = call i32 (ptr, i64, ptr, ...) @snprintf(
      ptr %buffer, i64 1024, ptr %message,
      ptr %name, i64 %number, ptr %text, i64 %found, i64 %place)
  %is_type = icmp ult i64 %reason, 2
  %kind = select i1 %is_type, ptr @rammer_argument_type, ptr @rammer_argument_value
  call void @TVMFFIErrorSetRaisedFromCStrParts(ptr %kind, ptr %parts, i32 1)
  ret i32 -1
another_count:
  %counted = call i32 (ptr, i64, ptr, ...) @snprintf(
      ptr %buffer, i64 1024, ptr @rammer_argument_count, ptr %name, i64 %count, i64 %given)
  call void @TVMFFIErrorSetRaisedFromCStrParts(ptr @rammer_argument_type, ptr %parts, i32 1)
  ret i32 -1
}
