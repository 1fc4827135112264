#include "csrc/plugin/api.h"

#include <cstring>
#include <string>
#include <vector>

#include "csrc/plugin/error.h"
#include "csrc/testing/test.h"

namespace pathways::plugin {
namespace {

// Every slot but the errors' own takes a struct and gives an error.
using Slot = PJRT_Error* (*)(void*);
constexpr size_t kFirstSlot = offsetof(PJRT_Api, PJRT_Plugin_Initialize);

size_t SlotCount() { return (sizeof(PJRT_Api) - kFirstSlot) / sizeof(Slot); }

Slot SlotAt(size_t index) {
  Slot slot;
  std::memcpy(&slot, reinterpret_cast<const char*>(GetPjrtApi()) + kFirstSlot + index * sizeof(Slot), sizeof(slot));
  return slot;
}

bool IsAt(size_t index, size_t offset) { return kFirstSlot + index * sizeof(Slot) == offset; }

// Errors have no payloads, whatever is asked.
bool AsksNothing(size_t index) { return IsAt(index, offsetof(PJRT_Api, PJRT_Error_ForEachPayload)); }

// Takes no object to act on.
bool ActsOnNothing(size_t index) {
  for (size_t offset :
       {offsetof(PJRT_Api, PJRT_Plugin_Initialize), offsetof(PJRT_Api, PJRT_Plugin_Attributes),
        offsetof(PJRT_Api, PJRT_Event_Create), offsetof(PJRT_Api, PJRT_Client_Create),
        offsetof(PJRT_Api, PJRT_ExecuteContext_Create), offsetof(PJRT_Api, PJRT_TopologyDescription_Create)}) {
    if (IsAt(index, offset)) return true;
  }
  return false;
}

PJRT_Error_Code CodeOf(PJRT_Error* error) {
  PJRT_Error_GetCode_Args args{sizeof(args), nullptr, error, PJRT_Error_Code_OK};
  (void)GetPjrtApi()->PJRT_Error_GetCode(&args);
  return args.code;
}

std::string MessageOf(PJRT_Error* error) {
  PJRT_Error_Message_Args args{sizeof(args), nullptr, error, nullptr, 0};
  GetPjrtApi()->PJRT_Error_Message(&args);
  return std::string(args.message, args.message_size);
}

void Destroy(PJRT_Error* error) {
  PJRT_Error_Destroy_Args args{sizeof(args), nullptr, error};
  GetPjrtApi()->PJRT_Error_Destroy(&args);
}

TEST(TheTableIsCompleteAndTellsItsVersion) {
  EXPECT(GetPjrtApi()->PJRT_Error_Destroy != nullptr && GetPjrtApi()->PJRT_Error_Message != nullptr);
  EXPECT(GetPjrtApi()->PJRT_Error_GetCode != nullptr);
  EXPECT_EQ(GetPjrtApi()->struct_size, sizeof(PJRT_Api));
  EXPECT_EQ(GetPjrtApi()->pjrt_api_version.minor_version, PJRT_API_MINOR);
  for (size_t i = 0; i < SlotCount(); ++i) {
    if (SlotAt(i) == nullptr) testing::Fail(__FILE__, __LINE__, "slot " + std::to_string(i) + " is null");
  }
}

TEST(EverySlotRefusesNullArgs) {
  for (size_t i = 0; i < SlotCount(); ++i) {
    if (AsksNothing(i)) continue;
    PJRT_Error* error = SlotAt(i)(nullptr);
    if (error == nullptr) {
      testing::Fail(__FILE__, __LINE__, "slot " + std::to_string(i) + " accepted null args");
      continue;
    }
    const PJRT_Error_Code code = CodeOf(error);
    EXPECT(code == PJRT_Error_Code_INVALID_ARGUMENT || code == PJRT_Error_Code_UNIMPLEMENTED);
    EXPECT(MessageOf(error).starts_with("PJRT_"));
    Destroy(error);
  }
}

// Exactly as many bytes as the caller says, so that a sanitizer sees a read or write behind them.
TEST(EverySlotRefusesArgsThatEndTooEarlyAndReadsNoFurther) {
  for (size_t i = 0; i < SlotCount(); ++i) {
    if (AsksNothing(i)) continue;
    std::vector<char> args(sizeof(size_t));
    const size_t size = args.size();
    std::memcpy(args.data(), &size, sizeof(size));
    PJRT_Error* error = SlotAt(i)(args.data());
    if (error == nullptr) {
      testing::Fail(__FILE__, __LINE__, "slot " + std::to_string(i) + " accepted args of 8 bytes");
      continue;
    }
    Destroy(error);
  }
}

TEST(EverySlotWithAnObjectRefusesANullOne) {
  for (size_t i = 0; i < SlotCount(); ++i) {
    if (AsksNothing(i) || ActsOnNothing(i)) continue;
    std::vector<char> args(1024);
    const size_t size = args.size();
    std::memcpy(args.data(), &size, sizeof(size));
    PJRT_Error* error = SlotAt(i)(args.data());
    if (error == nullptr) {
      testing::Fail(__FILE__, __LINE__, "slot " + std::to_string(i) + " accepted a null object");
      continue;
    }
    Destroy(error);
  }
}

TEST(AClientWithoutAClusterSaysWhatToCall) {
  PJRT_Client_Create_Args args{};
  args.struct_size = sizeof(args);
  PJRT_Error* error = GetPjrtApi()->PJRT_Client_Create(&args);
  ASSERT(error != nullptr);
  EXPECT_EQ(CodeOf(error), PJRT_Error_Code_FAILED_PRECONDITION);
  EXPECT(MessageOf(error).find("ptpathways.init()") != std::string::npos);
  Destroy(error);
}

TEST(UnknownClientOptionsAreNamed) {
  PJRT_NamedValue value{};
  value.struct_size = sizeof(value);
  value.name = "devises";
  value.name_size = 7;
  value.type = PJRT_NamedValue_kInt64;
  PJRT_Client_Create_Args args{};
  args.struct_size = sizeof(args);
  args.create_options = &value;
  args.num_options = 1;
  PJRT_Error* error = GetPjrtApi()->PJRT_Client_Create(&args);
  ASSERT(error != nullptr);
  EXPECT(MessageOf(error).find("devises") != std::string::npos);
  Destroy(error);
}

TEST(AnErrorCarriesItsFunctionTable) {
  PJRT_Error* error = NewError(DataLoss("gone"));
  struct Table {
    size_t struct_size, instance_size;
    PJRT_Extension_Base* extension_start;
    void (*destroy)(PJRT_Error*);
    void (*message)(const PJRT_Error*, const char**, size_t*);
    PJRT_Error_Code (*get_code)(const PJRT_Error*);
  };
  const Table& table = *reinterpret_cast<const Table*>(error->vtable);
  const char* message = nullptr;
  size_t size = 0;
  table.message(error, &message, &size);
  EXPECT_EQ(std::string(message, size), "gone");
  EXPECT_EQ(table.get_code(error), PJRT_Error_Code_DATA_LOSS);
  table.destroy(error);
  EXPECT(NewError(OkStatus()) == nullptr);
}

TEST(EventsAreSetByTheirCallerAndCallBackOnce) {
  const PJRT_Api* api = GetPjrtApi();
  PJRT_Event_Create_Args create{sizeof(create), nullptr, nullptr};
  ASSERT(api->PJRT_Event_Create(&create) == nullptr);
  PJRT_Event_IsReady_Args ready{sizeof(ready), nullptr, create.event, true};
  ASSERT(api->PJRT_Event_IsReady(&ready) == nullptr);
  EXPECT(!ready.is_ready);
  std::vector<std::string> heard;
  PJRT_Event_OnReady_Args on_ready{};
  on_ready.struct_size = sizeof(on_ready);
  on_ready.event = create.event;
  on_ready.user_arg = &heard;
  on_ready.callback = [](PJRT_Error* error, void* user_arg) {
    static_cast<std::vector<std::string>*>(user_arg)->push_back(error == nullptr ? "ok" : MessageOf(error));
    Destroy(error);
  };
  ASSERT(api->PJRT_Event_OnReady(&on_ready) == nullptr);
  PJRT_Event_Set_Args set{sizeof(set), nullptr, create.event, PJRT_Error_Code_ABORTED, "stop", 4};
  ASSERT(api->PJRT_Event_Set(&set) == nullptr);
  ASSERT(api->PJRT_Event_OnReady(&on_ready) == nullptr);  // set already: at once
  EXPECT(heard == (std::vector<std::string>{"stop", "stop"}));
  PJRT_Error* again = api->PJRT_Event_Set(&set);
  EXPECT(again != nullptr);
  Destroy(again);
  PJRT_Event_Await_Args await{sizeof(await), nullptr, create.event};
  PJRT_Error* outcome = api->PJRT_Event_Await(&await);
  ASSERT(outcome != nullptr);
  EXPECT_EQ(CodeOf(outcome), PJRT_Error_Code_ABORTED);
  Destroy(outcome);
  PJRT_Event_Destroy_Args destroy{sizeof(destroy), nullptr, create.event};
  EXPECT(api->PJRT_Event_Destroy(&destroy) == nullptr);
}

}  // namespace
}  // namespace pathways::plugin
