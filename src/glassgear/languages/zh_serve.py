"""Chinese: what the page's server says: gears, stages, warnings about a prompt, and what goes wrong."""

from __future__ import annotations

__all__ = ["SENTENCES"]

GEARS = {
    "y = x W^T (+ b): [T, inputs] -> [T, outputs].": "y = x W^T (+ b)：[T, 输入维] -> [T, 输出维]。",
    "One row of a table for each id, times `scale`: [T] -> [T, dim].":
        "每个编号取表中一行，再乘以 `scale`：[T] -> [T, dim]。",
    "A row of a table for each position, added to the embedding (GPT-2, BERT): [T] -> [T, dim].":
        "每个位置取表中一行，加到嵌入上（GPT-2、BERT）：[T] -> [T, dim]。",
    "A row for each token's type, added to the embedding (BERT's first and second text).":
        "按 token 类型取一行，加到嵌入上（BERT 的第一段与第二段文本）。",
    "Each token's embedding beside those of its two neighbours, through a matrix (MobileBERT).":
        "每个 token 的嵌入与前后两个 token 的嵌入拼接，再乘以矩阵（MobileBERT）。",
    "x / sqrt(mean(x^2) + eps) * (offset + weight), row by row (Zhang & Sennrich 2019).":
        "x / sqrt(mean(x^2) + eps) * (offset + 权重)，逐行计算（Zhang 与 Sennrich，2019）。",
    "(x - mean(x)) / sqrt(variance(x) + eps) * weight (+ bias), row by row (Ba et al. 2016).":
        "(x - 均值(x)) / sqrt(方差(x) + eps) * 权重 (+ 偏置)，逐行计算（Ba 等，2016）。",
    "g * x / max(|x|, eps), one number g for all channels (Nguyen & Salazar 2019).":
        "g * x / max(|x|, eps)，所有通道共用一个数 g（Nguyen 与 Salazar，2019）。",
    "(x - mean) / sqrt(variance + eps) * weight + bias with stored statistics (Ioffe & Szegedy 2015).":
        "(x - 均值) / sqrt(方差 + eps) * 权重 + 偏置，统计量随模型存储（Ioffe 与 Szegedy，2015）。",
    "x * weight + bias, channel by channel: what MobileBERT has in the place of a norm.":
        "x * 权重 + 偏置，逐通道计算：MobileBERT 用它代替归一化。",
    "Rotary position embedding (Su et al. 2021) of the first `dim` channels of each head.":
        "旋转位置编码（Su 等，2021），作用于每个头的前 `dim` 个通道。",
    "softmax(q k^T * scale) v over what each token may see, then W_o.":
        "对每个 token 可见的范围计算 softmax(q k^T * 缩放系数) v，再乘以 W_o。",
    "down(activation(up(x))): the plain form (Vaswani et al. 2017).":
        "降维(激活(升维(x)))：最初的形式（Vaswani 等，2017）。",
    "down(activation(gate(x)) * up(x)): SwiGLU with silu, GeGLU with gelu (Shazeer 2020).":
        "降维(激活(门控(x)) * 升维(x))：用 silu 即 SwiGLU，用 gelu 即 GeGLU（Shazeer，2020）。",
    "Chooses experts for each token: [T, dim] -> `used` of `count` experts and their weights.":
        "为每个 token 选择专家：[T, dim] -> `count` 个专家中的 `used` 个及其权重。",
    "sum over a token's experts of weight * expert(x), and the shared expert's output.":
        "对该 token 选中的专家求和：权重 * 专家(x)，再加上共享专家的输出。",
    "Attention whose cache holds a latent vector instead of keys and values (DeepSeek-V2, V3).":
        "多头潜注意力：缓存中存放一个潜向量，代替键和值（DeepSeek-V2、V3）。",
    "sum_norm(x + post_norm(gear(norm(x)))), each norm where there is one.":
        "sum_norm(x + post_norm(gear(norm(x))))，其中的归一化有则用之。",
    "One layer: sublayers one after the other, as a rule attention and a feed-forward network.":
        "一层：依次经过各子层，通常是注意力和前馈网络。",
    "Sublayers on a narrower stream (MobileBERT): widen(steps(narrow_norm(narrow(x)))).":
        "在较窄的流上运行的子层（MobileBERT）：widen(steps(narrow_norm(narrow(x))))。",
    "Hidden rows to logits: x W^T (+ b), [T, dim] -> [T, vocab].":
        "隐藏状态变为 logits：x W^T (+ b)，[T, dim] -> [T, vocab]。",
    "norm(activation(dense(x))): what stands before an encoder's head (BERT).":
        "归一化(激活(全连接(x)))：位于编码器的输出头之前（BERT）。",
    "tanh(dense(x of the first token)): one vector for a whole text (BERT).":
        "tanh(全连接(第一个 token 的 x))：整段文本得到一个向量（BERT）。",
    "Embedding, blocks, final norm, head. `context` is the trained length in tokens.":
        "嵌入、各层、最终归一化、输出头。`context` 是训练时的长度（token 数）。",
}  # fmt: skip

