"""The table of architectures with random weights, of torchvision, timm, transformers and our own.

Nothing here imports PyTorch: the modules that the table names do.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from corpus.entries import Architecture, Form

_CLASSIFY, _SEGMENT, _DETECT = "image classification", "segmentation", "object detection"
_GENERATE, _TEXT, _SPEECH = "text generation", "text encoding", "speech"


def _torchvision(name: str, size: int = 224, **options: Any) -> Architecture:
    return _made(
        name, "torchvision", _CLASSIFY, "torchvision_network", name=name, size=size, **options
    )


def _timm(name: str, size: int = 224, **options: Any) -> Architecture:
    return _made(name, "timm", _CLASSIFY, "timm_network", name=name, size=size, **options)


def _made(
    title: str,
    library: str,
    task: str,
    function: str,
    forms: tuple[Form, ...] = ("onnx", "torch"),
    **arguments: Any,
) -> Architecture:
    make = f"library_networks:{function}"
    return Architecture(title, library, task, make, arguments, forms=forms)


def _transformers(title: str, task: str, function: str, **arguments: Any) -> Architecture:
    return _made(title, "transformers", task, function, **arguments)


def _own(module: str, title: str, task: str, network: str, *inputs: Any) -> Architecture:
    return Architecture(title, "torch", task, f"{module}:{network}", inputs=inputs)


_image = partial(_own, "image_networks")
_detector = partial(_own, "detection_networks")
_sequence = partial(_own, "sequence_networks")


_SMALL = {"num_hidden_layers": 3, "hidden_size": 384, "num_attention_heads": 6}
_SMALL_ENCODER = {**_SMALL, "intermediate_size": 1536}

ARCHITECTURES: tuple[Architecture, ...] = (
    _torchvision("resnet50"),
    _torchvision("resnext50_32x4d"),
    _torchvision("densenet121"),
    _torchvision("efficientnet_b0"),
    _torchvision("efficientnet_b3", size=300),
    _torchvision("mobilenet_v2"),
    _torchvision("mobilenet_v3_large"),
    _torchvision("maxvit_t"),
    _torchvision("swin_t"),
    _torchvision("convnext_tiny"),
    _torchvision("vit_b_16"),
    _torchvision("regnet_y_400mf"),
    _torchvision("inception_v3", size=299, aux_logits=False, init_weights=False),
    _torchvision("googlenet", aux_logits=False, init_weights=False),
    _torchvision("shufflenet_v2_x1_0"),
    _torchvision("squeezenet1_1"),
    _torchvision("mnasnet1_0"),
    _torchvision("alexnet"),
    _torchvision("vgg11_bn"),
    _made(
        "deeplabv3",
        "torchvision",
        _SEGMENT,
        "torchvision_segmentation",
        name="deeplabv3_mobilenet_v3_large",
    ),
    _made("fcn_resnet50", "torchvision", _SEGMENT, "torchvision_segmentation", name="fcn_resnet50"),
    _made(
        "lraspp",
        "torchvision",
        _SEGMENT,
        "torchvision_segmentation",
        name="lraspp_mobilenet_v3_large",
    ),
    _made(
        "ssdlite",
        "torchvision",
        f"{_DETECT}, suppression included",
        "torchvision_detector",
        name="ssdlite320_mobilenet_v3_large",
    ),
    *(
        _made(
            name,
            "torchvision",
            f"{_DETECT}, suppression included",
            "torchvision_detector",
            name=model,
            classes=classes,
            forms=("onnx",),
        )
        for name, model, classes in (
            ("faster_rcnn", "fasterrcnn_mobilenet_v3_large_320_fpn", 21),
            ("keypoint_rcnn", "keypointrcnn_resnet50_fpn", 2),
            ("mask_rcnn", "maskrcnn_resnet50_fpn", 21),
        )
    ),
    _timm("ghostnet_100"),
    _timm("pnasnet5large"),
    _timm("mobilevit_s", size=256),
    _timm("coatnet_0_rw_224"),
    _timm("poolformer_s12"),
    _timm("mixer_s32_224"),
    _timm("levit_128"),
    _timm("efficientformer_l1"),
    _timm("hrnet_w18_small"),
    _timm("dla34"),
    _timm("cspdarknet53", size=256),
    _timm("res2net50_26w_4s"),
    _timm("repvgg_a2"),
    _timm("xcit_nano_12_p16_224"),
    _timm("fastvit_t8", size=256),
    _timm("tf_efficientnetv2_b0", size=192),
    _timm("deit_tiny_patch16_224"),
    _timm("skresnet18"),
    _timm("repvit_m1"),
    _timm("starnet_s1"),
    _timm("twins_pcpvt_small"),
    _timm("convit_tiny"),
    _timm("lcnet_100"),
    _timm("pvt_v2_b0"),
    _timm("swiftformer_s"),
    _timm("visformer_tiny"),
    _timm("hgnet_tiny"),
    _timm("inception_next_atto"),
    _timm("mambaout_tiny"),
    _timm("focalnet_tiny_srf"),
    _timm("mixnet_s"),
    _timm("gcvit_xxtiny"),
    _timm("davit_tiny"),
    _timm("caformer_s18"),
    _timm("tiny_vit_5m_224"),
    _timm("rexnet_100"),
    _timm("selecsls42"),
    _timm("coat_tiny"),
    _timm("cait_xxs24_224"),
    _timm("volo_d1_224"),
    _timm("dpn68"),
    _timm("resnest14d"),
    _timm("ese_vovnet19b_dw"),
    _timm("fasternet_t0"),
    _timm("efficientvim_m1"),
    _timm("sequencer2d_s"),
    _timm("lowformer_b0"),
    _timm("nf_resnet50"),
    _timm("mvitv2_tiny"),
    _timm("convmixer_768_32"),
    _timm("edgenext_small", size=256),
    _timm("efficientvit_b0"),
    _timm("halonet26t", size=256),
    _timm("hieradet_small", size=256),
    _timm("xception41", size=299),
    _timm("tresnet_m"),
    _timm("nextvit_small"),
    _transformers("gpt2", _GENERATE, "gpt2"),
    _transformers("llama", _GENERATE, "llama"),
    _transformers("llama_step", f"{_GENERATE}, one token", "llama_step"),
    _transformers("llama_step_1024", f"{_GENERATE}, one token of many", "llama_step", past=1024),
    _transformers("qwen2", _GENERATE, "qwen2"),
    _transformers("mixtral", _GENERATE, "mixtral"),
    _transformers("mamba", _GENERATE, "mamba"),
    _transformers(
        "bert", _TEXT, "encoder", name="BertModel", config="BertConfig", **_SMALL_ENCODER
    ),
    _transformers(
        "distilbert",
        _TEXT,
        "encoder",
        name="DistilBertModel",
        config="DistilBertConfig",
        n_layers=3,
        dim=384,
        n_heads=6,
        hidden_dim=1536,
    ),
    _transformers(
        "roberta", _TEXT, "encoder", name="RobertaModel", config="RobertaConfig", **_SMALL_ENCODER
    ),
    _transformers(
        "deberta_v2",
        _TEXT,
        "encoder",
        name="DebertaV2Model",
        config="DebertaV2Config",
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        **_SMALL_ENCODER,
    ),
    _transformers("t5_encoder", _TEXT, "t5_encoder"),
    _transformers("bart", "text translation", "bart"),
    _transformers("clip_text", _TEXT, "clip_text"),
    _transformers("clip_vision", "image embedding", "clip_vision"),
    _transformers("segformer", _SEGMENT, "segformer"),
    _transformers("dpt", "depth estimation", "dpt"),
    _transformers("yolos", _DETECT, "yolos"),
    _transformers("vits", "speech synthesis", "vits"),
    _transformers("wav2vec2", _SPEECH, "wav2vec2"),
    _transformers("hubert", _SPEECH, "hubert"),
    _transformers("wav2vec2_conformer", _SPEECH, "wav2vec2_conformer"),
    _transformers("whisper_encoder", _SPEECH, "whisper_encoder"),
    _transformers("ast", "audio classification", "audio_spectrogram_transformer"),
    _image(
        "diffusion_unet",
        "image generation",
        "DiffusionUNet",
        ("randn", 1, 3, 64, 64),
        ("tensor", [17]),
    ),
    _image("unet", _SEGMENT, "PlainUNet", ("randn", 1, 1, 128, 128)),
    _detector("yolov3_spp", _DETECT, "Yolo3", ("rand", 1, 3, 256, 256)),
    _detector("yolov8", _DETECT, "Yolo8", ("rand", 1, 3, 256, 256)),
    _detector(
        "yolov8_nms", f"{_DETECT}, suppression included", "Yolo8WithNms", ("rand", 1, 3, 256, 256)
    ),
    _detector("yolox", _DETECT, "YoloX", ("rand", 1, 3, 256, 256)),
    _detector("text_detector", "text detection", "TextDetector", ("randn", 1, 3, 320, 320)),
    _image("crnn", "text recognition", "TextReader", ("randn", 1, 1, 32, 160)),
    _image("super_resolution", "super-resolution", "SuperResolution", ("rand", 1, 3, 48, 48)),
    _image("spatial_transformer", "image warping", "SpatialTransformer", ("rand", 1, 1, 28, 28)),
    _detector("detr", _DETECT, "SetDetector", ("randn", 1, 3, 160, 160)),
    _sequence(
        "dlrm", "recommendation", "ClickModel", ("randn", 16, 13), ("randint", 0, 1000, (16, 8, 4))
    ),
    _sequence("tacotron_decoder", "speech synthesis", "SpeechDecoder", ("randn", 1, 40, 256)),
    _sequence("bilstm_tagger", "text tagging", "Tagger", ("randint", 0, 5000, (1, 40))),
    _sequence("gru_classifier", "keyword spotting", "LastState", ("randn", 1, 50, 40)),
    _sequence("wavenet", "speech synthesis", "WaveNet", ("randn", 1, 1, 1024)),
    _sequence("tcn", "time series", "Tcn", ("randn", 1, 24, 128)),
    _sequence("conv_tasnet", "speech separation", "Separator", ("randn", 1, 1, 8000)),
    _sequence("hifigan", "speech synthesis", "Vocoder", ("randn", 1, 80, 40)),
    _sequence("conformer", _SPEECH, "Conformer", ("randn", 1, 200, 80)),
    _sequence("experts", "mixture of experts", "Experts", ("randn", 32, 128)),
    _sequence("ds_cnn", "keyword spotting", "KeywordSpotter", ("randn", 1, 1, 49, 10)),
    _sequence("selective_scan", "state-space layer", "SelectiveScan", ("randn", 1, 32, 64)),
    _sequence("pointnet", "point clouds", "PointNet", ("randn", 1, 3, 1024)),
)
