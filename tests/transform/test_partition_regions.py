"""Regions hold what can be planned together; what is left out has a reason."""

from __future__ import annotations

import tvm
from small_graphs import TYPE, Op, add, regions, small_module
from tvm import relax
from tvm.ir import Call
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_rammer.region.marks import LeftOut, read_left_out
from tvm_rammer.transform.partition_regions import PartitionRegions

# What a partition looks like


def test_operators_of_one_depth_are_one_region():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                b = R.add(x, a)
                c = R.call_dps_packed("f", (b,), out_ty=R.Tensor((4,), "float32"))
                d = R.add(c, a)
                e = R.add(d, d)
                R.output(e)
            return e

    @I.ir_module
    class Expected:
        I.module_attrs({"tvm_rammer.left_out": '[{"operator": "c", "reason": "packed call"}]'})

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Expected
            with R.dataflow():
                both: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")) = (
                    cls.rammer_region0(x)
                )
                a = both[0]
                b = both[1]
                c = R.call_dps_packed("f", (b,), out_ty=R.Tensor((4,), "float32"))
                e: R.Tensor((4,), "float32") = cls.rammer_region1(c, a)
                R.output(e)
            return e

        @R.function(private=True)
        def rammer_region0(
            x: R.Tensor((4,), "float32"),
        ) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            R.func_attr({"tvm_rammer.region": 1})
            with R.dataflow():
                a = R.add(x, x)
                b = R.add(x, a)
                first = a
                second = b
                R.output(first, second)
            return (first, second)

        @R.function(private=True)
        def rammer_region1(c: R.Tensor((4,), "float32"), a: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            R.func_attr({"tvm_rammer.region": 1})
            with R.dataflow():
                d = R.add(c, a)
                e = R.add(d, d)
                only = e
                R.output(only)
            return only

    legalize = relax.transform.LegalizeOps()
    tvm.ir.assert_structural_equal(PartitionRegions()(legalize(Before)), legalize(Expected))


def test_independent_operators_of_one_depth_share_a_region():
    after = PartitionRegions()(small_module(4, [Op(True, 0, 1), Op(True, 2, 3)], [4, 5]))
    assert regions(after) == {"rammer_region0": {"v4", "v5"}}


def test_a_branch_around_what_is_left_out_stays_with_the_operators_before_it():
    ops = [Op(True, 0, 0), Op(False, 1, 1), Op(True, 1, 1), Op(True, 2, 3), Op(True, 4, 4)]
    after = PartitionRegions()(small_module(1, ops, [5]))
    assert regions(after) == {"rammer_region0": {"v1", "v3"}, "rammer_region1": {"v4", "v5"}}


def test_what_is_left_out_before_the_first_operator_starts_no_new_depth():
    ops = [Op(False, 0, 0), Op(True, 1, 1), Op(True, 0, 0)]
    after = PartitionRegions()(small_module(1, ops, [2, 3]))
    assert regions(after) == {"rammer_region0": {"v2", "v3"}}


def test_two_functions_have_regions_of_their_own():
    mod = small_module(1, [Op(True, 0, 0), Op(True, 1, 1)], [2])
    x = relax.Var("x", TYPE)
    builder = relax.BlockBuilder(mod)
    with builder.function("other", [x]):
        with builder.dataflow():
            call = relax.call_tir(mod.get_global_var("add"), relax.Tuple([x, x]), TYPE)
            once, again = builder.emit(call), builder.emit(call)
            y = builder.emit_output(relax.Tuple([once, again]))
        builder.emit_func_output(y)
    mod = builder.get()
    assert sorted(regions(PartitionRegions()(mod))) == ["rammer_region0", "rammer_region1"]


def test_equal_regions_are_one():
    block = [Op(True, 0, 0), Op(True, 1, 1), Op(False, 2, 2)]
    again = [Op(op.planned, op.left + 3, op.right + 3) for op in block]
    after = PartitionRegions()(small_module(1, [*block, *again], [6]))
    assert list(regions(after)) == ["rammer_region0"]
    callees = [
        b.value.op for b in after["main"].body.blocks[0].bindings if isinstance(b.value, Call)
    ]
    assert callees.count(after.get_global_var("rammer_region0")) == 2


def test_every_dataflow_block_is_partitioned():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                b = R.add(a, a)
                R.output(b)
            c = R.add(b, b)
            with R.dataflow():
                d = R.add(b, c)
                e = R.add(d, b)
                R.output(e)
            return e

    after = PartitionRegions()(relax.transform.LegalizeOps()(Before))
    assert regions(after) == {"rammer_region0": {"a", "b"}, "rammer_region1": {"d", "e"}}
    assert read_left_out(after) == [LeftOut("add", "outside of a dataflow block")]


def test_a_tuple_leaves_a_region_whole_and_in_parts():
    @T.prim_func(s_tir=True, private=True)
    def halves(
        x: T.Buffer((4,), "float32"), a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")
    ):
        for i in range(2):
            with T.sblock("halves"):
                v = T.axis.spatial(2, i)
                a[v] = x[v]
                b[v] = x[v + 2]

    two = [relax.TensorType((2,), "float32")] * 2
    x = relax.Var("x", TYPE)
    builder = relax.BlockBuilder()
    add_symbol, symbol = builder.add_func(add, "add"), builder.add_func(halves, "halves")
    with builder.function("main", [x]):
        with builder.dataflow():
            doubled = builder.emit(relax.call_tir(add_symbol, relax.Tuple([x, x]), TYPE), "doubled")
            pair = builder.emit(relax.call_tir(symbol, relax.Tuple([doubled]), two), "pair")
            left = builder.emit(relax.TupleGetItem(pair, 0), "left")
            again = builder.emit(relax.TupleGetItem(pair, 0), "again")
            result = builder.emit_output(relax.Tuple([pair, left, again]))
        builder.emit_func_output(result)
    before = builder.get()
    after = PartitionRegions()(before)
    relax.analysis.well_formed(after)
    assert regions(after) == {"rammer_region0": {"doubled", "pair"}}
    assert after["main"].ret_ty == before["main"].ret_ty
    assert len(after["rammer_region0"].ret_ty.fields) == 2


def test_a_second_run_changes_nothing():
    ops = [Op(True, 0, 0), Op(True, 0, 1), Op(False, 2, 2), Op(True, 3, 3)]
    once = PartitionRegions()(small_module(1, ops, [4]))
    assert regions(once) and read_left_out(once)
    tvm.ir.assert_structural_equal(PartitionRegions()(once), once)


# The reasons


def reasons(mod: tvm.IRModule, min_operators: int = 1) -> list[tuple[str, str]]:
    left_out = read_left_out(PartitionRegions(min_operators)(mod))
    return [(item.operator, item.reason) for item in left_out]


def test_a_packed_call_is_left_out():
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.call_dps_packed("f", (x,), out_ty=R.Tensor((4,), "float32"))
                b = R.call_pure_packed("g", a, ty_args=R.Tensor((4,), "float32"))
                R.output(b)
            return b

    assert reasons(Module) == [("a", "packed call"), ("b", "packed call")]


def test_what_a_cast_tells_the_size_of_is_left_out():
    """As an importer writes what has a size that is known when it has run."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            n = T.int64()
            with R.dataflow():
                a: R.Tensor((1, n), "int64") = R.match_cast(
                    R.call_pure_packed("f", x, ty_args=R.Tensor("int64", ndim=2)),
                    R.Tensor((1, n), "int64"),
                )
                b: R.Tensor((1, n), "int64") = R.match_cast(a, R.Tensor((1, n), "int64"))
                R.output(b)
            return b

    assert reasons(Module) == [("a", "packed call")]


def test_a_prim_func_that_calls_out_is_left_out():
    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True, private=True)
        def sort(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            T.evaluate(T.call_packed("sort", x.data, y.data))

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            with R.dataflow():
                y = R.call_tir(cls.sort, (x,), out_ty=R.Tensor((4,), "float32"))
                R.output(y)
            return y

    assert reasons(Module) == [("sort", "packed call")]


def test_an_in_place_call_is_left_out():
    x = relax.Var("x", TYPE)
    builder = relax.BlockBuilder()
    symbol = builder.add_func(add, "add")
    with builder.function("main", [x]):
        with builder.dataflow():
            call = relax.op.call_tir_inplace(symbol, relax.Tuple([x, x]), 0, TYPE)
            y = builder.emit_output(call)
        builder.emit_func_output(y)
    assert reasons(builder.get()) == [("add", "in-place call")]


def test_dynamic_shapes_are_left_out():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((4,), "float32")):
            n = T.int64()
            with R.dataflow():
                a = R.broadcast_to(x, (2, n))
                b = R.concat((y, x), axis=0)
                R.output(a, b)
            return (a, b)

    assert reasons(relax.transform.LegalizeOps()(Module)) == [
        ("broadcast_to", "dynamic shape"),
        ("concatenate", "dynamic shape"),
    ]
    assert reasons(Module) == [("a", "dynamic shape"), ("b", "dynamic shape")]


def test_operators_that_are_not_legalized_are_left_out():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                y = R.tanh(x)
                R.output(y)
            return y

    assert reasons(Module) == [("y", "operator without a PrimFunc (relax.tanh)")]


def test_a_call_of_another_function_is_left_out():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Module
            with R.dataflow():
                y: R.Tensor((4,), "float32") = cls.twice(x)
                R.output(y)
            return y

        @R.function(private=True)
        def twice(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

    assert reasons(Module) == [("y", "function call")]


def test_control_flow_is_left_out_and_so_are_its_branches():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32"), p: R.Tensor((), "bool")):
            if p:
                y = R.add(x, x)
                z = R.add(y, x)
            else:
                z = x
            return z

    after = PartitionRegions()(relax.transform.LegalizeOps()(Module))
    assert not regions(after)
    assert read_left_out(after) == [LeftOut("z", "control flow")]


def test_a_strange_dtype_is_left_out():
    x = relax.Var("x", relax.TensorType((4,), "float8_e4m3fn"))

    @T.prim_func(s_tir=True, private=True)
    def copy(a: T.Buffer((4,), "float8_e4m3fn"), b: T.Buffer((4,), "float8_e4m3fn")):
        for i in range(4):
            with T.sblock("copy"):
                v = T.axis.spatial(4, i)
                b[v] = a[v]

    builder = relax.BlockBuilder()
    symbol = builder.add_func(copy, "copy")
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.call_tir(symbol, relax.Tuple([x]), x.ty))
        builder.emit_func_output(y)
    assert reasons(builder.get()) == [("copy", "dtype float8_e4m3fn")]


def test_a_region_of_one_operator_is_too_small():
    mod = small_module(1, [Op(True, 0, 0)], [1])
    assert reasons(mod, min_operators=2) == [("add", "region too small")]
    assert reasons(mod, min_operators=1) == []


def test_equal_reasons_are_said_once():
    ops = [Op(True, 0, 0), *(op for k in range(1, 6) for op in (Op(False, k, k),))]
    assert len(reasons(small_module(1, ops, [6]), min_operators=2)) == 1 + 5
    same = [Op(True, 0, 0), Op(False, 1, 1), Op(True, 2, 2), Op(False, 3, 3), Op(True, 4, 4)]
    assert reasons(small_module(1, same, [5]), 2).count(("add", "region too small")) == 1


def test_what_finds_out_a_size_stays_before_what_reads_the_size():
    """The sum has a size that is found in the product, an operator of a plan."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((1,), "int64")):
            n = T.int64()
            with R.dataflow():
                size = R.multiply(y, y)
                shape = R.call_pure_packed(
                    "vm.builtin.tensor_to_shape", size, ty_args=(R.Shape(ndim=1),)
                )
                _found: R.Shape([n]) = R.match_cast(shape, R.Shape([n]))
                filled = R.call_dps_packed("fill", (x,), out_ty=R.Tensor((n,), "float32"))
                R.output(filled)
            return filled

    partitioned = PartitionRegions()(relax.transform.LegalizeOps()(Before))
    bindings = partitioned["main"].body.blocks[0].bindings
    assert [binding.var.name for binding in bindings] == ["size", "shape", "_found", "filled"]
