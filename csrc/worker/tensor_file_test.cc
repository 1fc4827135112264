// TensorFile: boxes go where they belong, and what goes wrong with files is said and leaves nothing behind.
#include "csrc/worker/tensor_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <vector>

#include "csrc/base/crc32c.h"
#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

const TensorType kShard{DType::kF32, {4, 6}};

struct TensorFolder {
  TensorFolder() {
    std::string text = (std::filesystem::temp_directory_path() / "tensor_file_XXXXXX").string();
    path = mkdtemp(text.data());
  }
  ~TensorFolder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

std::vector<float> Counted(size_t size) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Rows 1 and 2 of columns 2 to 4 of the shard, at row 3, column 1 of a tensor of 8 x 5 that begins at byte 16.
const wire::FileBox kBox{0, 16, {8, 5}, {3, 1}, {1, 2}, {2, 3}};
constexpr uint64_t kBytes = 16 + 8 * 5 * 4;

TEST(ABoxIsWrittenAndReadWhereItBelongs) {
  const TensorFolder folder;
  const std::string path = folder / "a";
  const std::vector<float> shard = Counted(24);
  {
    Result<TensorFile> file = TensorFile::Create(path, kBytes);
    ASSERT_OK(file.status());
    ASSERT_OK(file->Write("0123456789abcdef", 0));
    ASSERT_OK(file->WriteBox(kBox, kShard, shard.data()));
    EXPECT(!std::filesystem::exists(path));  // it has its name only when it is finished
    ASSERT_OK(file->Finish());
  }
  const std::string text = Contents(path);
  ASSERT_EQ(text.size(), kBytes);
  EXPECT_EQ(text.substr(0, 16), std::string("0123456789abcdef"));
  std::vector<float> expected(40, 0.0f);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t column = 0; column < 3; ++column)
      expected[(3 + row) * 5 + 1 + column] = shard[(1 + row) * 6 + 2 + column];
  }
  EXPECT(std::memcmp(text.data() + 16, expected.data(), 160) == 0);

  Result<TensorFile> file = TensorFile::OpenToRead(path, kBytes);
  ASSERT_OK(file.status());
  std::vector<float> read(24, -1.0f);
  ASSERT_OK(file->ReadBox(kBox, kShard, read.data()));
  for (size_t i = 0; i < 24; ++i) {
    const bool inside = i / 6 >= 1 && i / 6 <= 2 && i % 6 >= 2 && i % 6 <= 4;
    EXPECT_EQ(read[i], inside ? shard[i] : -1.0f);
  }
}

TEST(LongRowsAndManyWindowsGiveTheSame) {
  const TensorFolder folder;
  const std::string path = folder / "b";
  // Short rows far apart, over several windows; and rows long enough to be read one by one.
  for (const int64_t width : {int64_t{12}, int64_t{20000}}) {
    const TensorType shard{DType::kF32, {700, width}};
    const std::vector<float> values = Counted(static_cast<size_t>(700 * width));
    const wire::FileBox box{0, 8, {700, width * 3}, {0, width}, {0, 0}, {700, width}};
    const uint64_t bytes = 8 + static_cast<uint64_t>(700 * width * 3 * 4);
    Result<TensorFile> file = TensorFile::Create(path, bytes);
    ASSERT_OK(file.status());
    ASSERT_OK(file->WriteBox(box, shard, values.data()));
    ASSERT_OK(file->Finish());
    Result<TensorFile> again = TensorFile::OpenToRead(path, bytes);
    ASSERT_OK(again.status());
    std::vector<float> read(values.size());
    ASSERT_OK(again->ReadBox(box, shard, read.data()));
    EXPECT(read == values);
  }
}

TEST(SeveralWriteTheirPartsOfOneFile) {
  const TensorFolder folder;
  const std::string path = folder / "c";
  std::ofstream(path, std::ios::binary) << std::string(kBytes, '\0');
  const std::vector<float> shard = Counted(24);
  Result<TensorFile> file = TensorFile::OpenToWrite(path, kBytes);
  ASSERT_OK(file.status());
  ASSERT_OK(file->WriteBox(kBox, kShard, shard.data()));
  ASSERT_OK(file->Finish());
  EXPECT_EQ(Contents(path).size(), kBytes);
}

TEST(AFileThatIsNotFinishedLeavesNothing) {
  const TensorFolder folder;
  {
    ASSERT_OK(TensorFile::Create(folder / "d", 1000).status());
  }
  EXPECT(std::filesystem::is_empty(folder.path));
}

TEST(WhatIsWrongWithAFileIsSaid) {
  const TensorFolder folder;
  EXPECT_EQ(TensorFile::OpenToRead(folder / "none", 1).status().code(), Code::kNotFound);
  EXPECT_EQ(TensorFile::Create(folder / "no/such", 1).status().code(), Code::kNotFound);
  std::ofstream(folder / "short") << "abc";
  const Status cut = TensorFile::OpenToRead(folder / "short", 100).status();
  EXPECT_EQ(cut.code(), Code::kDataLoss);
  EXPECT(cut.message().find("100 bytes, got 3") != std::string_view::npos);
}

