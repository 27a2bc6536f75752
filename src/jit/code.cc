#include "jit/code.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "base/hash.h"
#include "base/trace.h"
#include "jit/body_table.h"
#include "jit/compiler.h"
#include "jit/object_loader.h"

namespace millstream::jit {
namespace {

namespace fs = std::filesystem;

/// Rows after which compiled code has paid for its compilation: some tens of milliseconds of interpreting.
constexpr int64_t kRowsBeforeCompiling = 300'000;
constexpr std::string_view kMagic = "millstream object 1\n";
constexpr size_t kDigestLetters = 32;

#ifdef MILLSTREAM_JIT
constexpr Engine kDefault = Engine::kAuto;
#else
constexpr Engine kDefault = Engine::kInterpreter;
#endif
std::atomic<Engine> chosen_engine{kDefault};

std::mutex directory_mutex;
std::string code_directory;

std::atomic<int64_t> compiled_loops{0}, loaded_loops{0}, compile_ns{0}, load_ns{0}, batches{0},
    failed_batches{0};

/// What tells machines apart whose code differs: the processor's identification and features.
std::string host_text() {
  std::string text;
#ifdef __x86_64__
  for (const auto& [leaf, subleaf] :
       {std::pair{0u, 0u}, {1u, 0u}, {7u, 0u}, {7u, 1u}, {0xDu, 1u}, {0x80000001u, 0u}}) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d)) continue;
    if (leaf == 1) b &= 0;  // which core this runs on
    if (leaf == 1) c &= ~(1u << 27);
    text += fmt::format("{:x}.{:x}.{:x}.{:x};", a, b, c, d);
  }
#endif
  return text;
}

std::string digest_of(std::initializer_list<std::string_view> texts) {
  Digest digest;
  for (std::string_view text : texts) digest.add(text);
  return digest.hex();
}

/// A file of the cache; empty where there is none, or a damaged one.
std::string read_object(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::stringstream content;
  content << file.rdbuf();
  const std::string bytes = content.str();
  const size_t header = kMagic.size() + kDigestLetters;
  if (bytes.size() <= header || std::string_view(bytes).substr(0, kMagic.size()) != kMagic) return "";
  std::string object = bytes.substr(header);
  return digest_of({object}) == std::string_view(bytes).substr(kMagic.size(), kDigestLetters) ? object : "";
}

/// Writes it whole or not at all. What can't be written is not there the next time.
void write_object(const std::string& path, const std::string& object) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  std::error_code failed;
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << kMagic << digest_of({object}) << object;
    file.close();
    if (!file) {
      fs::remove(temporary, failed);
      return;
    }
  }
  fs::rename(temporary, path, failed);
  if (failed) fs::remove(temporary, failed);
}

/// Held by the one process of a host that compiles a shape.
class CompileLock {
 public:
  explicit CompileLock(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    // Where locks don't work everybody compiles.
    held_ = descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  }
  ~CompileLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  bool held() const { return held_; }

 private:
  int descriptor_;
  bool held_;
};

}  // namespace

void set_engine(Engine engine) {
  chosen_engine = kDefault == Engine::kInterpreter ? Engine::kInterpreter : engine;
}
bool can_compile() {
  return kDefault != Engine::kInterpreter;
}
Engine engine() {
  return chosen_engine;
}

void set_code_directory(std::string directory) {
  const std::lock_guard lock(directory_mutex);
  code_directory = std::move(directory);
}

CodeCounts code_counts() {
  return {compiled_loops, loaded_loops, compile_ns, load_ns, batches, failed_batches};
}
void count_batch(bool failed) {
  ++(failed ? failed_batches : batches);
}

struct Code::State {
  std::mutex mutex;
  std::shared_ptr<const LoadedObject> object;
  Status failure;
};

Code::Code(Loop loop, std::string shape)
    : loop_(std::move(loop)), shape_(std::move(shape)), state_(std::make_shared<State>()) {}
Code::~Code() = default;

