// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "base/this_thread.h"

#include <sys/prctl.h>

namespace baton {

void NameThisThread(const char* name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

}  // namespace baton
