#include "ballast/checkpoint/manifest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "ballast/base/error.h"
#include "ballast/base/json_fault.h"
#include "ballast/base/output_file.h"
#include "ballast/checkpoint/bounded_json.h"

namespace ballast {

namespace {

using Json = nlohmann::json;
constexpr const char* kFormat = "ballast-checkpoint";
constexpr const char* kSelf = "manifest_xxh3";

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

bool is_hash(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A path that stays inside the folder and that one file system spells like another.
bool is_inside(const std::string& path) {
  if (path.empty() || path.size() > 1024 || path.front() == '/' || path.back() == '/') return false;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return std::all_of(path.begin(), path.end(), [](unsigned char c) { return c >= 0x20 && c != '\\' && c != 0x7f; });
}

Json body_of(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileEntry& file : manifest.files) files.push_back({{"path", file.path}, {"bytes", file.bytes}, {"xxh3", file.xxh3}});
  return Json{{"format", kFormat}, {"version", manifest.version}, {"step", manifest.step}, {"files", files}};
}

}  // namespace

std::string xxh3_text(std::span<const char> bytes) { return hex(XXH3_64bits(bytes.data(), bytes.size())); }

FileEntry describe_file(const std::filesystem::path& folder, const std::string& path) {
  const std::filesystem::path file = folder / path;
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw_system_error(errno, "open", file);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> buffer(size_t{4} << 20);
  FileEntry entry{path, 0, ""};
  int fault = 0;
  while (true) {
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fault = errno;
    if (got <= 0) break;
    XXH3_64bits_update(state.get(), buffer.data(), static_cast<size_t>(got));
    entry.bytes += got;
  }
  ::close(descriptor);
  if (fault != 0) throw_system_error(fault, "read", file);
  entry.xxh3 = hex(XXH3_64bits_digest(state.get()));
  return entry;
}

std::string manifest_text(const Manifest& manifest) {
  Json json = body_of(manifest);
  const std::string body = json.dump(1);
  json[kSelf] = xxh3_text(body);
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& file) {
  const auto corrupt = [&](const std::string& what) {
    return Error(ErrorKind::CorruptFile, "the manifest of a checkpoint is damaged").at(file).found(what);
  };
  const Json json = parse_bounded_json(text);
  if (!json.is_object()) throw corrupt("no JSON object: " + printable(text));
  try {
    if (json.at("format") != kFormat) throw corrupt("format " + printable(json.at("format").dump(-1, ' ', true, Json::error_handler_t::replace)));
    Manifest manifest;
    if (!json.at("version").is_number_integer()) throw corrupt("a version that is no integer");
    manifest.version = json.at("version").get<int64_t>();
    if (manifest.version != kCheckpointVersion)
      throw Error(ErrorKind::Usage, "a checkpoint of another format version")
          .at(file)
          .found(std::to_string(manifest.version))
          .expected(std::to_string(kCheckpointVersion))
          .cure("read it with the version of Ballast that wrote it, or export it there");
    manifest.step = json.at("step").get<int64_t>();
    std::set<std::string> seen;
    for (const Json& entry : json.at("files")) {
      FileEntry described{entry.at("path").get<std::string>(), entry.at("bytes").get<int64_t>(), entry.at("xxh3").get<std::string>()};
      if (!is_inside(described.path)) throw corrupt("a path that leaves the folder: " + printable(described.path));
      if (described.bytes < 0 || !is_hash(described.xxh3)) throw corrupt("no size or hash for " + printable(described.path));
      if (!seen.insert(described.path).second) throw corrupt("listed twice: " + printable(described.path));
      manifest.files.push_back(std::move(described));
    }
    if (manifest_text(manifest) != text) throw corrupt("bytes that differ from what its own hash says");
    return manifest;
  } catch (const Json::exception& error) {
    throw json_error(ErrorKind::CorruptFile, "the manifest of a checkpoint is damaged", file, error);
  }
}

}  // namespace ballast
