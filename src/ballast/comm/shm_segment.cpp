#include "ballast/comm/shm_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <new>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

namespace {
constexpr int64_t kPage = 4096;
constexpr uint64_t kMagic = 0x62616c6c61737401;  // the last byte counts versions of the layout
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free,
              "processes share these: a lock inside would be each process's own");
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "the kernel reads it as a futex");
static_assert(sizeof(ShmRingControl) <= kPage);

Error refused(const char* what, int error) {
  return Error(ErrorKind::Environment,
               fmt::format("cannot {} memory shared between processes: {}", what, errno_text(error)))
      .cure("free memory or raise the container's limit; comm.backend=gloo does without");
}
}  // namespace

struct ShmSegment::Header {
  uint64_t magic;
  int64_t rings, ring_bytes;
  ShmBell bell;
};

void ShmBell::wake() {
  rings_.fetch_add(1);
  syscall(SYS_futex, &rings_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void ShmBell::sleep(uint32_t seen, std::chrono::nanoseconds longest) {
  timespec time{};
  time.tv_sec = static_cast<time_t>(longest.count() / 1000000000);
  time.tv_nsec = static_cast<long>(longest.count() % 1000000000);
  syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, &time, nullptr, 0);  // any return is a reason to look
  asleep_.store(0);
}

ShmSegment::ShmSegment(int64_t rings, int64_t ring_bytes) : rings_(rings), ring_bytes_(ring_bytes) {
  BALLAST_CHECK(ring_bytes >= kPage && (ring_bytes & (ring_bytes - 1)) == 0, "ring of {} bytes", ring_bytes);
  const int64_t bytes = kPage + rings * (kPage + ring_bytes);
  fd_ = static_cast<int>(memfd_create("ballast-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd_ < 0) throw refused("create", errno);
  // Reserved now: running out later would be a SIGBUS in the middle of a copy.
  const int error = posix_fallocate(fd_, 0, bytes);
  if (error != 0) {
    close_fd();
    throw refused(fmt::format("reserve {} KiB of", bytes >> 10).c_str(), error);
  }
  fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);  // nobody can cut it under us
  try {
    map(fd_, bytes);
  } catch (...) {
    close_fd();
    throw;
  }
  new (base_) Header{kMagic, rings, ring_bytes, {}};
  for (int64_t ring = 0; ring < rings; ++ring) new (&control(ring)) ShmRingControl;
}

ShmSegment::ShmSegment(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) throw refused("examine", errno);
  if (status.st_size >= kPage) map(fd, status.st_size);
  const auto* header = reinterpret_cast<const Header*>(base_);
  if (header == nullptr || header->magic != kMagic || bytes_ != kPage + header->rings * (kPage + header->ring_bytes)) {
    if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
    throw Error(ErrorKind::Environment, "memory handed over by another rank has another layout")
        .cure("start every rank from the same version");
  }
  rings_ = header->rings;
  ring_bytes_ = header->ring_bytes;
}

void ShmSegment::map(int fd, int64_t bytes) {
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) throw refused("map", errno);
  base_ = static_cast<char*>(base);
  bytes_ = bytes;
}

ShmSegment::~ShmSegment() {
  close_fd();
  munmap(base_, static_cast<size_t>(bytes_));
}

void ShmSegment::close_fd() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

ShmBell& ShmSegment::bell() const { return reinterpret_cast<Header*>(base_)->bell; }

ShmRingControl& ShmSegment::control(int64_t ring) const {
  return *reinterpret_cast<ShmRingControl*>(base_ + kPage + ring * (kPage + ring_bytes_));
}

char* ShmSegment::data(int64_t ring) const { return base_ + kPage + ring * (kPage + ring_bytes_) + kPage; }

}  // namespace ballast
