#include "ballast/model/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/model/safetensors.h"
#include "ballast/model/safetensors_header.h"

namespace ballast {

namespace {

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& file) {
  throw Error(ErrorKind::Environment, what).at(file.string()).found(errno_text(errno));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path file, const std::vector<TensorToWrite>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(std::move(file)), partial_(file_.string() + ".partial") {
  SafetensorsHeader header;
  header.metadata = metadata;
  for (const TensorToWrite& tensor : tensors) {
    int64_t bytes = safetensors_element_bytes(tensor.dtype);
    BALLAST_CHECK(bytes > 0, "dtype '{}' of tensor '{}'", tensor.dtype, tensor.name);
    for (const int64_t size : tensor.shape) bytes *= size;
    const bool fresh = places_.emplace(tensor.name, Place{data_bytes_, bytes, 0}).second;
    BALLAST_CHECK(fresh, "tensor '{}' twice", tensor.name);
    header.entries.push_back({tensor.name, tensor.dtype, tensor.shape, static_cast<uint64_t>(data_bytes_),
                              static_cast<uint64_t>(data_bytes_ + bytes)});
    data_bytes_ += bytes;
  }
  const std::string text = write_safetensors_header(header);
  std::string start(8, '\0');
  for (size_t i = 0; i < 8; ++i) start[i] = static_cast<char>((static_cast<uint64_t>(text.size()) >> (8 * i)) & 0xff);
  start += text;
  header_bytes_ = static_cast<int64_t>(start.size());

  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("cannot create the weights file", partial_);
  try {
    write_at(0, start.data(), header_bytes_);
  } catch (...) {  // no destructor runs for a half-constructed object
    ::close(descriptor_);
    ::unlink(partial_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void SafetensorsWriter::write_at(int64_t position, const void* data, int64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written =
        ::pwrite(descriptor_, from, static_cast<size_t>(std::min<int64_t>(bytes, int64_t{1} << 30)), position);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write the weights", partial_);
    from += written;
    position += written;
    bytes -= written;
  }
}

void SafetensorsWriter::write(const std::string& name, const void* data, int64_t bytes, int64_t offset) {
  const auto place = places_.find(name);
  BALLAST_CHECK(place != places_.end() && descriptor_ >= 0, "tensor '{}' of {}", name, file_.string());
  BALLAST_CHECK(bytes >= 0 && offset >= 0 && offset + bytes <= place->second.bytes, "[{}, +{}) of {} bytes of '{}'",
                offset, bytes, place->second.bytes, name);
  write_at(header_bytes_ + place->second.begin + offset, data, bytes);
  place->second.written += bytes;
}

void SafetensorsWriter::finish() {
  for (const auto& [name, place] : places_)
    BALLAST_CHECK(place.written == place.bytes, "tensor '{}': {} of {} bytes written", name, place.written,
                  place.bytes);
  if (::fsync(descriptor_) != 0) fail("cannot flush the weights", partial_);
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 || ::rename(partial_.c_str(), file_.c_str()) != 0) {
    const int fault = errno;
    ::unlink(partial_.c_str());
    errno = fault;
    fail("cannot put the weights in place", file_);
  }
  sync_folder(file_.has_parent_path() ? file_.parent_path() : ".");
}

}  // namespace ballast
