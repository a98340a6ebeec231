"""Networks of torchvision, timm and transformers, with random weights.

Where the full size adds nothing to what a compiler meets, layers are fewer and narrower.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Tensor, ...]]


def torchvision_network(name: str, size: int = 224, **options: Any) -> Made:
    """A classifier of torchvision."""
    models = import_module("torchvision.models")
    return _steady(models.get_model(name, weights=None, **options)), (_image(size),)


def torchvision_segmentation(name: str, size: int = 128) -> Made:
    """A segmentation network of torchvision; its main output."""
    models = import_module("torchvision.models")
    network = models.get_model(name, weights=None, weights_backbone=None, num_classes=21)
    return Picked(_steady(network), lambda out: out["out"]), (_image(size),)


def torchvision_detector(name: str, size: int = 320, classes: int = 21) -> Made:
    """A detector of torchvision with its non-maximum suppression."""
    models = import_module("torchvision.models")
    network = models.get_model(name, weights=None, weights_backbone=None, num_classes=classes)
    return Detector(_steady(network)), (_image(size)[0],)


def timm_network(name: str, size: int = 224, **options: Any) -> Made:
    """A classifier of timm."""
    timm = import_module("timm")
    return _steady(timm.create_model(name, pretrained=False, **options)), (_image(size),)


def gpt2(length: int = 32) -> Made:
    """GPT-2, the prompt at once."""
    config = _config("GPT2Config", n_layer=3, n_head=12, n_embd=768, vocab_size=8192)
    return _language_model("GPT2LMHeadModel", config), (_ids(length, 8192),)


def llama(length: int = 32) -> Made:
    """LLaMA with grouped queries, the prompt at once."""
    return _language_model("LlamaForCausalLM", _llama_config("LlamaConfig")), (_ids(length, 8192),)


def qwen2(length: int = 32) -> Made:
    """Qwen2: as LLaMA, with biases."""
    return _language_model("Qwen2ForCausalLM", _llama_config("Qwen2Config")), (_ids(length, 8192),)


def mixtral(length: int = 16) -> Made:
    """Mixtral: a mixture of experts that routes each token."""
    config = _llama_config("MixtralConfig", num_local_experts=4, num_experts_per_tok=2)
    # The way that no exporter takes for data-dependent: a matrix for each token.
    config._experts_implementation = "batched_mm"
    return _language_model("MixtralForCausalLM", config), (_ids(length, 8192),)


def llama_step(past: int = 64) -> Made:
    """LLaMA for one token, with the keys and values of those before."""
    config = _llama_config("LlamaConfig")
    network = LlamaStep(_transformers("LlamaForCausalLM", config), config.num_hidden_layers)
    heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    cache = torch.randn(config.num_hidden_layers, 2, 1, heads, past, width)
    return network, (_ids(1, 8192), cache)


def mamba(length: int = 32) -> Made:
    """Mamba, a selective state-space model."""
    config = _config(
        "MambaConfig", num_hidden_layers=2, hidden_size=256, state_size=16, vocab_size=2048
    )
    return _language_model("MambaForCausalLM", config), (_ids(length, 2048),)


def encoder(name: str, config: str, length: int = 64, **options: Any) -> Made:
    """An encoder of texts with a mask."""
    made = _transformers(name, _config(config, vocab_size=4096, **options))
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, -5:] = 0
    return Masked(made), (_ids(length, 4096), mask)


def t5_encoder(length: int = 64) -> Made:
    """T5's encoder with its relative positions."""
    config = _config("T5Config", num_layers=3, vocab_size=4096)
    return First(_transformers("T5EncoderModel", config)), (_ids(length, 4096),)


def bart(length: int = 32) -> Made:
    """BART: encoder and decoder with cross-attention."""
    config = _config(
        "BartConfig",
        encoder_layers=2,
        decoder_layers=2,
        d_model=256,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        vocab_size=4096,
        use_cache=False,
    )
    network = Named(_transformers("BartModel", config), ("input_ids", "decoder_input_ids"))
    return network, (_ids(length, 4096), _ids(8, 4096))


def clip_text(length: int = 77) -> Made:
    """CLIP's text tower."""
    config = _config("CLIPTextConfig", num_hidden_layers=3, vocab_size=4096)
    return First(_transformers("CLIPTextModel", config)), (_ids(length, 4096),)


def clip_vision(size: int = 224) -> Made:
    """CLIP's vision tower."""
    config = _config("CLIPVisionConfig", num_hidden_layers=3)
    return First(_transformers("CLIPVisionModel", config)), (_image(size),)


def segformer(size: int = 128) -> Made:
    """SegFormer-B0."""
    config = _config("SegformerConfig", num_labels=19)
    return First(_transformers("SegformerForSemanticSegmentation", config)), (_image(size),)


def dpt(size: int = 224) -> Made:
    """DPT: depth from one picture, on a vision transformer."""
    config = _config(
        "DPTConfig",
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=768,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[48, 96, 192, 192],
        fusion_hidden_size=64,
        image_size=size,
    )
    return First(_transformers("DPTForDepthEstimation", config)), (_image(size),)


def yolos(size: int = 160) -> Made:
    """YOLOS: a detector that is a vision transformer."""
    config = _config(
        "YolosConfig",
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=[size, size],
        num_detection_tokens=20,
    )
    return First(_transformers("YolosForObjectDetection", config), 2), (_image(size),)


