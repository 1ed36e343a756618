// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu_emulator/machine.h"

using CUtensorMap = latent::emulator::TensorMap;
