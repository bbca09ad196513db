// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Named moments at which a test build can kill its own process, as kill -9 would.
//
// A release build has none: the macro is empty and no name stands in the binary (a test
// looks).  A build with -DBATON_FAILPOINTS=ON reads BATON_FAILPOINT=NAME@N@FILE once: the
// N-th time the process passes NAME it creates FILE and kills itself; if FILE exists it
// does nothing, so that the restarted process lives.
//
// Thread: any.
#pragma once

#ifdef BATON_FAILPOINTS
#define BATON_FAILPOINT(name) ::baton::PassFailpoint("baton-failpoint:" name)
#else
#define BATON_FAILPOINT(name) static_cast<void>(0)
#endif

namespace baton {

void PassFailpoint(const char* name);

}  // namespace baton
