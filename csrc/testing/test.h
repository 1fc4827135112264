// A small test registry for *_test.cc files: one binary per room, one process, tests in order of file and line.
//
//   TEST(Name) { EXPECT_EQ(1 + 1, 2); ASSERT_OK(status); }
//
// EXPECT_* notes a failure and goes on; ASSERT_* leaves the test. The binary takes an optional filter: only tests whose
// name contains it run. It closes with "N passed, N failed" and exits non-zero when a test failed or none ran.
//
// Threads: EXPECT_* may be used from any thread; ASSERT_* returns from the function it stands in, so that function must
//          return void.
#ifndef PTPATHWAYS_TESTING_TEST_H_
#define PTPATHWAYS_TESTING_TEST_H_

#include <concepts>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "csrc/base/status.h"

namespace pathways::testing {

// Adds a test to the registry; used by TEST.
bool Register(const char* name, void (*body)(), const char* file, int line);

// Marks the running test failed and prints where and why.
void Fail(const char* file, int line, const std::string& what);

// The running test did not apply here; counted apart from passed and failed.
void Skip(const std::string& why);

// PW_TEST_PJRT_PLUGIN, or empty when no plugin is at hand.
std::string PluginPath();

template <typename T>
std::string Show(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<long long>(value));
  } else if constexpr (requires(std::ostream& out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else if constexpr (requires {
                         { value.ToString() } -> std::convertible_to<std::string>;
                       }) {
    return value.ToString();
  } else {
    return "<value of " + std::to_string(sizeof(T)) + " bytes>";
  }
}

template <typename A, typename B>
bool Equal(const A& a, const B& b) {
  if constexpr (std::integral<A> && std::integral<B> && !std::same_as<A, bool> && !std::same_as<B, bool>) {
    return std::cmp_equal(a, b);
  } else {
    return a == b;
  }
}

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

}  // namespace pathways::testing

#define TEST(name)                                                              \
  static void PwTest_##name();                                                  \
  [[maybe_unused]] static const bool pw_registered_##name =                     \
      ::pathways::testing::Register(#name, &PwTest_##name, __FILE__, __LINE__); \
  static void PwTest_##name()

#define PW_TEST_CHECK_(condition, text, leave)             \
  do {                                                     \
    if (!(condition)) {                                    \
      ::pathways::testing::Fail(__FILE__, __LINE__, text); \
      leave;                                               \
    }                                                      \
  } while (0)

// The operands go through a call, so that what they refer to lives until they are compared and shown.
#define PW_TEST_COMPARE_(a, b, op, holds, leave)                                      \
  do {                                                                                \
    const std::string pw_wrong_ = [](const auto& pw_a_, const auto& pw_b_) {          \
      if (holds) return std::string();                                                \
      return #a " " op " " #b ": got " + ::pathways::testing::Show(pw_a_) + " and " + \
             ::pathways::testing::Show(pw_b_);                                        \
    }((a), (b));                                                                      \
    if (!pw_wrong_.empty()) {                                                         \
      ::pathways::testing::Fail(__FILE__, __LINE__, pw_wrong_);                       \
      leave;                                                                          \
    }                                                                                 \
  } while (0)

#define PW_TEST_OK_(expr, leave)                                                                      \
  do {                                                                                                \
    const ::pathways::Status pw_status_ = ::pathways::testing::StatusOf((expr));                      \
    if (!pw_status_.ok()) {                                                                           \
      ::pathways::testing::Fail(__FILE__, __LINE__, std::string(#expr ": ") + pw_status_.ToString()); \
      leave;                                                                                          \
    }                                                                                                 \
  } while (0)

#define EXPECT(condition) PW_TEST_CHECK_(condition, "expected " #condition, (void)0)
#define ASSERT(condition) PW_TEST_CHECK_(condition, "expected " #condition, return)
#define EXPECT_EQ(a, b) PW_TEST_COMPARE_(a, b, "==", ::pathways::testing::Equal(pw_a_, pw_b_), (void)0)
#define ASSERT_EQ(a, b) PW_TEST_COMPARE_(a, b, "==", ::pathways::testing::Equal(pw_a_, pw_b_), return)
#define EXPECT_NE(a, b) PW_TEST_COMPARE_(a, b, "!=", !::pathways::testing::Equal(pw_a_, pw_b_), (void)0)
#define EXPECT_LT(a, b) PW_TEST_COMPARE_(a, b, "<", pw_a_ < pw_b_, (void)0)
#define EXPECT_LE(a, b) PW_TEST_COMPARE_(a, b, "<=", pw_a_ <= pw_b_, (void)0)
#define EXPECT_OK(expr) PW_TEST_OK_(expr, (void)0)
#define ASSERT_OK(expr) PW_TEST_OK_(expr, return)

// The text of a Status (or anything made from one) contains `part`.
#define EXPECT_HAS(text, part)                                                            \
  do {                                                                                    \
    const std::string pw_text_(text);                                                     \
    PW_TEST_CHECK_(pw_text_.find(part) != std::string::npos,                              \
                   "expected " #text " to contain " #part ", got: " + pw_text_, (void)0); \
  } while (0)

// ASSERT_OK_AND_ASSIGN(auto value, Compute());
#define ASSERT_OK_AND_ASSIGN(lhs, expr) ASSERT_OK_AND_ASSIGN_IMPL_(PW_CONCAT_(pw_test_result_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL_(result, lhs, expr) \
  auto result = (expr);                               \
  ASSERT_OK(result);                                  \
  lhs = *std::move(result)

#endif  // PTPATHWAYS_TESTING_TEST_H_
