"""Chinese: explanations of numbers. Field terms as Chinese textbooks and papers have them."""

from __future__ import annotations

__all__ = ["SENTENCES"]

# --- formulas and where they are from -----------------------------------------------------------

FORMULAS = {
    "y = x / sqrt(mean of squares + eps) * weight: the row keeps its direction, its size becomes 1":
        "y = x / sqrt(平方的均值 + eps) * 权重：向量方向不变，大小归一为 1",
    "y = (x - mean) / sqrt(variance + eps) * weight + bias":
        "y = (x - 均值) / sqrt(方差 + eps) * 权重 + 偏置",
    "y = g * x / max(length of x, eps), one g for all channels":
        "y = g * x / max(x 的长度, eps)，所有通道共用一个 g",
    "y = (x - mean) / sqrt(variance + eps) * weight + bias, mean and variance stored with the model":
        "y = (x - 均值) / sqrt(方差 + eps) * 权重 + 偏置，均值和方差随模型存储",
    "y = x * weight + bias, channel by channel": "y = x * 权重 + 偏置，逐通道计算",
    "y = x * sigmoid(x), SiLU or Swish": "y = x * sigmoid(x)，即 SiLU（又称 Swish）",
    "y = x * Phi(x), GELU, Phi the normal distribution": "y = x * Phi(x)，即 GELU，Phi 是标准正态分布函数",
    "y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2":
        "y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2",
    "y = max(0, x), ReLU": "y = max(0, x)，即 ReLU",
    "y = x": "y = x",
    "the row of a table for the token's type": "取表中该 token 类型对应的一行",
    "the row of a table for the position": "取表中该位置对应的一行",
    "the row of a table for the token's id": "取表中该 token 编号对应的一行",
    "the row of a table for the token's id times {scale:float}":
        "取表中该 token 编号对应的一行，再乘以 {scale}",
    "what several tables say of a token, added up in this order": "几张表中该 token 的行，按此顺序相加",
    "y = sum of [next, own, previous embedding] times a row of weights + bias":
        "y = Σ [后一个、自身、前一个 token 的嵌入] * 权重的一行 + 偏置",
    "the pair (a, b) of channels is turned by position * frequency: a cos - b sin, a sin + b cos":
        "通道对 (a, b) 旋转 位置 * 频率 的角度：a cos - b sin, a sin + b cos",
    "weight = exp(score - maximum) / sum of the same over the seen tokens":
        "注意力权重 = exp(分数 - 最大分数) / 对所有可见 token 的同一式求和",
    "sum over seen tokens of weight times value": "对可见的 token 求和：注意力权重 * 值",
    "score = (W^T q . latent + turned query . shared key) * scale":
        "分数 = (W^T q · 潜向量 + 旋转后的查询 · 共享的键) * 缩放系数",
    "sum over seen tokens of weight times value, value = W latent":
        "对可见的 token 求和：注意力权重 * 值，其中 值 = W * 潜向量",
    "activated gate times up: the gate says how much of each channel passes":
        "激活后的门控 * 升维投影：门控决定每个通道放行多少",
    "what came along the stream + what the sublayer says": "残差流的已有值 + 子层的输出",
    "sum over the chosen experts of weight times output, and the shared one's":
        "对选中的专家求和：权重 * 输出，再加上共享专家的输出",
    "y = tanh(x)": "y = tanh(x)",
    "probability = exp(logit - maximum) / sum of the same over the vocabulary":
        "概率 = exp(logit - 最大 logit) / 对整个词表的同一式求和",
    "ids are removed and logits changed stage by stage, then one is taken":
        "逐个阶段剔除编号、调整 logits，最后取其中一个",
    "score = query . key * scale: how well the token's question fits the other's label":
        "分数 = 查询 · 键 * 缩放系数：该 token 的查询与另一个 token 的键有多匹配",
    "score = query . key * scale, s -> cap tanh(s / cap): how well the token's question fits the other's "
    "label":
        "分数 = 查询 · 键 * 缩放系数，再做软截断 s -> cap tanh(s / cap)：该 token 的查询与另一个 token 的"
        "键有多匹配",
    "logit = sum of hidden state times the entry's row of weights": "logit = Σ 隐藏状态 * 该词条的一行权重",
    "{f:words} (the embedding's own table)": "{f}（与嵌入共用同一张表）",
    "{f:words} + bias": "{f} + 偏置",
    "{f:words}, z -> cap tanh(z / cap)": "{f}，再做软截断 z -> cap tanh(z / cap)",
    "y = sum of inputs times a row of weights": "y = Σ 输入 * 权重的一行",
    "the last value inside of this {gear:name}, under the gear's own name":
        "{gear} 内部的最后一个值，以部件自己的名字给出",
    "score = sigmoid(logit)": "分数 = sigmoid(logit)",
    "score = exp(logit - maximum) / sum of the same":
        "分数 = exp(logit - 最大 logit) / 对所有专家的同一式求和",
    "weight = score of the best {used:int} of {count:int} experts, else 0":
        "权重 = 分数，限 {count} 个专家中最好的 {used} 个，其余为 0",
    "weight = score * {scale:float} of the best {used:int} of {count:int} experts, else 0":
        "权重 = 分数 * {scale}，限 {count} 个专家中最好的 {used} 个，其余为 0",
    "weight = score / sum of the chosen scores of the best {used:int} of {count:int} experts, else 0":
        "权重 = 分数 / 选中分数之和，限 {count} 个专家中最好的 {used} 个，其余为 0",
    "weight = score / sum of the chosen scores * {scale:float} of the best {used:int} of {count:int} "
    "experts, else 0":
        "权重 = 分数 / 选中分数之和 * {scale}，限 {count} 个专家中最好的 {used} 个，其余为 0",
    "sum of tables": "各表之和", "softmax": "softmax", "sampler": "采样器",
}  # fmt: skip

