"""Chinese: the tables of `glassgear sample` and `glassgear trace`."""

from __future__ import annotations

__all__ = ["SENTENCES"]

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
    "What token {n:int}, {token:text}, looks at": "第 {n} 个 token {token} 看向哪里",
    "What each layer would say after token {n:int}, {token:text}":
        "第 {n} 个 token {token} 之后，每一层会说什么",
    "{path:name} decided: from it on, {token:text} is the likeliest.":
        "{path} 起定局：从这里开始 {token} 最可能。",
    "as it is": "原样", "p": "概率", "p then": "改动后概率", "changed": "改动后", "p before": "改动前概率",
    "The next token, with {paths:text} set to zero": "把 {paths} 置零后的下一个 token",
    "The change is worth {x:float} nats (KL divergence).": "这一改动相当于 {x} nats（KL 散度）。",
    "{n:int} values of {tokens:int} tokens in {path:text} ({size:text})":
        "{tokens} 个 token 的 {n} 个数值已存入 {path}（{size}）",
    "without a prompt, this traces the model's start token alone": "没有提示词：只追踪模型的起始 token",
    "{path:name} is no sum over blocks of quantised weights: --block shows nothing":
        "{path} 不是量化权重各块之和：--block 没有可显示的内容",
}  # fmt: skip

SENTENCES = {**SAMPLE, **TRACE}
