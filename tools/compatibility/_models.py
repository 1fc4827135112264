"""Models of public libraries, in tiny random configurations: nothing is downloaded. Labels in, loss out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 8
LENGTH = 16
VOCABULARY = 96
CLASSES = 10
PIXELS = 16

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class ModelCase:
    """A model that somebody else wrote, how to make it, and what it eats."""

    key: str
    title: str
    """As the table calls it: the class and its size."""
    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    schedule: str = "cosine"
    """Which of transformers' own learning-rate schedules: its name for ``get_scheduler``; empty: none."""
    settings: str = ""
    """Settings of the model that are not its defaults and not its size, and why."""
    lines: int = 0
    """Lines that this model needs beside the loop's."""
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] = lambda parameters: torch.optim.AdamW(
        parameters, lr=1e-3
    )

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """The training loss of ``batch``: the model's own where it has one, else cross entropy of its outputs."""
        if "images" in batch:
            return F.cross_entropy(model(batch["images"]), batch["labels"])
        output: Any = model(**batch)
        loss: Tensor = output.loss
        return loss


def _tokens(generator: torch.Generator, length: int = LENGTH) -> Tensor:
    """Of shape (BATCH, length): sequences that count up from a random number, so that there is something to learn."""
    start = torch.randint(0, VOCABULARY, (BATCH, 1), generator=generator)
    return (start + torch.arange(length)) % VOCABULARY


def _classes(generator: torch.Generator) -> Tensor:
    return torch.randint(0, CLASSES, (BATCH,), generator=generator)


def _images(generator: torch.Generator, pixels: int = PIXELS) -> Tensor:
    return torch.randn(BATCH, 3, pixels, pixels, generator=generator)


def causal(generator: torch.Generator) -> Batch:
    """For decoders: the labels are the tokens."""
    tokens = _tokens(generator)
    return {"input_ids": tokens, "labels": tokens.clone()}


def masked(generator: torch.Generator) -> Batch:
    """For BERT: some tokens are hidden, only they have labels, and the rows end in padding of several lengths."""
    tokens = _tokens(generator)
    hidden = torch.rand(tokens.shape, generator=generator) < 0.25
    hidden[:, 0] = True
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH, 1), generator=generator)
    attention = (torch.arange(LENGTH) < lengths).long()
    labels = torch.where(hidden & attention.bool(), tokens, -100)
    return {"input_ids": tokens.masked_fill(hidden, 1), "attention_mask": attention, "labels": labels}


def sequence_classes(generator: torch.Generator) -> Batch:
    """For classifiers of texts."""
    return {"input_ids": _tokens(generator), "labels": _classes(generator)}


def pairs(generator: torch.Generator) -> Batch:
    """For encoder-decoders: another sequence as labels, some of it without."""
    labels = _tokens(generator, LENGTH // 2)
    labels[::2, -2:] = -100
    return {"input_ids": _tokens(generator), "labels": labels}


def pictures(generator: torch.Generator) -> Batch:
    """For transformers' classifiers of images."""
    return {"pixel_values": _images(generator), "labels": _classes(generator)}


def torchvision_pictures(pixels: int) -> Callable[[torch.Generator], Batch]:
    """For torchvision's classifiers, which give logits and leave the loss to the loop."""
    return lambda generator: {"images": _images(generator, pixels), "labels": _classes(generator)}


def speech(generator: torch.Generator) -> Batch:
    """For Whisper: spectrograms of shape (BATCH, 80, 2 * LENGTH)."""
    features = torch.randn(BATCH, 80, 2 * LENGTH, generator=generator)
    return {"input_features": features, "labels": _tokens(generator, LENGTH // 2)}


def captions(generator: torch.Generator) -> Batch:
    """For CLIP: images and texts that belong together."""
    return {"input_ids": _tokens(generator), "pixel_values": _images(generator)}


def _transformers() -> Any:
    import transformers

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    return transformers


# Special tokens have numbers of their own in each library's default vocabulary, beyond ours.
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BERT = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **_SPECIAL,
}  # fmt: skip
_LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, **_SPECIAL,
}  # fmt: skip


def _gpt2(layers: int = 2) -> nn.Module:
    t = _transformers()
    config = t.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=layers, n_head=2,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **_SPECIAL,
    )  # fmt: skip
    model: nn.Module = t.GPT2LMHeadModel(config)
    return model


