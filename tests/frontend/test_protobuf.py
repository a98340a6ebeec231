"""Messages in files, some of their fields left out."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from tvm_rammer.frontend.onnx.protobuf import Part, message_without, read, whole

RAW_DATA = 9


def tensor(**fields) -> TensorProto:
    return TensorProto(
        name="weights", dims=[1, 300, 2**40], data_type=1, double_data=[1.5], **fields
    )


@pytest.fixture
def file(tmp_path):
    (tmp_path / "message").write_bytes(tensor(raw_data=b"x" * 200).SerializeToString())
    with (tmp_path / "message").open("rb") as opened:
        yield opened


def test_nothing_is_left_out(file):
    assert message_without(file, whole(file), {}) == read(file, whole(file))


def test_a_field_is_dropped_and_its_place_is_known(file):
    places = []

    def note(_, part):
        places.append(part)

    rest = message_without(file, whole(file), {RAW_DATA: note})
    assert TensorProto.FromString(rest) == tensor()
    assert [read(file, place) for place in places] == [b"x" * 200]


def test_a_field_is_replaced(file):
    longer = b"y" * 20_000
    rest = message_without(file, whole(file), {RAW_DATA: lambda *_: longer})
    assert TensorProto.FromString(rest) == tensor(raw_data=longer)


@pytest.mark.parametrize(
    "content, problem",
    [
        (b"\x0a\x05ab", "byte 0: a field is longer than its message"),
        (b"\x0f", "byte 0: the wire type 7 is unknown"),
        (b"\x08", "byte 1: a number does not end"),
        (b"\x08" + b"\xff" * 20, "byte 1: a number does not end"),
        (b"\x08\x01\x0d\x01", "byte 2: a field is longer than its message"),
    ],
)
def test_bytes_that_are_no_message(tmp_path, content, problem):
    (tmp_path / "message").write_bytes(content)
    with (tmp_path / "message").open("rb") as file, pytest.raises(ValueError) as caught:
        message_without(file, whole(file), {})
    assert str(caught.value) == problem


def test_a_message_inside_of_another(file):
    size = whole(file).size
    assert message_without(file, Part(0, size), {}) == read(file, Part(0, size))
