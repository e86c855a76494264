"""The spine: pieces, ends, batches, sessions; on a tiny random model with one token a letter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from glassgear.backends.reference import Reference
from glassgear.errors import ContextFullError, NonFiniteError, SettingError, TokenizerError
from glassgear.language_model import LanguageModel
from glassgear.text.base import Tokenizer
from glassgear.weights.checkpoint import Checkpoint
from tests.models import tiny

LETTERS = [chr(i) for i in range(32, 127)]


class Letters(Tokenizer):
    """An id for each printable ASCII character; 0 opens a text, 1 and 2 end one."""

    kind = "letters"
    vocab_size = 98
    bos_id, eos_id = 0, 1
    adds_bos = True

    def __init__(self) -> None:
        self.special = {"<s>": 0, "</s>": 1, "<end>": 2}
        self.end_ids = frozenset({1, 2})

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        return [0] * add_special + [3 + LETTERS.index(c) for c in text]

    def token_bytes(self, token: int) -> bytes:
        return self.piece(token).encode()

    def piece(self, token: int) -> str:
        return list(self.special)[token] if token < 3 else LETTERS[token - 3] if token < 98 else "?"


class Scripted:
    """Chooses the ids of a text, whatever the logits say."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = iter(ids)

    def next(self, logits: np.ndarray, history: Sequence[int]) -> int:
        return next(self.ids)


def said(text: str) -> Scripted:
    return Scripted(Letters().encode(text))


@pytest.fixture
def model() -> LanguageModel:
    gears, tensors = tiny(vocab=98, context=256)
    checkpoint = Checkpoint("tiny", "memory", gears, tensors)
    return LanguageModel(checkpoint, Reference(gears, tensors), Letters())


def text_of(pieces: Sequence[object]) -> str:
    return "".join(str(piece) for piece in pieces)


