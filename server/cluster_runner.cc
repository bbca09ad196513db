// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/cluster_runner.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "server/ask_http.h"
#include "server/command_line.h"
#include "server/role_host.h"

namespace baton::server {
namespace {

constexpr absl::Duration kProbeEvery = absl::Milliseconds(20);
constexpr absl::Duration kBackoffMin = absl::Milliseconds(200);
constexpr absl::Duration kBackoffMax = absl::Seconds(5);
constexpr absl::Duration kSteady = absl::Seconds(10);     // a life this long resets the back-off
constexpr absl::Duration kLinksWait = absl::Seconds(25);  // then ready without all of them
constexpr absl::Duration kStopMargin = absl::Seconds(5);

}  // namespace

ClusterRunner::ClusterRunner(Options options) : options_(std::move(options)), began_(clock_.Now()) {
  for (const config::Worker& one : options_.config.workers.decode) AddMember("decode", one);
  for (const config::Worker& one : options_.config.workers.prefill) AddMember("prefill", one);
  config::Worker frontend;
  frontend.name = "frontend";
  frontend.admin = options_.config.frontend.admin;
  frontend.listen = options_.config.frontend.grpc;
  AddMember("frontend", frontend);
}

void ClusterRunner::AddMember(const std::string& role, const config::Worker& worker) {
  Member& member = members_.emplace_back();
  member.role = role;
  member.name = worker.name;
  member.admin = worker.admin;
  member.listen = worker.listen;
  member.backoff = kBackoffMin;
}

absl::Status ClusterRunner::Start(Member& member) {
  std::vector<std::string> words = {"serve", "--role", member.role};
  if (member.role != "frontend") words.insert(words.end(), {"--name", member.name});
  words.insert(words.end(), options_.serve_flags.begin(), options_.serve_flags.end());
  absl::StatusOr<ChildProcess> started = ChildProcess::Start(words);
  if (!started.ok()) return started.status();
  member.process = *std::move(started);
  member.ready = false;
  member.started = clock_.Now();
  member.restart_at = absl::InfiniteFuture();
  return absl::OkStatus();
}

int ClusterRunner::Run() {
  for (Member& member : members_) {
    if (const absl::Status started = Start(member); !started.ok()) {
      (void)Fail(started);
      return Stop(kExitUnavailable);
    }
  }
  while (true) {
    std::vector<pollfd> outputs;
    for (const Member& member : members_) {
      if (member.process.running()) outputs.push_back({member.process.output(), POLLIN, 0});
    }
    poll(outputs.data(), outputs.size(), 20);
    const int number = WaitForSignal(absl::ZeroDuration());
    if (number == SIGINT || number == SIGTERM) return Stop(kExitOk);
    if (number == SIGHUP) {
      for (const Member& member : members_) member.process.Signal(SIGHUP);
    }
    if (const std::optional<int> code = Look(clock_.Now())) return Stop(*code);
    int status = 0;
    if (once_ready_pid_ > 0 && waitpid(once_ready_pid_, &status, WNOHANG) == once_ready_pid_) {
      once_ready_pid_ = -1;
      return Stop(WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailure);
    }
  }
}

void ClusterRunner::Forward(Member& member) {
  for (const std::string& line : member.process.TakeLines()) {
    if (absl::StartsWith(line, "baton: ")) member.last_words = line.substr(7);
    const std::string whole = absl::StrCat(member.name, " | ", line, "\n");
    std::fwrite(whole.data(), 1, whole.size(), stderr);
  }
}

std::optional<int> ClusterRunner::Look(absl::Time now) {
  for (Member& member : members_) {
    Forward(member);
    if (member.process.Reap()) {
      Forward(member);
      if (const std::optional<int> code = OnEnd(member, now)) return code;
    }
    if (now >= member.restart_at) {
      if (const absl::Status started = Start(member); !started.ok()) return Fail(started);
      LogInfo("restarted", {{"name", member.name}, {"pid", member.process.pid()}});
    }
  }
  if (now >= next_probe_ && !announced_) {
    next_probe_ = now + kProbeEvery;
    for (Member& member : members_) Probe(member);
    if (AllReady(now)) AnnounceReady();
  }
  return std::nullopt;
}

std::optional<int> ClusterRunner::OnEnd(Member& member, absl::Time now) {
  const int code = member.process.exit_code();
  const std::string why =
      member.last_words.empty() ? absl::StrCat("exit ", code) : member.last_words;
  member.last_words.clear();
  const bool refused = code == kExitConfig || code == kExitUnavailable || code == kExitUsage;
  if (!options_.restart || (refused && !member.was_ready)) {
    std::fprintf(stderr, "baton: %s ended: %s\n", member.name.c_str(), why.c_str());
    return code > 0 && code < 128 ? code : kExitFailure;
  }
  if (now - member.started > kSteady) member.backoff = kBackoffMin;
  member.restart_at = now + member.backoff;
  LogWarn("a role ended", {{"name", member.name},
                           {"exit", code},
                           {"why", why},
                           {"restart_in_ms", absl::ToInt64Milliseconds(member.backoff)}});
  member.backoff = std::min(member.backoff * 2, kBackoffMax);
  return std::nullopt;
}

void ClusterRunner::Probe(Member& member) {
  if (member.ready || !member.process.running()) return;
  member.ready = HttpGet(member.admin.host, member.admin.port, "/ready", nullptr) == 200;
  member.was_ready = member.was_ready || member.ready;
}

bool ClusterRunner::AllReady(absl::Time now) {
  const bool ready = std::all_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.ready && member.process.running();
  });
  if (!ready) {
    all_ready_since_ = absl::InfiniteFuture();
    return false;
  }
  all_ready_since_ = std::min(all_ready_since_, now);
  if (LinksUp()) return true;
  if (now - all_ready_since_ < kLinksWait) return false;
  LogWarn("not every prefill worker has a link to every decode worker; see the roles' logs");
  return true;
}

