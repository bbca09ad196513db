// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Named moments at which a test build can be killed, or held while something else happens.
//
// A release build has none: the macros are empty and no name stands in the binary (a test
// looks).  A build with -DBATON_FAILPOINTS=ON reads two variables once:
//
//   BATON_FAILPOINT=NAME@N@FILE  The N-th time the process passes NAME it creates FILE and kills
//                                itself, as kill -9 would; if FILE exists it does nothing, so
//                                that the restarted process lives.
//   BATON_HOLDPOINTS=FOLDER      While FOLDER/PID.NAME exists, the next pass of NAME in process
//                                PID whose `about` contains the file's first line renames the file
//                                to PID.NAME.held and waits until that is removed, at most 1 s,
//                                or the milliseconds of the file's second line.  Who waits for
//                                that name knows that the process is at the moment, and may do
//                                anything to anyone.
//
// `about` says what the moment is about (attempt, peer); it is not evaluated in a release
// build, nor where nothing is armed.
//
// Thread: any.
#pragma once

#ifdef BATON_FAILPOINTS
#define BATON_FAILPOINT(name) ::baton::PassFailpoint("baton-failpoint:" name)
#define BATON_FAILPOINT_ABOUT(name, about)                                  \
  do {                                                                      \
    ::baton::PassFailpoint("baton-failpoint:" name);                        \
    if (::baton::HoldpointArmed(name)) ::baton::PassHoldpoint(name, about); \
  } while (false)
#else
#define BATON_FAILPOINT(name) static_cast<void>(0)
#define BATON_FAILPOINT_ABOUT(name, about) static_cast<void>(0)
#endif

#include <string>

namespace baton {

void PassFailpoint(const char* name);
bool HoldpointArmed(const char* name);
void PassHoldpoint(const char* name, const std::string& about);

}  // namespace baton
