#include "ballast/train/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include "ballast/base/files.h"

namespace ballast {

namespace {

std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0x82F63B78u : 0u);
    table[i] = value;
  }
  return table;
}

template <class T>
void put_little_endian(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little, "byte order");
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

// Protocol buffer wire format: a key (field number and wire type), then the value.
enum class Wire : uint8_t { Varint = 0, Fixed64 = 1, Length = 2, Fixed32 = 5 };
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}
void put_key(std::string& out, uint32_t field, Wire wire) { put_varint(out, field << 3 | static_cast<uint32_t>(wire)); }
void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, Wire::Length);
  put_varint(out, bytes.size());
  out += bytes;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double wall_time_of(const MetricsLine& line) {
  return std::visit([](const auto& metrics) { return metrics.wall_time; }, line);
}

std::string record_of(const MetricsLine& line) {
  return tfrecord(event_message(wall_time_of(line), step_of(line), scalars_of(line)));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = table[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string tfrecord(std::string_view data) {
  std::string out;
  put_little_endian(out, static_cast<uint64_t>(data.size()));
  put_little_endian(out, masked_crc32c(out));
  out += data;
  put_little_endian(out, masked_crc32c(data));
  return out;
}

std::string event_message(double wall_time, int64_t step, const Scalars& scalars) {
  std::string event;
  put_key(event, 1, Wire::Fixed64);
  put_little_endian(event, wall_time);
  put_key(event, 2, Wire::Varint);
  put_varint(event, static_cast<uint64_t>(step));
  if (scalars.empty()) {
    put_bytes(event, 3, "brain.Event:2");
    return event;
  }
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    put_bytes(entry, 1, tag);
    put_key(entry, 2, Wire::Fixed32);
    put_little_endian(entry, static_cast<float>(value));
    put_bytes(summary, 1, entry);
  }
  put_bytes(event, 5, summary);
  return event;
}

Scalars scalars_of(const MetricsLine& line) {
  if (const auto* m = std::get_if<StepMetrics>(&line)) {
    Scalars scalars{{"train/loss", m->loss},
                    {"train/lr", m->lr},
                    {"train/grad_norm", m->grad_norm},
                    {"train/trained_tokens", static_cast<double>(m->trained_tokens)},
                    {"train/skipped", m->skipped ? 1.0 : 0.0},
                    {"perf/tokens_per_s", m->tokens_per_s},
                    {"perf/step_s", m->time_s},
                    {"perf/mfu", m->mfu},
                    {"perf/communication_share", m->communication_share},
                    {"perf/data_wait_share", m->data_wait_share},
                    {"perf/imbalance", m->imbalance},
                    {"perf/token_imbalance", m->token_imbalance},
                    {"perf/padding_share", m->padding_share},
                    {"memory/peak_bytes", static_cast<double>(m->memory_bytes)}};
    for (const auto& [level, bytes] : m->bytes) scalars.emplace_back("comm/bytes_" + level, static_cast<double>(bytes));
    if (m->layout_bytes > 0) scalars.emplace_back("comm/layout_bytes", static_cast<double>(m->layout_bytes));
    return scalars;
  }
  const auto& m = std::get<EvalMetrics>(line);
  return {{"eval/loss", m.eval_loss}, {"eval/tokens_per_s", m.tokens_per_s}};
}

namespace {

constexpr const char* kFilePrefix = "events.out.tfevents.";

// Creates `folder` and a new event file in it: the time in seconds sorts the files, as TensorBoard expects.
OutputFile create_event_file(const std::filesystem::path& folder) {
  make_folders(folder);
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "localhost");
  const auto seconds = static_cast<int64_t>(now());
  for (int64_t attempt = 0;; ++attempt) {
    const std::filesystem::path path =
        folder / (kFilePrefix + std::to_string(seconds) + "." + host + "." + std::to_string(::getpid()) + "." + std::to_string(attempt));
    if (!std::filesystem::exists(path)) return OutputFile(path, OutputFile::Mode::CreateNew);
  }
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, const std::vector<MetricsLine>& history)
    : file_(create_event_file(folder)) {
  std::string text = tfrecord(event_message(now(), 0, {}));
  for (const MetricsLine& line : history) text += record_of(line);
  file_.write(text);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path() != file_.path() && entry.path().filename().string().starts_with(kFilePrefix)) remove_tree(entry.path());
}

void TensorBoardWriter::append(const MetricsLine& line) { file_.write(record_of(line)); }

}  // namespace ballast