SOURCES = {
    'Zhang & Sennrich 2019, "Root Mean Square Layer Normalization"':
        "Zhang 与 Sennrich，2019，《Root Mean Square Layer Normalization》",
    'Ba et al. 2016, "Layer Normalization"': "Ba 等，2016，《Layer Normalization》",
    'Nguyen & Salazar 2019, "Transformers without Tears"':
        "Nguyen 与 Salazar，2019，《Transformers without Tears》",
    'Ioffe & Szegedy 2015, "Batch Normalization"': "Ioffe 与 Szegedy，2015，《Batch Normalization》",
    'Sun et al. 2020, "MobileBERT", section {s:name}': "Sun 等，2020，《MobileBERT》第 {s} 节",
    "Elfwing et al. 2017; Ramachandran et al. 2017": "Elfwing 等，2017；Ramachandran 等，2017",
    "Hendrycks & Gimpel 2016": "Hendrycks 与 Gimpel，2016",
    "Nair & Hinton 2010": "Nair 与 Hinton，2010",
    'Devlin et al. 2018, "BERT"': "Devlin 等，2018，《BERT》",
    'Devlin et al. 2018, "BERT", section {s:name}': "Devlin 等，2018，《BERT》第 {s} 节",
    "Radford et al. 2018; Devlin et al. 2018": "Radford 等，2018；Devlin 等，2018",
    "Devlin et al. 2018, figure {n:int}": "Devlin 等，2018，图 {n}",
    'Su et al. 2021, "RoFormer", equation {n:int}': "Su 等，2021，《RoFormer》公式 ({n})",
    "Vaswani et al. 2017, equation {n:int}": "Vaswani 等，2017，公式 ({n})",
    "Vaswani et al. 2017, equation {n:int}; Gemma Team 2024 (cap)":
        "Vaswani 等，2017，公式 ({n})；Gemma 团队，2024（软截断）",
    "Vaswani et al. 2017, section {s:name}": "Vaswani 等，2017，第 {s} 节",
    'DeepSeek-AI 2024, "DeepSeek-V2", section {s:name}, absorbed form':
        "DeepSeek-AI，2024，《DeepSeek-V2》第 {s} 节，矩阵吸收形式",
    'DeepSeek-AI 2024, "DeepSeek-V2", section {s:name}': "DeepSeek-AI，2024，《DeepSeek-V2》第 {s} 节",
    'DeepSeek-AI 2024, "DeepSeek-V3", section {s:name}': "DeepSeek-AI，2024，《DeepSeek-V3》第 {s} 节",
    'Shazeer 2020, "GLU Variants Improve Transformer"':
        "Shazeer，2020，《GLU Variants Improve Transformer》",
    "He et al. 2016; Vaswani et al. 2017": "He 等，2016；Vaswani 等，2017",
    'Shazeer et al. 2017, "Outrageously Large Neural Networks"':
        "Shazeer 等，2017，《Outrageously Large Neural Networks》",
    "Shazeer et al. 2017, section {s:name}": "Shazeer 等，2017，第 {s} 节",
    'Shazeer et al. 2017; DeepSeek-AI 2024, "DeepSeek-V3", section {s:name}':
        "Shazeer 等，2017；DeepSeek-AI，2024，《DeepSeek-V3》第 {s} 节",
    "Holtzman et al. 2020 (top-p); Nguyen et al. 2024 (min-p)":
        "Holtzman 等，2020（top-p）；Nguyen 等，2024（min-p）",
    "Press & Wolf 2017 (tied tables)": "Press 与 Wolf，2017（共享词表权重）",
    "y = x W^T": "y = x W^T", "y = x W^T + b": "y = x W^T + b",
}  # fmt: skip

