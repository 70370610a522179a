#include "ballast/data/prepare.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/base/output_file.h"
#include "ballast/data/byte_stream.h"
#include "ballast/data/record_reader.h"
#include "ballast/data/store_writer.h"
#include "ballast/data/token_store.h"

namespace ballast {

namespace {

namespace fs = std::filesystem;

struct InputFile {
  std::string path, full;
  int64_t bytes = 0, changed_ns = 0;
};

std::vector<InputFile> stat_files(const std::vector<std::string>& paths) {
  if (paths.empty())
    throw Error(ErrorKind::Data, "no data files are named").at("data").cure("set data.train to a list of files");
  std::vector<InputFile> files;
  for (const std::string& path : paths) {
    InputFile file{path, fs::absolute(path).lexically_normal().string(), input_file_bytes(path), 0};
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) throw_system_error(errno, "read the time of change", path);
    file.changed_ns = static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
    files.push_back(std::move(file));
  }
  return files;
}

fs::path path_of(const std::vector<InputFile>& files, const RecordFormat& format, const Tokenizer& tokenizer,
                 const fs::path& cache) {
  std::string key = fmt::format("store {}\nformat {}\ntokenizer {:016x} {} {}\n", kStoreVersion, format.description(),
                                tokenizer.hash(), tokenizer.vocab_size(), tokenizer.end_of_text());
  for (const InputFile& file : files) key += fmt::format("{}\n{} {}\n", file.full, file.bytes, file.changed_ns);
  std::string name = fs::path(without_compression(files.front().path)).stem().string().substr(0, 40);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '_';
  return cache / fmt::format("{}-{:016x}.store", name, XXH3_64bits(key.data(), key.size()));
}

// Held by the process that makes a store; the lock of a dead process is void.
class StoreLock {
 public:
  StoreLock(const fs::path& path, const std::function<void(const PrepareProgress&)>& progress)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (file_ < 0) throw_system_error(errno, "open the lock", path);
    while (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      try {
        if (error != EWOULDBLOCK && error != EINTR) throw_system_error(error, "lock", path);
        if (progress) {
          PrepareProgress waiting;
          waiting.waiting = true;
          progress(waiting);
        }
      } catch (...) {
        ::close(file_);
        throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  ~StoreLock() { ::close(file_); }
  StoreLock(const StoreLock&) = delete;
  StoreLock& operator=(const StoreLock&) = delete;

 private:
  int file_;
};

PrepareReport report_of(const fs::path& path, const StoreFooter& footer, bool made) {
  PrepareReport report{path.string(), made};
  report.records = static_cast<int64_t>(footer.records), report.tokens = static_cast<int64_t>(footer.tokens);
  report.trained = static_cast<int64_t>(footer.trained),
  report.short_records = static_cast<int64_t>(footer.short_records);
  report.bytes = static_cast<int64_t>(footer.file_bytes);
  return report;
}

// What goes through the pipeline: a chunk on the way in, its records on the way out, or what went wrong with it. An
// error travels in its place, so the first in file order is the one that is reported.
struct Item {
  std::unique_ptr<RecordChunk> chunk;
  std::vector<TokenizedRecord> records;
  std::exception_ptr error;
  size_t file = 0;
  int64_t bytes_done = 0;
};

class Preparation {
 public:
  Preparation(const std::vector<InputFile>& files, const RecordFormat& format, const Tokenizer& tokenizer,
              const PrepareOptions& options)
      : files_(files), format_(format), tokenizer_(tokenizer), options_(options), records_(files.size()) {
    for (const InputFile& file : files) progress_.bytes_total += file.bytes;
  }

  StoreFooter write(FileWriter& out, const fs::path& folder) {
    const StoreIdentity identity{tokenizer_.hash(), tokenizer_.vocab_size(), tokenizer_.end_of_text(),
                                 format_.kind == RecordKind::Text};
    StoreWriter writer(out, folder, identity);
    const int threads = options_.threads > 0 ? options_.threads : oneapi::tbb::info::default_concurrency();
    const oneapi::tbb::global_control allow(oneapi::tbb::global_control::max_allowed_parallelism,
                                            static_cast<size_t>(threads));
    oneapi::tbb::task_arena arena(threads);
    arena.execute([&] { run(writer, threads); });
    if (writer.footer().records == 0)
      throw Error(ErrorKind::Data, "the data hold no records")
          .at(files_.front().path)
          .found("only empty lines")
          .cure("check the file");
    nlohmann::json sources{{"format", format_.description()}, {"files", nlohmann::json::array()}};
    for (size_t i = 0; i < files_.size(); ++i)
      sources["files"].push_back({{"path", files_[i].path},
                                  {"bytes", files_[i].bytes},
                                  {"changed_ns", files_[i].changed_ns},
                                  {"records", records_[i]}});
    // Paths are any bytes; JSON holds UTF-8 only.
    writer.finish(sources.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return writer.footer();
  }

 private:
  void run(StoreWriter& writer, int threads) {
    namespace tbb = oneapi::tbb;
    using Pointer = std::shared_ptr<Item>;
    tbb::parallel_pipeline(
        static_cast<size_t>(2 * threads + 2),
        tbb::make_filter<void, Pointer>(tbb::filter_mode::serial_in_order, [&](tbb::flow_control& control) {
          return read(control);
        }) & tbb::make_filter<Pointer, Pointer>(tbb::filter_mode::parallel, [&](const Pointer& item) {
          encode(*item);
          return item;
        }) & tbb::make_filter<Pointer, void>(tbb::filter_mode::serial_in_order, [&](const Pointer& item) {
          put(writer, *item);
        }));
    if (error_) std::rethrow_exception(error_);
  }

  std::shared_ptr<Item> read(oneapi::tbb::flow_control& control) {
    auto item = std::make_shared<Item>();
    try {
      while (!failed_ && file_ < files_.size()) {
        if (!reader_) reader_ = open_records(files_[file_].path, format_);
        item->file = file_;
        item->chunk = reader_->next();
        if (item->chunk) {
          item->bytes_done = finished_ + reader_->consumed();
          return item;
        }
        reader_.reset();
        finished_ += files_[file_++].bytes;
      }
    } catch (...) {
      item->error = std::current_exception();
      failed_ = true;
      return item;
    }
    control.stop();
    return nullptr;
  }

  void encode(Item& item) const {
    if (item.error) return;
    try {
      item.chunk->decode(format_, [&](const Record& record) {
        try {
          item.records.push_back(encode_record(record, format_, tokenizer_));
        } catch (const Error& error) {
          // Tokenizers and chat templates know nothing of files.
          throw Error(error).at(files_[item.file].path, record.place);
        }
      });
    } catch (...) {
      item.error = std::current_exception();
    }
    item.chunk.reset();
  }

  // Keeps the first error for the end: an exception would cancel the pipeline, and TBB never frees what it holds then.
  void put(StoreWriter& writer, const Item& item) {
    if (error_) return;
    try {
      add(writer, item);
    } catch (...) {
      error_ = std::current_exception();
      failed_ = true;
    }
  }

  void add(StoreWriter& writer, const Item& item) {
    if (item.error) std::rethrow_exception(item.error);
    for (const TokenizedRecord& record : item.records) writer.add(record);
    records_[item.file] += static_cast<int64_t>(item.records.size());
    progress_.records = static_cast<int64_t>(writer.footer().records);
    progress_.tokens = static_cast<int64_t>(writer.footer().tokens);
    progress_.bytes_done = item.bytes_done;
    if (options_.progress) options_.progress(progress_);
  }

  const std::vector<InputFile>& files_;
  const RecordFormat& format_;
  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  std::vector<int64_t> records_;  // per file
  PrepareProgress progress_;
  std::unique_ptr<RecordReader> reader_;
  size_t file_ = 0;
  int64_t finished_ = 0;             // bytes of the files read whole
  std::exception_ptr error_;         // the first in the order of the files
  std::atomic<bool> failed_{false};  // nothing more is read
};

// What killed processes left: only the holder of the lock writes such names.
void remove_leftovers(const fs::path& path) {
  const std::string prefix = "." + path.filename().string() + ".";
  for (const auto& entry : fs::directory_iterator(path.parent_path())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".tmp")) fs::remove(entry.path());
  }
}

}  // namespace

fs::path store_path(const std::vector<std::string>& files, const RecordFormat& format, const Tokenizer& tokenizer,
                    const fs::path& cache) {
  return path_of(stat_files(files), format, tokenizer, cache);
}

PrepareReport prepare_store(const std::vector<std::string>& files, const RecordFormat& format,
                            const Tokenizer& tokenizer, const PrepareOptions& options) {
  const std::vector<InputFile> inputs = stat_files(files);
  if (format.kind == RecordKind::Chat) check_chat_template(tokenizer, format.chat_template);
  make_folders(options.cache);
  const fs::path path = path_of(inputs, format, tokenizer, options.cache);
  const auto standing = [&] { return report_of(path, read_footer(path.string(), tokenizer.hash()), false); };
  if (fs::exists(path)) return standing();
  const StoreLock lock(fs::path(path.string() + ".lock"), options.progress);
  if (fs::exists(path)) return standing();
  remove_leftovers(path);
  StoreFooter footer{};
  write_aside(path, [&](FileWriter& out) {
    footer = Preparation(inputs, format, tokenizer, options).write(out, options.cache);
    // Files that grew or changed meanwhile would give a store under the wrong key.
    const std::vector<InputFile> after = stat_files(files);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (after[i].bytes != inputs[i].bytes || after[i].changed_ns != inputs[i].changed_ns)
        throw Error(ErrorKind::Data, "a data file changed while it was read")
            .at(files[i])
            .cure("wait until it is written, then start again");
  });
  return report_of(path, footer, true);
}

}  // namespace ballast
