// Plain text: one record per file. Its tokens train the format `text` only, since a text has no fields.
#include <simdjson.h>

#include "ballast/base/error.h"
#include "ballast/data/byte_stream.h"
#include "ballast/data/record_reader.h"

namespace ballast {

namespace {

class TextChunk : public RecordChunk {
 public:
  TextChunk(std::string path, std::string text) : path_(std::move(path)) { record_.text = std::move(text); }

  void decode(const RecordFormat&, const std::function<void(const Record&)>& sink) const override {
    if (!simdjson::validate_utf8(record_.text))
      throw Error(ErrorKind::Data, "the text is not valid UTF-8")
          .at(path_)
          .cure("convert it, for example by iconv -f latin1 -t utf-8");
    sink(record_);
  }

 private:
  std::string path_;
  Record record_;
};

class TextReader : public RecordReader {
 public:
  explicit TextReader(const std::string& path) : path_(path), stream_(open_stream(path)) {}

  std::unique_ptr<RecordChunk> next() override {
    if (done_) return nullptr;
    done_ = true;
    std::string text;
    size_t filled = 0;
    while (true) {
      text.resize(filled + (1 << 20));
      const size_t got = stream_->read(text.data() + filled, text.size() - filled);
      filled += got;
      if (got == 0) break;
      if (static_cast<int64_t>(filled) > kLongestRecord)
        throw Error(ErrorKind::Data, "the text file is longer than one record may be")
            .at(path_)
            .expected("at most 1 GiB of text")
            .cure("cut it into documents: several .txt files or JSON lines");
    }
    text.resize(filled);
    if (text.compare(0, 3, "\xef\xbb\xbf") == 0) text.erase(0, 3);  // a byte order mark is no text
    return std::make_unique<TextChunk>(path_, std::move(text));
  }
  int64_t consumed() const override { return stream_->consumed(); }

 private:
  std::string path_;
  std::unique_ptr<ByteStream> stream_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> open_text(const std::string& path, const RecordFormat& format) {
  if (format.kind != RecordKind::Text)
    throw Error(ErrorKind::Data, "a text file has no fields")
        .at(path)
        .found("data.format: " + format.name())
        .cure("use data.format: text, or a .jsonl or .parquet file");
  return std::make_unique<TextReader>(path);
}

}  // namespace ballast
