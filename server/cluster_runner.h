// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The processes of `baton up`: starts them, forwards their output, waits until all take work,
// restarts those that die, and stops them in order: front end, prefill, decode.
//
// Thread:  the main thread; one loop of short, non-blocking looks.
// Failure: a role that ends before it was ever ready ends the cluster, with that role's code
//          and its own last words.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "config/config.h"
#include "server/child_process.h"

namespace baton::server {

class ClusterRunner {
 public:
  struct Options {
    config::Config config;
    std::vector<std::string> serve_flags;  // behind `serve --role R --name N`
    std::string ready_file;                // written once all are ready; empty: none
    std::string once_ready;                // a shell command; its end stops the cluster
    bool restart = true;
  };
  explicit ClusterRunner(Options options);

  int Run();

 private:
  struct Member {
    std::string role, name;
    config::Address admin, listen;
    ChildProcess process;
    std::string last_words;  // its last "baton: …" line
    bool ready = false;
    bool was_ready = false;  // in some life
    absl::Time started;
    absl::Duration backoff;
    absl::Time restart_at = absl::InfiniteFuture();
  };

  void AddMember(const std::string& role, const config::Worker& worker);
  absl::Status Start(Member& member);
  void Forward(Member& member);
  // An exit code if the cluster must end.
  std::optional<int> Look(absl::Time now);
  std::optional<int> OnEnd(Member& member, absl::Time now);
  void Probe(Member& member);
  bool AllReady(absl::Time now);
  bool LinksUp();
  void AnnounceReady();
  std::string ReadyJson() const;
  void StartOnceReady();
  int Stop(int code);
  bool StopRole(const std::string& role);

  const Options options_;
  const RealClock clock_;
  const absl::Time began_;
  std::vector<Member> members_;
  bool announced_ = false;
  absl::Time all_ready_since_ = absl::InfiniteFuture();
  absl::Time next_probe_ = absl::InfinitePast();
  pid_t once_ready_pid_ = -1;
};

}  // namespace baton::server
