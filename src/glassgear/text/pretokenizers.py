"""How each family of byte-level BPE cuts text into words before it merges inside them.

In: a name as GGUF files give it in `tokenizer.ggml.pre`. Out: a `WordRule`, and from it a
`tokenizers` pre-tokenizer. Each rule is the one in the family's published `tokenizer.json`; the
names and what llama.cpp does with them are in its `llama-vocab.cpp`. Where the two differ the
published rule holds, since the model was trained with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

__all__ = ["RULES", "WordRule", "pre_tokenizer"]

# Steps besides a regular expression, which makes each of its matches a word of its own.
GPT2_WORDS = "words as GPT-2 has them"
ONE_DIGIT = "each digit is a word"
DIGITS = "a run of digits is a word"
PUNCTUATION = "a run of punctuation is a word"
BYTES = "spell bytes as letters"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_LLAMA3 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
)  # also OpenAI's cl100k
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACES

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
_TEKKEN = _CASED % ("", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
_GPT4O = (
    _CASED % (_CONTRACTIONS + "?", _CONTRACTIONS + "?")
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
    + _SPACES
)  # fmt: skip

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEFAULT_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"

_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Written as numbers: six of these letters would become others if a tool composed this file (NFC).
_DEEPSEEK_LETTERS = (
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943]+"
)
_DEEPSEEK_PUNCTUATION = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_DEEPSEEK_V3_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    r" ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
)


@dataclass(frozen=True)
class WordRule:
    """How text becomes words, and what a file that doesn't say otherwise means.

    Attributes:
        steps: in order; each works on the words that the one before it left.
        composes: text is brought into Unicode's composed form (NFC) first.
        whole_words: a word that is in the vocabulary is one token, whatever the merges say.
        adds_bos: whether `add_special` puts BOS in front where the file doesn't say.
    """

    steps: tuple[str, ...]
    composes: bool = False
    whole_words: bool = False
    adds_bos: bool = False


_ONE_DIGIT_RULE = WordRule((ONE_DIGIT, GPT2_WORDS))
_LLAMA3_RULE = WordRule((_LLAMA3, BYTES), whole_words=True, adds_bos=True)
_QWEN2_RULE = WordRule((_QWEN2, BYTES), composes=True)
_GPT4O_RULE = WordRule((_GPT4O, BYTES), whole_words=True)
_NEOX_RULE = WordRule((GPT2_WORDS,), composes=True)

RULES: dict[str, WordRule] = {
    # No model's own: what llama.cpp does for files from before the names existed.
    "default": WordRule((_DEFAULT_PUNCTUATION, _GPT2, r"\p{N}+", "[0-9][0-9][0-9]", BYTES)),
    "gpt-2": WordRule((GPT2_WORDS,)),
    "phi-2": WordRule((GPT2_WORDS,)),
    "jais": WordRule((GPT2_WORDS,)),
    "mpt": _NEOX_RULE,
    "olmo": _NEOX_RULE,
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"), _ONE_DIGIT_RULE),
    "command-r": WordRule((ONE_DIGIT, GPT2_WORDS), composes=True),
    **dict.fromkeys(
        (
            "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "midm-2.0", "pixtral",
            "jina-v5-nano",
        ),
        _LLAMA3_RULE,
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), WordRule((_LLAMA3, BYTES))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"), _QWEN2_RULE),
    "qwen35": WordRule((_QWEN35, BYTES), composes=True),
    "tekken": WordRule((_TEKKEN, BYTES), whole_words=True, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O_RULE),
    # The published rule says `\s+$`, which takes quadratic time on long runs of spaces; only a run's
    # first space can begin a match, so the others needn't be tried.
    "deepseek-llm": WordRule(
        (
            r"[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_PUNCTUATION, r"(?<!\s)\s+$", _DEEPSEEK_CJK,
            ONE_DIGIT, BYTES,
        )
    ),
    "deepseek-coder": WordRule((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, ONE_DIGIT, BYTES)),
    "deepseek-v3": WordRule((r"\p{N}{1,3}", _DEEPSEEK_V3_CJK, _DEEPSEEK_V3, BYTES)),
    "falcon": WordRule((PUNCTUATION, GPT2_WORDS, DIGITS, "[0-9][0-9][0-9]")),
}  # fmt: skip


def pre_tokenizer(rule: WordRule) -> PreTokenizer:
    """The rule as `tokenizers` runs it."""
    from tokenizers import Regex, pre_tokenizers

    named: dict[str, Callable[[], PreTokenizer]] = {
        # Spells bytes as letters too; what comes behind it sees those letters.
        GPT2_WORDS: lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        BYTES: lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ONE_DIGIT: lambda: pre_tokenizers.Digits(individual_digits=True),
        DIGITS: lambda: pre_tokenizers.Digits(individual_digits=False),
        PUNCTUATION: lambda: pre_tokenizers.Punctuation(behavior="contiguous"),
    }
    return pre_tokenizers.Sequence(
        [
            named[step]() if step in named else pre_tokenizers.Split(Regex(step), behavior="isolated")
            for step in rule.steps
        ]
    )
