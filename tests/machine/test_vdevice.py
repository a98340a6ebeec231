"""A vDevice is plain data; its number of vEUs is checked against its hardware threads."""

import warnings

import numpy as np
import pytest

from tvm_rammer.errors import DeviceError, InputError
from tvm_rammer.machine import OversubscriptionWarning, VDevice
from tvm_rammer.machine.vdevice import positive_count

TWO_CORES = VDevice("test CPU", num_veus=2, cores=2, threads=2)


def test_with_veus_changes_nothing_else():
    one = TWO_CORES.with_veus(1)
    assert one == VDevice("test CPU", num_veus=1, cores=2, threads=2)
    assert one.with_veus(np.int64(2)) == TWO_CORES


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "2", None, True])
def test_a_number_of_veus_is_a_whole_number_of_at_least_one(wrong):
    message = f"num_veus is {wrong!r}: it must be a whole number of at least 1"
    for attempt in (TWO_CORES.with_veus, lambda n: VDevice("test CPU", num_veus=n)):
        with pytest.raises(InputError) as caught:
            attempt(wrong)
        assert str(caught.value) == message


def test_a_number_that_no_description_could_hold_is_refused():
    assert positive_count("max_arena_bytes", 2**63 - 1) == 2**63 - 1
    with pytest.raises(InputError) as caught:
        positive_count("max_arena_bytes", 2**63)
    assert str(caught.value) == (
        "max_arena_bytes is 9223372036854775808: it must be less than 9,223,372,036,854,775,808"
    )


def test_more_veus_than_threads_must_be_asked_for():
    with pytest.raises(DeviceError) as caught:
        TWO_CORES.with_veus(4)
    assert str(caught.value) == (
        "num_veus is 4, but test CPU has 2 hardware threads to run them: ask for at most 2, "
        "or pass oversubscribe=True for a correct but slow plan of up to 8"
    )


def test_oversubscribing_warns():
    with pytest.warns(OversubscriptionWarning) as caught:
        assert TWO_CORES.with_veus(8, oversubscribe=True).num_veus == 8
    assert str(caught[0].message) == (
        "num_veus is 8, but test CPU has 2 hardware threads to run them: "
        "the plan is correct, but slow"
    )
    assert caught[0].filename == __file__


def test_oversubscribing_ends_at_four_veus_per_thread():
    with pytest.raises(DeviceError) as caught:
        VDevice("test CPU").with_veus(5, oversubscribe=True)
    assert str(caught.value) == (
        "num_veus is 5, but test CPU has 1 hardware thread to run them: "
        "ask for at most 4, even with oversubscribe=True"
    )


def test_hardware_threads_beyond_the_cores_need_no_permission():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert VDevice("SMT CPU", num_veus=2, cores=2, threads=4).with_veus(4).num_veus == 4