namespace {

/// Code that nobody uses at the moment is kept as well, up to so many loops in all.
constexpr size_t kKeptLoops = 1000;
std::mutex codes_mutex;
std::map<std::string, std::shared_ptr<Code>>& codes() {
  static auto* codes = new std::map<std::string, std::shared_ptr<Code>>;
  return *codes;
}

}  // namespace

std::shared_ptr<Code> Code::of(const Loop& loop) {
  std::string shape = loop.shape();
  const std::lock_guard lock(codes_mutex);
  if (codes().size() >= kKeptLoops)
    std::erase_if(codes(), [](const auto& kept) { return kept.second.use_count() == 1; });
  std::shared_ptr<Code>& code = codes()[shape];
  if (!code) code = std::make_shared<Code>(loop, std::move(shape));
  return code;
}

void forget_unused_code() {
  const std::lock_guard lock(codes_mutex);
  std::erase_if(codes(), [](const auto& kept) { return kept.second.use_count() == 1; });
}

Result<LoopFunction> Code::function(int64_t rows) {
  if (LoopFunction ready = function_.load(std::memory_order_acquire)) return ready;
  const bool wait = engine() == Engine::kCompiled;
  const int64_t seen = rows_seen_.fetch_add(rows) + rows;
  // The disk is looked at once at the beginning, then when compiling pays.
  if (!wait && seen > rows && seen < kRowsBeforeCompiling) return nullptr;
  std::unique_lock lock(state_->mutex, std::defer_lock);
  if (wait) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return nullptr;
  }
  if (!state_->failure.ok()) return state_->failure;
  if (!function_) state_->failure = obtain(wait || seen >= kRowsBeforeCompiling, wait);
  if (!state_->failure.ok()) return state_->failure;
  return function_.load();
}

Status Code::compile() {
  const std::lock_guard lock(state_->mutex);
  if (!function_ && state_->failure.ok()) state_->failure = obtain(true, true);
  return state_->failure;
}

Status Code::obtain(bool may_compile, bool may_wait) {
  std::string directory;
  {
    const std::lock_guard lock(directory_mutex);
    directory = code_directory;
  }
  std::string path;
  if (!directory.empty()) {
    static const std::string host = host_text();
    const std::string key = digest_of({host, fmt::format("{:x}", bodies_version()), shape_});
    path = fmt::format("{}/{}.o", directory, key);
  }
  const auto load = [&](const std::string& bytes) -> Status {
    MILLSTREAM_ASSIGN(state_->object, LoadedObject::load(bytes));
    const void* found = state_->object->find("loop");
    if (!found) return bug_error("generated code lacks its loop");
    function_.store(reinterpret_cast<LoopFunction>(const_cast<void*>(found)), std::memory_order_release);
    return Status::OK();
  };
  if (!path.empty()) {
    const int64_t begin = monotonic_ns();
    const std::string kept = read_object(path);
    if (!kept.empty()) {
      MILLSTREAM_TRY(load(kept));
      ++loaded_loops;
      load_ns += monotonic_ns() - begin;
      return Status::OK();
    }
  }
  if (!may_compile) return Status::OK();
  std::error_code ignored;
  if (!path.empty()) fs::create_directories(directory, ignored);
  std::unique_ptr<CompileLock> host_lock;
  if (!path.empty()) host_lock = std::make_unique<CompileLock>(path + ".lock");
  // Another rank is at it: this one goes on interpreting and looks again, or compiles as well.
  if (host_lock && !host_lock->held() && !may_wait) return Status::OK();
  const int64_t begin = monotonic_ns();
  MILLSTREAM_ASSIGN(const Compiler* compiler, open_compiler());
  MILLSTREAM_ASSIGN(CompiledLoop compiled, compiler->compile(loop_, false));
  MILLSTREAM_TRY(load(compiled.object));
  ++compiled_loops;
  compile_ns += monotonic_ns() - begin;
  if (!path.empty()) {
    write_object(path, compiled.object);
    fs::remove(path + ".lock", ignored);
  }
  return Status::OK();
}

}  // namespace millstream::jit