STAGES = {
    "logits": "logits", "logit bias": "logit 偏置", "penalties": "惩罚", "hook": "自定义函数",
    "greedy": "贪心", "top-k": "top-k", "top-p": "top-p（核采样）", "min-p": "min-p", "temperature": "温度",
    "top-k {x:float}": "top-k {x}",
    "top-p {x:float}": "top-p（核采样）{x}",
    "min-p {x:float}": "min-p {x}", "temperature {x:float}": "温度 {x}", "{n:int} ids": "{n} 个编号",
    "logit bias {n:int} ids": "logit 偏置：{n} 个编号",
    "hook {name:text}": "自定义函数 {name}",
    "repetition {r:float}, presence {p:float}, frequency {f:float} over all ids":
        "重复 {r}，出现 {p}，频率 {f}，作用于全部编号",
    "repetition {r:float}, presence {p:float}, frequency {f:float} over the last {n:int} ids":
        "重复 {r}，出现 {p}，频率 {f}，作用于最近 {n} 个编号",
    "penalties {setting:words}": "惩罚：{setting}",
    "last norm and head of the reference backend in float32 behind each layer but the last, whose row "
    "holds the logits that the model gave":
        "除最后一层外，每层之后接参考后端的最终归一化和输出头，以 float32 计算；最后一行是模型自己给出的 "
        "logits",
}  # fmt: skip

PROMPTS = {
    "the text begins with {token:text} (BOS) {n:int} times: models are trained to see it once":
        "文本以 {token}（BOS）开头 {n} 次：模型训练时只见过一次",
    "truncated: {gone:words} left out, {kept:words} kept": "已截断：去掉 {gone}，保留 {kept}",
    "{n:int} token": "{n} 个 token", "{n:int} tokens": "{n} 个 token",
    "{n:words}, but the context holds {context:int}: a run refuses this, so shorten it":
        "共 {n}，而上下文只有 {context}：运行时会被拒绝，请缩短",
    "the text spells {tokens:text} and {n:int} more: read as plain text, not as control tokens":
        "文本中写有 {tokens} 等（另有 {n} 个）：按普通文本读取，不作为控制 token",
    "the text spells {tokens:text}: read as plain text, not as control tokens":
        "文本中写有 {tokens}：按普通文本读取，不作为控制 token",
    "message {n:int} ({role:text}) spells {tokens:text}: passed on as plain text, not as control tokens":
        "第 {n} 条消息（{role}）中写有 {tokens}：按普通文本传给模型，不作为控制 token",
    "the file calls {names:text} plain text; taken for control tokens, as their names say":
        "文件把 {names} 标为普通文本；按名称当作控制 token",
    "`{key:name}` is {id:int}, outside the vocabulary of {n:int}: ignored":
        "`{key}` 是 {id}，超出了 {n} 个词条的词表：已忽略",
    "the file has no scores for its tokens: texts will be cut in unusual places":
        "文件没有 token 的分数：文本的切分位置会与通常不同",
    "{lost:int} of {n:int} merges name pieces that aren't there: left out":
        "{n} 条合并规则中有 {lost} 条引用了不存在的词片：已略去",
    "the file doesn't say how its tokenizer cuts text into words (no `tokenizer.ggml.pre`): ids may "
    "differ from those that the model was trained with. Get a newer conversion":
        "文件没有说明分词器如何把文本切成词（缺少 "
        "`tokenizer.ggml.pre`）：编号可能与模型训练时不同。请换用较新的转换版本",
    "the way in which the tokenizer cuts text into words is unknown here: {name:text}. The default is "
    "used instead, so ids may differ from those that the model was trained with":
        "不认识该分词器把文本切成词的方式：{name}。改用默认方式，编号可能与模型训练时不同",
    "random weights (seed {n:int}): what the model says means nothing":
        "权重是随机的（种子 {n}）：模型的输出没有意义",
    "`eos_token_id` names id {id:int}, but the vocabulary has {n:int}: it can't end a text":
        "`eos_token_id` 指向编号 {id}，而词表只有 {n} 个词条：它无法结束文本",
    "SmolLM2-135M-Instruct by Hugging Face, Q4_1, Apache-2.0":
        "Hugging Face 的 SmolLM2-135M-Instruct，Q4_1 量化，Apache-2.0 许可",
}  # fmt: skip