def _bert_masked(layers: int = 2) -> nn.Module:
    t = _transformers()
    model: nn.Module = t.BertForMaskedLM(t.BertConfig(**{**_BERT, "num_hidden_layers": layers}))
    return model


def _bert_classes() -> nn.Module:
    t = _transformers()
    model: nn.Module = t.BertForSequenceClassification(t.BertConfig(**_BERT, num_labels=CLASSES))
    return model


def _t5(layers: int = 2) -> nn.Module:
    t = _transformers()
    config = t.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=16, d_ff=64, num_layers=layers, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    model: nn.Module = t.T5ForConditionalGeneration(config)
    return model


def _vit(layers: int = 2) -> nn.Module:
    t = _transformers()
    config = t.ViTConfig(
        image_size=PIXELS, patch_size=4, hidden_size=32, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=64, num_labels=CLASSES,
    )  # fmt: skip
    model: nn.Module = t.ViTForImageClassification(config)
    return model


def _llama(layers: int = 2) -> nn.Module:
    t = _transformers()
    model: nn.Module = t.LlamaForCausalLM(t.LlamaConfig(**{**_LLAMA, "num_hidden_layers": layers}))
    return model


def _mixtral(layers: int = 2, **settings: Any) -> nn.Module:
    t = _transformers()
    sizes = {**_LLAMA, "num_hidden_layers": layers, "num_local_experts": 4, "num_experts_per_tok": 2}
    model: nn.Module = t.MixtralForCausalLM(t.MixtralConfig(**sizes, output_router_logits=True, **settings))
    return model


def _qwen3() -> nn.Module:
    t = _transformers()
    model: nn.Module = t.Qwen3ForCausalLM(t.Qwen3Config(**_LLAMA, head_dim=16, tie_word_embeddings=True))
    return model


def _mamba() -> nn.Module:
    t = _transformers()
    config = t.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=32, state_size=4, num_hidden_layers=2, use_cache=False, **_SPECIAL
    )
    model: nn.Module = t.MambaForCausalLM(config)
    return model


def _whisper() -> nn.Module:
    t = _transformers()
    config = t.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=80, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_source_positions=LENGTH, max_target_positions=LENGTH, dropout=0.0, decoder_start_token_id=1,
        begin_suppress_tokens=None, suppress_tokens=None, **_SPECIAL,
    )  # fmt: skip
    model: nn.Module = t.WhisperForConditionalGeneration(config)
    return model


class _Clip(nn.Module):
    """CLIP, asked for its contrastive loss, which needs an argument that is not data."""

    def __init__(self) -> None:
        super().__init__()
        t = _transformers()
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
        text = {**sizes, "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, **_SPECIAL}
        vision = {**sizes, "image_size": PIXELS, "patch_size": 4}
        self.clip = t.CLIPModel(t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))

    def forward(self, **batch: Tensor) -> Any:
        return self.clip(**batch, return_loss=True)


