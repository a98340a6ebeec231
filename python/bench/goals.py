"""How fast each model should be: the most that it may take of the fastest peer's time."""

from __future__ import annotations

#: Models that are not named may take as long as the fastest peer.
DEFAULT_GOAL = 1.0
#: Geometric mean over all models.
MEAN_GOAL = 0.65
#: The most that a sequential plan may take of its roofline.
ROOFLINE_GOAL = 1.15

_RECURRENT = 0.40

GOALS: dict[str, float] = {
    **dict.fromkeys(
        ("lstm_8x8x256", "lstm_10x100x256", "lstm_10x100x256_b4", "lstm_10x100x256_b16"), _RECURRENT
    ),
    **dict.fromkeys(("seq2seq", "deepspeech2"), _RECURRENT),
    "squeezenet": 0.80,
    "inception_v1": 0.65,
    "inception_v2": 0.75,
    "shufflenet": 0.85,
    "densenet121": 0.80,
    "resnet50": 0.90,
    "vgg19": 0.50,
    "bvlc_alexnet": 0.95,
    "zfnet512": 0.95,
}


def goal(model: str) -> float:
    """The goal of a model."""
    return GOALS.get(model, DEFAULT_GOAL)
