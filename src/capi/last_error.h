// SPDX-License-Identifier: Apache-2.0
// What a failing call leaves behind, and the border that no exception crosses.
#pragma once

#include <latent/attention.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "base/result.h"

namespace latent::capi {

// Keeps the sentence for this thread and returns the code's status.
latent_status fail(const Error& error);
// Of this thread; "" before the first failure.
const char* last_error();

// Runs a function that returns Status, and turns whatever happens into a status.
template <class Function>
latent_status guarded(Function&& function) {
  try {
    const Status status = function();
    return status ? LATENT_OK : fail(status.error());
  } catch (const std::bad_alloc&) {
    return fail({ErrorCode::kExhausted, "no memory left"});
  } catch (const std::length_error&) {
    return fail({ErrorCode::kExhausted, "the limits ask for more memory than can be addressed"});
  } catch (const std::exception& e) {
    return fail({ErrorCode::kCorrupt, std::string("a bug in this library: ") + e.what()});
  }
}

}  // namespace latent::capi