# --- how it compares, and in which order it was computed ----------------------------------------

VERDICTS = {
    "the backend doesn't show this number: it follows from those that it shows":
        "后端不直接给出这个数：它由后端给出的数推算而来",
    "the traced number, bit for bit": "与运行记录逐位相同",
    "the trace has {traced:float}: {difference:float}, {ulps:float} units of its last place, {share:float}"
    " of the sum of absolute terms":
        "运行记录为 {traced}：相差 {difference}，合 {ulps} 个末位单位（ulp），为各项绝对值之和的 {share}",
}  # fmt: skip

ORDERS = {
    "a copy": "直接复制",
    "a copy of the table's number": "直接取表中的数",
    "the mask": "由掩码决定", "the choice": "由专家选择决定",
    "float32, one operation": "float32，一次运算",
    "float32 operations in the order of the formula": "float32 运算，按公式的顺序",
    "NumPy's float32 operations in the order of the formula": "NumPy 的 float32 运算，按公式的顺序",
    "NumPy's float32 operations": "NumPy 的 float32 运算",
    "NumPy's float32 softmax": "NumPy 的 float32 softmax",
    "the CPU kernel's float32 operations": "CPU 核函数的 float32 运算",
    "the CPU kernel's order: input by input, each multiplied and added with one rounding":
        "CPU 核函数的顺序：逐个输入，每次乘加只舍入一次",
    "the CPU kernel's order: integer sums, which are exact, then block by block in float32":
        "CPU 核函数的顺序：先做精确的整数求和，再以 float32 逐块累加",
    "added in float64 and rounded once; the backend's matrix product adds in an order of its own":
        "以 float64 相加后舍入一次；后端的矩阵乘法另有自己的累加顺序",
    "the CPU kernel's order: channel by channel, each multiplied and added with one rounding":
        "CPU 核函数的顺序：逐个通道，每次乘加只舍入一次",
    "the CPU kernel's: query and key as int16 codes, their products summed exactly":
        "CPU 核函数的方式：查询和键取 int16 编码，乘积精确求和",
    "the CPU kernel's order: pages of 64 tokens with a running maximum, token by token with one rounding, "
    "divided by the sum of exponentials at the end":
        "CPU 核函数的顺序：每页 64 个 token，随时更新最大值，逐个 token 乘加且各舍入一次，最后除以指数之和",
    "the CPU kernel's order: pages of 64 tokens with a running maximum, weights and values as int16 codes "
    "whose products are summed exactly, divided by the sum of exponentials at the end":
        "CPU 核函数的顺序：每页 64 个 token，随时更新最大值，注意力权重和值取 int16 编码、乘积精确求和，最"
        "后除以指数之和",
    "{order:words}; latents first, then the row": "{order}；先混合潜向量，再乘权重行",
    "the CPU kernels' order: the query is carried to the latents first, then channel by channel":
        "CPU 核函数的顺序：先把查询变换到潜空间，再逐个通道乘加",
    "the CPU kernel's order: 16 lanes in two sets, whose sums are added in halves":
        "CPU 核函数的顺序：两组各 16 路并行累加，各路之和再两两折半相加",
    "the CPU kernel's: times the weight, plus the bias, with one rounding":
        "CPU 核函数的方式：乘权重、加偏置，只舍入一次",
    "float32, in the order of the choice": "float32，按选中的先后顺序",
    "float32, by rising number of the expert, the shared one last":
        "float32，按专家编号从小到大，共享专家最后",
    "exponentials in float32, their sum in float64": "指数用 float32，求和用 float64",
    "the sampler's own stages": "采样器自身的各个阶段",
    "the change": "由改动决定",
}  # fmt: skip

