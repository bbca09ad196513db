// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a thread tells the system about itself: its name, and how it shares a processor.
//
// A token passes through several threads that each wake up, work for some microseconds and
// sleep again, on processors that compute threads keep busy.  The system lets a thread that
// wakes up go first if its turn would be over first: so the former ask for short turns (Linux
// 6.12 and later), and the latter, if their work is less urgent, for a smaller share.  Neither
// needs a privilege.
//
// Thread:  the calling one; the threads that it starts later inherit all of it.
// Failure: none that matters to the caller: a system that refuses leaves things as they are, and
//          so does a policy that somebody else chose (chrt).
#pragma once

namespace baton {

// As `top -H` and `perf` show it; at most 15 bytes, more are cut off.
void NameThisThread(const char* name);

// The share stays; the turns become the shortest there are.
void TakeShortTurns();

// The usual turns, and for the share a nice value of `nice` (0 to 19) or the present one if that
// is higher: lowering it would need a privilege.
void TakeUsualTurns(int nice);

}  // namespace baton
