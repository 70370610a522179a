#include "ballast/data/byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "ballast/base/error.h"
#include "ballast/base/files.h"

namespace ballast {

namespace {

constexpr size_t kInput = 1 << 18;  // bytes read from the file at a time by the decompressors

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(std::string path) : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) throw Error(ErrorKind::Environment, "cannot open the data file").at(path_).found(errno_text(errno));
  }
  ~PlainStream() override { ::close(file_); }
  PlainStream(const PlainStream&) = delete;
  PlainStream& operator=(const PlainStream&) = delete;

  size_t read(char* data, size_t size) override {
    while (true) {
      const ssize_t got = ::read(file_, data, size);
      if (got >= 0) {
        consumed_ += got;
        return static_cast<size_t>(got);
      }
      if (errno != EINTR) throw Error(ErrorKind::Environment, "reading failed").at(path_).found(errno_text(errno));
    }
  }
  int64_t consumed() const override { return consumed_; }

 private:
  std::string path_;
  int file_;
  int64_t consumed_ = 0;
};

// What the two decompressors share: compressed input in pieces.
class Compressed : public ByteStream {
 public:
  explicit Compressed(const std::string& path) : path_(path), input_(kInput), file_(path) {}
  int64_t consumed() const override { return file_.consumed() - static_cast<int64_t>(filled_ - used_); }

 protected:
  // False at the end of the file.
  bool refill() {
    if (used_ < filled_) return true;
    used_ = 0;
    filled_ = file_.read(input_.data(), input_.size());
    return filled_ > 0;
  }
  Error damaged(const std::string& what) const {
    return Error(ErrorKind::CorruptFile, what)
        .at(path_, "compressed byte " + std::to_string(consumed()))
        .cure("copy or download the file again");
  }
  std::string path_;
  std::vector<char> input_;
  size_t used_ = 0, filled_ = 0;

 private:
  PlainStream file_;
};

