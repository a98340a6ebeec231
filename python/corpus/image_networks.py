"""Networks on pictures as people write them themselves: U-Nets, text readers, filters."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from corpus.detection_networks import ConvAct


class TimeBlock(nn.Module):
    """A residual block that adds an embedding of the time step."""

    def __init__(self, c_in: int, c_out: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(8, c_in), nn.SiLU(), nn.Conv2d(c_in, c_out, 3, padding=1)
        )
        self.time = nn.Linear(time, c_out)
        self.second = nn.Sequential(
            nn.GroupNorm(8, c_out), nn.SiLU(), nn.Conv2d(c_out, c_out, 3, padding=1)
        )
        self.skip = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.first(x) + self.time(F.silu(time))[:, :, None, None]
        return self.second(hidden) + self.skip(x)


class DiffusionUNet(nn.Module):
    """A U-Net with sinusoidal time embeddings, attention and transposed convolutions."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width, time = width, 4 * width
        self.embed = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(
            [TimeBlock(width, width, time), TimeBlock(width, 2 * width, time)]
        )
        self.shrink = nn.ModuleList(
            [nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(2 * width, 2 * width, 3, 2, 1)]
        )
        self.middle = TimeBlock(2 * width, 2 * width, time)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.grow = nn.ModuleList(
            [
                nn.ConvTranspose2d(2 * width, 2 * width, 4, 2, 1),
                nn.ConvTranspose2d(width, width, 2, 2),
            ]
        )
        self.up = nn.ModuleList(
            [TimeBlock(4 * width, width, time), TimeBlock(2 * width, width, time)]
        )
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        half = self.width // 2
        frequencies = torch.exp(torch.arange(half) * (-9.21 / (half - 1)))
        angles = step[:, None].float() * frequencies[None]
        time = self.embed(torch.cat((angles.sin(), angles.cos()), 1))
        x, kept = self.enter(x), []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            x = block(x, time)
            kept.append(x)
            x = shrink(x)
        x = self.middle(x, time)
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attention(flat, flat, flat)[0].transpose(1, 2).reshape(x.shape)
        for block, grow in zip(self.up, self.grow, strict=True):
            x = block(torch.cat((grow(x), kept.pop()), 1), time)
        return self.leave(x)


class PlainUNet(nn.Module):
    """The U-Net of medical pictures, with transposed convolutions."""

    def __init__(self, width: int = 16, depth: int = 4) -> None:
        super().__init__()
        sizes = [width << level for level in range(depth + 1)]
        pairs = list(itertools.pairwise(sizes))
        self.enter = self._double(1, width)
        self.down = nn.ModuleList([self._double(a, b) for a, b in pairs])
        self.grow = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs)])
        self.up = nn.ModuleList([self._double(2 * a, a) for a, _ in reversed(pairs)])
        self.leave = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _double(c_in: int, c_out: int) -> nn.Sequential:
        return nn.Sequential(ConvAct(c_in, c_out, act=nn.ReLU), ConvAct(c_out, c_out, act=nn.ReLU))

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.enter(x)]
        for block in self.down:
            kept.append(block(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat((kept.pop(), grow(x)), 1))
        return self.leave(x)


class TextReader(nn.Module):
    """CRNN: convolutions over a line of text, a bidirectional LSTM, scores for CTC."""

    def __init__(self, symbols: int = 97) -> None:
        super().__init__()
        self.features = nn.Sequential(
            ConvAct(1, 32, act=nn.ReLU),
            nn.MaxPool2d(2),
            ConvAct(32, 64, act=nn.ReLU),
            nn.MaxPool2d(2),
            ConvAct(64, 128, act=nn.ReLU),
            nn.MaxPool2d((2, 1)),
            ConvAct(128, 128, act=nn.ReLU),
        )
        self.recurrent = nn.LSTM(128, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.scores = nn.Linear(192, symbols)

    def forward(self, x: Tensor) -> Tensor:
        sequence = self.features(x).mean(2).transpose(1, 2)
        return self.scores(self.recurrent(sequence)[0]).log_softmax(2)


class SuperResolution(nn.Module):
    """Residual dense blocks and a pixel shuffle, as in ESRGAN."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.dense = nn.ModuleList(
            [nn.Conv2d(width + 16 * i, 16 if i < 4 else width, 3, padding=1) for i in range(5)]
        )
        self.grow = nn.Conv2d(width, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for block in self.dense:
            parts.append(F.leaky_relu(block(torch.cat(parts, 1)), 0.2))
        return F.pixel_shuffle(self.grow(parts[0] + 0.2 * parts[-1]), 2)


class SpatialTransformer(nn.Module):
    """A picture warped by what a small network says about it."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(1, 8, 7),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(8, 10, 5),
            nn.AdaptiveAvgPool2d(4),
        )
        self.theta = nn.Linear(160, 6)

    def forward(self, x: Tensor) -> Tensor:
        change = 0.1 * self.theta(self.look(x).flatten(1)).view(-1, 2, 3)
        theta = change + torch.tensor([[1.0, 0, 0], [0, 1, 0]])
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)
