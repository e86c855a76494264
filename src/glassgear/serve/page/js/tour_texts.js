/** The guided tour's texts: title, text and, where a popular account errs, a line that puts it right. */

export const TOUR = {
  tokens: {
    title: ["Tokens", "Token"],
    text: ["A model reads no letters. The text is cut into pieces from a fixed list, and each piece has a number. Frequent words are one piece, rare ones several; what lies outside the list is spelled in bytes.",
      "模型不读字母。文本被切成固定词表里的片段，每个片段有一个编号。常见词是一个片段，少见的词要好几个；词表里没有的按字节拼写。"],
    right: ["A character takes 1 to 4 bytes in UTF-8, so one token may hold only part of a character. Such tokens show their bytes here.",
      "UTF-8 里一个字符占 1 到 4 个字节，所以一个 token 可能只含半个字符；这里显示它的字节。"],
  },
  embedding: {
    title: ["Embedding", "嵌入"],
    text: ["The number picks one row of a table: {dim} values that training has found for this token. From here on, a token is this vector. Each line in the middle is one token, each cell one value: blue below zero, orange above.",
      "编号从一张表里取出一行：训练为这个 token 找到的 {dim} 个数。从此 token 就是这个向量。中间每一行是一个 token，每一格是一个数：蓝色小于零，橙色大于零。"],
  },
  block: {
    title: ["One block", "一个块"],
    text: ["The vector runs down the left side of the drawing: the residual stream. A block reads it twice and adds to it twice. Attention brings in what other tokens know; the feed-forward network works on each token alone. Then the next block does the same with other weights.",
      "图的左侧，向量一路向下，这就是残差流。一个块读它两次、加回两次：注意力带来其他 token 的信息，前馈网络单独加工每个 token。下一块用另一组权重做同样的事。"],
  },
  norm: {
    title: ["Norm", "归一化"],
    text: ["Before it is read, the vector is brought to a common length: RMSNorm divides it by the root of its mean square and multiplies each channel by a trained weight. Click a number to see the sum behind it.",
      "读取之前，先把向量缩放到统一的长度：RMSNorm 除以均方根，再把每个通道乘上一个训练得到的权重。点一个数，看它背后的求和。"],
    right: ["RMSNorm has one vector of weights; LayerNorm has two. LLaMA-3-8B therefore spends 8,192 parameters a layer on norms, not 16 thousand. GPT-3 uses LayerNorm.",
      "RMSNorm 只有一组权重，LayerNorm 有两组。因此 LLaMA-3-8B 每层归一化只有 8,192 个参数，而不是一万六。GPT-3 用的是 LayerNorm。"],
  },
  qkv: {
    title: ["Query, key, value", "Q、K、V"],
    text: ["Three matrices turn the normed vector into three others. The query says what a token looks for, the key what it offers, the value what it hands over when it is read.",
      "三个矩阵把归一化后的向量变成三个向量：Q 表示这个 token 在找什么，K 表示它能提供什么，V 是被读取时交出去的内容。"],
    right: ["With grouped queries, several query heads share one key and value head{groups}. Keys and values are shared, not queries and keys.",
      "分组查询（GQA）里，几个查询头共用一组 K 和 V{groups}。共用的是 K 和 V，不是 Q 和 K。"],
  },
  rope: {
    title: ["RoPE", "RoPE 旋转位置"],
    text: ["Channels are taken in pairs, and each pair is turned by an angle that grows with the token's position: fast for the first pairs, slowly for the last. A dot product of two turned vectors depends only on how far apart the tokens are.",
      "通道两两成对，每一对按位置旋转一个角度：靠前的对转得快，靠后的对转得慢。两个旋转后的向量的点积只取决于它们相隔多远。"],
    right: ["The angle position × 10000^(−2i/d) belongs to the pair number i, channels 2i and 2i+1; in some files the pair is i and i + d/2.",
      "角度 位置 × 10000^(−2i/d) 属于第 i 对，即通道 2i 和 2i+1；有些文件里这一对是 i 和 i + d/2。"],
  },
  scores: {
    title: ["Scores", "分数"],
    text: ["Each query meets each earlier key: their dot product, divided by the root of the head's width, is a score. Rows are the tokens that read, columns those that are read. The upper half is empty, since no token sees a later one.",
      "每个 Q 与之前的每个 K 做点积，再除以头宽度的平方根，就是分数。行是读取的 token，列是被读取的 token。上半部分是空的：看不到后面的 token。"],
  },
  heads: {
    title: ["Heads", "多个头"],
    text: ["Softmax turns a row of scores into weights that add up to one. Each head does so on its own, and each has its habits: the word under a head says where most of its weight goes. Hover a row to see what that token reads.",
      "softmax 把一行分数变成总和为 1 的权重。每个头各算各的，习惯也不同：头下面的字说明它的权重主要去哪里。悬停一行，看那个 token 读了什么。"],
  },
  residual: {
    title: ["Residual", "残差"],
    text: ["What a sublayer computes is added to the stream, never put in its place. A layer that has nothing to say adds little, and the gradient always has a path with factor 1. Bars show how much each layer adds to this token.",
      "子层的结果是加到残差流上，而不是取代它。没什么可说的层就加得少，而梯度总有一条系数为 1 的路。横条显示每层给这个 token 加了多少。"],
  },
  ffn: {
    title: ["Feed-forward network", "前馈网络"],
    text: ["The vector is widened, bent by an activation, and narrowed again. Most parameters of a block lie here, and much of what a model knows: the rows act like keys that recognise something, the columns like what is then added.",
      "向量先加宽，经过激活函数弯折，再收窄。一个块的大部分参数在这里，模型的许多知识也在这里：行像识别某种东西的键，列像随后加进来的内容。"],
    right: ["It works row by row, so it can't notice a pair of neighbouring words; only attention can. In LLaMA-3-8B it holds 4.2 times the parameters of attention, not 8 times. A gate keeps the parameter count at 8/3 of the width, not at 3.5.",
      "它一行一行地算，所以看不到相邻的两个词，只有注意力能。在 LLaMA-3-8B 里它的参数是注意力的 4.2 倍，不是 8 倍。带门的网络要保持参数量，宽度应为 8/3 倍，而不是 3.5 倍。"],
  },
  activation: {
    title: ["Activation", "激活函数"],
    text: ["Without it, two matrices in a row would be one matrix. SiLU(x) = x · sigmoid(x) lets positive numbers through and squeezes negative ones towards zero, but lets a little of them pass, so that a quiet unit can come back.",
      "没有它，两个矩阵相乘等于一个矩阵。SiLU(x) = x · sigmoid(x) 让正数通过，把负数压向零，但仍留一点，沉寂的单元因此还能恢复。"],
    right: ["SiLU isn't limited to 0…1: it has no upper end and dips to −0.278. Nor is a gate made with it.",
      "SiLU 不限于 0 到 1：上无上限，最低到 −0.278。用它做的门也一样。"],
  },
  worked: {
    title: ["By hand", "手算一遍"],
    text: ["The block step of the article, four channels wide, run by this very engine: the stream of 西安 plus what attention found, then the feed-forward network. Click a number to follow the sum with pen and paper.",
      "文章里的那一步，宽度为 4，由同一个引擎运行：西安的残差流加上注意力的结果，再过前馈网络。点一个数，用纸笔跟着加一遍。"],
    right: ["The article leaves out the norm before the network, and the gate.",
      "文章省略了前馈网络之前的归一化，也没有门。"],
  },
  stack: {
    title: ["The stack", "层层堆叠"],
    text: ["{layers} blocks stand one behind the other, alike in form, each with its own weights. Here is where the chosen token looks, in every layer and head. [ and ] step through the layers.",
      "{layers} 个块依次排列，形式相同，权重各异。这里是所选 token 在每一层每个头里看向哪里。按 [ 和 ] 逐层查看。"],
  },
  head: {
    title: ["The head", "输出头"],
    text: ["The last vector is compared with every entry of the vocabulary: {vocab} dot products, the logits. The larger a logit, the better the entry fits. Click one to see which channels spoke for it.",
      "最后的向量与词表里的每一项比较：{vocab} 个点积，就是 logits。越大越合适。点一个，看是哪些通道在支持它。"],
    right: ["LLaMA-3's table has 128,256 entries; 129,280 is DeepSeek-V3's.",
      "LLaMA-3 的词表有 128,256 项；129,280 是 DeepSeek-V3 的。"],
  },
  sampling: {
    title: ["Sampling", "采样"],
    text: ["Logits become probabilities, unlikely entries are dropped, the temperature sharpens or flattens the rest, and a random number decides. Move the sliders at the right: nothing is computed again but this.",
      "logits 变成概率，去掉不太可能的，温度让其余的更尖或更平，最后由一个随机数决定。拖动右边的滑块：重算的只有这一步。"],
    right: ["Top-p keeps the smallest set of most probable tokens whose total reaches p; it isn't a threshold for each token's own probability.",
      "Top-p 保留的是总概率达到 p 的最小的一组最可能的 token，不是给每个 token 的概率设门槛。"],
  },
  cache: {
    title: ["KV cache", "KV 缓存"],
    text: ["A token's keys and values never change once it has been run, so they are kept. Each step runs one token instead of all of them. Make a few tokens and watch it grow.",
      "一个 token 算过之后，它的 K 和 V 不再改变，于是留着。每一步只算一个 token，而不是全部。生成几个 token，看它增长。"],
  },
  depth: {
    title: ["Depth against width", "深度与宽度"],
    text: ["This model has {layers} layers of width {dim}: {parameters} parameters. Twice the layers doubles what the blocks hold; twice the width makes it four times as much. Deep and narrow reaches some functions with fewer parameters, but layers must wait for each other.",
      "这个模型有 {layers} 层，宽度 {dim}，共 {parameters} 个参数。层数加倍，块的参数加倍；宽度加倍，则是四倍。又深又窄能用更少的参数逼近某些函数，但各层必须依次等待。"],
  },
  lens: {
    title: ["What layers say", "各层说什么"],
    text: ["Read each layer as if it were the last. Shallow layers still echo the token itself, middle ones gather what it is about, deep ones settle on the answer. The marked layer is the first from which the final answer leads.",
      "把每一层当作最后一层来读。浅层还在重复 token 本身，中层汇集它说的是什么，深层定下答案。标出的那层起，最终答案领先。"],
  },
};
