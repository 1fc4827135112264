// Records from one process to another: whole, in order, of any size; nothing of one that was cut off; who does not
// read.
#include "csrc/base/shared_ring.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "csrc/testing/test.h"

namespace pathways {
namespace {

std::unique_ptr<SharedRing> Ring(size_t capacity, int patience_ms = 60'000) {
  auto made = SharedRing::Make(capacity, std::chrono::milliseconds(patience_ms));
  EXPECT_OK(made.status());
  return *std::move(made);
}

bool Put(SharedRing& ring, std::string_view first, std::string_view second = "") {
  const std::string_view pieces[] = {first, second};
  return ring.Write(pieces);
}

// The bytes of record `number`, of a size between 0 and three times the ring's.
std::string RecordOf(uint64_t number) {
  std::mt19937_64 random(number);
  const size_t size = number % 17 == 0 ? random() % 3000 : random() % 60;
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST(RecordsComeWholeAndInOrderWhateverTheirSize) {
  const auto ring = Ring(1000);
  std::thread writer([&] {
    for (uint64_t i = 0; i < 2000; ++i) {
      const std::string bytes = RecordOf(i);
      const size_t half = bytes.size() / 2;
      EXPECT(Put(*ring, std::string_view(bytes).substr(0, half), std::string_view(bytes).substr(half)));
      if (i % 100 == 0) ring->Wake();
    }
  });
  std::string record;
  for (uint64_t i = 0; i < 2000;) {
    if (!ring->Read(&record)) {
      std::this_thread::yield();
      continue;
    }
    EXPECT(record == RecordOf(i));
    ++i;
  }
  writer.join();
  EXPECT(!ring->Read(&record));
  EXPECT(!ring->dropped());
}

TEST(WhatAKilledProcessWroteIsThereAndNothingOfWhatItWasWriting) {
  const auto ring = Ring(1 << 16);
  const pid_t writer = ::fork();
  if (writer == 0) {
    for (uint64_t i = 0; i < 100; ++i) (void)Put(*ring, RecordOf(i));
    const std::string large(1 << 20, 'x');
    (void)Put(*ring, large);  // waits for room that nobody makes
    ::_exit(0);
  }
  std::string record;
  for (uint64_t i = 0; i < 100;) {
    if (!ring->Read(&record)) {
      std::this_thread::yield();
      continue;
    }
    EXPECT(record == RecordOf(i));
    ++i;
  }
  ::kill(writer, SIGKILL);
  EXPECT_EQ(::waitpid(writer, nullptr, 0), writer);
  EXPECT(!ring->Read(&record));
}

TEST(AReaderThatMakesNoRoomIsDroppedAndTheWriterGoesOn) {
  const auto ring = Ring(256, 20);
  const std::string bytes(100, 'x');
  EXPECT(Put(*ring, bytes));
  EXPECT(Put(*ring, bytes));
  const auto begun = std::chrono::steady_clock::now();
  EXPECT(!Put(*ring, bytes));
  EXPECT(std::chrono::steady_clock::now() - begun < std::chrono::seconds(10));
  EXPECT(ring->dropped());
  EXPECT(!Put(*ring, "x"));
  std::string record;
  EXPECT(ring->Read(&record));
  EXPECT(ring->Read(&record));
  EXPECT(!ring->Read(&record));  // only a part of the third came
}

TEST(NothingIsWrittenForAReaderThatHasLeft) {
  const auto ring = Ring(256);
  EXPECT(Put(*ring, "a"));
  ring->Leave();
  EXPECT(!Put(*ring, "b"));
}

TEST(ASleepingReaderIsWokenUp) {
  const auto ring = Ring(800);
  EXPECT(ring->PrepareToSleep());
  EXPECT(Put(*ring, "a"));
  uint64_t count = 0;
  EXPECT(::read(ring->wake_fd(), &count, sizeof count) < 0);  // little is there yet
  EXPECT(Put(*ring, std::string(200, 'x')));
  EXPECT_EQ(::read(ring->wake_fd(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
  ring->Woke();
  EXPECT(!ring->PrepareToSleep());  // it has not read yet
}

}  // namespace
}  // namespace pathways