SUMS = {
    "the pair, turned": "旋转后的通道对",
    "scale times query times key": "缩放系数 * 查询 * 键",
    "scale times query times what is kept of the token": "缩放系数 * 查询 * 缓存中该 token 的内容",
    "the exponentials": "各个指数",
    "weight times value": "注意力权重 * 值",
    "weight times input": "权重 * 输入",
    "weight times output": "权重 * 输出",
    "the chosen experts' scores": "选中专家的分数",
    "the squares that make the size": "决定大小的各个平方",
    "the inputs": "各个输入",
    "probabilities of the ids that are left": "剩余编号的概率",
}  # fmt: skip

# --- names: of terms, inputs, factors, roles, steps ----------------------------------------------

PLACES = {
    "token {n:int}": "token {n}",
    "token {n:int} {text:quoted}": "token {n} {text}",
    "id {n:int}": "编号 {n}",
    "id {n:int} {text:quoted}": "编号 {n} {text}",
    "channel {c:int}": "通道 {c}",
    "head {h:int}, channel {c:int}": "头 {h}，通道 {c}",
    "expert {n:int}": "专家 {n}", "shared expert": "共享专家",
    "latent channel {c:int}": "潜向量通道 {c}",
    "turned channel {c:int}": "旋转通道 {c}",
    "next token, {place:words}": "后一个 token，{place}",
    "own token, {place:words}": "自身，{place}",
    "previous token, {place:words}": "前一个 token，{place}",
    "no next token: 0": "没有后一个 token：0",
    "no previous token: 0": "没有前一个 token：0",
    "stream: {path:place}": "残差流：{path}",
    "branch: {path:place}": "支路：{path}",
    "the last value inside it: {path:place}": "其内部的最后一个值：{path}",
    "query channel {c:int}": "查询的通道 {c}",
    "key channel {c:int} of {token:words}": "{token} 的键的通道 {c}",
    "turned query channel {c:int}": "旋转后查询的通道 {c}",
    "latent channel {c:int} of {token:words}": "{token} 的潜向量通道 {c}",
    "shared key channel {c:int} of {token:words}": "{token} 的共享键的通道 {c}",
    "score of {what:words}": "{what}的分数",
    "weight of token {n:int}": "对 token {n} 的注意力权重",
    "weight of token {n:int} {text:quoted}": "对 token {n} {text} 的注意力权重",
    "value of {token:words}": "{token} 的值",
    "weight of expert {n:int}": "专家 {n} 的权重",
    "logit of {what:words}": "{what} 的 logit",
    "output of expert {n:int}": "专家 {n} 的输出",
    "output of the shared expert": "共享专家的输出",
}  # fmt: skip

NAMES = {
    "weight": "权重", "bias": "偏置", "table": "表", "correction": "修正", "extra": "附加权重",
    "mean": "均值", "variance": "方差", "input": "输入", "input in int8": "输入（int8）", "query": "查询",
    "key": "键", "key in float16": "键（float16）", "key in int16": "键（int16）", "value": "值",
    "value in float16": "值（float16）", "value in int16": "值（int16）", "latent": "潜向量",
    "latent in float16": "潜向量（float16）",
    "carried query": "变换后的查询", "score": "分数", "logit": "logit", "after all stages": "所有阶段之后",
    "output": "输出", "x": "x", "x less mean": "x - 均值", "cos": "cos", "-sin": "-sin", "sin": "sin",
    "channel": "通道", "pair": "通道对", "frequency": "频率", "angle": "角度", "mask": "掩码",
    "key head": "键头", "value head": "值头", "scale": "缩放系数", "before the cap": "软截断之前",
    "cap": "软截断", "maximum": "最大值", "exponential": "指数", "sum": "总和", "sigmoid": "sigmoid",
    "choice by": "选择依据", "chosen": "选中", "rank": "名次", "groups": "分组", "open groups": "开放的组",
    "first sum": "第一个和", "second sum": "第二个和", "length": "长度", "mean square": "均方",
    "eps": "eps", "row": "行", "entry": "元素", "level": "量化级", "minimum": "最小值", "SiLU": "SiLU",
    "Phi": "Phi", "GELU": "GELU", "u": "u", "tanh": "tanh", "ReLU": "ReLU", "identity": "恒等",
    "activated": "激活后的门控", "up": "升维投影", "product": "乘积", "probability": "概率",
    "log-probability": "对数概率", "set to zero": "置零", "replaced": "替换", "without that": "未改动时",
    "cut": "切断",
    "left out": "略去", "margin": "领先幅度", "random number": "随机数", "interval": "区间",
}  # fmt: skip

