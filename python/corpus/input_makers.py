"""Inputs like those that packages make: pictures, speech, token ids, states.

A network that was trained on such data answers white noise with values near zero, which hide
errors or make them look large.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corpus.entries import InputMaker


def picture(
    *shape: int, low: float = 0.0, high: float = 1.0, channels: int = 1, dtype: str = "float32"
) -> InputMaker:
    """Rectangles, soft waves, lines of dark strokes on white, a little noise.

    Parameters
    ----------
    *shape : int
        Four dimensions.
    low, high : float
        Range of the values after the package's scaling.
    channels : int
        The axis of the channels: 1 for NCHW, 3 for NHWC.
    dtype : str
    """
    height, width = (size for axis, size in enumerate(shape) if axis not in (0, channels))

    def make(rng: np.random.Generator) -> np.ndarray:
        rows, columns = np.mgrid[0:height, 0:width] / np.array([height, width]).reshape(2, 1, 1)
        planes = []
        for _ in range(shape[0] * shape[channels]):
            phase = rng.uniform(0, 2 * np.pi, 2)
            waves = np.sin(7 * rows + phase[0]) * np.cos(5 * columns + phase[1])
            planes.append(0.5 + 0.25 * waves + 0.02 * rng.standard_normal((height, width)))
        image = np.stack(planes).reshape(shape[0], shape[channels], height, width)
        for _ in range(6):
            top, left = rng.integers(0, max(1, height // 2)), rng.integers(0, max(1, width // 2))
            bottom, right = top + height // 4 + 1, left + width // 4 + 1
            image[:, :, top:bottom, left:right] = rng.uniform(0, 1)
        _write_lines(image, rng)
        scaled = low + (high - low) * np.clip(image, 0, 1)
        return np.ascontiguousarray(np.moveaxis(scaled, 1, channels)).astype(dtype)

    return make


def _write_lines(image: np.ndarray, rng: np.random.Generator) -> None:
    """Three lines of strokes like letters, on white ground, over the lower half of pictures."""
    height, width = image.shape[2:]
    tall = max(2, height // 12)
    for line in range(3):
        top = height // 2 + line * 2 * tall
        image[:, :, top - tall // 4 : top + tall + tall // 4] = 1
        for left in range(tall, width - tall, max(2, 2 * tall // 3)):
            ink = 0.1 * rng.uniform()
            image[:, :, top : top + tall, left : left + max(1, tall // 6)] = ink
            bar = top + int(rng.integers(0, tall))
            image[:, :, bar : bar + max(1, tall // 6), left : left + tall // 2] = ink


def speech(*shape: int, rate: int = 16000, loudness: float = 0.3) -> InputMaker:
    """A voiced sound of that sampling rate: harmonics of a gliding pitch under an envelope."""

    def make(rng: np.random.Generator) -> np.ndarray:
        count = int(np.prod(shape))
        time = np.arange(count) / rate
        phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 1.5 * time)) / rate
        voice = sum(np.sin(k * phase + rng.uniform(0, 6)) / k for k in range(1, 12))
        envelope = 0.6 + 0.4 * np.sin(2 * np.pi * 3 * time)
        wave = voice * envelope / 3 + 0.01 * rng.standard_normal(count)
        return (loudness * wave).astype("float32").reshape(shape)

    return make


def uniform(*shape: int, low: float = -1.0, high: float = 1.0) -> InputMaker:
    """Values between two bounds, such as a logarithmic spectrogram's."""
    return lambda rng: np.asarray(rng.uniform(low, high, shape), "float32")


def normal(*shape: int, scale: float = 1.0) -> InputMaker:
    """Standardised features."""
    return lambda rng: np.asarray(scale * rng.standard_normal(shape), "float32")


def unit(*shape: int) -> InputMaker:
    """Vectors of length 1 along the last axis, such as an embedding of a speaker."""

    def make(rng: np.random.Generator) -> np.ndarray:
        vector = rng.standard_normal(shape)
        return (vector / np.linalg.norm(vector, axis=-1, keepdims=True)).astype("float32")

    return make


def tokens(*shape: int, low: int = 1, high: int = 1000, dtype: str = "int64") -> InputMaker:
    """Ids of a vocabulary, from ``low`` to below ``high``."""
    return lambda rng: rng.integers(low, high, shape).astype(dtype)


def one_hot(*shape: int) -> InputMaker:
    """A one in every vector along the last axis."""

    def make(rng: np.random.Generator) -> np.ndarray:
        return np.eye(shape[-1], dtype="float32")[rng.integers(0, shape[-1], shape[:-1])]

    return make


def full(*shape: int, value: float = 0.0, dtype: str = "float32") -> InputMaker:
    """The same value everywhere: a mask of ones, or the zeros that a state begins with."""
    return lambda rng: np.full(shape, value, dtype)


def given(values: Sequence[float] | float | int, dtype: str) -> InputMaker:
    """These values."""
    return lambda rng: np.asarray(values, dtype)
