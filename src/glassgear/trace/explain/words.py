"""The formula of each kind of value in words, and where it is from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from glassgear.model.gears import (
    FFN,
    Affine,
    Attention,
    BatchNorm,
    Embed,
    GatedFFN,
    Head,
    LayerNorm,
    LearnedPositions,
    RMSNorm,
    Router,
    ScaleNorm,
    TokenTypes,
    Transform,
)
from glassgear.trace.flow import PROBABILITY, SAMPLED, Node

__all__ = ["formula", "gear_name"]

Words = tuple[str, str]

NORMS: dict[type, Words] = {
    RMSNorm: (
        "y = x / sqrt(mean of squares + eps) * weight: the row keeps its direction, its size becomes 1",
        'Zhang & Sennrich 2019, "Root Mean Square Layer Normalization"',
    ),
    LayerNorm: (
        "y = (x - mean) / sqrt(variance + eps) * weight + bias",
        'Ba et al. 2016, "Layer Normalization"',
    ),
    ScaleNorm: (
        "y = g * x / max(length of x, eps), one g for all channels",
        'Nguyen & Salazar 2019, "Transformers without Tears"',
    ),
    BatchNorm: (
        "y = (x - mean) / sqrt(variance + eps) * weight + bias, mean and variance stored with the model",
        'Ioffe & Szegedy 2015, "Batch Normalization"',
    ),
    Affine: ("y = x * weight + bias, channel by channel", 'Sun et al. 2020, "MobileBERT", section 3.3'),
}

ACTIVATIONS: dict[str, Words] = {
    "silu": ("y = x * sigmoid(x), SiLU or Swish", "Elfwing et al. 2017; Ramachandran et al. 2017"),
    "gelu": ("y = x * Phi(x), GELU, Phi the normal distribution", "Hendrycks & Gimpel 2016"),
    "gelu_tanh": ("y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2", "Hendrycks & Gimpel 2016"),
    "relu": ("y = max(0, x), ReLU", "Nair & Hinton 2010"),
    "identity": ("y = x", ""),
}

TABLES: dict[type, Words] = {
    TokenTypes: ("the row of a table for the token's type", 'Devlin et al. 2018, "BERT", section 3'),
    LearnedPositions: ("the row of a table for the position", "Radford et al. 2018; Devlin et al. 2018"),
}

PLAIN: dict[str, Words] = {
    "sum": ("what several tables say of a token, added up in this order", "Devlin et al. 2018, figure 2"),
    "neighbours": (
        "y = sum of [next, own, previous embedding] times a row of weights + bias",
        "Sun et al. 2020, \"MobileBERT\", section 3.2",
    ),
    "rotated": (
        "the pair (a, b) of channels is turned by position * frequency: a cos - b sin, a sin + b cos",
        "Su et al. 2021, \"RoFormer\", equation 34",
    ),
    "weights": (
        "weight = exp(score - maximum) / sum of the same over the seen tokens",
        "Vaswani et al. 2017, equation 1",
    ),
    "mixed": ("sum over seen tokens of weight times value", "Vaswani et al. 2017, equation 1"),
    "latent scores": (
        "score = (W^T q . latent + turned query . shared key) * scale",
        "DeepSeek-AI 2024, \"DeepSeek-V2\", section 2.1, absorbed form",
    ),
    "latent mixed": (
        "sum over seen tokens of weight times value, value = W latent",
        "DeepSeek-AI 2024, \"DeepSeek-V2\", section 2.1",
    ),
    "product": (
        "activated gate times up: the gate says how much of each channel passes",
        "Shazeer 2020, \"GLU Variants Improve Transformer\"",
    ),
    "residual": ("what came along the stream + what the sublayer says",
                 "He et al. 2016; Vaswani et al. 2017"),
    "mixture": ("sum over the chosen experts of weight times output, and the shared one's",
                "Shazeer et al. 2017, \"Outrageously Large Neural Networks\""),
    "tanh": ("y = tanh(x)", "Devlin et al. 2018, \"BERT\""),
    PROBABILITY: ("probability = exp(logit - maximum) / sum of the same over the vocabulary", ""),
    SAMPLED: ("ids are removed and logits changed stage by stage, then one is taken",
              "Holtzman et al. 2020 (top-p); Nguyen et al. 2024 (min-p)"),
}  # fmt: skip


def formula(node: Node) -> Words:
    """Formula and source of a node."""
    chosen = CHOOSE.get(node.kind)
    return PLAIN[node.kind] if chosen is None else chosen(node)


def gear_name(node: Node) -> str:
    """Kind of the gear that makes a value."""
    kinds = {"sum": "sum of tables", PROBABILITY: "softmax", SAMPLED: "sampler"}
    return kinds.get(node.kind, type(node.gear).__name__)


def _scores(node: Node) -> Words:
    gear = node.gear
    assert isinstance(gear, Attention)
    cap = ", s -> cap tanh(s / cap)" if gear.cap else ""
    source = "Vaswani et al. 2017, equation 1" + ("; Gemma Team 2024 (cap)" if gear.cap else "")
    return f"score = query . key * scale{cap}: how well the token's question fits the other's label", source


def _head(node: Node) -> Words:
    gear = node.gear
    assert isinstance(gear, Head)
    words = "logit = sum of hidden state times the entry's row of weights"
    words += " (the embedding's own table)" if gear.tied else ""
    words += " + bias" if gear.bias else ""
    words += ", z -> cap tanh(z / cap)" if gear.cap else ""
    return words, "Press & Wolf 2017 (tied tables)" if gear.tied else "Vaswani et al. 2017, section 3.4"


def _linear(node: Node) -> Words:
    bias = " + bias" if "bias" in node.weights else ""
    return f"y = sum of inputs times a row of weights{bias}", "y = x W^T" + (" + b" if bias else "")


def _norm(node: Node) -> Words:
    return NORMS[type(node.gear)]


def _activated(node: Node) -> Words:
    gear = node.gear
    assert isinstance(gear, FFN | GatedFFN | Transform)
    return ACTIVATIONS[gear.activation]


def _row(node: Node) -> Words:
    gear = node.gear
    if not isinstance(gear, Embed):
        return TABLES[type(gear)]
    scale = f" times {gear.scale:g}" if gear.scale != 1 else ""
    return f"the row of a table for the token's id{scale}", "Vaswani et al. 2017, section 3.4"


def _same(node: Node) -> Words:
    return f"the last value inside of this {type(node.gear).__name__}, under the gear's own name", ""


def _router_scores(node: Node) -> Words:
    gear = node.gear
    assert isinstance(gear, Router)
    if gear.score == "sigmoid":
        return "score = sigmoid(logit)", 'DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2'
    return "score = exp(logit - maximum) / sum of the same", "Shazeer et al. 2017, section 2.1"


def _router(node: Node) -> Words:
    gear = node.gear
    assert isinstance(gear, Router)
    divided = " / sum of the chosen scores" if gear.normalize else ""
    scale = f" * {gear.scale:g}" if gear.scale != 1 else ""
    words = f"weight = score{divided}{scale} of the best {gear.used} of {gear.count} experts, else 0"
    return words, 'Shazeer et al. 2017; DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2'


CHOOSE: Mapping[str, Callable[[Node], Words]] = {
    "activated": _activated,
    "head": _head,
    "linear": _linear,
    "norm": _norm,
    "router": _router,
    "router scores": _router_scores,
    "row": _row,
    "same": _same,
    "scores": _scores,
}