# --- lines of arithmetic --------------------------------------------------------------------------

STEPS = {
    "a token after this one, or outside of the window: its score is -inf and its weight 0":
        "在当前 token 之后，或在窗口之外：分数为 -inf，注意力权重为 0",
    "only the first {n:int} channels are turned: it stays as it is":
        "只有前 {n} 个通道参与旋转：这个通道保持不变",
    "number {n:int} of {count:int}, in the pairing `half`":
        "编号 {n}（共 {count} 对），按前后两半配对（`half`）",
    "number {n:int} of {count:int}, in the pairing `interleaved`":
        "编号 {n}（共 {count} 对），按相邻通道配对（`interleaved`）",
    "{theta:float}^(-{a:int}/{b:int})": "{theta}^(-{a}/{b})",
    "{theta:float}^(-{a:int}/{b:int}), scaled by {kind:name}": "{theta}^(-{a}/{b})，按 {kind} 方式缩放",
    "position {n:int} * frequency, radians": "位置 {n} * 频率，单位弧度",
    "of the angle": "该角度的三角函数值",
    "of the angle * {f:float}": "该角度的三角函数值 * {f}",
    "query head {q:int} reads key head {k:int} of {n:int}": "查询头 {q} 读取键头 {k}（共 {n} 个）",
    "query head {q:int} reads value head {k:int} of {n:int}": "查询头 {q} 读取值头 {k}（共 {n} 个）",
    "of the model": "由模型给定",
    "1 / sqrt({n:int})": "1 / sqrt({n})",
    "the sum": "总和",
    "s becomes cap * tanh(s / cap)": "s 变为 cap * tanh(s / cap)",
    "z becomes cap * tanh(z / cap)": "z 变为 cap * tanh(z / cap)",
    "over {n:int} seen tokens, taken off every score": "{n} 个可见 token 中的最大分数，从每个分数中减去",
    "of the score of {token:words}, less the maximum": "{token} 的分数减去最大值，再取指数",
    "of all exponentials": "所有指数之和",
    "exponential / sum": "指数 / 总和",
    "1 / (1 + e^-x) of the logit": "对 logit 取 1 / (1 + e^-x)",
    "of all logits, taken off each": "所有 logit 中的最大者，从每个中减去",
    "of expert {n:int}": "专家 {n} 的",
    "experts {list:ints}, best first": "专家 {list}，从好到差",
    "score + stored correction, which doesn't enter the weight": "分数 + 存储的修正项（修正项不计入权重）",
    "number {n:int} of {count:int} by score: not chosen, so its weight is 0":
        "按分数在 {count} 个中排第 {n}：未被选中，权重为 0",
    "of the chosen experts' scores, divides it": "选中专家的分数之和，作除数",
    "is multiplied": "相乘",
    "of {n:int} experts, worth the sum of its two best: {list:text}":
        "每组 {n} 个专家，以最好的两个分数之和计：{list}",
    "of {n:int} experts, worth its best: {list:text}": "每组 {n} 个专家，以最好的一个分数计：{list}",
    "W^T q: head {h:int}'s key rows of kv_up, turned round, times its query":
        "W^T q：kv_up 中头 {h} 的键的各行，转置后乘以它的查询",
    "what scores are multiplied by": "分数所乘的系数",
    "row {r:int} of head {h:int}'s value rows of kv_up times the token's latent":
        "kv_up 中头 {h} 的值的行 {r}，乘以该 token 的潜向量",
    "of the terms": "各项之和", "of all terms": "所有项之和", "is added": "相加",
    "over channels {a:int} to {b:int}, by the embedding's table": "通道 {a} 到 {b}，用嵌入表",
    "over channels {a:int} to {b:int}, by weights of their own": "通道 {a} 到 {b}，用单独的权重",
    "sum and bias": "总和加偏置",
    "channel {c:int} of the input": "输入的通道 {c}",
    "of all {n:int} channels, is taken off": "全部 {n} 个通道的均值，从输入中减去",
    "the root of the sum of squares": "平方和的平方根",
    "the sum of squares / {n:int}": "平方和 / {n}",
    "is added before the root": "开方之前加上",
    "1 / root, what x is multiplied by": "1 / 平方根，x 乘以它",
    "stored weight + {offset:float}": "存储的权重 + {offset}",
    "of the norm": "归一化的权重", "stored": "随模型存储", "weight / root": "权重 / 平方根",
    "bias - mean * weight / root": "偏置 - 均值 * 权重 / 平方根",
    "the id of {token:words}: row {row:int} of {count:int}": "{token} 的编号：行 {row}（共 {count} 行）",
    "position {n:int}: row {row:int} of {count:int}": "位置 {n}：行 {row}（共 {count} 行）",
    "position {n:int} + {offset:int}: row {row:int} of {count:int}":
        "位置 {n} + {offset}：行 {row}（共 {count} 行）",
    "the token's type: row {row:int} of {count:int}": "该 token 的类型：行 {row}（共 {count} 行）",
    "column {c:int} of that row": "该行的列 {c}",
    "the integer that code {code:int} stands for": "编码 {code} 所代表的整数",
    "of its block": "所在块的",
    "of the embedding, is multiplied": "嵌入的缩放系数，相乘",
    "what comes in": "输入值",
    "1 / (1 + e^-x), how far the gate is open": "1 / (1 + e^-x)，门打开的程度",
    "(1 + erf(x / sqrt 2)) / 2, how far the gate is open": "(1 + erf(x / sqrt 2)) / 2，门打开的程度",
    "x * sigmoid": "x * sigmoid", "x * Phi": "x * Phi",
    "sqrt(2/pi) (x + 0.044715 x^3)": "sqrt(2/pi) (x + 0.044715 x^3)",
    "of u": "对 u 取 tanh", "of x": "对 x 取 tanh",
    "x (1 + tanh u) / 2": "x (1 + tanh u) / 2",
    "x is above 0: it stays": "x 大于 0：保持不变",
    "x isn't above 0: it becomes 0": "x 不大于 0：变为 0",
    "x stays as it is": "x 保持不变", "input {n:int}": "输入 {n}", "of the two": "两者相乘",
    "of {id:words}, number {n:int} by size": "{id}，按大小排第 {n}",
    "the logit of {id:words}": "{id} 的 logit",
    "of logit less maximum": "logit 减去最大值，再取指数",
    "of all {n:int} exponentials": "全部 {n} 个指数之和",
    "its natural logarithm": "取自然对数",
    "{n:int} ids are left; probability of {id:words}": "剩余 {n} 个编号；{id} 的概率",
    "{n:int} ids are left, {gone:int} removed; probability of {id:words}":
        "剩余 {n} 个编号，剔除 {gone} 个；{id} 的概率",
    "the largest logit, less the next: that of {id:words}": "最大的 logit 减去次大的，即 {id} 的",
    "isn't known: the trace holds no seed": "未知：运行记录中没有随机种子",
    "drawn from [0, 1)": "从 [0, 1) 中抽取",
    "this run sets this number to 0 (ablation)": "这次运行把这个数置为 0（消融）",
    "this run puts this number in the place of what the gear made (change)":
        "这次运行用这个数替换部件算出的值（改动）",
    "what the gear made of its inputs, which nobody reads": "部件由输入算出的值，没有被任何部件读取",
    "this run leaves out what came along the stream (ablation): what the sublayer says goes on alone":
        "这次运行略去残差流的已有值（消融）：只有子层的输出继续向后",
    "what came along the stream": "残差流的已有值",
    "ids in rising order share [0, 1): {id:words} has [{low:float}, {high:float})":
        "各编号从小到大分占 [0, 1)：{id} 占 [{low}, {high})",
}  # fmt: skip

