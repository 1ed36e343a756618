// SPDX-License-Identifier: Apache-2.0
// The driver's function that describes a tensor to the copy engine, found at run time so that the library
// loads where there is no driver.
#pragma once

#include <cudaTypedefs.h>

namespace latent::attention::cuda {

PFN_cuTensorMapEncodeTiled_v12000 encode_tiled();

}  // namespace latent::attention::cuda
