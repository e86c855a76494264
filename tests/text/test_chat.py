from __future__ import annotations

import copy
import dataclasses
import enum
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import SettingError, TemplateError
from glassgear.text.chat import BUILT_IN, ChatTemplate, template_for

from .fake_tokenizers import byte_tokenizer
from .template_examples import HOSTILE, LANGUAGE

Messages = list[dict[str, Any]]

HI: Messages = [{"role": "user", "content": "hi"}]
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "finds l'été <b>",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}


def weather(city: str, days: int = 3) -> dict[str, Any]:
    """Says what the weather will be.

    Args:
        city: where, a "name"
        days: how many
    """
    return {}


CONVERSATIONS: list[Messages] = [
    HI,
    [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "  hi there\n\n"}],
    [*HI, {"role": "assistant", "content": " ok "}, {"role": "user", "content": "é<>&'\" 🦙"}],
    [*HI, {"role": "assistant", "content": "so"}, *HI, {"role": "assistant", "content": "  and then  "}],
    [
        {"role": "system", "content": "s"},
        *HI,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"type": "function", "function": {"name": "look_up", "arguments": {"word": "<b>é"}}}
            ],
        },
        {"role": "tool", "name": "look_up", "content": '{"found": 1}'},
    ],
    [
        *HI,
        {
            "role": "assistant",
            "content": "let me",
            "tool_calls": [
                {"id": "1", "function": {"name": "look_up", "arguments": {"word": "a"}}},
                {"function": {"name": "other", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "done "},
    ],
    [*HI, *HI],
    [*HI, {"role": "assistant", "reasoning": "because", "content": "so"}],
    [{"role": "martian", "content": "?"}],
]


def reference(source: str, messages: Messages, **options: Any) -> str | type[Exception]:
    """What transformers renders, or the type of what it raises."""
    from transformers.utils import chat_template_utils as theirs

    options.setdefault("add_generation_prompt", False)
    try:
        talk = theirs._normalize_chat_messages(copy.deepcopy(messages))
        return str(theirs.render_jinja_template([talk], chat_template=source, **options)[0][0])
    except Exception as error:
        return type(error)


def agrees(source: str, messages: Messages, **options: Any) -> None:
    expected = reference(source, messages, bos_token="<s>", eos_token="</s>", **options)
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    options.setdefault("add_generation_prompt", False)
    if isinstance(expected, str):
        assert template.render(messages, **options) == expected
    else:
        with pytest.raises((TemplateError, SettingError)):
            template.render(messages, **options)


# --- equal to transformers


@pytest.mark.parametrize(
    "name",
    ["Qwen-Qwen2.5-7B-Instruct", "google-gemma-2-2b-it", "meta-llama-Llama-3.1-8B-Instruct"],
)
@pytest.mark.parametrize("tools", [None, [TOOL], [weather, TOOL], []], ids=["none", "dict", "both", "empty"])
def test_published_templates_render_as_in_transformers(name: str, tools: Any, shared: Path) -> None:
    source = (shared / "data" / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    for messages in CONVERSATIONS:
        for ending in (
            {"add_generation_prompt": True},
            {"add_generation_prompt": False},
            {"continue_final_message": True},
        ):
            for extra in (
                {},
                {"date_string": "1 Jan 2020"},
                {"tools_in_user_message": False},
                {"builtin_tools": ["code_interpreter", "look_up"]},
            ):
                agrees(source, messages, tools=tools, **ending, **extra)


@pytest.mark.parametrize("source", LANGUAGE)
def test_the_language_is_that_of_transformers(source: str) -> None:
    for messages in CONVERSATIONS:
        agrees(source, messages, add_generation_prompt=True)


def test_block_lines_leave_no_blank_lines() -> None:
    source = (
        "{% for m in messages %}\n    {% if m.role == 'user' %}\n<|user|>{{ m.content }}<|end|>\n"
        "    {% endif %}\n{% endfor %}\n{% if add_generation_prompt %}\n<|assistant|>\n{% endif %}"
    )
    assert ChatTemplate(source).render(HI) == "<|user|>hi<|end|>\n<|assistant|>\n"


def test_tojson_escapes_nothing_for_html() -> None:
    assert ChatTemplate("{{ x|tojson }}").render(HI, x="<b>&'é") == '"<b>&\'é"'


def test_strftime_now_gives_the_date() -> None:
    assert ChatTemplate("{{ strftime_now('%Y') }}").render(HI) == time.strftime("%Y")


def test_the_answer_is_opened_unless_told_otherwise() -> None:
    template = ChatTemplate(PLAIN + "{% if add_generation_prompt %}>{% endif %}")
    assert template.render(HI) == "[user]hi>"
    assert template.render(HI, add_generation_prompt=False) == "[user]hi"
    assert template.render(HI, continue_final_message=True) == "[user]hi"


def test_extra_variables_win_over_special_tokens() -> None:
    template = ChatTemplate("{{ bos_token }}{{ mood }}{{ eos_token }}", bos_token="<s>")
    assert template.render(HI, mood="glad") == "<s>glad"
    assert template.render(HI, mood=1, bos_token="B") == "B1"


# --- going on with the last message


@pytest.mark.parametrize(
    "text", ["The answer", "The answer ", " The\n answer\n\n", "[the message goes on here] x"]
)
@pytest.mark.parametrize("expression", ["m.content", "m.content | trim", "m.content ~ ' '"])
def test_continuing_ends_inside_the_last_message(text: str, expression: str) -> None:
    source = f"{{% for m in messages %}}<{{{{ m.role }}}}>{{{{ {expression} }}}}</end>{{% endfor %}}"
    messages = [*HI, {"role": "assistant", "content": text}]
    agrees(source, messages, continue_final_message=True)
    out = ChatTemplate(source).render(messages, continue_final_message=True)
    assert out.endswith(text.strip() if "trim" in expression else text)


def test_another_field_can_be_continued() -> None:
    source = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }}{% endfor %}"
    messages = [{"role": "assistant", "reasoning": "I th", "content": ""}]
    agrees(source, messages, continue_final_message="reasoning_content")
    assert ChatTemplate(source).render(messages, continue_final_message="thinking") == "I th"


def test_continuing_what_is_not_there_is_refused() -> None:
    with pytest.raises(SettingError, match="no content"):
        ChatTemplate(PLAIN).render([{"role": "assistant"}], continue_final_message=True)
    with pytest.raises(SettingError, match="choose one"):
        ChatTemplate(PLAIN).render(HI, continue_final_message=True, add_generation_prompt=True)
    with pytest.raises(SettingError, match="doesn't use content"):
        ChatTemplate("{{ messages[0].role }}").render(HI, continue_final_message=True)
    with pytest.raises(TemplateError, match="can't be continued"):
        ChatTemplate("{{ messages[0].content[:1] }}").render(HI, continue_final_message=True)


# --- several templates


def test_named_templates() -> None:
    both = {"default": "d", "tool_use": "t", "rag": "{{ documents[0].title }}"}
    listed = [{"name": name, "template": text} for name, text in both.items()]
    for source in (both, listed):
        template = ChatTemplate(source)
        assert template.render(HI) == "d"
        assert template.render(HI, tools=[TOOL]) == "t"
        assert template.render(HI, template="rag", documents=[{"title": "T"}]) == "T"
        with pytest.raises(SettingError, match="'rag'"):
            template.render(HI, template="other")
    with pytest.raises(TemplateError):
        ChatTemplate([{"name": "default"}])


def test_a_model_without_a_template_says_so_and_offers_another() -> None:
    tokenizer = byte_tokenizer()
    with pytest.raises(TemplateError, match=r"without a chat template.*'chatml'"):
        template_for(tokenizer)
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert template_for(tokenizer, "chatml").render(HI) == text
    assert template_for(tokenizer, PLAIN).render(HI) == "[user]hi"
    with pytest.raises(TemplateError, match=r"<\|im_start\|>"):
        template_for(byte_tokenizer(special=["</s>"]), "chatml")
    with pytest.raises(TemplateError) as raised:
        template_for(byte_tokenizer(special=["</s>"]))
    assert "chatml" not in str(raised.value)
    with pytest.raises(TemplateError, match="no chat template is called 'chatlm'"):
        template_for(tokenizer, "chatlm")


def test_a_models_own_template_and_tokens_are_used() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.bos_id = tokenizer.special["<|endoftext|>"]
    tokenizer.chat_template = "{{ bos_token }}{{ eos_token }}{{ messages[0].content }}"
    assert template_for(tokenizer).render(HI) == "<|endoftext|>hi"
    tokenizer.special_tokens = {"eos_token": "E"}
    assert template_for(tokenizer).render(HI) == "<|endoftext|>Ehi"


def test_the_built_in_template_takes_an_answer_without_text() -> None:
    messages = [*HI, {"role": "assistant", "content": None}]
    assert (
        ChatTemplate(BUILT_IN["chatml"])
        .render(messages)
        .endswith("assistant\n<|im_end|>\n<|im_start|>assistant\n")
    )


# --- messages


def test_a_refusal_carries_the_templates_words(shared: Path) -> None:
    gemma = ChatTemplate((shared / "data/templates/google-gemma-2-2b-it.jinja").read_text(encoding="utf-8"))
    with pytest.raises(TemplateError, match="System role not supported"):
        gemma.render([{"role": "system", "content": "s"}, *HI])
    with pytest.raises(TemplateError, match="must alternate user/assistant"):
        gemma.render([*HI, *HI])


def test_text_parts_are_joined_and_others_refused() -> None:
    template = ChatTemplate(PLAIN)
    parts: list[Any] = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    assert template.render([{"role": "user", "content": parts}]) == "[user]one two"
    assert template.render([{"role": "user", "content": []}]) == "[user]"
    image = {"type": "image_url", "image_url": {"url": "x"}}
    with pytest.raises(TemplateError, match=r"message 2 \(user\).*'image_url' \(number 3\)"):
        template.render([*HI, {"role": "user", "content": [*parts, image]}])
    for content in (3, {"a": 1}, [{"type": "text"}], [3], True):
        with pytest.raises(TemplateError, match="message 1"):
            template.render([{"role": "user", "content": content}])


def test_a_tools_answer_may_be_any_data() -> None:
    template = ChatTemplate("{{ messages[0].content | tojson }}")
    assert template.render([{"role": "tool", "content": {"t": [1]}}]) == '{"t": [1]}'
    assert template.render([{"role": "tool", "content": [{"t": 1}]}]) == '[{"t": 1}]'


def test_null_content_is_missing_or_refused_but_never_the_word_none() -> None:
    assert ChatTemplate(PLAIN).render([{"role": "assistant", "content": None}]) == "[assistant]"
    for role in ("user", "system"):
        with pytest.raises(TemplateError, match="null"):
            ChatTemplate(PLAIN).render([{"role": role, "content": None}])


@pytest.mark.parametrize("messages", [[], "hi", {"role": "user"}, ["hi"], [3], [None]])
def test_what_is_no_conversation_is_refused(messages: Any) -> None:
    with pytest.raises(SettingError):
        ChatTemplate(PLAIN).render(messages)


def test_messages_may_be_objects() -> None:
    @dataclasses.dataclass
    class Message:
        role: str
        content: str

    class Role(enum.StrEnum):
        USER = "user"

    assert ChatTemplate(PLAIN).render([Message("user", "hi")]) == "[user]hi"
    assert ChatTemplate(PLAIN).render([{"role": Role.USER, "content": np.str_("hi")}]) == "[user]hi"


def test_values_that_are_no_data_are_refused() -> None:
    for value in (print, object(), {1, 2}, np.zeros(3), {(1, 2): 3}):
        with pytest.raises(SettingError, match="thing"):
            ChatTemplate(PLAIN).render(HI, thing=value)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(SettingError, match="levels deep"):
        ChatTemplate(PLAIN).render(HI, thing=endless)
    assert ChatTemplate("{{ n }}").render(HI, n=np.int64(3)) == "3"


def test_the_callers_messages_are_never_changed() -> None:
    messages = [*HI, {"role": "assistant", "content": [{"type": "text", "text": "a"}], "x": None}]
    before = copy.deepcopy(messages)
    template = ChatTemplate(PLAIN)
    template.render(messages)
    template.render(messages, continue_final_message=True)
    with pytest.raises(TemplateError):
        ChatTemplate("{{ messages.append(1) }}").render(messages)
    with pytest.raises(TemplateError):
        ChatTemplate("{{ messages[0].update({'role': 'x'}) }}").render(messages)
    assert messages == before


# --- tools


def test_functions_become_the_schema_that_transformers_makes() -> None:
    from transformers.utils import get_json_schema

    from . import tool_examples

    for function in tool_examples.GOOD:
        agrees("{{ tools | tojson }}", HI, tools=[function])
        shown = json.loads(ChatTemplate("{{ tools[0] | tojson }}").render(HI, tools=[function]))
        assert shown == get_json_schema(function)


def test_functions_that_do_not_describe_themselves_are_refused() -> None:
    from . import tool_examples

    for function, trouble in tool_examples.BAD:
        with pytest.raises(SettingError, match=trouble):
            ChatTemplate("{{ tools | tojson }}").render(HI, tools=[function])
    with pytest.raises(SettingError, match="a tool must be"):
        ChatTemplate(PLAIN).render(HI, tools=["weather"])
    with pytest.raises(SettingError, match="a document"):
        ChatTemplate(PLAIN).render(HI, documents=["text"])


# --- broken and hostile templates


@pytest.mark.parametrize(
    ("source", "line"),
    [("{% if %}", 1), ("a\n{% for m in messages %}", 2), ("\n\n{{ 'x }}", 3), ("{% include 'x' %}{{", 1)],
)
def test_a_syntax_error_is_reported_when_the_template_is_made(source: str, line: int) -> None:
    with pytest.raises(TemplateError, match=f"line {line}"):
        ChatTemplate(source)
    with pytest.raises(TemplateError, match=f"line {line}"):
        ChatTemplate({"default": "fine", "tool_use": source})


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_stopped_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    messages = copy.deepcopy(HI)
    start = time.process_time()
    with pytest.raises(TemplateError):
        ChatTemplate(HOSTILE[name].replace("MARKER", str(tmp_path / "marker"))).render(messages)
    assert time.process_time() - start < 2.5
    assert messages == HI
    assert not list(tmp_path.iterdir())


def test_a_refused_range_says_so() -> None:
    with pytest.raises(TemplateError, match=r"too big.*100000"):
        ChatTemplate(HOSTILE["huge range"]).render(HI)


MEMORY = """
import resource, sys
from glassgear.errors import TemplateError
from glassgear.text.chat import ChatTemplate
from tests.text.template_examples import HOSTILE
HI = [{'role': 'user', 'content': 'hi'}]
ChatTemplate("{{ 1 }}").render(HI)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for source in HOSTILE.values():
    try:
        ChatTemplate(source).render(HI)
    except TemplateError:
        pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_hostile_templates_take_little_memory() -> None:
    pytest.importorskip("resource")
    root = Path(__file__).parents[2]
    env = {"PYTHONPATH": f"{root / 'src'}:{root}", "PATH": "/usr/bin"}
    out = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, env=env, check=True)
    assert int(out.stdout) < 300  # MB, all of them one after another


def test_long_conversations_stay_within_the_limits() -> None:
    source = (
        "{% set ns = namespace(all='', list=[]) %}{% for m in messages %}"
        "{% set ns.all = ns.all ~ m.content %}{% set ns.list = ns.list + [m] %}{% endfor %}"
        "{{ ns.list | length }}{{ ns.all }}"
    )
    messages = [{"role": "user", "content": "some words to say " * 20} for _ in range(1000)]
    assert len(ChatTemplate(source).render(messages)) == 4 + 1000 * 360
    long = [{"role": "user", "content": "x y" * 3_000_000}]
    source = "{{ messages[0].content | trim }}{{ messages[0].content.split('\n')[0] | length }}"
    assert len(ChatTemplate(source).render(long)) == 9_000_007


def test_a_template_can_be_used_from_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    template = ChatTemplate(PLAIN)
    say: Callable[[int], str] = lambda n: template.render([{"role": "user", "content": f"{n}"}] * 50)  # noqa: E731
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(say, range(40))) == [f"[user]{n}" * 50 for n in range(40)]


@pytest.mark.parametrize("content", ["hello", [{"type": "text", "text": "hello"}]], ids=["text", "parts"])
def test_a_template_that_reads_parts_gets_parts(content: Any) -> None:
    """Given a text, its loop would find no part: the turn would be empty (transformers: `user:hello`)."""
    source = (
        "{% for m in messages %}{{ m.role }}:{% for p in m.content %}"
        "{% if p['type'] == 'text' %}{{ p['text'] }}{% endif %}{% endfor %}{% endfor %}"
    )
    assert ChatTemplate(source).render([{"role": "user", "content": content}]) == "user:hello"
    both = source.replace("{% for p", "{% if m.content is string %}{{ m.content }}{% else %}{% for p", 1)
    both = both.replace("{% endfor %}{% endfor %}", "{% endfor %}{% endif %}{% endfor %}")
    assert ChatTemplate(both).render([{"role": "user", "content": content}]) == "user:hello"