NEAR = {
    "{trouble:words}: did you mean {a:text} or {b:text}?": "{trouble}：是不是 {a} 或 {b}？",
    "{trouble:words}: did you mean {a:text} or {b:text} or {c:text}?":
        "{trouble}：是不是 {a}、{b} 或 {c}？",
    "{trouble:words}; did you mean {a:text} or {b:text}?": "{trouble}；是不是 {a} 或 {b}？",
    "{trouble:words}: did you mean {near:text}?": "{trouble}：是不是 {near}？",
    "{trouble:words}; did you mean {near:text}?": "{trouble}；是不是 {near}？",
    "{trouble:words}, and none is spelled alike": "{trouble}，也没有名称相近的",
}  # fmt: skip

NUMBERS = {
    "there is no value called {path:quoted}": "没有名为 {path} 的数值",
    "no value of this model is called {path:quoted}": "这个模型没有名为 {path} 的数值",
    "there is no feed-forward network at {path:quoted}": "{path} 处没有前馈网络",
    "there are no attention weights called {path:quoted}": "没有名为 {path} 的注意力权重",
    "nothing was recorded under {path:quoted}": "没有记录过 {path}",
    "nothing has been run yet: make a step first": "还没有运行：请先走一步",
    "nothing has been run yet": "还没有运行",
    "nothing has been run yet: make a step in both runs first": "还没有运行：请先在两次运行中各走一步",
    "there is no token {n:int}: {why:words}": "没有 token {n}：{why}",
    "the trace has tokens 0 to {n:int}": "记录中有 token 0 到 {n}",
    "the run has tokens 0 to {n:int}": "这次运行有 token 0 到 {n}",
    "the ids are 0 to {n:int}": "编号是 0 到 {n}",
    "this model knows the words {words:text} and no others: {rest:text} is none":
        "这个模型只认识这些词：{words}；{rest} 不在其中",
    "tokens 0 to {n:int} were run": "运行过的是 token 0 到 {n}",
    "there are no tokens from {a:int} to {b:int}: the run has 0 to {n:int}":
        "没有 token {a} 到 {b}：这次运行有 0 到 {n}",
    "{path:text} has {n:int} numbers there ({sizes:text}), and one answer holds {most:int}: ask for fewer "
    "tokens (first, last), channels (from:to) or one head":
        "{path} 在此处有 {n} 个数（{sizes}），而一次应答最多 {most} 个：请减少 "
        "token（first、last）、通道（from:to），或只取一个头",
    "{path:text} has the {axis:name}s {a:int} to {b:int}, not {low:int} to {high:int}":
        "{path} 的 {axis} 范围是 {a} 到 {b}，不是 {low} 到 {high}",
    "{path:text} has no heads: {axes:text} are its axes": "{path} 没有注意力头：它的轴是 {axes}",
    "{path:text} has the heads 0 to {n:int}, not {head:int}": "{path} 的头是 0 到 {n}，没有 {head}",
    "this model has no head, so nothing can be chosen from": "这个模型没有输出头，因此无从选择",
    "this model has no head, so its layers say no tokens": "这个模型没有输出头，因此各层不对应任何 token",
    "this model has no head: it gives hidden states, not logits":
        "这个模型没有输出头：它给出隐藏状态，而不是 logits",
    "the logit lens needs the outputs of blocks: record `blocks.*`":
        "逐层解读需要各层的输出：请记录 `blocks.*`",
    "the two models have no value in common": "两个模型没有共同的数值",
    "no activation is called {name:quoted}: choose one of {names:text}":
        "没有名为 {name} 的激活函数：请从 {names} 中选择",
    "{path:text} has no value for token {n:int}: it was computed for tokens {list:ints}":
        "{path} 没有 token {n} 的值：它只对 token {list} 计算过",
    "{path:text} has no value for token {n:int}: it was computed for tokens {a:int} to {b:int}":
        "{path} 没有 token {n} 的值：它只对 token {a} 到 {b} 计算过",
    "{path:text} has no value for token {n:int}: it was computed for no token":
        "{path} 没有 token {n} 的值：它没有对任何 token 计算过",
    "{path:text} has no value for tokens {n:int} to {m:int}: it was computed for tokens {list:ints}":
        "{path} 没有 token {n} 到 {m} 的值：它只对 token {list} 计算过",
    "{path:text} has no value for tokens {n:int} to {m:int}: it was computed for tokens {a:int} to {b:int}":
        "{path} 没有 token {n} 到 {m} 的值：它只对 token {a} 到 {b} 计算过",
    "{path:text} has no value for tokens {n:int} to {m:int}: it was computed for no token":
        "{path} 没有 token {n} 到 {m} 的值：它没有对任何 token 计算过",
    "{path:text} has no value: a traced run doesn't compute it": "{path} 没有值：带记录的运行不计算它",
    "{path:text} has no value for token {n:int}, which doesn't use expert {e:int}: {who:words}":
        "{path} 没有 token {n} 的值，它没有用到专家 {e}：{who}",
    "the router chose it for tokens {list:ints}": "路由为 token {list} 选了该专家",
    "the router chose it for tokens {a:int} to {b:int}": "路由为 token {a} 到 {b} 选了该专家",
    "no token chose it": "没有 token 选它",
    "{who:words}; token {n:int} uses experts {list:ints}": "{who}；token {n} 使用专家 {list}",
    "{who:words}; token {n:int} uses experts {a:int} to {b:int}":
        "{who}；token {n} 使用专家 {a} 到 {b}",
    "{path:text} has no number at {at:words}: it has {have:words}": "{path} 在 {at} 处没有数：它有{have}",
    "nothing": "空位置",
    "one number, which takes no index": "单独一个数，不需要下标",
    "channel {a:int} to {b:int}": "通道 {a} 到 {b}",
    "head {a:int} to {b:int}": "头 {a} 到 {b}",
    "seen {a:int} to {b:int}": "所看的 token {a} 到 {b}",
    "expert {a:int} to {b:int}": "专家 {a} 到 {b}",
    "entry {a:int} to {b:int}": "词条 {a} 到 {b}",
    "head {a:int} to {b:int}, {rest:words}": "头 {a} 到 {b}，{rest}",
    "this trace is of {theirs:text} ({family:text}), not of {ours:text}: {why:words}":
        "这份记录属于 {theirs}（{family}），不属于 {ours}：{why}",
    "it holds {path:text}, which that model doesn't have": "其中有 {path}，而那个模型没有",
    "{path:name} has {n:int} numbers a token here, {m:int} there":
        "{path} 在这里每个 token 有 {n} 个数，在那里有 {m} 个",
    "{path:name} has {n:int} heads here, {m:int} there": "{path} 在这里有 {n} 个头，在那里有 {m} 个",
    "it holds the id {n:int}, and that model's end at {m:int}":
        "其中有编号 {n}，而那个模型的编号到 {m} 为止",
    "index must be a whole number, or several such as (4, 5), found {x:text}":
        "index 必须是一个整数，或几个整数，如 (4, 5)，给出的是 {x}",
    "this trace holds {path:text}, which this model doesn't have: it is another's":
        "这份记录含有 {path}，而这个模型没有：它属于另一个模型",
    "the trace doesn't hold {path:text}, from which this is computed: record it too (select={name:quoted}"
    ", or everything)":
        "记录中没有 {path}，而这个数由它算出：请一并记录（select={name}，或全部记录）",
    "this explanation came without the model that it belongs to": "这份解释没有附带它所属的模型",
    "{path:text} has no input {n:int}: it {have:words}": "{path} 没有输入 {n}：它{have}",
    "has inputs 0 to {n:int}": "有输入 0 到 {n}",
    "is computed from no traced number": "不由任何已记录的数算出",
    "input {n:int} of {path:text} isn't computed: {why:words}": "{path} 的输入 {n} 不是算出来的：{why}",
    "this model reads a text in both directions: it samples nothing": "这个模型双向读取文本：不做采样",
    "nothing was sampled after token {n:int}: the prompt goes on there. The first id that was chosen "
    "comes after token {first:int}":
        "token {n} 之后没有采样：那里仍是提示词。第一个采样得到的编号在 token {first} 之后",
    "no id was made here, and the settings don't say a seed: it could be any":
        "这里没有生成编号，设置中也没有随机种子：可能是任何一个",
    "growth needs the outputs of blocks: record `blocks.*`, or select nothing":
        "残差流的增长需要各层的输出：请记录 `blocks.*`，或不做选择",
    "there are no attention weights: record `*.attention.weights`":
        "没有注意力权重：请记录 `*.attention.weights`",
    "the logit lens needs the model's head: name the MODEL beside --open":
        "逐层解读需要模型的输出头：请在 --open 之外给出 MODEL",
    "this model has no head, so there is no next token to compare: see --growth":
        "这个模型没有输出头，没有下一个 token 可比较：请看 --growth",
    "this trace would take {size:text}, more than the limit of {limit:text}; most of it: {shares:text}. "
    "Select less (select='blocks.*.ffn.*', say), or raise the limit":
        "这份记录需要 {size}，超过上限 {limit}；其中最多的是：{shares}。请减少选择（例如 "
        "select='blocks.*.ffn.*'），或提高上限",
}  # fmt: skip

