#include "csrc/base/proto.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "csrc/testing/test.h"

namespace pathways {
namespace {

using namespace std::string_literals;

TEST(FieldsComeBackAsWritten) {
  ProtoWriter writer;
  writer.Int64(1, 300);
  writer.Int64(2, -1);
  writer.Bool(3, true);
  writer.Bytes(16, "abc");
  writer.Int64(4, std::numeric_limits<int64_t>::min());
  ProtoReader reader(writer.bytes());
  ProtoField field;
  ASSERT(reader.Next(&field));
  EXPECT(field.is(1, WireType::kVarint));
  EXPECT_EQ(field.as_int64(), 300);
  EXPECT_EQ(field.raw, "\x08\xac\x02"s);  // the encoding guide's own example
  ASSERT(reader.Next(&field));
  EXPECT_EQ(field.as_int64(), -1);
  ASSERT(reader.Next(&field));
  EXPECT(field.as_bool());
  ASSERT(reader.Next(&field));
  EXPECT(field.is(16, WireType::kBytes));
  EXPECT_EQ(field.bytes, "abc");
  ASSERT(reader.Next(&field));
  EXPECT_EQ(field.as_int64(), std::numeric_limits<int64_t>::min());
  EXPECT(!reader.Next(&field));
  EXPECT(reader.ok());
}

TEST(FixedWidthFieldsAreRead) {
  const std::string bytes = "\x0d\x01\x02\x03\x04\x11\x01\x00\x00\x00\x00\x00\x00\x80"s;
  ProtoReader reader(bytes);
  ProtoField field;
  ASSERT(reader.Next(&field));
  EXPECT(field.is(1, WireType::kFixed32));
  EXPECT_EQ(field.value, 0x04030201u);
  ASSERT(reader.Next(&field));
  EXPECT(field.is(2, WireType::kFixed64));
  EXPECT_EQ(field.value, 0x8000000000000001u);
  EXPECT(!reader.Next(&field));
  EXPECT(reader.ok());
}

TEST(MalformedBytesStopTheReader) {
  const std::vector<std::string> bad = {
      "\x08"s,                                          // a tag without its value
      "\x08\x80"s,                                      // a varint without its end
      "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"s,  // a varint beyond 64 bits
      "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s,
      "\x0a\x05"
      "abc"s,                                           // five bytes promised, three there
      "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s,  // a size beyond memory
      "\x00\x01"s,                                      // field number zero
      "\x0b\x0c"s,                                      // a group
      "\x0e\x01"s,                                      // wire type six
      "\x0d\x01\x02"s,
      "\x09\x01"s,
  };
  for (const std::string& bytes : bad) {
    ProtoReader reader(bytes);
    ProtoField field;
    while (reader.Next(&field)) {
    }
    EXPECT(!reader.ok());
    EXPECT(!reader.Next(&field));
  }
}

TEST(RepeatedIntegersPackedOrNot) {
  const auto read = [](const std::string& bytes, bool* ok) {
    std::vector<int64_t> out;
    ProtoReader reader(bytes);
    ProtoField field;
    *ok = true;
    while (reader.Next(&field)) *ok = ForEachInt64(field, [&out](int64_t value) { out.push_back(value); }) && *ok;
    *ok = *ok && reader.ok();
    return out;
  };
  bool ok = false;
  EXPECT(read("\x0a\x03\x01\xac\x02"s, &ok) == (std::vector<int64_t>{1, 300}));
  EXPECT(ok);
  EXPECT(read("\x08\x01\x08\xac\x02"s, &ok) == (std::vector<int64_t>{1, 300}));
  EXPECT(ok);
  (void)read("\x0a\x02\x01\x80"s, &ok);
  EXPECT(!ok);
  (void)read("\x0d\x01\x02\x03\x04"s, &ok);
  EXPECT(!ok);
}

}  // namespace
}  // namespace pathways