// What the front end knows is what counts: it picks pairs by it.
bool ClusterRunner::LinksUp() {
  const size_t wanted =
      options_.config.workers.prefill.size() * options_.config.workers.decode.size();
  const Member& frontend = members_.back();
  std::string body;
  HttpGet(frontend.admin.host, frontend.admin.port, "/ready", &body);
  const auto answer = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object() || !answer.contains("detail")) return false;
  const auto workers = answer["detail"].value("workers", nlohmann::json::object());
  for (const auto& [name, state] : workers.items()) {
    if (state != "ready") return false;
  }
  const auto links = answer["detail"].value("links", nlohmann::json(0));
  return links.is_number_unsigned() && links.get<size_t>() >= wanted;
}

std::string ClusterRunner::ReadyJson() const {
  nlohmann::ordered_json roles = nlohmann::ordered_json::array();
  for (const Member& member : members_) {
    roles.push_back({{"name", member.name},
                     {"role", member.role},
                     {"pid", member.process.pid()},
                     {"admin", member.admin.text()},
                     {"listen", member.listen.text()}});
  }
  const nlohmann::ordered_json all = {{"http", "http://" + options_.config.frontend.http.text()},
                                      {"grpc", options_.config.frontend.grpc.text()},
                                      {"roles", roles}};
  return all.dump() + "\n";
}

void ClusterRunner::AnnounceReady() {
  announced_ = true;
  std::fflush(stderr);
  std::printf("ready http=http://%s grpc=%s roles=%zu after %.1f s\n",
              options_.config.frontend.http.text().c_str(),
              options_.config.frontend.grpc.text().c_str(), members_.size(),
              absl::ToDoubleSeconds(clock_.Now() - began_));
  std::fflush(stdout);
  if (!options_.ready_file.empty()) {
    const std::string part = options_.ready_file + ".part";
    const std::string text = ReadyJson();
    std::FILE* file = std::fopen(part.c_str(), "w");
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) > 0;
    if (file != nullptr) std::fclose(file);
    if (!written || std::rename(part.c_str(), options_.ready_file.c_str()) != 0) {
      LogError("cannot write the ready file", {{"path", options_.ready_file}});
    }
  }
  if (!options_.once_ready.empty()) StartOnceReady();
}

void ClusterRunner::StartOnceReady() {
  once_ready_pid_ = fork();
  if (once_ready_pid_ != 0) return;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execl("/bin/sh", "sh", "-c", options_.once_ready.c_str(), static_cast<char*>(nullptr));
  _exit(127);
}

// True if it is over; false: a second signal asks for the end at once.
bool ClusterRunner::StopRole(const std::string& role) {
  const absl::Time end = clock_.Now() + options_.config.limits.drain + kStopMargin;
  for (const Member& member : members_) {
    if (member.role == role) member.process.Signal(SIGTERM);
  }
  while (true) {
    bool running = false;
    for (Member& member : members_) {
      Forward(member);
      if (member.process.Reap()) Forward(member);
      running = running || (member.role == role && member.process.running());
    }
    if (!running) return true;
    const int number = WaitForSignal(absl::Milliseconds(20));
    if (number == SIGINT || number == SIGTERM) return false;
    if (clock_.Now() < end) continue;
    for (const Member& member : members_) {
      if (member.role == role) member.process.Signal(SIGKILL);
    }
  }
}

int ClusterRunner::Stop(int code) {
  for (const char* role : {"frontend", "prefill", "decode"}) {
    if (StopRole(role)) continue;
    for (const Member& member : members_) member.process.Signal(SIGKILL);
    return code == kExitOk ? 128 + SIGINT : code;
  }
  if (once_ready_pid_ > 0) kill(once_ready_pid_, SIGTERM);
  return code;
}

}  // namespace baton::server
