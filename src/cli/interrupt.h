// SPDX-License-Identifier: Apache-2.0
// Ctrl-C: the first asks the command to end cleanly with what it has, the second ends the process.
#pragma once

namespace latent::cli {

// From now on SIGINT sets a flag, once; the next SIGINT has its default action again. Writes go on after it;
// a read from the terminal does too unless `end_reads`.
void catch_interrupts(bool end_reads = false);
bool interrupted();

}  // namespace latent::cli