def test_pieces_print_as_text_and_the_last_says_why(model: LanguageModel) -> None:
    pieces = list(model.generate("hello", max_tokens=6, temperature=0))
    assert [p.finish_reason for p in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert sum(len(p.ids) for p in pieces) == 6
    assert text_of(pieces) == model.tokenizer.decode([i for p in pieces for i in p.ids])


def test_greedy_text_is_the_argmax_of_the_logits_step_by_step(model: LanguageModel) -> None:
    ids = model.encode("abc")
    for _ in range(8):
        ids.append(int(model.logits(ids)[-1].argmax()))
    pieces = list(model.generate("abc", max_tokens=8, temperature=0, ignore_eos=True))
    assert [i for p in pieces for i in p.ids] == ids[4:]


@pytest.mark.parametrize("end", [1, 2])
def test_every_end_token_stops_without_being_shown(model: LanguageModel, end: int) -> None:
    pieces = list(model.generate("x", sampler=Scripted([5, 6, end])))
    assert text_of(pieces) == model.tokenizer.decode([5, 6])
    assert pieces[-1].finish_reason == "stop" and pieces[-1].ids[-1] == end


def test_an_end_token_as_the_last_allowed_one_is_still_a_stop(model: LanguageModel) -> None:
    assert list(model.generate("x", sampler=Scripted([5, 2]), max_tokens=2))[-1].finish_reason == "stop"


def test_ignoring_the_end_ignores_all_of_them(model: LanguageModel) -> None:
    pieces = list(model.generate("x", sampler=Scripted([5, 1, 2, 6]), max_tokens=4, ignore_eos=True))
    assert pieces[-1].finish_reason == "length" and [i for p in pieces for i in p.ids] == [5, 1, 2, 6]


def test_the_checkpoint_s_end_ids_join_the_tokenizer_s(model: LanguageModel) -> None:
    more = LanguageModel(
        Checkpoint("tiny", "memory", model.gears, model.checkpoint.tensors, end_ids=frozenset({50})),
        model.backend, Letters(),
    )  # fmt: skip
    assert more.end_ids == {1, 2, 50}
    assert list(more.generate("x", sampler=Scripted([9, 50])))[-1].finish_reason == "stop"


@pytest.mark.parametrize("stop", ["c d", ["zz", "c d"]], ids=["plain", "several"])
def test_stop_strings_over_token_borders_are_cut(model: LanguageModel, stop: str | list[str]) -> None:
    pieces = list(model.generate("x", sampler=said("ab c def"), stop=stop))
    assert text_of(pieces) == "ab "
    assert pieces[-1].finish_reason == "stop"


def test_a_stop_string_in_the_prompt_has_no_effect(model: LanguageModel) -> None:
    pieces = list(model.generate("END", sampler=said("go on"), stop="END", max_tokens=5))
    assert text_of(pieces) == "go on" and pieces[-1].finish_reason == "length"


def test_text_that_only_began_like_a_stop_is_not_lost(model: LanguageModel) -> None:
    pieces = list(model.generate("x", sampler=said("as EN"), stop="END", max_tokens=5))
    assert text_of(pieces) == "as EN"


def test_an_empty_stop_string_is_refused(model: LanguageModel) -> None:
    with pytest.raises(SettingError):
        list(model.generate("x", stop="", max_tokens=1))


def test_a_batch_says_the_same_as_one_by_one(model: LanguageModel) -> None:
    prompts = ["hello", "a", "the longest of all these prompts"]
    together = list(model.generate(prompts, max_tokens=10, temperature=0.9, seed=3))
    for index, prompt in enumerate(prompts):
        alone = list(model.generate(prompt, max_tokens=10, temperature=0.9, seed=3))
        assert text_of([p for p in together if p.index == index]) == text_of(alone)


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_a_seed_repeats_a_text(model: LanguageModel, seed: int) -> None:
    first, second = (
        [p.ids for p in model.generate("q", max_tokens=20, seed=seed, temperature=1.5)] for _ in "ab"
    )
    assert first == second


def test_log_probabilities_are_those_of_the_model(model: LanguageModel) -> None:
    pieces = list(model.generate("abc", max_tokens=3, temperature=0, logprobs=2, ignore_eos=True))
    marks = [mark for p in pieces for mark in p.logprobs or ()]
    row = model.logits(model.encode("abc"))[-1].astype(np.float64)
    log_softmax = row - row.max() - np.log(np.exp(row - row.max()).sum())
    assert len(marks) == 3 and all(len(mark.top) == 2 for mark in marks)
    assert marks[0].id == int(row.argmax()) == marks[0].top[0][0]
    assert marks[0].logprob == pytest.approx(log_softmax.max(), abs=1e-5)
    assert marks[0].top[1][1] == pytest.approx(np.sort(log_softmax)[-2], abs=1e-5)


def test_a_full_context_ends_the_text_and_says_so(model: LanguageModel) -> None:
    model.context = 10
    pieces = list(model.generate("abcd", temperature=0, ignore_eos=True))
    assert pieces[-1].finish_reason == "context"
    assert sum(len(p.ids) for p in pieces) == 6  # ids at positions 5 to 9, and the one after them


def test_a_prompt_longer_than_the_context_is_refused(model: LanguageModel) -> None:
    model.context = 10
    with pytest.raises(ContextFullError, match="the prompt is 21 tokens, the context holds 10"):
        list(model.generate("a" * 20))


def test_no_tokens_asked_for_means_none(model: LanguageModel) -> None:
    pieces = list(model.generate("abc", max_tokens=0))
    assert [(p.text, p.ids, p.finish_reason) for p in pieces] == [("", (), "length")]


@pytest.mark.parametrize("prompt", [None, ""])
def test_without_a_prompt_the_text_starts_from_the_first_token(
    model: LanguageModel, prompt: str | None
) -> None:
    assert model.encode(prompt) == [0]
    assert list(model.generate(prompt, max_tokens=2, temperature=0))


def test_ids_are_taken_as_they_are_and_checked(model: LanguageModel) -> None:
    assert model.encode([5, 6]) == [5, 6]
    with pytest.raises(SettingError, match="id 98 is outside the model's vocabulary, 0 to 97"):
        model.generate([98])
    with pytest.raises(SettingError, match="id -1"):
        model.logits([-1])


@pytest.mark.parametrize("options", [{"max_tokens": -1}, {"logprobs": -1}, {"temperature": -1}, {"top_p": 2}])
def test_options_out_of_range_are_refused(model: LanguageModel, options: dict[str, float]) -> None:
    with pytest.raises(SettingError):
        model.generate("x", **options)


def test_nan_logits_are_an_error_never_a_token(model: LanguageModel) -> None:
    model.backend.step = lambda chunks, hook=None: [np.full((1, 98), np.nan, np.float32)]  # type: ignore[method-assign]
    with pytest.raises(NonFiniteError):
        list(model.generate("x", max_tokens=3, temperature=0))


def test_a_hook_can_mask_logits(model: LanguageModel) -> None:
    def only_seven(logits: np.ndarray, history: Sequence[int]) -> np.ndarray:
        return np.where(np.arange(98) == 7, logits, -np.inf)

    pieces = list(model.generate("x", max_tokens=4, hook=only_seven, seed=1))
    assert [i for p in pieces for i in p.ids] == [7] * 4


def counted(model: LanguageModel) -> list[int]:
    """Tokens of each step that the backend runs from now on."""
    sizes: list[int] = []
    step = model.backend.step

    def counting(chunks, hook=None):  # type: ignore[no-untyped-def]
        sizes.append(sum(len(c.ids) for c in chunks))
        return step(chunks, hook)

    model.backend.step = counting  # type: ignore[method-assign]
    return sizes


def test_a_session_runs_only_what_it_has_not_seen(model: LanguageModel) -> None:
    session = model.session()
    first = text_of(list(session.generate("hello", max_tokens=5, temperature=0, ignore_eos=True)))
    sizes = counted(model)
    again = text_of(list(session.generate("hello", max_tokens=5, temperature=0, ignore_eos=True)))
    assert again == first
    assert sizes == [1] * 5  # the last prompt token is always run: its logits choose the next one


@pytest.mark.parametrize("prompt", ["hellp", "hell", "h", "xyz", "hello there"])
def test_a_session_after_an_edit_equals_a_cold_run(model: LanguageModel, prompt: str) -> None:
    session = model.session()
    list(session.generate("hello", max_tokens=5, temperature=0))
    warm = list(session.generate(prompt, max_tokens=6, temperature=0))
    cold = list(model.generate(prompt, max_tokens=6, temperature=0))
    assert text_of(warm) == text_of(cold)


def test_a_session_survives_an_answer_that_was_broken_off(model: LanguageModel) -> None:
    session = model.session()
    answer = session.generate("hello", max_tokens=50, temperature=0, ignore_eos=True)
    next(answer)
    answer.close()
    assert session.cached >= 6
    assert text_of(list(session.generate("hello", max_tokens=4, temperature=0))) == text_of(
        list(model.generate("hello", max_tokens=4, temperature=0))
    )


def test_generation_gives_its_pages_back(model: LanguageModel) -> None:
    for _ in range(5):
        list(model.generate("a" * 100, max_tokens=2))
    assert model.backend._pages.count <= 4  # type: ignore[attr-defined]


def test_scores_are_the_log_probabilities_of_the_text(model: LanguageModel) -> None:
    ids = model.encode("some text")
    rows = model.logits(ids).astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    want = (rows - np.log(np.exp(rows).sum(axis=1, keepdims=True)))[np.arange(len(ids) - 1), ids[1:]]
    score = model.score("some text")
    assert score.ids == tuple(ids[1:])
    assert score.logprobs == pytest.approx(want, abs=1e-5)
    assert score.perplexity == pytest.approx(np.exp(-want.mean()), rel=1e-5)


def test_a_text_longer_than_the_context_is_scored_whole_with_half_a_context_before(
    model: LanguageModel,
) -> None:
    model.context = 16
    ids = np.random.default_rng(1).integers(3, 98, 50).tolist()
    score = model.score(ids)
    assert len(score.logprobs) == 49
    model.context = 256
    assert score.logprobs[:15] == pytest.approx(model.score(ids[:16]).logprobs, abs=1e-5)
    assert score.logprobs[15] == pytest.approx(model.score(ids[8:17]).logprobs[-1], abs=1e-5)


def test_a_score_needs_two_tokens(model: LanguageModel) -> None:
    with pytest.raises(SettingError, match="at least two tokens"):
        model.score("")


def test_a_model_without_a_tokenizer_still_takes_ids(model: LanguageModel) -> None:
    bare = LanguageModel(model.checkpoint, model.backend, None)
    assert bare.logits([1, 2, 3]).shape == (3, 98)
    assert [i for p in bare.generate([1, 2, 3], max_tokens=4, temperature=0) for i in p.ids]
    with pytest.raises(TokenizerError, match="has no tokenizer"):
        bare.generate("text")
    with pytest.raises(SettingError, match="stop strings need a tokenizer"):
        list(bare.generate([1], stop="x"))


def test_a_tokenizer_of_another_model_is_refused(model: LanguageModel) -> None:
    big = Letters()
    big.vocab_size = 99
    with pytest.raises(TokenizerError, match="99 entries, the model 98"):
        LanguageModel(model.checkpoint, model.backend, big)


def test_no_logits_for_no_ids(model: LanguageModel) -> None:
    assert model.logits([]).shape == (0, 98)


class Spaced(Letters):
    """Puts a space in front of every text, as SentencePiece does; `_` stands for one."""

    @property
    def leading_space(self) -> bool:
        return True


def spaced(model: LanguageModel) -> LanguageModel:
    return LanguageModel(model.checkpoint, model.backend, Spaced())


def test_a_continued_text_keeps_the_space_before_its_first_word(model: LanguageModel) -> None:
    assert text_of(list(spaced(model).generate("Once", sampler=said(" upon"), max_tokens=5))) == " upon"


def test_a_text_that_starts_from_nothing_does_not_begin_with_a_space(model: LanguageModel) -> None:
    assert text_of(list(spaced(model).generate(None, sampler=said(" Once"), max_tokens=5))) == "Once"
    assert (
        text_of(list(spaced(model).generate("q", sampler=said(" A"), max_tokens=2, continuing=False))) == "A"
    )


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (b"hi", "a prompt is text or a list of ids, found b'hi'"),
        (5, "a prompt is text or a list of ids, found 5"),
        ({"a": 1}, "a prompt is text or a list of ids"),
        ([1.5], r"a token id must be a whole number, found 1\.5"),
        ([True], "a token id must be a whole number, found True"),
        (["a", 3], "a prompt is text or a list of ids, found 3"),
        ([], "the prompt is empty"),
    ],
)
def test_prompts_of_a_wrong_kind_are_named(model: LanguageModel, prompt: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        list(model.generate(prompt, max_tokens=1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": "5"}, "max_tokens must be a whole number, found '5'"),
        ({"max_tokens": 5.0}, "max_tokens must be a whole number"),
        ({"topk": 1}, "no option is called `topk`: did you mean `top_k`?"),
        ({"max_new_tokens": 1}, "did you mean `max_tokens`?"),
        ({"zzz": 1}, "no option is called `zzz`: known are frequency_penalty"),
        ({"stop": [5]}, "a stop string must be text, found 5"),
        ({"stop": 5}, "stop strings"),
        ({"hook": 5}, "hook"),
        ({"logit_bias": [1, 2]}, "logit_bias"),
    ],
)
def test_options_of_a_wrong_kind_are_named(
    model: LanguageModel, options: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        list(model.generate("x", **({"max_tokens": 1} | options)))


@pytest.mark.parametrize(
    "conversation", [None, "hi", {"role": "user"}, [{"content": "x"}], [5], [{"role": "user"}]]
)
def test_conversations_of_a_wrong_shape_are_named(model: LanguageModel, conversation: object) -> None:
    from glassgear import arguments

    with pytest.raises(SettingError, match="message"):
        arguments.messages(conversation)


def test_no_stop_string_may_be_none(model: LanguageModel) -> None:
    assert list(model.generate("x", stop=None, max_tokens=1))


def test_numpy_ids_are_ids(model: LanguageModel) -> None:
    assert model.encode(np.array([5, 6])) == [5, 6]  # type: ignore[arg-type]


def test_a_closed_session_says_so(model: LanguageModel) -> None:
    with model.session() as session:
        answer = session.generate("x", max_tokens=9, ignore_eos=True)
        next(answer)
    for broken in (answer, session.generate("x", max_tokens=1)):
        with pytest.raises(SettingError, match="this session is closed"):
            list(broken)


def test_an_answer_ends_when_its_session_begins_another(model: LanguageModel) -> None:
    session = model.session()
    first = session.generate("hello", max_tokens=9, temperature=0, ignore_eos=True)
    next(first)
    second = session.generate("other", max_tokens=5, temperature=0, ignore_eos=True)
    with pytest.raises(SettingError, match="given up when its session began another"):
        list(first)
    assert text_of(list(second)) == text_of(
        list(model.generate("other", max_tokens=5, temperature=0, ignore_eos=True))
    )


def test_a_model_shows_what_it_is(model: LanguageModel) -> None:
    assert repr(model) == (
        "<LanguageModel 'tiny': llama, 2 blocks, width 64, 8 heads, vocabulary 98, on reference>"
    )
