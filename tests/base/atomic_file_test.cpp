#include "lrmoe/base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "lrmoe/base/error.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe {
namespace {

namespace fs = std::filesystem;
using testing::message_of;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

/// While it lives, a file may not grow over `bytes`: the test's full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit before_{};
  void (*signal_)(int);
};

TEST(AtomicFile, AppearsWholeAtCommit) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "a.json";
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(read_text(path), "old");
    file.commit();
  }
  EXPECT_EQ(read_text(path), "new");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(AtomicFile, WithoutCommitTheOldOneStays) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "a.json";
  write_file(path, "old");
  { AtomicFile(path).write("new"); }
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(AtomicFile, AFullDiskLeavesTheOldOneAndIsARunErrorThatNamesIt) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "a.bin";
  write_file(path, "old");
  const FileSizeLimit limit(4096);
  EXPECT_EQ(message_of<RunError>([&] { write_file(path, std::string(10000, 'x')); }),
            "cannot write '" + path.string() + "': File too large");
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(AtomicFile, DevicesAreWrittenStraight) {
  EXPECT_EQ(message_of<RunError>([] { write_file("/dev/full", "x"); }),
            "cannot write '/dev/full': No space left on device");
  write_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(AtomicFile, ASymbolicLinkStaysOne) {
  const testing::TemporaryFolder folder;
  write_file(folder / "real", "old");
  fs::create_symlink("real", folder / "link");
  write_file(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "real"), "new");
}

TEST(AtomicFile, AWrongPathIsTheUsersMistake) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder / "no/such/file").string();
  EXPECT_EQ(message_of<InputError>([&] { write_file(path, "x"); }),
            "cannot write '" + path + "': No such file or directory");
  EXPECT_EQ(message_of<InputError>([&] { write_file(folder.path(), "x"); }),
            "cannot write '" + folder.path().string() + "': Is a directory");
  EXPECT_EQ(message_of<InputError>([&] { read_text(path); }),
            "cannot read '" + path + "': No such file or directory");
}

TEST(AtomicFolder, ReplacesTheOldOneWhole) {
  const testing::TemporaryFolder folder;
  const fs::path target = folder / "step-1";
  for (const std::string text : {"one", "two"}) {
    AtomicFolder made(target);
    EXPECT_EQ(made.path().filename(), ".step-1.partial");
    fs::create_directory(made.path() / "inner");
    write_file(made.path() / "inner" / text, text);
    made.commit();
    EXPECT_EQ(read_text(target / "inner" / text), text);
  }
  EXPECT_FALSE(fs::exists(target / "inner" / "one"));
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(AtomicFolder, FailureLeavesTheOldOne) {
  const testing::TemporaryFolder folder;
  const fs::path target = folder / "step-1";
  {
    AtomicFolder made(target);
    write_file(made.path() / "a", "old");
    made.commit();
  }
  {
    const FileSizeLimit limit(4096);
    EXPECT_THROW(
        {
          AtomicFolder made(target);
          write_file(made.path() / "a", std::string(10000, 'x'));
          made.commit();
        },
        RunError);
  }
  EXPECT_EQ(read_text(target / "a"), "old");
  EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(AtomicFolder, ALeftOverOfACrashIsNoHindrance) {
  const testing::TemporaryFolder folder;
  fs::create_directory(folder / ".step-1.partial");
  write_file(folder / ".step-1.partial" / "junk", "x");
  AtomicFolder made(folder / "step-1");
  made.commit();
  EXPECT_TRUE(fs::is_empty(folder / "step-1"));
}

}  // namespace
}  // namespace lrmoe
