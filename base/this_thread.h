// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a thread tells the system about itself: its name, and how urgent its work is.
//
// Thread:  the calling one; the threads that it starts later inherit both.
// Failure: none that matters to the caller: a system that refuses leaves things as they are.
#pragma once

namespace baton {

// As `top -H` and `perf` show it; at most 15 bytes, more are cut off.
void NameThisThread(const char* name);

}  // namespace baton