RUNS = {
    "this run was closed: start it again": "这次运行已关闭：请重新开始",
    "this run isn't there any more: start it again": "这次运行已经不在了：请重新开始",
    "the text has ended here: go back first": "文本已在此结束：请先退回",
    "{added:int} tokens were added, so {n:int} can't be taken back: a new run has another prompt":
        "只生成了 {added} 个 token，无法退回 {n} 个：要换提示词请重新运行",
    "the prompt is {n:int} tokens; a run holds up to {most:int}":
        "提示词有 {n} 个 token；一次运行最多 {most} 个",
    "the prompt is {n:int} tokens, the context holds {most:int}: {advice:words}":
        "提示词有 {n} 个 token，上下文只有 {most}：{advice}",
    "the text is {n:int} tokens, the context holds {most:int}: {advice:words}":
        "文本有 {n} 个 token，上下文只有 {most}：{advice}",
    "shorten it": "请缩短",
    "the model was trained for {n:int}, so a larger context (--ctx) makes room":
        "模型训练时的长度是 {n}，可以用更大的上下文（--ctx）",
    "id {id:int} is outside the model's vocabulary, 0 to {last:int}":
        "编号 {id} 超出模型的词表，范围是 0 到 {last}",
    "{what:words} would take {mb:float} MB for {n:int} tokens, and all values together may take "
    "{most:float} MB: ask for fewer of them (such as blocks.0.ffn.down), use a shorter text, or start "
    "`glassgear view` with a larger --memory":
        "{what} 在 {n} 个 token 上需要 {mb} MB，而全部数值合计最多 {most} MB：请少取一些（例如 "
        "blocks.0.ffn.down）、缩短文本，或以更大的 --memory 启动 `glassgear view`",
    "{path:text} and {n:int} more values": "{path} 及另外 {n} 个数值",
    "a system message is part of a chat: a plain text has none": "系统消息属于对话：普通文本没有系统消息",
    'this model has no tokenizer: give ids, such as "1 2 3"':
        '这个模型没有分词器：请直接给出编号，例如 "1 2 3"',
    "this model has no token to start from: give a prompt": "这个模型没有可作开头的 token：请给出提示词",
    "{family:name} reads a text in both directions, so it can neither continue nor score one: embed "
    "(`glassgear embed`, model.embed) turns texts into vectors, fill (`glassgear fill`, model.fill) "
    "guesses masked words":
        "{family} 双向读取文本，因此不能续写也不能打分：embed（`glassgear "
        "embed`、model.embed）把文本变成向量，fill（`glassgear fill`、model.fill）猜出被遮住的词",
    "the text holds half a character (a lone surrogate)": "文本中有半个字符（单独的代理码元）",
    "messages need a chat template that writes them": "对话消息需要用对话模板来展开",
    "that would be {mb:float} MB: select less, such as blocks.0.*, or use `glassgear trace`":
        "共有 {mb} MB：请少选一些，例如 blocks.0.*，或使用 `glassgear trace`",
    "that would be {n:int} numbers, and JSON takes up to {most:int}: select less, such as "
    "blocks.0.ffn.down, or take safetensors":
        "共有 {n} 个数，而 JSON 最多 {most} 个：请少选一些，例如 blocks.0.ffn.down，或改用 safetensors",
    "nothing is selected: `*` is everything": "没有选择任何数值：`*` 表示全部",
    "{what:words} hold {found:words}, so no token can be chosen; the weights may be damaged, or a number "
    "overflowed on the way":
        "{what}含有 {found}，无法选出 token；权重可能已损坏，或计算中有数溢出",
    "the model's logits": "模型的 logits ",
    "the logits after bias, penalties and hook": "经过偏置、惩罚和自定义函数之后的 logits ",
    "the logits": "logits ",
    "{x:float} at id {id:int}": "{x}（编号 {id}）",
    "nothing but -inf": "全部为 -inf 的值",
}  # fmt: skip

