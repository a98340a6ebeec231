from pathlib import Path

import corpus
import numpy as np
from corpus.architectures import ARCHITECTURES
from corpus.entries import draw_inputs
from corpus.trained import TRAINED


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(TRAINED) >= 40
    assert len({model.package for model in TRAINED}) >= 15
    assert len(ARCHITECTURES) >= 45
    tasks = " ".join(entry.task for entry in (*TRAINED, *ARCHITECTURES))
    for kind in ("detection", "text recognition", "voice activity", "embedding", "segmentation",
                 "keyword spotting", "text tagging", "quantised", "generation"):  # fmt: skip
        assert kind in tasks, kind


def test_names_are_unique() -> None:
    names = [entry.name for entry in (*TRAINED, *ARCHITECTURES)]
    assert len(set(names)) == len(names)


def test_inputs_are_finite_and_the_same_at_every_call() -> None:
    for model in TRAINED:
        first, second = draw_inputs(model), draw_inputs(model)
        assert set(model.constants) <= set(first), model.name
        for name, value in first.items():
            assert np.isfinite(value).all(), (model.name, name)
            assert value.dtype != np.float64, (model.name, name)
            np.testing.assert_array_equal(value, second[name])


def test_every_architecture_names_a_function_that_there_is() -> None:
    folder = Path(corpus.__file__).parent
    for architecture in ARCHITECTURES:
        module, _, function = architecture.make.partition(":")
        kind = "class" if architecture.inputs else "def"
        text = (folder / f"{module}.py").read_text()
        assert f"\n{kind} {function}(" in text, architecture.name
