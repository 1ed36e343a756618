// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace latent {
namespace {

// Sets a variable for one scope and puts the old value back.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value, 1);
  }
  ~ScopedVariable() {
    if (old_)
      setenv(name_, old_->c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Environment, an_empty_variable_counts_as_unset) {
  const ScopedVariable v("LATENT_LOG", "");
  EXPECT_EQ(env_string("LATENT_LOG", "warn"), "warn");
  EXPECT_TRUE(check_environment().ok());
}

TEST(Environment, nonsense_is_named_with_what_it_may_be) {
  const ScopedVariable v("LATENT_LOG", "loud");
  const Status status = check_environment();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("LATENT_LOG='loud'"), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("debug|info|warn|error"), std::string::npos);
}

TEST(Environment, part_of_a_value_is_no_value) {
  const ScopedVariable v("LATENT_LOG", "war");
  EXPECT_FALSE(check_environment().ok());
}

TEST(EnvironmentDeathTest, a_variable_outside_the_table_is_our_bug) {
  EXPECT_DEATH(env_string("LATENT_NO_SUCH_THING", ""), "is not in the table");
}

TEST(Environment, every_variable_has_a_meaning_and_the_prefix) {
  for (const EnvVariable& v : env_table()) {
    EXPECT_EQ(std::string(v.name).rfind("LATENT_", 0), 0u);
    EXPECT_FALSE(std::string(v.meaning).empty());
  }
}

}  // namespace
}  // namespace latent