def vits(length: int = 40) -> Made:
    """VITS: speech from text, whose length is data; what it draws counts nothing."""
    config = _config("VitsConfig", vocab_size=40)
    network = _transformers("VitsModel", config)
    network.noise_scale = network.noise_scale_duration = 0.0
    return Picked(network, lambda out: out.waveform), (_ids(length, 38),)


def wav2vec2(seconds: float = 1.0) -> Made:
    """Wav2Vec2 with its convolutions on raw sound."""
    config = _config(
        "Wav2Vec2Config",
        num_hidden_layers=2,
        hidden_size=384,
        intermediate_size=1536,
        num_attention_heads=6,
    )
    return First(_transformers("Wav2Vec2Model", config)), (torch.randn(1, int(16000 * seconds)),)


def hubert(seconds: float = 1.0) -> Made:
    """HuBERT."""
    config = _config(
        "HubertConfig",
        num_hidden_layers=2,
        hidden_size=384,
        intermediate_size=1536,
        num_attention_heads=6,
    )
    return First(_transformers("HubertModel", config)), (torch.randn(1, int(16000 * seconds)),)


def wav2vec2_conformer(seconds: float = 1.0) -> Made:
    """A conformer on raw sound."""
    config = _config(
        "Wav2Vec2ConformerConfig",
        num_hidden_layers=2,
        hidden_size=256,
        intermediate_size=1024,
        num_attention_heads=4,
    )
    network = _transformers("Wav2Vec2ConformerModel", config)
    return First(network), (torch.randn(1, int(16000 * seconds)),)


def whisper_encoder(frames: int = 400) -> Made:
    """Whisper's encoder on some seconds of sound."""
    config = _config(
        "WhisperConfig", encoder_layers=2, decoder_layers=1, max_source_positions=frames // 2
    )
    encoder = _transformers("WhisperModel", config).get_encoder()
    return First(encoder), (torch.randn(1, config.num_mel_bins, frames),)


def audio_spectrogram_transformer(frames: int = 256) -> Made:
    """AST: a vision transformer on a spectrogram."""
    config = _config(
        "ASTConfig",
        num_hidden_layers=3,
        hidden_size=192,
        num_attention_heads=3,
        intermediate_size=768,
        max_length=frames,
    )
    network = _transformers("ASTForAudioClassification", config)
    return First(network), (torch.randn(1, frames, 128),)


class First(nn.Module):
    """The first outputs of a network, as tensors."""

    def __init__(self, network: nn.Module, count: int = 1) -> None:
        super().__init__()
        self.network, self.count = network, count

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.network(x, return_dict=False)[: self.count])


class Masked(nn.Module):
    """The first output of a network that takes ids and a mask."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.network(input_ids=ids, attention_mask=mask, return_dict=False)[0]


class Named(nn.Module):
    """The first output of a network that takes two inputs by their names."""

    def __init__(self, network: nn.Module, names: tuple[str, str]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        inputs = dict(zip(self.names, (first, second), strict=True))
        return self.network(**inputs, return_dict=False)[0]


class Logits(nn.Module):
    """A language model without a cache."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor) -> Tensor:
        return self.network(input_ids=ids, use_cache=False, return_dict=False)[0]


class LlamaStep(nn.Module):
    """One step of decoding: a token, and the keys and values of those before, in and out."""

    def __init__(self, network: nn.Module, layers: int) -> None:
        super().__init__()
        self.network, self.layers = network, layers

    def forward(self, ids: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        past = import_module("transformers").DynamicCache()
        for layer in range(self.layers):
            past.update(cache[layer, 0], cache[layer, 1], layer)
        logits = self.network(
            input_ids=ids, past_key_values=past, use_cache=True, return_dict=False
        )[0]
        pairs = [torch.stack((item.keys, item.values)) for item in past.layers]
        return logits, torch.stack(pairs)


class Picked(nn.Module):
    """What a function picks of a network's output."""

    def __init__(self, network: nn.Module, pick: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.network, self.pick = network, pick

    def forward(self, x: Tensor) -> Tensor:
        return self.pick(self.network(x))


class Detector(nn.Module):
    """A detector of torchvision on one picture: boxes, scores, labels, and what else it finds."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = self.network([x])[0]
        first = ("boxes", "scores", "labels")
        return (*map(found.get, first), *(found[name] for name in found if name not in first))


def _steady(network: nn.Module) -> nn.Module:
    """Let statistics of normalisations differ from channel to channel, as after training."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.8, 1.2)
    return network.eval()


def _language_model(name: str, config: Any) -> nn.Module:
    return Logits(_transformers(name, config))


def _transformers(name: str, config: Any) -> nn.Module:
    return getattr(import_module("transformers"), name)(config).eval()


def _config(name: str, **options: Any) -> Any:
    config = getattr(import_module("transformers"), name)(**options)
    # Plain attention: what every exporter knows.
    config._attn_implementation = "eager"
    return config


def _llama_config(name: str, **options: Any) -> Any:
    return _config(
        name,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=8192,
        max_position_embeddings=512,
        **options,
    )


def _image(size: int) -> Tensor:
    return torch.randn(1, 3, size, size)


def _ids(length: int, vocabulary: int) -> Tensor:
    return torch.randint(1, vocabulary, (1, length))
