"""Networks on sequences and tables as people write them themselves: speech, text, clicks."""

from __future__ import annotations

import functools
import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Tensor, ...]]


class ClickModel(nn.Module):
    """DLRM: bags of embeddings, two perceptrons, products of all pairs."""

    def __init__(self, tables: int = 8, rows: int = 1000, width: int = 32) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = tables * (tables + 1) // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        found = [bottom, *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))]
        stacked = torch.stack(found, 1)
        products = stacked @ stacked.transpose(1, 2)
        rows, columns = torch.tril_indices(len(found), len(found), -1)
        return self.top(torch.cat((bottom, products[:, rows, columns]), 1)).sigmoid()


class SpeechDecoder(nn.Module):
    """Tacotron 2's decoder: an attention over the text for each frame, two LSTM cells."""

    def __init__(self, width: int = 256, mels: int = 80, frames: int = 20) -> None:
        super().__init__()
        self.frames, self.mels, self.width = frames, mels, width
        self.prenet = nn.Sequential(nn.Linear(mels, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.attend, self.decode = nn.LSTMCell(128 + width, width), nn.LSTMCell(2 * width, width)
        self.query, self.memory = nn.Linear(width, 64, bias=False), nn.Linear(width, 64, bias=False)
        self.location = nn.Conv1d(2, 16, 31, padding=15, bias=False)
        self.place, self.energy = nn.Linear(16, 64, bias=False), nn.Linear(64, 1, bias=False)
        self.mel, self.stop = nn.Linear(2 * width, mels), nn.Linear(2 * width, 1)

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor]:
        batch, length, _ = text.shape
        zeros = text.new_zeros(batch, self.width)
        h1, c1, h2, c2, context = zeros, zeros, zeros, zeros, zeros
        frame = text.new_zeros(batch, self.mels)
        weights, total = text.new_zeros(batch, length), text.new_zeros(batch, length)
        keys, mels, stops = self.memory(text), [], []
        for _ in range(self.frames):
            h1, c1 = self.attend(torch.cat((self.prenet(frame), context), 1), (h1, c1))
            where = self.location(torch.stack((weights, total), 1)).transpose(1, 2)
            energy = torch.tanh(self.query(h1).unsqueeze(1) + self.place(where) + keys)
            weights = self.energy(energy).squeeze(2).softmax(1)
            total = total + weights
            context = torch.bmm(weights.unsqueeze(1), text).squeeze(1)
            h2, c2 = self.decode(torch.cat((h1, context), 1), (h2, c2))
            state = torch.cat((h2, context), 1)
            frame = self.mel(state)
            mels.append(frame)
            stops.append(self.stop(state))
        return torch.stack(mels, 1), torch.cat(stops, 1)


class Tagger(nn.Module):
    """A bidirectional LSTM that gives every word a tag."""

    def __init__(self, vocabulary: int = 5000, width: int = 128, tags: int = 20) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.recurrent = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.scores = nn.Linear(2 * width, tags)

    def forward(self, ids: Tensor) -> Tensor:
        return self.scores(self.recurrent(self.embed(ids))[0])


class LastState(nn.Module):
    """A GRU of two layers whose last state is classified."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.recurrent = nn.GRU(40, width, num_layers=2, batch_first=True)
        self.scores = nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.recurrent(x)[0][:, -1])


class WaveNet(nn.Module):
    """Gated dilated causal convolutions with skips."""

    def __init__(self, width: int = 48, layers: int = 10) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, width, 1)
        self.dilations = [1 << (layer % 8) for layer in range(layers)]
        self.gates = nn.ModuleList(
            [nn.Conv1d(width, 2 * width, 2, dilation=d) for d in self.dilations]
        )
        self.outs = nn.ModuleList([nn.Conv1d(width, 2 * width, 1) for _ in self.dilations])
        self.leave = nn.Sequential(
            nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 256, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.enter(x), 0
        for dilation, gate, out in zip(self.dilations, self.gates, self.outs, strict=True):
            a, b = gate(F.pad(x, (dilation, 0))).chunk(2, 1)
            residual, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, skips = x + residual, skips + skip
        return self.leave(skips)


class Tcn(nn.Module):
    """A temporal convolutional network with weight norm and causal padding cut off."""

    def __init__(self, width: int = 64, levels: int = 5) -> None:
        super().__init__()
        sizes = [24, *([width] * levels)]
        norm = nn.utils.parametrizations.weight_norm
        self.first = nn.ModuleList(
            [
                norm(nn.Conv1d(a, width, 3, padding=2 << i, dilation=1 << i))
                for i, a in enumerate(sizes[:-1])
            ]
        )
        self.second = nn.ModuleList(
            [
                norm(nn.Conv1d(width, width, 3, padding=2 << i, dilation=1 << i))
                for i in range(levels)
            ]
        )
        self.skip = nn.Conv1d(24, width, 1)
        self.scores = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        for level, (first, second) in enumerate(zip(self.first, self.second, strict=True)):
            cut = 2 << level
            hidden = F.relu(second(F.relu(first(x)[:, :, :-cut]))[:, :, :-cut])
            x = F.relu(hidden + (self.skip(x) if level == 0 else x))
        return self.scores(x[:, :, -1])


class Separator(nn.Module):
    """Conv-TasNet: a learnt filter bank, depthwise blocks, masks, a transposed convolution."""

    def __init__(self, filters: int = 128, width: int = 64, blocks: int = 6) -> None:
        super().__init__()
        self.encode = nn.Conv1d(1, filters, 16, 8, bias=False)
        self.enter = nn.Sequential(nn.GroupNorm(1, filters), nn.Conv1d(filters, width, 1))
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv1d(width, 128, 1),
                    nn.PReLU(),
                    nn.GroupNorm(1, 128),
                    nn.Conv1d(128, 128, 3, padding=1 << i, dilation=1 << i, groups=128),
                    nn.PReLU(),
                    nn.GroupNorm(1, 128),
                    nn.Conv1d(128, width, 1),
                )
                for i in range(blocks)
            ]
        )
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(width, 2 * filters, 1), nn.Sigmoid())
        self.decode = nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        coded = F.relu(self.encode(x))
        hidden = self.enter(coded)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        masked = [coded * mask for mask in self.masks(hidden).chunk(2, 1)]
        return torch.cat([self.decode(part) for part in masked], 1)


class Vocoder(nn.Module):
    """HiFi-GAN's generator: transposed convolutions and residual blocks of several widths."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.enter = nn.Conv1d(80, width, 7, padding=3)
        rates, sizes = (8, 8, 2), [width, width // 2, width // 4, width // 8]
        self.grow = nn.ModuleList(
            [
                nn.ConvTranspose1d(a, b, 2 * rate, rate, rate // 2)
                for rate, a, b in zip(rates, sizes, sizes[1:], strict=False)
            ]
        )
        self.blocks = nn.ModuleList(
            [
                nn.ModuleList(
                    [
                        nn.Conv1d(c, c, k, padding=d * (k - 1) // 2, dilation=d)
                        for k, d in ((3, 1), (7, 3))
                    ]
                )
                for c in sizes[1:]
            ]
        )
        self.leave = nn.Conv1d(sizes[-1], 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for grow, blocks in zip(self.grow, self.blocks, strict=True):
            x = grow(F.leaky_relu(x, 0.1))
            x = sum(x + block(F.leaky_relu(x, 0.1)) for block in blocks) / len(blocks)
        return torch.tanh(self.leave(F.leaky_relu(x)))


class ConformerBlock(nn.Module):
    """Half a feed-forward network, attention, a convolution module, the other half."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = self._forward_part(width), self._forward_part(width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.convolve = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, 15, padding=7, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    @staticmethod
    def _forward_part(width: int) -> nn.Sequential:
        layers = (nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
        return nn.Sequential(nn.LayerNorm(width), *layers)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.first(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.convolve(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return self.norms[1](x + 0.5 * self.last(x))


class Conformer(nn.Module):
    """Two strided convolutions over a spectrogram, conformer blocks, scores for CTC."""

    def __init__(self, width: int = 144, layers: int = 3) -> None:
        super().__init__()
        self.shrink = nn.Sequential(
            nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU()
        )
        self.enter = nn.Linear(32 * 20, width)
        self.blocks = nn.Sequential(*(ConformerBlock(width) for _ in range(layers)))
        self.scores = nn.Linear(width, 128)

    def forward(self, x: Tensor) -> Tensor:
        features = self.shrink(x.unsqueeze(1)).transpose(1, 2).flatten(2)
        return self.scores(self.blocks(self.enter(features))).log_softmax(-1)


class Experts(nn.Module):
    """A layer of experts, all computed, weighted by the best two of a router."""

    def __init__(self, width: int = 128, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).softmax(-1)
        best, chosen = scores.topk(2, -1)
        gates = torch.zeros_like(scores).scatter(-1, chosen, best / best.sum(-1, keepdim=True))
        hidden = F.gelu(torch.einsum("td,edh->eth", x, self.up))
        return x + torch.einsum("te,ehd,eth->td", gates, self.down, hidden)


class KeywordSpotter(nn.Module):
    """Depthwise separable convolutions on a small spectrogram."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, (10, 4), (2, 2), (5, 1)), nn.ReLU()]
        for _ in range(4):
            layers += [
                nn.Conv2d(width, width, 3, padding=1, groups=width),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 1),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.scores = nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.body(x)).softmax(1)


class SelectiveScan(nn.Module):
    """Mamba's layer written out: a short convolution and a scan over time."""

    def __init__(self, width: int = 64, state: int = 8) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.short = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.parts, self.width, self.state = nn.Linear(width, 2 * state + 4), width, state
        self.delta = nn.Linear(4, width)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(width, 1))
        self.d = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        u, gate = self.enter(x).chunk(2, -1)
        u = F.silu(self.short(u.transpose(1, 2))[:, :, :length].transpose(1, 2))
        rank, b, c = self.parts(u).split((4, self.state, self.state), -1)
        delta = F.softplus(self.delta(rank))
        decay = torch.exp(delta.unsqueeze(-1) * -torch.exp(self.log_a))
        drive = (delta * u).unsqueeze(-1) * b.unsqueeze(2)
        hidden, outputs = torch.zeros_like(drive[:, 0]), []
        for step in range(length):
            hidden = decay[:, step] * hidden + drive[:, step]
            outputs.append((hidden * c[:, step, None]).sum(-1))
        y = torch.stack(outputs, 1) + u * self.d
        return self.leave(y * F.silu(gate))


class PointNet(nn.Module):
    """Shared perceptrons over points and a maximum over all of them."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 64, 128, 512)
        self.body = nn.Sequential(
            *(
                nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
                for a, b in itertools.pairwise(sizes)
            )
        )
        self.scores = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 40))

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.body(x).max(2)[0])


class Lstm(nn.Module):
    """Layers of an LSTM, one step after the other."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.LSTM(width, width, layers)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.layers(x)[0]
        return states


class SoftExperts(nn.Module):
    """A mixture of experts that all take part, each by its share."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.shares = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        shares = self.shares(x).softmax(-1)
        taken = [shares[:, k : k + 1] * expert(x) for k, expert in enumerate(self.experts)]
        return functools.reduce(torch.add, taken)