SETTINGS = {
    "{name:name} must be a number, found {found:text}": "{name} 必须是数，给出的是 {found}",
    "{name:name} must be {bounds:words}, found {found:text}": "{name} {bounds}，给出的是 {found}",
    "from {low:float} to {high:float}": "必须在 {low} 到 {high} 之间",
    "{low:float} or more, and finite": "必须不小于 {low} 且有限",
    "finite": "必须有限",
    "{name:name} must be a whole number, found {found:text}": "{name} 必须是整数，给出的是 {found}",
    "{name:name} must be {low:int} or more, found {found:text}":
        "{name} 必须不小于 {low}，给出的是 {found}",
    "logit_bias must map ids to numbers, found {found:text}":
        "logit_bias 必须是编号到数的对应，给出的是 {found}",
    "repetition_penalty must be above 0, found 0; 1 turns it off":
        "repetition_penalty 必须大于 0，给出的是 0；1 表示关闭",
    "logit_bias names id {id:int}, but the vocabulary ends at id {last:int}":
        "logit_bias 指向编号 {id}，而词表到编号 {last} 为止",
}  # fmt: skip

MODELS = {
    "no model called {name:quoted} is loaded": "没有加载名为 {name} 的模型",
    "{n:int} models are loaded and in use, the most at a time: close the runs of one first":
        "已有 {n} 个模型加载并在使用，已达上限：请先关闭其中一个的运行",
    "{path:text}: is no file, no folder and no model's name": "{path}：不是文件、文件夹，也不是模型名称",
    "{trouble:words}; did you mean {near:text}? If it is on Hugging Face, write {name:name}":
        "{trouble}；是不是 {near}？如果它在 Hugging Face 上，请写 {name}",
    "{trouble:words}; on Hugging Face it is {name:name}": "{trouble}；在 Hugging Face 上写作 {name}",
    "{trouble:words}; `glassgear list` shows the models that are there":
        "{trouble}；`glassgear list` 列出可用的模型",
    "{trouble:words}: write {name:name}": "{trouble}：请写 {name}",
    "{name:text}: isn't on this machine yet: `glassgear pull {same:text}` fetches it ({size:text})":
        "{name}：本机还没有：`glassgear pull {same}` 可以下载（{size}）",
    "{name:text}: isn't in the cache, or not all of it: `glassgear pull {same:text}` fetches it":
        "{name}：不在缓存中，或不完整：`glassgear pull {same}` 可以下载",
    "{name:text}: {path:text} has {n:int} bytes instead of {size:int}: `glassgear pull {same:text}` "
    "fetches it again":
        "{name}：{path} 有 {n} 字节，应为 {size}：`glassgear pull {same}` 可以重新下载",
    "'': no model was named; `glassgear list` shows what is there":
        "没有给出模型名称；`glassgear list` 列出可用的模型",
    "{path:text}: is neither a file nor a folder": "{path}：既不是文件也不是文件夹",
    "{path:text}: can't be opened: {why:text}": "{path}：无法打开：{why}",
    "{path:text}: is a bare safetensors file: give the folder that also holds its config.json":
        "{path}：是单独的 safetensors 文件：请给出同时含有 config.json 的文件夹",
    "{path:text}: holds the architecture {kind:quoted}; this version runs {names:text}":
        "{path}：架构是 {kind}；本版本支持 {names}",
    "{path:text}: holds a model of type {kind:quoted}; this version runs {names:text}":
        "{path}：模型类型是 {kind}；本版本支持 {names}",
    "{path:text}: holds a vocabulary but no weights": "{path}：只有词表，没有权重",
    "{path:text} has no tokenizer: give one with --tokenizer (tokenizer= in Python), or use ids":
        "{path} 没有分词器：请用 --tokenizer（Python 中为 tokenizer=）给出，或直接使用编号",
    "the tokenizer has {n:int} entries, the model {m:int}: they don't belong together":
        "分词器有 {n} 个词条，模型有 {m} 个：它们不配套",
}  # fmt: skip

