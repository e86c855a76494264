/** Every text of the page, in both languages. A text with {name} takes a value. */

const T = {
  skip: ["To the values", "跳到数值"],
  model: ["Model", "模型"],
  prompt: ["Prompt", "提示词"],
  prompt_hint: ["A text to start from", "写一段开头"],
  run: ["Run", "运行"],
  run_tip: ["Run the prompt (Enter)", "运行提示词（回车）"],
  transport: ["Step through the text", "逐个 token 前进"],
  back: ["Take back a token (Backspace)", "退回一个 token（退格键）"],
  play: ["Play and pause (Space)", "播放与暂停（空格键）"],
  step: ["Make one token (Enter or N)", "生成一个 token（回车或 N）"],
  tour: ["Tour", "导览"],
  change: ["Change", "改动"],
  change_tip: ["Switch off a head, a network, a layer; swap an activation", "关掉一个头、一个网络、一层；换激活函数"],
  compare: ["Compare", "对比"],
  compare_tip: ["A second prompt or model beside this one", "再放一个提示词或模型在旁边"],
  export: ["Export", "导出"],
  language: ["Change the language to 中文", "Switch to English"],
  language_button: ["中文", "English"],
  theme: ["Light or dark", "浅色或深色"],
  help: ["Help and keys (?)", "帮助与快捷键（?）"],
  machine: ["The machine", "机器"],
  value: ["The value", "数值"],
  text_and_next: ["Text and next token", "文本与下一个 token"],
  whole_model: ["Model", "模型"],
  zoom_in: ["Zoom into the selected gear (+)", "放大所选部件（+）"],
  zoom_out: ["Zoom out (−)", "缩小（−）"],
  layer: ["Layer {n}", "层 {n}"],
  layers: ["{n} layers", "{n} 层"], one_layer: ["1 layer", "1 层"],
  loading: ["Loading {name} …", "正在加载 {name} …"],
  running: ["Running …", "正在运行 …"],
  first_time: ["the first time may take a while", "第一次会慢一些"],
  ms: ["{n} ms", "{n} 毫秒"],
  making: ["Making tokens: {n} of {all} …", "正在生成 token：{n} / {all} …"],
  cut: ["The link asks for {all} tokens; {n} were made.", "链接要 {all} 个 token，生成了 {n} 个。"],
  server_answered: ["the server answered {n}", "服务器返回 {n}"],
  no_answer: ["the server doesn't answer: is it still running?", "服务器没有应答：它还在运行吗？"],
  stopped: ["The model ended the text here.", "模型在此结束了文本。"],
  full: ["The context is full.", "上下文已满。"],
  copied: ["The link is copied: it opens this very view.", "链接已复制：打开即是当前视图。"],
  parameters: ["Parameters", "参数"],
  share_of_model: ["of the model", "占全模型"],
  no_parameters: ["no parameters", "没有参数"],
  ledger: ["Parameter ledger", "参数账本"],
  source: ["Definition", "定义"],
  // views
  view_value: ["Values", "数值"],
  view_prompt: ["Prompt", "提示词"],
  view_growth: ["Stream", "残差流"],
  view_lens: ["Lens", "逐层解读"],
  view_heads: ["Heads", "注意力头"],
  view_sampling: ["Sampling", "采样"],
  view_cache: ["KV cache", "KV 缓存"],
  view_compare: ["Compare", "对比"],
  no_value: ["This gear holds others: pick one of them, or one of its values above.", "这个部件由其他部件组成：请选择其中之一。"],
  nothing_yet: ["Run a prompt to see values.", "运行一段提示词即可看到数值。"],
  token: ["token", "token"],
  tokens: ["{n} tokens", "{n} 个 token"], one_tokens: ["1 token", "1 个 token"],
  reading_hint: ["Point at a token to see what it reads.", "指向一个 token，看它读取什么。"],
  reading_says: ["“{a}” reads {list}", "“{a}” 读取 {list}"],
  mean_of_heads: ["mean of {n} heads", "{n} 个头的平均"],
  bars_of: ["“{a}” · {axis} {from} to {to}", "“{a}” · {axis} {from} 到 {to}"],
  bars_part: ["“{a}” · {axis} {from} to {to} of {n}", "“{a}” · {axis} {from} 到 {to}，共 {n}"],
  token_no: ["token {n}", "token {n}"],
  channel: ["channel", "通道"], head: ["head", "头"], seen: ["reads", "读取"], expert: ["expert", "专家"], entry: ["entry", "词条"],
  many_token: ["{n} tokens", "{n} 个 token"], many_channel: ["{n} channels", "{n} 通道"], many_head: ["{n} heads", "{n} 头"], many_seen: ["{n} read", "{n} 被读"], many_expert: ["{n} experts", "{n} 专家"], many_entry: ["{n} entries", "{n} 词条"],
  one_token: ["1 token", "1 个 token"], one_channel: ["1 channel", "1 通道"], one_head: ["1 head", "1 头"], one_seen: ["1 read", "1 被读"], one_expert: ["1 expert", "1 专家"], one_entry: ["1 entry", "1 词条"],
  mean: ["mean", "均值"], std: ["deviation", "标准差"], min: ["min", "最小"], max: ["max", "最大"], zeros: ["zeros", "零"],
  bad_numbers: ["NaN or infinite", "NaN 或无穷"],
  scroll_hint: ["Ctrl + wheel zooms · click explains a number", "Ctrl + 滚轮缩放 · 点击解释一个数"],
  detail_label: ["Numbers of one token as bars; arrows choose, Enter explains", "一个 token 的数值条；方向键选择，回车解释"],
  heat_label: ["Tokens by channels; arrows move, Enter explains the number", "token × 通道；方向键移动，回车解释该数"],
  attention_label: ["Tokens by the tokens that they read; arrows move, Enter explains the number", "每个 token 读取哪些 token；方向键移动，回车解释该数"],
  reads: ["“{a}” reads", "“{a}” 读取"],
  masked: ["can't be seen: it comes later", "看不到：它在后面"],
  previous: ["previous", "前一个"], first: ["first", "第一个"], self: ["itself", "自己"], wide: ["spread", "分散"],
  head_no: ["head {n}", "头 {n}"],
  habit_previous: ["reads the previous token: {w} on average over this text", "读取前一个 token：在这段文本上平均 {w}"], habit_first: ["reads the first token: {w} on average over this text", "读取第一个 token：在这段文本上平均 {w}"], habit_self: ["reads the token itself: {w} on average over this text", "读取 token 自己：在这段文本上平均 {w}"],
  habit_wide: ["spreads its weight over many tokens", "把权重分散到许多 token"],
  // explanation
  explained: ["Where this number comes from", "这个数从哪里来"],
  close: ["Close (Esc)", "关闭（Esc）"],
  terms: ["Terms by size", "各项（按大小）"],
  terms_of: ["The {shown} largest terms; the rest adds {rest}", "最大的 {shown} 项；其余合计 {rest}"],
  more: ["Show more", "显示更多"],
  from: ["from", "来自"], adds: ["adds", "贡献"], running_sum: ["running sum", "累加"],
  inputs: ["Inputs", "输入"],
  steps: ["Steps", "步骤"],
  weights: ["Weights", "权重"],
  blocks: ["Quantised blocks", "量化块"],
  block_no: ["Block {n}, inputs {a} to {b}", "块 {n}，输入 {a} 到 {b}"],
  codes_line: ["weight = code × scale + minimum", "权重 = 编码 × 缩放系数 + 最小值"],
  codes_only: ["weight = level × scale", "权重 = 量化级 × 缩放系数"],
  scale: ["scale", "缩放系数"], minimum: ["minimum", "最小值"],
  // right
  text: ["Text", "文本"],
  original: ["Original", "原来"],
  other: ["Beside it", "对照"],
  changed: ["Changed", "改动后"],
  remove: ["Remove", "移除"],
  next: ["Next token", "下一个 token"],
  after: ["after “{a}”", "在 “{a}” 之后"],
  candidates_marks: ["· is a space. Struck through: removed by the stage at the right.", "· 是空格。带删除线的已被右边写出的阶段去掉。"],
  of_model: ["model", "模型"], of_model_tip: ["The model's own probability, before any setting below", "模型自己给的概率，还没有用下面的设置"],
  in_draw: ["draw", "抽取"], in_draw_tip: ["The probability in the draw, after the settings below; all that are left add up to 100 %", "用了下面的设置之后、抽取时的概率；留下的合计 100 %"],
  seed_limits: ["A seed is a whole number from 0 to {most}. {seed} is in use.", "种子是 0 到 {most} 的整数。现在用的是 {seed}。"],
  candidates_label: ["Candidates; choose one to continue with it", "候选；选择其一即以它继续"],
  temperature: ["Temperature", "温度"], top_k: ["Top-k", "Top-k"], top_p: ["Top-p", "Top-p"], min_p: ["Min-p", "Min-p"],
  repetition_penalty: ["Repetition", "重复惩罚"], seed: ["Seed", "种子"],
  off: ["off", "关"], greedy: ["greedy", "贪心"],
  reset: ["Reset", "复位"],
  lens_title: ["What each layer would say", "每一层会说什么"],
  lens_decided: ["From layer {n} on, the final answer “{a}” stays on top.", "从层 {n} 起，最终答案 “{a}” 一直排第一。"],
  lens_first: [" Layer {n} had it on top before, but the lead was lost again.", "层 {n} 时它曾排第一，后来又落后了。"],
  lens_mark: ["from here on “{a}” stays on top", "从这里起 “{a}” 一直排第一"],
  layer_short: ["layer", "层"], share_of: ["share of “{a}”", "“{a}” 的概率"], first_choice: ["1st choice", "首选"],
  // lens, growth, heads
  lens_intro: ["Each layer's stream, put through the final norm and head as if it were the last. “{a}” is what the model finally prefers; its share is the probability that a layer already gives it.", "把每一层之后的残差流直接交给最终归一化和输出头，就像它是最后一层。“{a}” 是模型最终的首选；它的概率是该层已给它的。"],
  growth_intro: ["How long the residual stream's vector is after each layer, and how much attention and the feed-forward network added, for token {n}.", "token {n} 的残差流向量在每层之后有多长，以及注意力和前馈网络各加了多少。"],
  stream: ["stream", "残差流"], attention: ["attention", "注意力"], ffn: ["FFN", "前馈网络"],
  heads_intro: ["For each head, where “{a}” looks. A cell's colour is the weight of the token that the head reads most; hover says which. Click opens the head.", "每个头里 “{a}” 看向哪里。颜色是该头读取最多的 token 的权重；悬停显示是哪个。点击打开该头。"],
  reads_most: ["reads “{a}” with {w}", "读取 “{a}”，权重 {w}"],
  show: ["Show", "显示"], habits_label: ["What to show of the heads", "显示注意力头的什么"], habit_none: ["where “{a}” looks", "“{a}” 看向哪里"],
  by_previous: ["who reads the previous token", "谁读前一个 token"], by_first: ["the first token", "第一个 token"], by_self: ["itself", "自己"],
  reads_previous: ["the previous token", "前一个 token"], reads_first: ["the first token", "第一个 token"], reads_self: ["itself", "自己"], reads_another: ["another token", "别的 token"],
  most_previous: ["Layer {layer}, head {head} reads the previous token most: {w} of its weight.", "层 {layer} 的头 {head} 最常读取前一个 token：占它权重的 {w}。"],
  most_first: ["Layer {layer}, head {head} reads the first token most: {w} of its weight.", "层 {layer} 的头 {head} 最常读取第一个 token：占它权重的 {w}。"],
  most_self: ["Layer {layer}, head {head} reads the token itself most: {w} of its weight.", "层 {layer} 的头 {head} 最常读取 token 自己：占它权重的 {w}。"],
  habits_intro: ["Averages over all tokens from the third on. A number in a cell is the percentage, from 50 on; the strongest are outlined. Click opens the head.", "对第三个起的所有 token 取平均。格中的数是百分比（50 起才写出），最强的几个带框。点击打开该头。"],
  short_names: [
    { attention_norm: "norm", query: "Q", key: "K", value: "V", weights: "wts", mixed: "mix", output: "out", attention_residual: "+ attn", ffn_norm: "norm", gate: "gate", up: "up", activated: "act", product: "prod", down: "down", ffn_residual: "+ FFN" },
    { attention_norm: "归一", query: "Q", key: "K", value: "V", weights: "权重", mixed: "混合", output: "输出", attention_residual: "+注意", ffn_norm: "归一", gate: "门", up: "升维", activated: "激活", product: "乘积", down: "降维", ffn_residual: "+前馈" },
  ],
  largest_logits: ["the largest logits after “{a}”", "“{a}” 之后最大的 logits"],
  logit: ["logit", "logit"], probability: ["probability", "概率"], final_probability: ["in the draw", "抽取时"],
  candidates_table: ["Candidates: click a number to see where it comes from", "候选：点一个数，看它从哪里来"],
  // sampling
  sampling_intro: ["From logits to one token: every stage in order, what it kept and the likeliest of what it removed.", "从 logits 到一个 token：按顺序列出每个阶段、留下多少、去掉的里面最可能的是什么。"],
  stage: ["Stage", "阶段"], kept_of: ["{n} of {m} kept", "{m} 个里留下 {n}"], kept_all: ["{n}", "{n} 个"],
  removed_count: ["Removed {n}, {w} together:", "去掉 {n} 个，合计 {w}："], and_more: ["and {n} more", "另有 {n} 个"], removed_by: ["removed: {a}", "被 {a} 去掉"],
  stages: [
    { logits: "One number for every entry of the vocabulary.", "logit bias": "Adds to some logits what was asked for.", penalties: "Makes what the text already has less likely.", greedy: "Takes the largest.", "top-k": "Keeps the {n} most probable.", "top-p": "Goes from the most probable down until the shares add up to {n}, keeps these, and removes the rest.", "min-p": "Removes whatever is less than {n} times as probable as the best one.", temperature: "Below 1 it sharpens what is left, above 1 it flattens it.", hook: "A function of the caller." },
    { logits: "词表里每一项一个数。", "logit bias": "给某些 logit 加上指定的数。", penalties: "让文本里已有的变得不太可能。", greedy: "取最大的。", "top-k": "留下最可能的 {n} 个。", "top-p": "从最可能的往下数，直到概率合计达到 {n}；留下这些，去掉其余。", "min-p": "去掉概率不到最佳者 {n} 倍的。", temperature: "小于 1 让剩下的更尖，大于 1 让它更平。", hook: "调用者自己的函数。" },
  ],
  draw: ["The draw", "抽取"],
  draw_says: ["The random number {u} falls between {a} and {b}: “{t}”.", "随机数 {u} 落在 {a} 与 {b} 之间：“{t}”。"],
  draw_greedy: ["Temperature 0 or top-k 1: the largest logit is taken, nothing is drawn.", "温度为 0 或 top-k 为 1：直接取最大的 logit，不抽取。"],
  stage_names: [{}, { logits: "logits", penalties: "惩罚", greedy: "贪心", temperature: "温度", "logit bias": "logit 偏置" }],
  // prompt
  prompt_intro: ["From what was typed to ids. Control tokens are drawn in grey; tokens that hold only part of a character carry its bytes.", "从输入的文字到编号。控制 token 为灰色；只含半个字符的 token 显示其字节。"],
  template: ["What the template makes of it", "模板展开后"],
  pieces: ["Pieces and ids", "切分与编号"],
  edit_chat: ["As a chat message", "作为对话消息"],
  // cache
  cache_intro: ["Each layer keeps the keys and values of every token it has seen: one column a token, one row a layer. A new token adds a column and reads all of them; without the cache, every earlier token would be computed again.", "每层保留所见每个 token 的 K 和 V：一列一个 token，一行一层。新 token 添加一列并读取全部；没有缓存，就得把前面所有 token 重新算一遍。"],
  from_prompt: ["of the prompt, run at once", "提示词，一次算完"], from_steps: ["made since, one by one", "之后逐个生成"],
  cached_tokens: ["tokens kept", "已缓存 token"], cache_bytes: ["memory", "内存"], saved: ["operations saved so far", "至今省下的运算"],
  saved_to: ["Saved {name}", "已保存 {name}"],
  // compare
  compare_intro: ["How far the two runs are apart, by gear: the length of the difference over the length of the original. Rows are layers. Click opens the gear.", "两次运行在每个部件上相差多少：差的长度除以原来的长度。行是层。点击打开该部件。"],
  compare_at: ["Compared at token {n}, “{a}”.", "在 token {n} “{a}” 处比较。"],
  compare_both: ["Compared at the last token of each: {n}, “{a}”, and {m}, “{b}”.", "在各自最后一个 token 处比较：token {n} “{a}” 与 token {m} “{b}”。"],
  compare_trees: ["The gears of these two models can't be compared number by number: their trees have other sizes. What each would say next is shown side by side.", "这两个模型的部件无法逐数比较：它们的结构尺寸不同。下面并排显示各自接下来会说什么。"],
  compare_words: ["The two models have other vocabularies, so their probabilities can't be matched: each model's own favourites.", "两个模型的词表不同，概率无法一一对应：下面是各自的首选。"],
  next_of_each: ["Next token, each model's favourites", "下一个 token：各自的首选"],
  compare_none: ["Nothing beside it yet. Change the machine, or put a second prompt or model beside this one.", "还没有对照。可以改动机器，或再放一个提示词或模型。"],
  outputs_more: ["The five likeliest of each side are all here; bold is the first choice of a side.", "每边最可能的五个都在这里；粗体是该边的首选。"],
  outputs: ["Next token, before and after", "下一个 token：前后对比"],
  kl: ["KL divergence {n} nats", "KL 散度 {n} nats"],
  before: ["before", "之前"], after_change: ["after", "之后"],
  tokens_same: ["Same text so far.", "文本目前相同。"],
  tokens_differ: ["The texts part at token {n}.", "文本从 token {n} 起不同。"],
  other_shapes: ["other shape", "形状不同"],
  // words of the trade, explained where they are a label
  term_logit: ["Logit: the score that the model gives an entry of the vocabulary; softmax turns all of them into probabilities.", "logit：模型给词表里每一项的分数；softmax 把它们变成概率。"],
  term_lens: ["Logit lens: each layer's vector, read by the final norm and head as if it were the last, so that one sees what the model would say by then.", "logit lens（逐层解读）：把每一层的向量当作最后一层，直接交给最终归一化和输出头，看模型到这里会说什么。"],
  term_stream: ["Residual stream: the vector of a token that runs through all layers; each layer reads it and adds its own result to it.", "残差流：一个 token 贯穿所有层的向量；每层读取它，并把自己的结果加上去。"],
  term_rmsnorm: ["RMSNorm: divides a vector by the root of its mean square and multiplies each channel by a trained weight, so that its length stays within bounds.", "RMSNorm：把向量除以它的均方根，再把每个通道乘上训练得到的权重，使长度保持稳定。"],
  term_layernorm: ["LayerNorm: takes a vector's mean away, divides it by its deviation, and gives each channel a trained weight and offset.", "LayerNorm：把向量减去均值、除以标准差，再给每个通道一个训练得到的权重和偏移。"],
  term_gqa: ["Key and value heads: with fewer of them than heads (grouped-query attention, GQA), several query heads share one, and the cache is smaller.", "键值头：比头数少时就是分组查询注意力（GQA），几个查询头共用一组键和值，缓存也更小。"],
  term_kv_cache: ["KV cache: the keys and values of all tokens so far, kept so that a new token costs one token's work.", "KV 缓存：留着此前所有 token 的键（K）和值（V），于是新增一个 token 只需算一个 token。"],
  term_temperature: ["Temperature: the logits are divided by it, so below 1 likely tokens win more often, and above 1 others get a chance.", "温度：logits 除以它；小于 1 时可能的 token 更占优，大于 1 时其余的也有机会。"],
  term_top_k: ["Top-k: only the k most probable tokens stay.", "Top-k：只留下概率最高的 k 个 token。"],
  term_top_p: ["Top-p: only the most probable tokens stay, as few as it takes for their probabilities to add up to p.", "Top-p：只留下最可能的那些 token，数量最少而概率合计达到 p。"],
  term_min_p: ["Min-p: a token stays if it is at least p times as probable as the best one.", "Min-p：概率至少为最高者的 p 倍的 token 才留下。"],
  term_repetition_penalty: ["Repetition penalty: tokens that the text has already become less likely, the more the further it is above 1.", "重复惩罚：让文本里已出现的 token 变得不太可能；比 1 大得越多，作用越强。"],
  term_kl: ["KL divergence: how far the second distribution of the next token is from the first; 0 means that they are the same.", "KL 散度：第二个“下一个 token”分布离第一个有多远；0 表示两者相同。"],
  // trouble
  stale: ["The values shown are still those of “{a}”.", "显示的数值仍属于 “{a}”。"],
  try_again: ["Try again", "再试一次"], start_again: ["Start it again", "重新运行"], back_to: ["Back to that text", "回到那段文本"], dismiss: ["Close", "关闭"],
  edit_prompt: ["Edit the prompt", "修改提示词"],
  // dialogs
  layer_limits: ["This model has the layers 0 to {n}.", "该模型的层是 0 到 {n}。"],
  head_limits: ["Layer {layer} has the heads 0 to {n}.", "层 {layer} 的头是 0 到 {n}。"],
  change_title: ["Change the machine", "改动机器"],
  change_what: ["What", "做什么"],
  zero_head: ["Switch off one head", "关掉一个注意力头"],
  zero_attention: ["Switch off attention", "关掉注意力"],
  zero_ffn: ["Switch off the feed-forward network", "关掉前馈网络"],
  zero_residual: ["Cut the residual past attention", "切断绕过注意力的残差"],
  zero_residual_ffn: ["Cut the residual past the FFN", "切断绕过前馈网络的残差"],
  zero_layer: ["Switch off the layer", "关掉整层"],
  swap_activation: ["Swap the activation", "更换激活函数"],
  where: ["Layer", "层"], which_head: ["Head", "头"], to: ["To", "换成"],
  add_change: ["Add", "添加"], added_too: ["run too: chosen above", "一并运行：上面所选"],
  apply: ["Run it beside the original", "与原来并排运行"],
  cancel: ["Cancel", "取消"],
  is_off: ["{name} off", "{name} 关闭"],
  is_cut: ["{name} cut", "{name} 切断"],
  becomes: ["{name} becomes {to}", "{name} 换成 {to}"],
  compare_title: ["Put a second run beside this one", "再放一次运行作对照"],
  other_model: ["Another model …", "其他模型 …"],
  model_hint: ["A name that glassgear list shows, or the path of a file", "glassgear list 列出的名字，或文件路径"],
  load: ["Load", "加载"],
  model_needed: ["Type the name of a model, or the path of a file.", "请输入模型的名字，或文件路径。"],
  clear_other: ["Remove the second run", "移除对照"],
  export_title: ["Export or share", "导出或分享"],
  share_link: ["Copy a link", "复制链接"], share_link_more: ["Model, prompt, gear, token and number", "模型、提示词、部件、token 与数"],
  export_png: ["The values as PNG", "数值图（PNG）"], export_png_more: ["The picture in the middle", "中间的图"],
  export_svg: ["The machine as SVG", "机器图（SVG）"], export_svg_more: ["The drawing at the left", "左侧的图"],
  export_json: ["The numbers as JSON", "数字（JSON）"], export_json_more: ["The value in view, or its explanation", "当前数值或其解释"],
  export_trace: ["The value as safetensors", "数值（safetensors）"], export_trace_more: ["Read again with glassgear trace --open", "可用 glassgear trace --open 再打开"],
  export_view: ["What this view shows", "此视图的内容"],
  help_title: ["Keys", "快捷键"],
  help_marks: ["A dot · at the edge of a token is a space, ↵ a line end, ∅ nothing. Struck through means removed. Colours: blue below zero, orange above; green is a share between 0 and 1.", "token 边缘的圆点 · 是空格，↵ 是换行，∅ 是空。带删除线的已被去掉。颜色：蓝色小于零，橙色大于零；绿色是 0 到 1 的比例。"],
  help_intro: ["Left is the machine: click a gear. The middle shows its values: click a number to learn where it comes from. Right are the text and what may come next.", "左边是机器：点一个部件。中间是它的数值：点一个数看它从哪里来。右边是文本和下一个可能的 token。"],
  keys: [
    [["← →", "previous and next token"], ["↑ ↓", "previous and next gear"], ["Space", "play and pause"], ["N", "one token more"], ["Backspace", "one token less"], ["/", "edit the prompt"], ["[ ]", "layer before and after"], ["+ −", "zoom in and out"], ["1 – 8", "views"], ["T", "tour; in it, ← → go on and back"], ["?", "this help"], ["Esc", "close"]],
    [["← →", "前一个 / 后一个 token"], ["↑ ↓", "上一个 / 下一个部件"], ["空格", "播放与暂停"], ["N", "多生成一个 token"], ["退格", "少一个 token"], ["/", "编辑提示词"], ["[ ]", "上一层 / 下一层"], ["+ −", "放大与缩小"], ["1 – 8", "各视图"], ["T", "导览；其中 ← → 前后翻页"], ["?", "本帮助"], ["Esc", "关闭"]],
  ],
  done: ["Done", "好"],
  // tour
  tour_next: ["Next", "下一步"], tour_back: ["Back", "上一步"], tour_end: ["End tour", "结束导览"],
  // names of gears and values, by the last word of the path
  names: [
    { "": "Model", embed: "Embedding", positions: "Positions", norm: "Final norm", head: "Head", attention_norm: "Norm", ffn_norm: "Norm", attention: "Attention", ffn: "FFN", query: "Query", key: "Key", value: "Value", rope: "RoPE", query_rotated: "Q rotated", key_rotated: "K rotated", scores: "Scores", weights: "Weights", mixed: "Mixed", output: "Output", gate: "Gate", up: "Up", activated: "Activated", product: "Product", down: "Down", attention_residual: "Stream + attention", ffn_residual: "Stream + FFN", router: "Router", experts: "Experts" },
    { "": "模型", embed: "嵌入", positions: "位置", norm: "最终归一化", head: "输出头", attention_norm: "归一化", ffn_norm: "归一化", attention: "注意力", ffn: "前馈网络", query: "查询 Q", key: "键 K", value: "值 V", rope: "RoPE", query_rotated: "旋转 Q", key_rotated: "旋转 K", scores: "分数", weights: "权重", mixed: "混合值", output: "输出", gate: "门", up: "升维", activated: "激活后", product: "乘积", down: "降维", attention_residual: "残差流 + 注意力", ffn_residual: "残差流 + 前馈", router: "路由", experts: "专家" },
  ],
  block: ["Layer {n}", "层 {n}"],
  // a gear's settings, by their field; what isn't here is its field's name
  fact_names: [{}, {
    dim: "维数", inputs: "输入维数", outputs: "输出维数", vocab: "词表大小", scale: "缩放系数", count: "总数", offset: "偏移", eps: "eps", bias: "偏置", theta: "频率基数", pairing: "配对方式",
    heads: "头数", kv_heads: "键值头数", head_dim: "每头维数", causal: "因果", window: "窗口", score_scale: "分数缩放", cap: "软截断", activation: "激活函数", hidden: "中间维数",
    used: "选用专家数", score: "打分方式", correction: "修正项", normalize: "归一化", groups: "组数", groups_kept: "开放组数", group_score: "组的打分", plain_dim: "不旋转的维数", value_dim: "值的维数", kv_rank: "键值秩",
    step: "子层", name: "名称", skip: "残差连接", tied: "与嵌入共用权重", extra: "附加维数", context: "上下文长度", family: "家族",
  }],

};

