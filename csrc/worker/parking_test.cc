// Which messages wait while a device is full.
#include "csrc/worker/parking.h"

#include "csrc/testing/test.h"
#include "csrc/wire/bodies.h"

namespace pathways::worker {
namespace {

using wire::Type;

transport::Frames Message(Type type) {
  transport::Frames frames;
  frames.emplace_back(wire::EncodeHead(type, 0, ""));
  return frames;
}

Type TypeOf(const std::optional<transport::Frames>& frames) {
  return frames ? wire::TypeOf(frames->at(0).bytes()) : Type{};
}

TEST(TheParkedRunComesFirstAndTheOthersInTheirOrder) {
  Parking parking;
  EXPECT(!parking.Resume());
  parking.Park(Message(Type::kRun));
  for (const Type type : {Type::kFree, Type::kFetch}) {
    EXPECT(!parking.Admits({type}));
    parking.Wait(Message(type));
  }
  EXPECT_EQ(parking.waiting(), 3);
  EXPECT(parking.Resume());
  EXPECT(TypeOf(parking.Next()) == Type::kRun);
  EXPECT(TypeOf(parking.Next()) == Type::kFree);
  // Again no room, so the rest stays.
  parking.Park(Message(Type::kRun));
  EXPECT(!parking.Next().has_value());
  EXPECT(!parking.due());
  EXPECT(parking.Resume());
  EXPECT(TypeOf(parking.Next()) == Type::kRun);
  EXPECT(TypeOf(parking.Next()) == Type::kFetch);
  EXPECT(!parking.Next().has_value());
  EXPECT(!parking.parked());
}

TEST(WhatCanEndTheWaitIsHandledAtOnce) {
  Parking parking;
  parking.Park();
  for (const Type type : {Type::kTopology, Type::kHostLost, Type::kAbort, Type::kTransferFailed, Type::kRotate,
                          Type::kHeartbeat, Type::kReject, Type::kGoodbye}) {
    EXPECT(parking.Admits({type}));
  }
  for (const Type type : {Type::kRun, Type::kRunProgram, Type::kRunInPlace, Type::kRegister, Type::kUnregister,
                          Type::kFree, Type::kFetch, Type::kCopy, Type::kQuery, Type::kSpill, Type::kOwnerGone}) {
    EXPECT(!parking.Admits({type}));
  }
  EXPECT(parking.Admits({.type = Type::kQuery, .asks_what_is_awaited = true}));
}

TEST(AnnouncementsPassWhereMemoryIsNotBoundedNow) {
  Parking parking;
  parking.Park();
  for (const Type type : {Type::kPut, Type::kExpect}) {
    EXPECT(parking.Admits({.type = type, .memory_is_bounded = false}));
    EXPECT(!parking.Admits({.type = type, .memory_is_bounded = true}));
    EXPECT(parking.Admits({.type = type, .memory_is_bounded = false}));
  }
}

TEST(NoAnnouncementOvertakesTheEndOfAClient) {
  Parking parking;
  parking.Park();
  EXPECT(!parking.Admits({Type::kOwnerGone}));
  parking.Wait(Message(Type::kOwnerGone));
  EXPECT(!parking.Admits({Type::kPut}));
  EXPECT(parking.Resume());
  EXPECT(TypeOf(parking.Next()) == Type::kOwnerGone);
  EXPECT(!parking.Next().has_value());
  parking.Park();
  EXPECT(parking.Admits({Type::kPut}));
}

TEST(LongQueuesAreTakenInBatches) {
  Parking parking;
  parking.Park();
  for (int i = 0; i < Parking::kBatch + 1; ++i) parking.Wait(Message(Type::kFree));
  EXPECT(parking.Resume());
  for (int i = 0; i < Parking::kBatch; ++i) EXPECT(parking.Next().has_value());
  EXPECT(!parking.Next().has_value());
  EXPECT(parking.due());
  EXPECT(parking.parked());  // what comes meanwhile stays behind
  EXPECT(parking.Resume());
  EXPECT(parking.Next().has_value());
  EXPECT(!parking.Next().has_value());
  EXPECT(!parking.due());
  EXPECT(!parking.parked());
}

}  // namespace
}  // namespace pathways::worker