TEMPLATES = {
    "this model came without a chat template, so how it expects a conversation to be written isn't known: "
    "give a Jinja template, or continue a plain prompt instead":
        "这个模型没有附带对话模板，不知道它要求的对话写法：请提供 Jinja 模板，或改为续写普通提示词",
    "this model came without a chat template, so how it expects a conversation to be written isn't known: "
    "choose template={name:quoted}, or give a Jinja template, or continue a plain prompt instead":
        "这个模型没有附带对话模板，不知道它要求的对话写法：请选择 template={name}，或提供 Jinja 模板，或改"
        "为续写普通提示词",
    "the chat template refuses these messages: {why:text}": "对话模板拒绝了这些消息：{why}",
    "the chat template is broken at line {n:int}: {why:text}": "对话模板第 {n} 行有错误：{why}",
    "the chat template was stopped: {why:text}": "对话模板被中止：{why}",
    "the chat template failed: {why:text}": "对话模板出错：{why}",
    "the tokenizer makes the control token {token:text} out of plain text, so this conversation can't be "
    "encoded safely":
        "分词器会从普通文本生成控制 token {token}，因此无法安全地编码这段对话",
}  # fmt: skip

REQUESTS = {
    "there is nothing at this address": "这个地址没有内容",
    "there isn't enough memory for this: a shorter text needs less": "内存不足：缩短文本可以减少占用",
    "this is a fault in Glassgear: {kind:name}": "这是 Glassgear 自身的错误：{kind}",
    "a request may have {n:int} bytes": "一次请求最多 {n} 字节",
    "{where:name}: input should be greater than or equal to {n:float}": "{where}：不应小于 {n}",
    "{where:name}: input should be less than or equal to {n:float}": "{where}：不应大于 {n}",
    "{where:name}: input should be a valid {kind:text}": "{where}：类型不对，应为 {kind}",
    "the body isn't valid JSON, at character {n:int}: {why:text}":
        "请求体不是有效的 JSON，第 {n} 个字符处：{why}",
    "the body must be a JSON object with names and values": "请求体必须是由名称和值组成的 JSON 对象",
    "the body can't be read: it must be JSON in UTF-8, not too deeply nested":
        "无法读取请求体：必须是 UTF-8 编码的 JSON，嵌套不能太深",
    "{where:name}: field required": "{where}：缺少这一项",
    "{where:name}: string should have at most {n:int} characters": "{where}：最多 {n} 个字符",
    "{where:name}: string should have at least {n:int} character": "{where}：至少 {n} 个字符",
    "{where:name}: extra inputs are not permitted": "{where}：多余的项",
    "this server isn't called {name:quoted}: open it under the address that it printed":
        "这个服务器不叫 {name}：请用它打印的地址打开",
    "requests from {name:text} are refused: only the page itself may ask":
        "拒绝来自 {name} 的请求：只有页面自身可以访问",
    "{method:name} isn't understood here": "这里不支持 {method}",
    "the body must be JSON (Content-Type: application/json)":
        "请求体必须是 JSON（Content-Type: application/json）",
}  # fmt: skip

SENTENCES = {
    **GEARS, **STAGES, **PROMPTS, **NEAR, **NUMBERS, **RUNS, **SETTINGS, **MODELS, **TEMPLATES, **REQUESTS,
}  # fmt: skip
