"""Chinese: tables of `glassgear sample` and `glassgear trace`, and what their users may get wrong."""

from __future__ import annotations

__all__ = ["SENTENCES"]

LABELS = {
    "note:": "注意：", "error:": "错误：", "Usage:": "用法：",
    "Try {command:quoted} for help.": "运行 {command} 查看帮助。",
    "Invalid value for {name:name}: {why:text}": "{name} 的值无效：{why}",
}  # fmt: skip

SAMPLE = {
    "stage": "阶段", "setting": "设置", "kept": "保留", "removed": "剔除", "likeliest": "最可能的",
    "removed, the likeliest": "剔除者中最可能的",
    "id": "编号", "candidate": "候选", "before": "之前", "after": "之后",
    "removed by {stage:words}": "被 {stage} 剔除",
    "Token {n:int} after the prompt": "提示词之后的第 {n} 个 token",
    "Greedy: {token:text} has the largest logit; nothing is drawn.":
        "贪心：{token} 的 logit 最大；不做抽取。",
    "The random number is {u:float} (seed {seed:int}); it falls between {a:float} and {b:float}, the part "
    "of {token:text}.":
        "随机数是 {u}（种子 {seed}），落在 {a} 与 {b} 之间，即 {token} 所占的一段。",
    "It ends the text.": "它结束文本。",
    "the context of {n:int} tokens is full": "{n} 个 token 的上下文已满",
}  # fmt: skip

TRACE = {
    "shape": "形状", "std": "标准差", "min": "最小", "max": "最大", "norm": "范数", "zeros": "零占比",
    "in {n:int} blocks:": "{n} 个块中：",
    "in a block:": "块中：", "{n:int} NaN": "{n} 个 NaN", "{n:int} Inf": "{n} 个无穷",
    "{n:int} NaN, {m:int} Inf": "{n} 个 NaN，{m} 个无穷",
    "stream": "残差流",
    "Length of the residual stream ({whose:words})": "残差流向量的长度（{whose}）",
    "all tokens, on average": "所有 token 的平均",
    "attention": "注意力", "head": "头",
    "weight, token": "注意力权重，token",
    "place": "名次",
    "What token {n:int}, {token:text}, looks at": "token {n} {token} 看向哪里",
    "What each layer would say after token {n:int}, {token:text}":
        "token {n} {token} 之后，每一层会说什么",
    "{path:name} decided: from it on, {token:text} is the likeliest.":
        "{path} 起定局：从这里开始 {token} 最可能。",
    "as it is": "原样", "p": "概率", "p then": "改动后概率", "changed": "改动后", "p before": "改动前概率",
    "The next token, with {paths:text} set to zero": "把 {paths} 置零后的下一个 token",
    "The first token after the prompt, with {paths:text} set to zero":
        "把 {paths} 置零后，提示词之后的第一个 token",
    "How the text goes on, the likeliest token each time:": "文本如何继续（每次取最可能的 token）：",
    "as it is: {text:text}": "原样：{text}", "changed: {text:text}": "改动后：{text}",
    "Both are the same.": "两者相同。",
    "They part at token {n:int} after the prompt.": "从提示词之后的第 {n} 个 token 起不同。",
    "The change is worth {x:float} nats (KL divergence).": "这一改动相当于 {x} nats（KL 散度）。",
    "{n:int} values of {tokens:int} tokens in {path:text} ({size:text})":
        "{tokens} 个 token 的 {n} 个数值已存入 {path}（{size}）",
    "without a prompt, this traces the model's start token alone": "没有提示词：只追踪模型的起始 token",
    "no room for: {names:text}": "放不下：{names}",
    "{path:name} is no sum over blocks of quantised weights: --block shows nothing":
        "{path} 不是量化权重各块之和：--block 没有可显示的内容",
}  # fmt: skip

