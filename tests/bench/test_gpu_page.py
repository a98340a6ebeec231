"""The page of what GPUs took, and the section of what many cores took."""

from __future__ import annotations

import json

import pytest
from bench.gpu_page import (
    GpuForm,
    GpuModel,
    KernelChange,
    KernelTimes,
    NetworkTimes,
    gpu_page,
    load_gpu,
)
from bench.many_cores import ManyCores

FORMS = {
    "one-by-one": {"launched": 2.0, "captured": 1.0, "launches": 480, "error": 1e-7},
    "stock": {"launched": 3.0, "captured": 0.9, "launches": 500, "error": 1e-7},
    "wavefront": {"launched": 0.6, "captured": 0.5, "launches": 37, "error": 1e-7},
    "persistent": {"launched": 0.3, "captured": 0.25, "launches": 2, "error": 1e-7},
}
SPEED = {"what": "a hand-over from block to block", "value": 0.4473, "unit": "us"}


def write(path, models):
    data = {"gpu": "a GPU", "date": "today", "models": models, "speeds": [SPEED], "notes": ["why"]}
    data["pytorch_networks"] = []
    path.write_text(json.dumps(data))
    return load_gpu(path)


def test_the_page_compares_our_faster_form_with_the_best_of_the_others(tmp_path):
    models = {
        "lstm": {"forms": FORMS, "pytorch": {"eager": 20.0, "cudnn": 0.5}},
        "plain": {"forms": {k: v for k, v in FORMS.items() if k != "stock"}, "pytorch": {}},
    }
    page = gpu_page(write(tmp_path / "gpu.json", models))
    assert (
        "| lstm | 480 | 3 | 0.9 | 20 |  | 0.5 | 2 | 1 | 0.5 | 0.3 | 0.25 | 4.00x | 2.00x |" in page
    )
    assert "| plain | 480 |  |  |  |  |  | 2 | 1 | 0.5 | 0.3 | 0.25 | 4.00x |  |" in page
    assert "| 4.00x | 2.00x |\n\n- why\n" in page
    assert "| a hand-over from block to block | 0.4473 us |" in page


def test_a_form_of_waves_can_be_the_faster_one():
    forms = {name: GpuForm(**form) for name, form in FORMS.items()}
    slow = GpuForm(9.0, 9.0, 2, 1e-7)
    model = GpuModel({**forms, "persistent": slow}, {})
    assert model.ours == 0.5
    assert model.others == pytest.approx(1.8)


def test_networks_of_pytorch_have_a_section():
    times = {"eager": 3.0, "eager-graph": 1.0, "compile": 2.0, "rammer": 0.6, "rammer-graph": 0.5}
    title, rows, notes = NetworkTimes("a GPU", "today", {"net": times}, ("why",)).parts()
    assert title.startswith("## Networks of PyTorch on an a GPU\n\nMedians in milliseconds, today")
    assert rows.splitlines()[-1] == "| net | 3 | 1 | 2 | 0.6 | 0.5 | 2.00x |"
    assert notes == "- why"


def test_other_kernels_have_a_section():
    times = {"before": 2.0, "after": 0.5, "eager-graph": 1.0}
    kernels = {"net": KernelTimes(3, (400.0, 200.0), (90.0, 30.0))}
    change = KernelChange("a GPU", "today", "abc", "def", kernels, {"net": times}, ("why",))
    title, operators, commits, networks, notes = change.parts()
    assert "in place of dlight's tiles, on an\na GPU, today." in title
    assert operators.splitlines()[-1] == "| net | 3 | 400 | 200 | 2.00x | 90 | 30 | 3.00x |"
    assert "by commits\nabc and def, beside" in commits
    assert networks.splitlines()[-1] == "| net | 2 | 0.5 | 4.00x | 1 |  |"
    assert notes == "- why"


def test_many_cores_have_a_section():
    times = {"sequential": 3.0, "auto": 2.0, "ort": 10.0}
    _, text, rows = ManyCores("a machine", "today", {"net": times}).parts()
    assert text.startswith("On a machine, today: ")
    assert rows.splitlines()[-1] == "| net | 3 | 2 |  | 10 | 1.50x | 5.00x |"
