// The table of all keys of a run: the one place where a key, its default, its unit and its meaning are written.
#include "ballast/config/run_config.h"
#include "ballast/layout/policies.h"

namespace ballast {

namespace {

constexpr auto kFlag = ConfigType::Flag;
constexpr auto kCount = ConfigType::Count;
constexpr auto kBytes = ConfigType::Bytes;
constexpr auto kNumber = ConfigType::Number;
constexpr auto kText = ConfigType::Text;
constexpr auto kChoice = ConfigType::Choice;
constexpr auto kTexts = ConfigType::Texts;
constexpr auto kTree = ConfigType::Tree;
constexpr bool kResume = true;

std::vector<ConfigSection> sections() {
  return {
      {"run", "Where the run lives and what its random numbers start from."},
      {"model", "What is trained. Exactly one of `preset`, `path` and `config`; one on the command line replaces the file's."},
      {"data", "What it is trained on. Token stores are prepared when they are missing."},
      {"topology", "The tree of the machine, innermost level first; each number counts units of the level below."},
      {"placement", "Where every model state lives and how every movement is encoded."},
      {"batch", "How much one optimizer step trains. The samples of a step do not depend on the number of ranks."},
      {"train", "The loop. The length is exactly one of `steps`, `tokens` and `epochs`; one on the command line replaces the file's."},
      {"comm", "How ranks talk to each other."},
      {"optimizer", "How weights are updated."},
      {"checkpoint", "What is kept of the run."},
  };
}

// One row for each key.
// clang-format off
std::vector<ConfigKey> keys() {
  return {
      {"run.dir", kText, "", "", {}, "Folder of the run: metrics, checkpoints, log, report. One that holds a run is refused without --resume.", kResume},
      {"run.seed", kCount, "0", "", {}, "Seed of initial weights, data order and dropout.", false, "", 0},
      {"run.tensorboard", kFlag, "true", "", {}, "Write TensorBoard event files beside metrics.jsonl.", kResume},

      {"model.preset", kText, "", "", {}, "A named shape with random weights: gpt2-10m, gpt2-30m, gpt2-124m, llama-60m and others; an unknown name lists them.", false, "model"},
      {"model.path", kText, "", "", {}, "Hugging Face folder with config.json and safetensors: its weights are trained on.", false, "model"},
      {"model.config", kText, "", "", {}, "Hugging Face config.json: that shape with random weights.", false, "model"},
      {"model.vocab_size", kCount, "", "tokens", {}, "Replaces the vocabulary size of a preset or config.", false, "", 1, 2147483648},
      {"model.dropout", kNumber, "", "", {}, "Replaces the dropout of embedding, attention and residuals; presets have 0.", false, "", 0, 0.99},

      {"data.train", kTree, "", "", {}, "Files to train on: a list of paths, or of {path, weight} for a mixture whose weights (1 if left out) are shares of the trained tokens.", false},
      {"data.eval", kTexts, "", "", {}, "Files of the periodic and final evaluation.", kResume},
      {"data.format", kChoice, "text", "", {"text", "prompt-completion", "chat"}, "What a record is. Loss counts on the completion or the assistant's words only."},
      {"data.fields.text", kText, "text", "", {}, "Field of format text in JSONL and Parquet."},
      {"data.fields.prompt", kText, "prompt", "", {}, "Field of format prompt-completion; nothing is put between prompt and completion."},
      {"data.fields.completion", kText, "completion", "", {}, "Field of format prompt-completion."},
      {"data.fields.messages", kText, "messages", "", {}, "Field of format chat: a list of messages."},
      {"data.fields.role", kText, "role", "", {}, "Field of a message."},
      {"data.fields.content", kText, "content", "", {}, "Field of a message."},
      {"data.template", kChoice, "", "", {"chatml", "llama-3", "mistral"}, "Chat template; needed for format chat."},
      {"data.tokenizer", kText, "", "", {}, "Folder or file of the tokenizer: tokenizer.json, vocab.json + merges.txt, a tiktoken rank file, or a SentencePiece model. Default: the model's folder."},
      {"data.cache", kText, "", "", {}, "Folder of the token stores. Default: .ballast-cache beside the run folder.", kResume},
      {"data.sequence.max_tokens", kCount, "", "tokens", {}, "Longest sequence. Default: the positions of the model.", false, "", 2, 16777216},
      {"data.sequence.layout", kChoice, "packed", "", layout_policies(), "Which ranks hold and attend which tokens: docs/sequences.md. packed: whole sequences side by side; balanced: cut and placed by cost; context-parallel: every one cut over all ranks; padded: one per row, the baseline."},
      {"data.sequence.sharing", kChoice, "ring", "", {"ring", "gather", "heads"}, "How ranks share a cut sequence: keys go round a ring, every rank gathers all keys, or every rank takes all tokens of some heads."},
      {"data.sequence.team", kCount, "1", "ranks", {}, "Ranks of a team in a ring, which gather each other's queries; its square divides the ring's ranks. 1: the plain ring; 0: chosen by cost.", false, "", 0, 1024},
      {"data.sequence.team_memory", kBytes, "0", "", {}, "Most that a team chosen by cost may hold beyond a plain ring while one layer attends; 0: no limit.", false, "", 0},
      {"data.sequence.keys", kChoice, "within", "", {"within", "across"}, "Whether a rank gathers the keys of its own team, or of one rank in each set of teams."},
      {"data.sequence.remap", kChoice, "auto", "", {"auto", "always", "never"}, "Move tokens between a layout for attention and an even one for everything else; auto: where the predicted step gets shorter."},
      {"data.sequence.route", kChoice, "auto", "", {"auto", "never"}, "Spread what a ring sends between nodes over all links of a node where the topology gives several and that is faster."},
      {"data.sequence.attention_tokens", kCount, "", "tokens", {}, "Token slots of a rank's micro-batch in attention where tokens are moved. Default: twice batch.micro_tokens.", false, "", 1, 16777216},
      {"data.sequence.curves", kText, "", "", {}, "File of costs by length, as `ballast doctor --curves` measures them. Default: reckoned from data.sequence.flops and the topology's bandwidths."},
      {"data.sequence.flops", kCount, "100G", "FLOP/s", {}, "Rate of one rank that layouts reckon with where there are no curves, as in 180T.", false, "", 1},
      {"data.sequence.overlong", kChoice, "split", "", {"split", "cut", "drop", "error"}, "What becomes of a record longer than max_tokens: windows, its beginning, nothing, a refusal. Counted and said."},
      {"data.workers", kCount, "0", "threads", {}, "Threads that prepare data; 0: as many as the process may use.", kResume, "", 0, 1024},

      {"topology", kTree, "", "", {}, "A map level: size, or level: {size, bandwidth, latency, links}, as in {pair: 2, node: 4}; links: how many of that bandwidth each unit has, shared out to its ranks; or the path of a .yaml file with one. Default: one level `node` of all ranks."},
      {"placement", kTree, "ddp", "", {}, "A preset (ddp, zero1, zero2, zero3, hsdp(LEVEL), hpz(LEVEL), zeropp(LEVEL), topo(LEVEL0, LEVEL1)) or a table {weights: {shard, tier, storage}, secondary, gradients, optimizer, wire, keep}: docs/partitioning.md."},

      {"batch.tokens", kCount, "4096", "tokens", {}, "Real tokens of one step over all ranks; at least one sample is taken.", false, "", 1, 1099511627776},
      {"batch.micro_tokens", kCount, "", "tokens", {}, "Token slots of one micro-batch on one rank. Default: data.sequence.max_tokens.", false, "", 1, 16777216},

      {"train.steps", kCount, "", "steps", {}, "Length of the run.", kResume, "length", 1},
      {"train.tokens", kCount, "", "tokens", {}, "Length of the run.", kResume, "length", 1},
      {"train.epochs", kNumber, "", "epochs", {}, "Length of the run in passes over the training data.", kResume, "length", 0, {}, true},
      {"train.precision", kChoice, "fp32", "", {"fp32", "bf16"}, "Dtype of compute and of native messages; master weights, moments and gradient sums are fp32 always."},
      {"train.recompute", kTree, "none", "", {}, "Activations computed again in the backward pass instead of kept: none, block, or {every: k} for one block in k.", kResume},
      {"train.freeze", kTexts, "[]", "", {}, "Globs over tensor names that are not trained: no gradient, no optimizer state, no reduction."},
      {"train.threads", kCount, "0", "threads", {}, "Compute threads per rank; 0: an equal share of the CPUs that the process may use.", kResume, "", 0, 4096},
      {"train.prefetch", kCount, "0", "segments", {}, "Segments whose weights are gathered ahead of use; 0: up to three, as memory allows.", kResume, "", 0, 1000},
      {"train.trace", kText, "", "steps", {}, "Steps first:last whose timeline is written for Perfetto.", kResume},
      {"train.eval_every", kCount, "0", "steps", {}, "Steps between evaluations; 0: only at the end, if there is data.eval.", kResume, "", 0},
      {"train.eval_batches", kCount, "", "batches", {}, "Batches of one periodic evaluation; the one after the last step takes all. Default: all.", kResume, "", 1},
      {"train.log_every", kCount, "10", "steps", {}, "Steps between progress lines where standard error is no terminal.", kResume, "", 1},
      {"train.on_nonfinite", kChoice, "stop", "", {"stop", "skip"}, "What a loss or gradient that is not finite does: end the run, or leave out that update and say so.", kResume},
      {"train.timeout", ConfigType::Time, "5min", "", {}, "Deadline of every blocking call between ranks.", kResume, "", 0, {}, true},

      {"comm.backend", kChoice, "auto", "", {"auto", "gloo", "shm"}, "auto: shared memory between ranks of one host and network namespace, TCP between hosts; gloo: TCP for all; shm: refuse ranks on several hosts.", kResume},

      {"optimizer.name", kChoice, "adamw", "", {"adamw", "sgd", "lion"}, "The update rule."},
      {"optimizer.lr", kNumber, "1e-3", "", {}, "Highest learning rate.", kResume, "", 0, {}, true},
      {"optimizer.betas", ConfigType::Numbers, "[0.9, 0.95]", "", {}, "Decay of the first and second moment; adamw and lion.", false, "", 0, 1},
      {"optimizer.eps", kNumber, "1e-8", "", {}, "Added to the root of the second moment; adamw.", false, "", 0, {}, true},
      {"optimizer.momentum", kNumber, "0.9", "", {}, "Momentum of sgd; 0 keeps no state.", false, "", 0, 1},
      {"optimizer.weight_decay", kNumber, "0", "", {}, "Decoupled weight decay (adamw, lion) or L2 term (sgd). Norms and biases are not decayed.", false, "", 0},
      {"optimizer.decay_exclude", kTexts, "[]", "", {}, "Globs over tensor names that are not decayed either."},
      {"optimizer.clip", kNumber, "0", "", {}, "Largest global gradient norm; 0: no clipping.", kResume, "", 0},
      {"optimizer.schedule.kind", kChoice, "constant", "", {"constant", "linear", "cosine", "wsd"}, "Course of the learning rate after the warm-up."},
      {"optimizer.schedule.warmup", kCount, "0", "steps", {}, "Steps of linear warm-up.", false, "", 0},
      {"optimizer.schedule.min_lr", kNumber, "0", "", {}, "Learning rate of the last step.", kResume, "", 0},
      {"optimizer.schedule.decay", kCount, "0", "steps", {}, "Steps of the final fall of wsd; 0: a tenth of the run.", false, "", 0},

      {"checkpoint.every", kCount, "0", "steps", {}, "Steps between checkpoints; 0: one at the end.", kResume, "", 0},
      {"checkpoint.keep", kCount, "2", "", {}, "Newest checkpoints that are kept.", kResume, "", 1},
      {"checkpoint.best", kFlag, "true", "", {}, "Keep the best one by evaluation loss beside the newest.", kResume},
  };
}
// clang-format on

}  // namespace

const ConfigSchema& run_schema() {
  static const ConfigSchema schema(sections(), keys());
  return schema;
}

}  // namespace ballast
