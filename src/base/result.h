// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value, or an Error that the caller of the program can cause (bad file, bad request, no
// memory left). Bugs of ours are CHECK (base/check.h); no exception crosses a folder.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace latent {

enum class ErrorCode {
  kInvalidArgument,  // a value given by the caller is wrong; the message names it
  kNotFound,         // file, tensor, key that must exist and does not
  kCorrupt,          // bytes of a file contradict themselves or their format
  kUnsupported,      // legal, but not built or not implemented; the message says what would be
  kExhausted,        // pages, memory, queue places
  kCancelled,        // by the user
  kNonFinite,        // a NaN or Inf where a number must be
  kIo,               // the operating system said no
};

// Stable lower-case name, e.g. "invalid_argument"; used in JSON output.
const char* error_code_name(ErrorCode code);

struct Error {
  ErrorCode code;
  std::string message;  // one sentence that names the value and, where there is one, the remedy

  // The same error with "context: " in front.
  Error with_context(std::string_view context) const;
};

// make_error(ErrorCode::kNotFound, "no tensor '{}' in {}", name, file)
template <class... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Only call if ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

  // Only call if !ok().
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace latent