def _momentum(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Close to torchvision's own recipes. AdamW would turn the rounding of gradients near zero into whole steps."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=1e-4)


def _plain(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Without state, so its first step is the same computation as the later ones."""
    return torch.optim.SGD(parameters, lr=0.1)


def _resnet18() -> nn.Module:
    from torchvision import models

    model: nn.Module = models.resnet18(num_classes=CLASSES)
    return model


def _double_pictures(generator: torch.Generator) -> Batch:
    batch = torchvision_pictures(32)(generator)
    return {**batch, "images": batch["images"].double()}


def _vision_transformer() -> nn.Module:
    from torchvision import models

    model: nn.Module = models.VisionTransformer(
        image_size=PIXELS, patch_size=4, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=CLASSES
    )
    return model


def _mobilenet() -> nn.Module:
    from torchvision import models

    model: nn.Module = models.mobilenet_v3_small(num_classes=CLASSES, dropout=0.0)
    return model


def _efficientnet() -> nn.Module:
    from torchvision import models

    model: nn.Module = models.efficientnet_b0(num_classes=CLASSES, dropout=0.0, stochastic_depth_prob=0.0)
    return model


_NO_DROPOUT = "dropout 0"

MODELS: tuple[ModelCase, ...] = (
    ModelCase("gpt2", "GPT-2 (GPT2LMHeadModel, 2 layers)", _gpt2, causal, settings=_NO_DROPOUT),
    ModelCase("bert", "BERT (BertForMaskedLM, 2 layers, padded rows)", _bert_masked, masked, "linear", _NO_DROPOUT),
    ModelCase(
        "bert-classes", "BERT (BertForSequenceClassification)", _bert_classes, sequence_classes, "linear", _NO_DROPOUT
    ),
    ModelCase("t5", "T5 (T5ForConditionalGeneration, 2 + 2 layers)", _t5, pairs, "inverse_sqrt", _NO_DROPOUT),
    ModelCase("vit", "ViT (ViTForImageClassification, 2 layers)", _vit, pictures),
    ModelCase("llama", "Llama (LlamaForCausalLM, 2 layers)", _llama, causal),
    ModelCase("qwen3", "Qwen3 (Qwen3ForCausalLM, 2 layers, tied)", _qwen3, causal),
    ModelCase("mixtral", "Mixtral (MixtralForCausalLM, 2 layers, 4 experts, router loss)", _mixtral, causal),
    ModelCase(
        "mixtral-batched", "Mixtral, experts_implementation=batched_mm",
        lambda: _mixtral(experts_implementation="batched_mm"), causal, lines=1,
    ),
    ModelCase("mamba", "Mamba (MambaForCausalLM, 2 layers)", _mamba, causal),
    ModelCase("whisper", "Whisper (WhisperForConditionalGeneration)", _whisper, speech, settings=_NO_DROPOUT),
    ModelCase("clip", "CLIP (CLIPModel, contrastive loss)", _Clip, captions),
    ModelCase(
        "resnet18-double", "torchvision ResNet-18, 32 x 32, float64",
        lambda: _resnet18().double(), _double_pictures, "", optimizer=_momentum,
    ),
    ModelCase("resnet18", "torchvision ResNet-18, 32 x 32", _resnet18, torchvision_pictures(32), "", "", 0, _momentum),
    ModelCase(
        "vision-transformer", "torchvision VisionTransformer, 2 layers",
        _vision_transformer, torchvision_pictures(PIXELS), "",
    ),
    ModelCase(
        "mobilenet", "torchvision MobileNetV3-Small, 32 x 32",
        _mobilenet, torchvision_pictures(32), "", _NO_DROPOUT, optimizer=_momentum,
    ),
    ModelCase(
        "efficientnet", "torchvision EfficientNet-B0, 32 x 32", _efficientnet, torchvision_pictures(32), "",
        "dropout and stochastic depth 0", optimizer=_momentum,
    ),
)  # fmt: skip
"""In the order of the table."""

SMALL: tuple[ModelCase, ...] = (
    ModelCase("gpt2", "GPT-2", lambda: _gpt2(1), causal),
    ModelCase("bert", "BERT", lambda: _bert_masked(1), masked, "linear", optimizer=_plain),
    ModelCase("t5", "T5", lambda: _t5(1), pairs, optimizer=_plain),
    ModelCase("vit", "ViT", lambda: _vit(1), pictures, optimizer=_plain),
    ModelCase("llama", "Llama", lambda: _llama(1), causal, optimizer=_plain),
    ModelCase("mixtral", "Mixtral", lambda: _mixtral(1), causal),
    # In float64: training amplifies the rounding of float32 by orders of magnitude, also between two runs of PyTorch.
    ModelCase("resnet18", "ResNet-18", lambda: _resnet18().double(), _double_pictures, "", optimizer=_plain),
)
"""What the test suite trains: one layer each, and mostly the optimizer that needs one compilation instead of two."""