TEST(OnlyRegularFilesAreOpened) {
  const TensorFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(mkfifo(TensorFile::TemporaryName(pipe).c_str(), 0600), 0);
  for (const Status& status :
       {TensorFile::OpenToRead(pipe, 0).status(), TensorFile::OpenToWrite(pipe, 8).status(),
        TensorFile::Create(pipe, 8).status(), TensorFile::OpenToRead(folder.path, 0).status(),
        TensorFile::OpenToWrite(folder.path, 8).status(), TensorFile::OpenToRead("/dev/zero", 0).status()}) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT(status.message().find("not a regular file") != std::string::npos);
  }
  EXPECT(std::filesystem::exists(pipe));
}

TEST(AFullDiskIsSaidBeforeAnythingIsWritten) {
  const TensorFolder folder, other;
  std::ofstream(other / "f") << "there";
  Result<TensorFile> file = TensorFile::OpenToWrite(other / "f", 100);
  ASSERT_OK(file.status());
  rlimit before{};
  ASSERT(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status full = TensorFile::Create(folder / "e", 1 << 20).status();
  const Status written = file->Write("abc", 8192);
  ASSERT(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT(full.message().find("make room") != std::string_view::npos);
  EXPECT(std::filesystem::is_empty(folder.path));
  EXPECT_EQ(written.code(), Code::kResourceExhausted);
}

TEST(ADamagedFileIsNamed) {
  const TensorFolder folder;
  const std::string path = folder / "sum";
  const std::string contents = std::string(5 << 20, 'a') + "123456789";
  Result<TensorFile> made = TensorFile::Create(path, contents.size());
  ASSERT_OK(made.status());
  ASSERT_OK(made->Write(contents, 0));
  ASSERT_OK_AND_ASSIGN(const uint32_t crc, made->Checksum());
  ASSERT_OK(made->Finish());
  EXPECT_EQ(crc, Crc32c(contents.data(), contents.size()));
  Result<TensorFile> good = TensorFile::OpenToRead(path, contents.size());
  ASSERT_OK(good.status());
  EXPECT_OK(good->CheckContents(crc));
  ASSERT_OK_AND_ASSIGN(const std::string before, good->State());
  ASSERT_OK_AND_ASSIGN(const std::string same, good->State());
  EXPECT_EQ(before, same);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(3 << 20).put('b');
  const Status damaged = good->CheckContents(crc);
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT(damaged.message().find(path) != std::string_view::npos);
}

TEST(FilesLieBelowTheRootAndNoLinkIsFollowed) {
  const TensorFolder outside, folder;
  std::filesystem::create_directories(folder / "run/step1");
  std::filesystem::create_directory_symlink(outside.path, folder / "run/out");
  std::filesystem::create_directory_symlink(folder / "run/step1", folder / "run/in");
  std::filesystem::create_directory_symlink(folder.path, outside / "door");
  std::ofstream(outside / "secret") << "abc";
  std::ofstream(folder / "run/own") << "abc";
  std::filesystem::create_symlink(outside / "secret", folder / "run/leaf");
  std::filesystem::create_symlink(outside / "secret", folder / "run/x.partial");
  for (const std::string& given : {folder.path, folder.path + "//", outside / "door"}) {
    ASSERT_OK_AND_ASSIGN(const FileRoot root, FileRoot::Open(given));
    EXPECT_OK(TensorFile::OpenToRead(folder / "run/own", 3, root).status());
    EXPECT_OK(TensorFile::OpenToRead(folder / "run/./own", 3, root).status());
    ASSERT_OK_AND_ASSIGN(TensorFile made, TensorFile::Create(folder / "run/step1/new", 3, root));
    ASSERT_OK(made.Write("abc", 0));
    ASSERT_OK(made.Finish());
    for (const std::string& path :
         {outside / "secret", folder / "run/out/secret", folder / "run/in/new", folder / "run/leaf",
          folder / "run/../../secret", folder / "..", std::string("/etc/passwd"), folder.path + "x", folder.path}) {
      for (const Status& status :
           {TensorFile::OpenToRead(path, 3, root).status(), TensorFile::OpenToWrite(path, 3, root).status()}) {
        EXPECT_EQ(status.code(), Code::kPermissionDenied);
        EXPECT(status.message().find("--root") != std::string_view::npos);
      }
    }
    EXPECT_EQ(TensorFile::Create(folder / "run/x", 3, root).status().code(), Code::kPermissionDenied);
    EXPECT_EQ(TensorFile::Create(outside / "new", 3, root).status().code(), Code::kPermissionDenied);
  }
  EXPECT_EQ(Contents(outside / "secret"), "abc");
  ASSERT_OK_AND_ASSIGN(const FileRoot none, FileRoot::Open("/"));
  EXPECT_OK(TensorFile::OpenToRead(folder / "run/leaf", 3, none).status());
  EXPECT(!FileRoot::Open("relative").ok());
  EXPECT(!FileRoot::Open(outside / "secret").ok());
}

TEST(BoxesOutsideAreRefused) {
  wire::FileBox box = kBox;
  ASSERT_OK(TensorFile::Check(box, kShard, kBytes));
  EXPECT(!TensorFile::Check(box, kShard, kBytes - 1).ok());
  box.at = {7, 1};
  EXPECT(!TensorFile::Check(box, kShard, kBytes).ok());
  box = kBox;
  box.start = {3, 2};
  EXPECT(!TensorFile::Check(box, kShard, kBytes).ok());
  box = kBox;
  box.offset = ~uint64_t{0};
  EXPECT(!TensorFile::Check(box, kShard, kBytes).ok());
}

}  // namespace
}  // namespace pathways::worker
