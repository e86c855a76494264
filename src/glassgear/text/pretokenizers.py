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

_DEEPSEEK_CJK = "[一-龥\u0800-一가-\ud7ff]+"
# Letters with two cases, as of the Unicode version that DeepSeek's first tokenizer was made with.
_DEEPSEEK_LETTERS = (
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    r"Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳ"
    r"Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)
_DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
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
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2"), _LLAMA3_RULE),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), WordRule((_LLAMA3, BYTES))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2_RULE),
    "qwen35": WordRule((_QWEN35, BYTES), composes=True),
    "tekken": WordRule((_TEKKEN, BYTES), whole_words=True, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O_RULE),
    # Both of DeepSeek's published rules say `\s+$`, which takes quadratic time on long runs of
    # spaces; only a run's first space can begin a match, so the others needn't be tried.
    "deepseek-llm": WordRule(
        (
            r"[\r\n]", _DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"(?<!\s)\s+$", _DEEPSEEK_CJK,
            ONE_DIGIT, BYTES,
        )
    ),
    "deepseek-coder": WordRule((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, ONE_DIGIT, BYTES)),
    "deepseek-v3": WordRule((r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK_V3, BYTES)),
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
