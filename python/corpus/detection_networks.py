"""Detectors as people write them themselves: boxes, text, sets."""

from __future__ import annotations

import itertools
from importlib import import_module

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Tensor, ...]]


class ConvAct(nn.Sequential):
    """Convolution, normalisation, activation."""

    def __init__(
        self,
        c_in: int,
        c_out: int,
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
        act: type[nn.Module] = nn.SiLU,
    ) -> None:
        super().__init__(
            nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(c_out),
            act(),
        )


class Bottleneck(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, channels: int, act: type[nn.Module] = nn.SiLU, narrow: int = 1) -> None:
        super().__init__()
        inner = channels // narrow
        self.body = nn.Sequential(
            ConvAct(channels, inner, 1 if narrow > 1 else 3, act=act),
            ConvAct(inner, channels, act=act),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Yolo3(nn.Module):
    """YOLOv3 with spatial pyramid pooling: max pools of 5, 9 and 13 at stride 1."""

    def __init__(self, width: int = 16, classes: int = 20) -> None:
        super().__init__()
        act, outputs = LeakyReLU, 3 * (5 + classes)
        sizes = [width << level for level in range(6)]
        self.stem = ConvAct(3, width, act=act)
        self.stages = nn.ModuleList(
            [
                nn.Sequential(ConvAct(a, b, 3, 2, act=act), Bottleneck(b, act, 2))
                for a, b in itertools.pairwise(sizes)
            ]
        )
        top, middle = sizes[5], sizes[4]
        self.reduce = ConvAct(top, top // 2, 1, act=act)
        self.merge = ConvAct(2 * top, top // 2, 1, act=act)
        self.big = nn.Conv2d(top // 2, outputs, 1)
        self.lateral = ConvAct(top // 2, middle // 2, 1, act=act)
        self.small = nn.Sequential(
            ConvAct(middle + middle // 2, middle, act=act), nn.Conv2d(middle, outputs, 1)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, found = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        x = self.reduce(x)
        x = self.merge(torch.cat([x, *(F.max_pool2d(x, k, 1, k // 2) for k in (5, 9, 13))], 1))
        finer = F.interpolate(self.lateral(x), scale_factor=2.0, mode="nearest")
        return self._decode(self.big(x)), self._decode(self.small(torch.cat((finer, found[-2]), 1)))

    @staticmethod
    def _decode(x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        x = x.view(batch, 3, -1, height, width).permute(0, 1, 3, 4, 2)
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        offset = torch.stack((columns, rows), -1).float()
        centre = (x[..., :2].sigmoid() + offset) / torch.tensor([width, height])
        return torch.cat((centre, x[..., 2:4].exp(), x[..., 4:].sigmoid()), -1).flatten(1, 3)


class LeakyReLU(nn.LeakyReLU):
    """As YOLOv3 has it."""

    def __init__(self) -> None:
        super().__init__(0.1)


class C2f(nn.Module):
    """YOLOv8's stage: a split, bottlenecks in a chain, all of them concatenated."""

    def __init__(self, c_in: int, c_out: int, count: int = 1) -> None:
        super().__init__()
        self.enter = ConvAct(c_in, c_out, 1)
        self.blocks = nn.ModuleList([Bottleneck(c_out // 2) for _ in range(count)])
        self.leave = ConvAct((2 + count) * c_out // 2, c_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class Sppf(nn.Module):
    """Three max pools of 5 in a chain."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter, self.leave = (
            ConvAct(channels, channels // 2, 1),
            ConvAct(2 * channels, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.leave(torch.cat(parts, 1))


class Yolo8(nn.Module):
    """YOLOv8 without anchors: distributions of distances, decoded to boxes."""

    def __init__(self, width: int = 16, classes: int = 20, bins: int = 16) -> None:
        super().__init__()
        w, self.bins, self.classes = width, bins, classes
        self.stem = nn.Sequential(ConvAct(3, w, 3, 2), ConvAct(w, 2 * w, 3, 2), C2f(2 * w, 2 * w))
        self.p3 = nn.Sequential(ConvAct(2 * w, 4 * w, 3, 2), C2f(4 * w, 4 * w, 2))
        self.p4 = nn.Sequential(ConvAct(4 * w, 8 * w, 3, 2), C2f(8 * w, 8 * w, 2))
        self.p5 = nn.Sequential(ConvAct(8 * w, 16 * w, 3, 2), C2f(16 * w, 16 * w), Sppf(16 * w))
        self.up4, self.up3 = C2f(24 * w, 8 * w), C2f(12 * w, 4 * w)
        self.shrink3, self.down4 = ConvAct(4 * w, 4 * w, 3, 2), C2f(12 * w, 8 * w)
        self.shrink4, self.down5 = ConvAct(8 * w, 8 * w, 3, 2), C2f(24 * w, 16 * w)
        self.boxes = nn.ModuleList([self._head(c * w, 4 * bins) for c in (4, 8, 16)])
        self.scores = nn.ModuleList([self._head(c * w, classes) for c in (4, 8, 16)])

    @staticmethod
    def _head(c_in: int, c_out: int) -> nn.Sequential:
        return nn.Sequential(ConvAct(c_in, 64), ConvAct(64, 64), nn.Conv2d(64, c_out, 1))

    def forward(self, x: Tensor) -> Tensor:
        p3 = self.p3(self.stem(x))
        p4 = self.p4(p3)
        p5 = self.p5(p4)
        n4 = self.up4(torch.cat((F.interpolate(p5, scale_factor=2.0), p4), 1))
        n3 = self.up3(torch.cat((F.interpolate(n4, scale_factor=2.0), p3), 1))
        n4 = self.down4(torch.cat((self.shrink3(n3), n4), 1))
        n5 = self.down5(torch.cat((self.shrink4(n4), p5), 1))
        boxes, scores = [], []
        for level, feature in enumerate((n3, n4, n5)):
            boxes.append(self._decode(self.boxes[level](feature), 8 << level))
            scores.append(self.scores[level](feature).flatten(2).sigmoid())
        return torch.cat((torch.cat(boxes, 2), torch.cat(scores, 2)), 1)

    def _decode(self, x: Tensor, stride: int) -> Tensor:
        batch, _, height, width = x.shape
        spread = x.view(batch, 4, self.bins, height * width).softmax(2)
        sides = (spread * torch.arange(self.bins).float().view(1, 1, -1, 1)).sum(2)
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centre = torch.stack((columns, rows)).flatten(1).float() + 0.5
        low, high = centre - sides[:, :2], centre + sides[:, 2:]
        return torch.cat(((low + high) / 2, high - low), 1) * stride


class Yolo8WithNms(nn.Module):
    """A detector and its non-maximum suppression, as exported for deployment.

    How many boxes there are is known at run time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.detector = Yolo8().eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        suppress = import_module("torchvision.ops").nms
        found = self.detector(x)[0].transpose(0, 1)
        scores, _ = found[:, 4:].max(1)
        centre, size = found[:, :2], found[:, 2:4]
        boxes = torch.cat((centre - size / 2, centre + size / 2), 1)
        best, order = scores.topk(100)
        chosen = boxes[order]
        kept = suppress(chosen, best, 0.5)
        return chosen[kept], best[kept]


class YoloX(nn.Module):
    """YOLOX: a focus layer, CSP stages, and a head that is decoupled."""

    def __init__(self, width: int = 16, classes: int = 20) -> None:
        super().__init__()
        w = width
        self.stem = ConvAct(12, w)
        self.stages = nn.ModuleList(
            [
                nn.Sequential(ConvAct(w << i, w << i + 1, 3, 2), C2f(w << i + 1, w << i + 1))
                for i in range(4)
            ]
        )
        self.lateral = ConvAct(16 * w, 8 * w, 1)
        self.merge = C2f(16 * w, 8 * w)
        self.towers = nn.ModuleList([ConvAct(c * w, 64, 1) for c in (8, 16)])
        self.classify, self.locate = ConvAct(64, 64), ConvAct(64, 64)
        self.scores, self.box = nn.Conv2d(64, classes, 1), nn.Conv2d(64, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[..., row::2, column::2] for column in (0, 1) for row in (0, 1)]
        x, found = self.stem(torch.cat(corners, 1)), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        finer = F.interpolate(self.lateral(x), scale_factor=2.0, mode="nearest")
        levels = (self.merge(torch.cat((finer, found[-2]), 1)), x)
        heads = []
        for level, (tower, feature) in enumerate(zip(self.towers, levels, strict=True)):
            hidden = tower(feature)
            box = self.box(self.locate(hidden))
            scores = self.scores(self.classify(hidden)).sigmoid()
            rows, columns = torch.meshgrid(
                torch.arange(box.shape[2]), torch.arange(box.shape[3]), indexing="ij"
            )
            centre = (box[:, :2] + torch.stack((columns, rows))) * (16 << level)
            parts = (centre, box[:, 2:4].exp() * (16 << level), box[:, 4:].sigmoid(), scores)
            heads.append(torch.cat(parts, 1).flatten(2))
        return torch.cat(heads, 2).transpose(1, 2)


class SqueezeGate(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = (
            nn.Conv2d(channels, channels // 4, 1),
            nn.Conv2d(channels // 4, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


class TextDetector(nn.Module):
    """A differentiable-binarisation detector of text on a MobileNetV3-like backbone."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        sizes = [width, 24, 40, 96, 160]
        self.stem = ConvAct(3, width, 3, 2, act=nn.Hardswish)
        self.stages = nn.ModuleList([self._stage(a, b) for a, b in itertools.pairwise(sizes)])
        self.lateral = nn.ModuleList([nn.Conv2d(c, 96, 1, bias=False) for c in sizes[1:]])
        self.smooth = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(96, 24, 3, padding=1, bias=False), SqueezeGate(24))
                for _ in range(4)
            ]
        )
        self.head = nn.Sequential(
            ConvAct(96, 24, act=nn.ReLU),
            nn.ConvTranspose2d(24, 24, 2, 2),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.ConvTranspose2d(24, 1, 2, 2),
            nn.Sigmoid(),
        )

    @staticmethod
    def _stage(c_in: int, c_out: int) -> nn.Sequential:
        inner = 4 * c_in
        return nn.Sequential(
            ConvAct(c_in, inner, 1, act=nn.Hardswish),
            ConvAct(inner, inner, 5, 2, groups=inner, act=nn.Hardswish),
            SqueezeGate(inner),
            nn.Conv2d(inner, c_out, 1, bias=False),
            nn.BatchNorm2d(c_out),
        )

    def forward(self, x: Tensor) -> Tensor:
        x, found = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        merged = [lateral(level) for lateral, level in zip(self.lateral, found, strict=True)]
        for level in range(2, -1, -1):
            coarser = F.interpolate(merged[level + 1], scale_factor=2.0, mode="nearest")
            merged[level] = merged[level] + coarser
        smooth = [block(level) for block, level in zip(self.smooth, merged, strict=True)]
        same = [
            F.interpolate(level, scale_factor=float(1 << number), mode="nearest")
            if number
            else level
            for number, level in enumerate(smooth)
        ]
        return self.head(torch.cat(same[::-1], 1))


class SetDetector(nn.Module):
    """DETR: convolutions, a transformer with queries, boxes and classes."""

    def __init__(self, width: int = 128, queries: int = 50, classes: int = 20) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            *(
                ConvAct(a, b, 3, 2, act=nn.ReLU)
                for a, b in ((3, 32), (32, 64), (64, 96), (96, width))
            )
        )
        self.rows = nn.Parameter(torch.rand(20, width // 2))
        self.columns = nn.Parameter(torch.rand(20, width // 2))
        self.queries = nn.Parameter(torch.rand(queries, width))
        self.transformer = nn.Transformer(width, 4, 2, 2, 256, batch_first=True)
        self.classes, self.boxes = nn.Linear(width, classes + 1), nn.Linear(width, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.backbone(x)
        height, width = features.shape[2:]
        columns = self.columns[:width].unsqueeze(0).repeat(height, 1, 1)
        rows = self.rows[:height].unsqueeze(1).repeat(1, width, 1)
        position = torch.cat((columns, rows), -1).flatten(0, 1).unsqueeze(0)
        found = self.transformer(
            position + 0.1 * features.flatten(2).transpose(1, 2), self.queries.unsqueeze(0)
        )
        return self.classes(found), self.boxes(found).sigmoid()