# --- as the page of text has it -------------------------------------------------------------------

PAGE = {
    "{path:place} of token {n:int}": "token {n} 的 {path}",
    "{path:place} of token {n:int} {text:quoted}": "token {n} {text} 的 {path}",
    "{title:words}, input {n:int}: {name:words}": "{title}，输入 {n}：{name}",
    "{gear:words}: {formula:words}": "{gear}：{formula}",
    "{gear:words}: {formula:words}  ({source:words})": "{gear}：{formula}（{source}）",
    "backend {name:name}": "后端 {name}",
    "backend {name:name}, {place:words}": "后端 {name}，{place}",
    "head {h:int}, seen {c:int}": "头 {h}，所看的 token {c}",
    "entry {c:int}": "词条 {c}",
    "weight: {about:text}": "权重：{about}",
    "bias: {about:text}": "偏置：{about}",
    "table: {about:text}": "表：{about}",
    "correction: {about:text}": "修正：{about}",
    "extra: {about:text}": "附加权重：{about}",
    "mean: {about:text}": "均值：{about}",
    "variance: {about:text}": "方差：{about}",
    "{n:int} terms, {how:words}: {what:words}": "共 {n} 项，{how}：{what}",
    "in the backend's order": "按后端的顺序",
    "in order": "按顺序", "largest first": "从大到小", "{n:int} more": "还有 {n} 个", "inputs": "输入",
    "term": "项", "sum so far": "累加", "backend's sum": "后端的累加", "block": "块", "dot": "整数点积",
    "codes' sum": "编码之和", "unit": "单位", "adds": "贡献", "code": "编码", "input's value": "输入值",
    "input's code": "输入编码", "product of integers": "整数乘积",
    "{n:int} blocks of {type:name}, {how:words}: {what:words}": "{type} 共 {n} 块，{how}：{what}",
    "scale * weights * inputs": "缩放系数 * 权重 * 输入",
    "(scale * dot + minimum * codes' sum) * unit": "(缩放系数 * 整数点积 + 最小值 * 编码之和) * 单位",
    "scale * dot * unit": "缩放系数 * 整数点积 * 单位",
    "there is no block {n:int}: the row has blocks 0 to {last:int}":
        "没有块 {n}：这一行有块 0 到 {last}",
    "block {n:int}, inputs {a:int} to {b:int}, as {type:name} stores it":
        "块 {n}，输入 {a} 到 {b}，{type} 的存储方式",
    "bytes: {hex:text}": "字节：{hex}", "codes: {hex:text}": "编码：{hex}",
    "high_bits: {hex:text}": "高位：{hex}",
    "scales: {hex:text}": "各缩放系数：{hex}",
    "high_scales: {hex:text}": "各缩放系数的高位：{hex}",
    "scale: {value:float}": "缩放系数：{value}",
    "minimum: {value:float}": "最小值：{value}",
    "bytes": "字节", "codes": "编码", "high_bits": "高位", "scales": "各缩放系数",
    "high_scales": "各缩放系数的高位",
    "weight = {scale:float} * level": "权重 = {scale} * 量化级",
    "weight = {scale:float} * level + {low:float}": "权重 = {scale} * 量化级 + {low}",
    "weight = {scale:float} * level - {low:float}": "权重 = {scale} * 量化级 - {low}",
    "input = {unit:float} * its code, int8": "输入 = {unit} * 它的编码（int8）",
    "adds ({sum:text}) * {unit:float} = {value:float}": "贡献 ({sum}) * {unit} = {value}",
    "steps": "步骤", "result": "结果",
    "{number:float}  {verdict:words}": "{number}  {verdict}",
    "computed: {order:words}": "计算方式：{order}",
    "an input's own explanation: --follow NUMBER, or .follow(NUMBER)":
        "解释某个输入：--follow 编号，或 .follow(编号)",
    "without --index this is the largest number of {path:place}":
        "没有给出 --index，这是 {path} 中最大的数",
}  # fmt: skip

SENTENCES = {**FORMULAS, **SOURCES, **VERDICTS, **ORDERS, **SUMS, **PLACES, **NAMES, **STEPS, **PAGE}