let column = 0;

export const languages = ["en", "zh"];
export const setLanguage = (language) => { column = Math.max(0, languages.indexOf(language)); };
export const language = () => languages[column];

/** A text in the current language. */
export function t(key, values) {
  const text = T[key]?.[column] ?? key;
  return values && typeof text === "string" ? text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "") : text;
}

/** The name of a gear or value for people. */
export function nameOf(path) {
  const last = path.slice(path.lastIndexOf(".") + 1);
  if (/^blocks\.\d+$/.test(path)) return t("block", { n: last });
  return T.names[column][last] ?? last.replace(/_/g, " ");
}

/** The same with its layer: `Layer 3 · Query`. */
export function fullName(path) {
  const block = /^blocks\.(\d+)\./.exec(path);
  const own = nameOf(path);
  return block ? `${t("block", { n: block[1] })} · ${own}` : own;
}

/** The name of a gear's setting. */
export const factName = (name) => T.fact_names[column][name] ?? name.replace(/_/g, " ");

/** A name for narrow columns. */
export function shortName(name) {
  const last = name.slice(name.lastIndexOf(".") + 1);
  return T.short_names[column][last] ?? nameOf(last);
}

/** The name of a sampling stage. */
export const stageName = (name) => T.stage_names[column][name] ?? name;

/** What a sampling stage does. */
export const stageWords = (name, values) => (T.stages[column][name] ?? "").replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");

/** Every key of the table, for tests: both languages must be there. */
export const table = T;