MISTAKES = {
    "--open shows what was saved: it takes no PROMPT, --zero, --save, --max-tokens or --chat":
        "--open 显示已存的记录：不能同时给出 PROMPT、--zero、--save、--max-tokens 或 --chat",
    "Missing argument 'MODEL' (or --open FILE).": "缺少参数 'MODEL'（或 --open FILE）。",
    "--system is part of a conversation: give --chat, too": "--system 属于对话：请同时给出 --chat",
    "{text:quoted}: a head is a number, as in blocks.3.attention:4":
        "{text}：头是一个编号，例如 blocks.3.attention:4",
    "which value? Give a MODEL, a PROMPT and a PATH such as blocks.0.ffn.down; `glassgear show MODEL` lists "
    "the gears":
        "哪个数值？请给出 MODEL、PROMPT 和 PATH，例如 blocks.0.ffn.down；`glassgear show MODEL` 列出各部件",
    "a saved trace has its prompt: give MODEL and PATH alone with --open":
        "已存的记录自带提示词：使用 --open 时只给出 MODEL 和 PATH",
    "a saved trace has its tokens: --max-tokens doesn't go with --open":
        "已存的记录自带 token：--max-tokens 不能与 --open 同用",
    "--head says half of the place: --index says the channel or the seen token":
        "--head 只说明了位置的一半：还需用 --index 给出通道或所看的 token",
    "no value is called {names:text}: {near:words}. `*` stands for anything: `blocks.*.ffn.*`, say; `*` "
    "alone records all":
        "没有名为 {names} 的数值：{near}。`*` 代表任意内容，例如 `blocks.*.ffn.*`；单独的 `*` 记录全部",
    "no value is called {names:text}: {near:words}? `*` stands for anything: `blocks.*.ffn.*`, say; `*` "
    "alone records all":
        "没有名为 {names} 的数值：{near}？`*` 代表任意内容，例如 `blocks.*.ffn.*`；单独的 `*` 记录全部",
    "the first are {names:text}": "最前面的是 {names}",
    "did you mean {names:text}": "是不是 {names}",
    "{path:text}: there is no such file": "{path}：没有这个文件",
    "{path:text}: is a safetensors file, but no trace": "{path}：是 safetensors 文件，但不是运行记录",
    "{path:text}: is a trace whose description is damaged": "{path}：是运行记录，但其中的说明已损坏",
    "{path:text}: is no trace, which is a safetensors file that `glassgear trace --save` writes: "
    "it {why:text}":
        "{path}：不是运行记录（由 `glassgear trace --save` 写出的 safetensors 文件）：{why}",
    "{path:text}: can't be written: the folder {folder:text} doesn't exist":
        "{path}：无法写入：文件夹 {folder} 不存在",
    "{path:text}: can't be written: the folder {folder:text} is no folder":
        "{path}：无法写入：{folder} 不是文件夹",
    "the trace is {n:int} tokens, the context holds {most:int}: {advice:words}":
        "这份记录有 {n} 个 token，上下文只有 {most}：{advice}",
    "{path:text} has no tokenizer, so its prompt is ids, such as \"1 2 3\": found {found:text}; --tokenizer "
    "names one that reads texts":
        "{path} 没有分词器，提示词须是编号，例如 \"1 2 3\"；给出的是 {found}；可用 --tokenizer 指定能读文本的"
        "分词器",
    "device and dtype are for the torch backend, not for {name:name}":
        "device 和 dtype 只用于 torch 后端，不用于 {name}",
    "{name:text}: is a published config of {source:name}, which has no weights: `glassgear {command:name} "
    "--random` draws some (random=True in Python); `glassgear show` and `glassgear params` need none":
        "{name}：是 {source} 公布的配置，没有权重：`glassgear {command} --random` 可随机生成（Python 中为 "
        "random=True）；`glassgear show` 和 `glassgear params` 不需要权重",
    "{name:text}: is a model file, which has no weights: `glassgear {command:name} --random` draws some "
    "(random=True in Python); `glassgear show` and `glassgear params` need none":
        "{name}：是模型文件，没有权重：`glassgear {command} --random` 可随机生成（Python 中为 random=True）；"
        "`glassgear show` 和 `glassgear params` 不需要权重",
    "random weights for {name:text} need {need:text} of memory in float32 (as drawn, and as the backend "
    "keeps them), and {free:text} are free; `glassgear show` and `glassgear params` need none":
        "{name} 的随机权重以 float32 需要 {need} 内存（生成时一份，后端保存一份），而空闲内存只有 {free}；"
        "`glassgear show` 和 `glassgear params` 不需要权重",
    "{name:text} must be {most:int} or less, found {found:int}": "{name} 必须不大于 {most}，给出的是 {found}",
    "a trace doesn't say which of its numbers a function replaced: give its prompt instead":
        "运行记录没有说明函数替换了哪些数：请改为给出提示词",
}  # fmt: skip

SENTENCES = {**LABELS, **SAMPLE, **TRACE, **MISTAKES}
