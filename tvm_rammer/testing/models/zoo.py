"""The models by name, each at the size that is measured and at one for quick tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

import onnx

from tvm_rammer.errors import ModelError
from tvm_rammer.testing.models import nasnet, recurrent, resnext
from tvm_rammer.testing.models.alexnet import alexnet
from tvm_rammer.testing.models.deepspeech import deepspeech2
from tvm_rammer.testing.models.inception import inception_v3
from tvm_rammer.testing.models.light import LIGHT, light
from tvm_rammer.testing.models.mlp import mixture_of_experts, mlp, recommender
from tvm_rammer.testing.models.randwire import randwire
from tvm_rammer.testing.models.squeezenet import squeezenet_bypass
from tvm_rammer.testing.models.transformer import bert, transformer_decoder

Build = Callable[[], onnx.ModelProto]


@dataclass(frozen=True)
class ModelInfo:
    """A model of the zoo.

    Attributes
    ----------
    name, description : str
        For people and command lines.
    build, tiny : callable
        Make the model at its measured size, and at a size for quick tests.
    """

    name: str
    build: Build
    description: str
    tiny: Build


def get_model(name: str) -> ModelInfo:
    """The model of that name.

    Raises
    ------
    ModelError
        For an unknown name, with the nearest one.
    """
    if name in MODELS:
        return MODELS[name]
    nearest = get_close_matches(name, MODELS, n=1, cutoff=0.0)[0]
    raise ModelError(f"there is no model {name!r}; did you mean {nearest!r}?")


def _lstm(layers: int, steps: int, hidden: int, batch: int = 1) -> ModelInfo:
    suffix = f"_b{batch}" if batch > 1 else ""
    return ModelInfo(
        f"lstm_{layers}x{steps}x{hidden}{suffix}",
        partial(recurrent.lstm, layers, steps, hidden, batch),
        f"LSTM, {layers} layers x {steps} steps x {hidden}, eight products a cell, batch {batch}",
        partial(recurrent.lstm, 2, 3, 16, batch),
    )


#: Real graphs keep their real sizes; the quick form is their beginning, this many operators. The
#: graphs of few and large operators are cut before their dense layers.
_BEGINNING = 24
_BEGINNINGS = {"bvlc_alexnet": 12, "vgg19": 8, "zfnet512": 12}

_ALL = (
    ModelInfo("mlp", mlp, "MLP, three dense layers", mlp),
    _lstm(8, 8, 256),
    *(_lstm(10, 100, 256, batch) for batch in (1, 4, 16)),
    ModelInfo(
        "gru_8x8x256",
        recurrent.gru,
        "GRU, 8 layers x 8 steps x 256, six products a cell",
        partial(recurrent.gru, 2, 3, 16),
    ),
    ModelInfo(
        "seq2seq",
        recurrent.seq2seq,
        "Seq2Seq, encoder 8 x 100, decoder 4 x 30, hidden 128",
        partial(recurrent.seq2seq, 3, 4, 2, 3, 16),
    ),
    ModelInfo(
        "deepspeech2",
        deepspeech2,
        "DeepSpeech2, two convolutions, 75 steps x 7 LSTM layers of 256",
        partial(deepspeech2, 12, 15, 4, 2, 16),
    ),
    ModelInfo(
        "recommender",
        recommender,
        "Multi-tower recommender, 32 towers 64-256-128-32 and a top MLP",
        partial(recommender, 4, (8, 16, 8), (8, 1)),
    ),
    ModelInfo(
        "mixture_of_experts",
        mixture_of_experts,
        "Mixture of 8 experts 512-2048-512, top-2 combined densely",
        partial(mixture_of_experts, 4, 16, 32),
    ),
    ModelInfo(
        "bert_base",
        bert,
        "BERT-base encoder, 12 layers, 12 separate heads, sequence 128",
        partial(bert, 1, 2, 32, 8),
    ),
    ModelInfo(
        "transformer_decoder",
        transformer_decoder,
        "Transformer decoder step, 12 layers, 12 separate heads, 128 cached tokens",
        partial(transformer_decoder, 1, 2, 32, 8),
    ),
    ModelInfo(
        "resnext29_16x64d",
        resnext.resnext29,
        "ResNeXt-29 16x64d, 16 separate branches of 64 channels, CIFAR-10",
        partial(resnext.resnext29, 4, 8, False, 1),
    ),
    ModelInfo(
        "resnext29_16x64d_paper",
        partial(resnext.resnext29, widening=True),
        "ResNeXt-29 16x64d, branches of 64, 128 and 256 channels (68.1 M weights)",
        partial(resnext.resnext29, 4, 4, True, 1),
    ),
    ModelInfo(
        "resnext101_64x4d",
        resnext.resnext101,
        "ResNeXt-101 64x4d, 64 separate branches, ImageNet",
        partial(resnext.resnext101, 4, 2, (1, 1), 32),
    ),
    ModelInfo(
        "nasnet_cifar",
        nasnet.nasnet_cifar,
        "NASNet-A CIFAR-10, 18 normal and 2 reduction cells, 32 filters",
        partial(nasnet.nasnet_cifar, 1, 4, 16),
    ),
    ModelInfo(
        "nasnet_mobile",
        nasnet.nasnet_mobile,
        "NASNet-A mobile (4 @ 1056), 224x224",
        partial(nasnet.nasnet_imagenet, 1, 8, 8, 64, False),
    ),
    ModelInfo(
        "nasnet_large",
        nasnet.nasnet_large,
        "NASNet-A large (6 @ 4032), 331x331",
        partial(nasnet.nasnet_imagenet, 1, 8, 8, 67, True),
    ),
    ModelInfo(
        "inception_v3",
        inception_v3,
        "Inception v3, 299x299",
        partial(inception_v3, 79, 16),
    ),
    ModelInfo(
        "randwire",
        randwire,
        "RandWire WS(4, 0.75), 16 + 3 x 32 nodes, 109 channels, 224x224",
        partial(randwire, 4, (6, 8), 32),
    ),
    ModelInfo(
        "squeezenet_bypass",
        squeezenet_bypass,
        "SqueezeNet 1.0 with complex bypass, 224x224",
        partial(squeezenet_bypass, 63, 16),
    ),
    ModelInfo("alexnet", alexnet, "AlexNet, 227x227", partial(alexnet, 67, 32, 10)),
    *(
        ModelInfo(
            name,
            partial(light, name),
            f"{name} from the onnx package, random weights",
            partial(light, name, stop=_BEGINNINGS.get(name, _BEGINNING)),
        )
        for name in LIGHT
    ),
)

#: Every model by its name.
MODELS: dict[str, ModelInfo] = {info.name: info for info in _ALL}