class GzipStream : public Compressed {
 public:
  explicit GzipStream(const std::string& path) : Compressed(path) {
    // 16 asks for the gzip wrapper, whose length and CRC zlib then checks.
    if (inflateInit2(&z_, 16 + MAX_WBITS) != Z_OK)
      throw Error(ErrorKind::OutOfMemory, "no memory to decompress").at(path);
  }
  ~GzipStream() override { inflateEnd(&z_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(char* data, size_t size) override {
    z_.next_out = reinterpret_cast<Bytef*>(data);
    z_.avail_out = static_cast<uInt>(std::min<size_t>(size, 1U << 30));
    const uInt room = z_.avail_out;
    while (z_.avail_out == room) {
      if (!refill()) {
        if (!between_members_) throw damaged("the gzip data end early: the file is truncated");
        return 0;
      }
      if (between_members_ && z_.total_in == 0 && !first_) {
        // Zero padding after the last member is legal (tape blocks); another member starts with its magic.
        while (used_ < filled_ && input_[used_] == 0) ++used_;
        if (used_ == filled_) continue;
      }
      between_members_ = first_ = false;
      z_.next_in = reinterpret_cast<Bytef*>(input_.data() + used_);
      z_.avail_in = static_cast<uInt>(filled_ - used_);
      const int result = inflate(&z_, Z_NO_FLUSH);
      used_ = filled_ - z_.avail_in;
      if (result == Z_STREAM_END) {
        inflateReset(&z_);
        between_members_ = true;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        throw damaged(std::string("the gzip data are damaged: ") + (z_.msg ? z_.msg : "unknown reason"));
      }
    }
    return room - z_.avail_out;
  }

 private:
  z_stream z_{};
  bool between_members_ = false, first_ = true;
};

class ZstdStream : public Compressed {
 public:
  explicit ZstdStream(const std::string& path) : Compressed(path), z_(ZSTD_createDStream()) {
    if (!z_) throw Error(ErrorKind::OutOfMemory, "no memory to decompress").at(path);
  }
  ~ZstdStream() override { ZSTD_freeDStream(z_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  size_t read(char* data, size_t size) override {
    ZSTD_outBuffer out{data, size, 0};
    while (out.pos == 0) {
      const bool more = refill();
      if (!more && pending_ == 0) return 0;
      ZSTD_inBuffer in{input_.data() + used_, filled_ - used_, 0};
      const size_t result = ZSTD_decompressStream(z_, &out, &in);
      if (ZSTD_isError(result))
        throw damaged(std::string("the Zstandard data are damaged: ") + ZSTD_getErrorName(result));
      used_ += in.pos;
      pending_ = result;
      // With no input left, output may still sit in the decoder; a frame that then wants more is cut off.
      if (!more && out.pos == 0 && pending_ != 0) throw damaged("the Zstandard data end early: the file is truncated");
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* z_;
  size_t pending_ = 1;  // 0 = between frames
};

bool ends_with(const std::string& text, const char* ending) {
  const size_t n = std::strlen(ending);
  return text.size() > n && text.compare(text.size() - n, n, ending) == 0;
}

// Of a folder that was given as a data file: its plain files, sorted; the index of a Megatron pair goes with its .bin.
std::vector<std::string> files_to_name(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(folder, ignored), end; !ignored && it != end && files.size() < 1000; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (it->is_regular_file(ignored) && !name.starts_with('.') && !ends_with(name, ".idx")) files.push_back(it->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string without_compression(const std::string& path) {
  if (ends_with(path, ".gz")) return path.substr(0, path.size() - 3);
  if (ends_with(path, ".zst")) return path.substr(0, path.size() - 4);
  return path;
}

int64_t input_file_bytes(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    const std::string near = nearest_file(path);
    throw Error(ErrorKind::Data, "cannot find the data file")
        .at(path)
        .found(errno_text(error))
        .cure(near.empty() ? "check data.train and data.eval; relative paths start at the working folder"
                           : "did you mean '" + near + "'?");
  }
  if (S_ISDIR(info.st_mode)) {
    const std::vector<std::string> files = files_to_name(path);
    throw Error(ErrorKind::Data, "the data path is a folder")
        .at(path)
        .found(files.empty() ? "no file that could be data" : fmt::format("{} file{}", files.size(), files.size() == 1 ? "" : "s"))
        .cure(files.empty() ? "check the path"
                            : fmt::format("name its files in data.train or data.eval: [{}{}]",
                                          fmt::join(files.begin(), files.begin() + std::min<std::ptrdiff_t>(3, std::ssize(files)), ", "), files.size() > 3 ? ", ..." : ""));
  }
  if (!S_ISREG(info.st_mode)) throw Error(ErrorKind::Data, "the data path is no regular file").at(path).cure("name the files to read");
  if (info.st_size == 0)
    throw Error(ErrorKind::Data, "the data file is empty")
        .at(path)
        .found("0 bytes")
        .cure("make the file again, or leave it out of the list");
  return info.st_size;
}

std::unique_ptr<ByteStream> open_stream(const std::string& path) {
  input_file_bytes(path);
  unsigned char magic[4] = {};
  PlainStream(path).read(reinterpret_cast<char*>(magic), sizeof magic);
  const bool gzip = magic[0] == 0x1f && magic[1] == 0x8b;
  const bool zstd = (magic[0] == 0x28 || (magic[0] & 0xf0) == 0x50) &&
                    (magic[0] == 0x28 ? magic[1] == 0xb5 : magic[1] == 0x2a) &&
                    (magic[0] == 0x28 ? magic[2] == 0x2f : magic[2] == 0x4d) &&
                    (magic[0] == 0x28 ? magic[3] == 0xfd : magic[3] == 0x18);
  const char* content = gzip ? ".gz" : zstd ? ".zst" : "";
  const char* name = ends_with(path, ".gz") ? ".gz" : ends_with(path, ".zst") ? ".zst" : "";
  if (std::strcmp(content, name) != 0)
    throw Error(ErrorKind::Data, "the file's content does not match its name")
        .at(path)
        .found(*content ? std::string("compressed content (") + content + ")"
                        : std::string("content that is not ") + name)
        .cure(*content ? std::string("rename it to end in ") + content : "rename it without the compression's ending");
  if (gzip) return std::make_unique<GzipStream>(path);
  if (zstd) return std::make_unique<ZstdStream>(path);
  return std::make_unique<PlainStream>(path);
}

}  // namespace ballast
