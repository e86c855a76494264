"""`glassgear chat`: talk to a model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from glassgear.cli import console
from glassgear.cli.chat_turns import Chat
from glassgear.cli.line_input import Keyboard, message
from glassgear.cli.opening import open_model
from glassgear.cli.options import (
    Command,
    as_text,
    limit_options,
    model_options,
    option,
    sampling_options,
    sampling_settings,
)
from glassgear.cli.output import PlainText
from glassgear.cli.table import count
from glassgear.errors import GlassgearError, TemplateError

__all__ = ["command"]

EXAMPLES = """
glassgear chat smollm2-135m
glassgear chat smollm2-135m --system "You are a pirate." -t 0.3
glassgear chat smollm2-135m -m "What is the capital of France?"   one answer, then exit
printf 'Hi!\\nWhat did I say?\\n' | glassgear chat smollm2-135m     a line is a turn
"""

HELP = """\
/reset         start anew; the system prompt stays
/system TEXT   set the system prompt; /system alone shows it
/stats         figures of the last answer, and how full the context is
/help          this list
/exit          leave; /quit and Ctrl-D do the same

Ctrl-C stops an answer. A backslash at the end of a line continues the message on the next;
so do three double quotes, until three more close it."""


@click.command(cls=Command, short_help="Talk to a model.", examples=EXAMPLES)
@click.argument("model")
@option(
    "-m",
    "--message",
    "once",
    metavar="TEXT",
    callback=as_text,
    section="Conversation",
    help="Answer TEXT and exit; `-` reads it from standard input.",
)
@option(
    "--system",
    metavar="TEXT",
    callback=as_text,
    section="Conversation",
    help="Tell the model who it is and what to do.",
)
@option(
    "--template",
    metavar="NAME|FILE",
    section="Conversation",
    help="Write the conversation in another way than the model's own: `chatml`, or a Jinja file.",
)
@option("--stats", is_flag=True, section="Conversation", help="Figures after each answer, on stderr.")
@limit_options(tokens="the end of the answer")
@sampling_options
@model_options  # fmt: skip
def command(model: str, once: str | None, system: str | None, template: str | None, **given: Any) -> None:
    """Talk to MODEL, turn by turn, in the way that it was trained for.

    Type a message and Enter; `/help` lists the commands; Ctrl-C stops an answer and keeps the
    chat; Ctrl-D leaves. Where standard input isn't a terminal, each of its lines is a message and
    stdout holds the answers alone.
    """
    from glassgear.text.chat import template_for

    settings = sampling_settings(given)
    source = _template_source(template)
    if once == "-":
        once = console.read_stdin().removesuffix("\n").removesuffix("\r")
    loaded = open_model(model, given)
    loaded.require_causal()
    tokens = given["max_tokens"]
    options = settings | {
        "max_tokens": None if tokens is None or tokens < 0 else tokens,
        "stop": given["stop"],
        "ignore_eos": given["ignore_eos"],
    }
    chat = Chat(loaded, template_for(loaded.tokenizer, source), system, options)
    if once is not None:
        _answer(chat, once, given["stats"])
    elif console.is_terminal(sys.stdin):
        _talk(chat, model, given["stats"])
    else:
        _follow(chat, given["stats"])


def _template_source(template: str | None) -> str | None:
    """The name of a template, or the text of its file."""
    is_file = template is not None and (os.path.isfile(template) or template.endswith((".jinja", ".jinja2")))
    if template is None or not is_file:
        return template
    source = console.read_file(template)
    if "{" not in source:
        raise TemplateError(f"{template}: is no chat template: no {{{{ ... }}}} of Jinja is in it")
    return source


def _talk(chat: Chat, name: str, show_stats: bool) -> None:
    """With a person at the keyboard: errors are said, and the chat goes on."""
    from glassgear.weights.cache import cache_folder

    _greet(chat, name)
    keyboard = Keyboard()
    leaving = False
    with keyboard.history(cache_folder() / "chat_history"):
        while True:
            try:
                text = message(keyboard.read)
            except EOFError:
                console.say()
                return
            except KeyboardInterrupt:
                console.say()
                if leaving:
                    raise
                console.say("(Ctrl-C again leaves, and so do Ctrl-D and /exit)", dim=True)
                leaving = True
                continue
            leaving = False
            try:
                if not _turn(chat, text, show_stats):
                    return
            except KeyboardInterrupt:
                console.say("(stopped)", dim=True)
            except GlassgearError as trouble:
                console.error(str(trouble))
            console.say()


def _follow(chat: Chat, show_stats: bool) -> None:
    """With a pipe: each line is a message, and an error ends the chat."""
    while True:
        try:
            text = message(lambda _begun: console.read_line())
        except EOFError:
            return
        if not _turn(chat, text, show_stats):
            return


def _turn(chat: Chat, text: str, show_stats: bool) -> bool:
    """Obey a command, or answer a message; False to leave."""
    word, _, rest = text.strip().partition(" ")
    if word.startswith("/") and word[1:].isalpha():
        return _obey(chat, word, rest.strip())
    if word:
        _answer(chat, text, show_stats)
    return True


def _answer(chat: Chat, text: str, show_stats: bool) -> None:
    stats = chat.ask(text, PlainText())
    if stats.finish_reason == "context":
        console.note(f"{_full(chat)}, so the answer ends here. {_advice(chat)}")
    if show_stats:
        stats.show()
    if stats.finish_reason == "interrupted":
        raise KeyboardInterrupt


def _obey(chat: Chat, word: str, rest: str) -> bool:
    """Do what a command says; False to leave."""
    if word in ("/exit", "/quit", "/bye"):
        return False
    if word == "/help":
        console.say(HELP)
    elif word == "/reset":
        chat.reset()
        console.say("(a new conversation)", dim=True)
    elif word == "/stats":
        _show_stats(chat)
    elif word == "/system":
        if rest:
            chat.system = rest
        console.say(f"(system prompt: {chat.system})" if chat.system else "(no system prompt)", dim=True)
    else:
        console.error(f"there is no command {word}; /help lists them")
    return True


def _greet(chat: Chat, name: str) -> None:
    parameters = chat.model.ledger().parameters
    title = console.style(Path(name).name, bold=True)
    facts = f" \u00b7 {count(parameters)} parameters \u00b7 context {chat.model.context:,}"
    console.say(title + console.style(facts, dim=True))
    console.say("/help lists the commands, Ctrl-D leaves\n", dim=True)


def _show_stats(chat: Chat) -> None:
    if chat.last is None:
        console.say("(nothing was answered yet)", dim=True)
        return
    chat.last.show()
    used = chat.last.prompt_tokens + chat.last.tokens
    console.say(f"{console.style('context     ', dim=True)} {used:,} of {chat.model.context:,} tokens")


def _full(chat: Chat) -> str:
    return f"the context of {chat.model.context:,} tokens is full"


def _advice(chat: Chat) -> str:
    trained = chat.model.gears.context
    more = f"; --ctx {trained} makes room for more" if chat.model.context < trained else ""
    return f"/reset starts anew{more}"
