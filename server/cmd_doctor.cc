// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// doctor: what this machine can do for a configuration.  Read-only; a line per finding, each
// that is not ok with what to do about it.
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/forward.h"
#include "engine/gguf.h"
#include "engine/model_loader.h"
#include "engine/text/text_model.h"
#ifdef BATON_UCX
#include "kv_transfer/ucx_devices.h"
#include "kv_transfer/ucx_settings.h"
#endif
#include "server/ask_http.h"
#include "server/commands.h"
#include "server/config_flags.h"
#include "server/link_matrix.h"
#include "server/rdma_advice.h"

namespace baton::server {
namespace {

constexpr uint32_t kPromptTokens = 1024;  // for which links are compared

enum class Verdict { kOk, kWarn, kFail };

class Findings {
 public:
  void Add(Verdict verdict, const std::string& what, const std::string& fix = "") {
    static constexpr const char* kNames[] = {"ok  ", "warn", "fail"};
    std::printf("%s  %s%s%s\n", kNames[static_cast<int>(verdict)], what.c_str(),
                fix.empty() ? "" : "; ", fix.c_str());
    failed_ = failed_ || verdict == Verdict::kFail;
  }
  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

double Mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

uint64_t WeightBytes(const engine::Gguf& file) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : file.tensors()) bytes += tensor.view.size_bytes;
  return bytes;
}

void CheckModel(const config::Config& config, Findings* findings) {
  const std::string& path = config.model.path;
  auto fail = [&](const absl::Status& why) {
    findings->Add(Verdict::kFail, absl::StrCat("model: ", std::string(why.message())),
                  "deploy/get_model.sh fetches the default model; model.path names another");
  };
  const auto file = engine::OpenModel(path);
  if (!file.ok()) return fail(file.status());
  const auto weights = engine::LoadModel(*file);
  if (!weights.ok()) return fail(weights.status());
  const auto text = text::TextModel::Load(*file);
  if (!text.ok()) return fail(text.status());
  const engine::ModelSpec& spec = weights->spec;
  findings->Add(Verdict::kOk, absl::StrFormat("model: %s, %s, %d layers, context %d, %.0f MiB",
                                              path, spec.architecture, spec.layers, spec.context,
                                              Mebibytes(WeightBytes(*file))));
  findings->Add(Verdict::kOk, absl::StrCat("weights: ", engine::DescribeWeights(*weights)));
  if (!text->chat_status().ok()) {
    findings->Add(Verdict::kWarn,
                  absl::StrCat("model: ", std::string(text->chat_status().message())),
                  "chat requests will be refused; completions work");
  }
  if (config.model.max_context > spec.context) {
    findings->Add(Verdict::kOk, absl::StrFormat("context: model.max_context %d is cut to the "
                                                "model's %d",
                                                config.model.max_context, spec.context));
  }
}

void CheckProcessor(Findings* findings) {
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags;
  while (flags.empty() && std::getline(file, line)) {
    if (line.rfind("flags", 0) == 0) flags = line + " ";
  }
  const bool avx512 = flags.find(" avx512_vnni ") != std::string::npos;
  const bool avx2 =
      flags.find(" avx2 ") != std::string::npos && flags.find(" fma ") != std::string::npos;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (avx512 || avx2) {
    findings->Add(Verdict::kOk, absl::StrFormat("processor: %d cores, %s", cores,
                                                avx512 ? "AVX-512 VNNI" : "AVX2"));
  } else {
    findings->Add(Verdict::kWarn, absl::StrFormat("processor: %d cores, no AVX2", cores),
                  "the scalar kernels work but are slow");
  }
}

void CheckMemory(const config::Config& config, Findings* findings) {
  uint64_t wanted = 0;
  for (const auto* workers : {&config.workers.prefill, &config.workers.decode}) {
    for (const config::Worker& worker : *workers) wanted += worker.kv_memory_bytes;
  }
  const uint64_t have = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
                        static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const std::string what =
      absl::StrFormat("memory: the KV pools of all workers take %.0f MiB, %.0f MiB are free",
                      Mebibytes(wanted), Mebibytes(have));
  if (wanted > have) {
    findings->Add(Verdict::kWarn, what, "lower kv_memory if all workers run on this machine");
  } else {
    findings->Add(Verdict::kOk, what);
  }
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) != 0) {
    findings->Add(Verdict::kWarn, "/dev/shm: not there", "mount a tmpfs; pools live in it");
  } else {
    const uint64_t free = uint64_t{shm.f_bavail} * shm.f_frsize;
    const std::string text = absl::StrFormat("/dev/shm: %.0f MiB free", Mebibytes(free));
    if (free < wanted) {
      findings->Add(Verdict::kWarn, text,
                    "too small for the pools: enlarge it (--shm-size in a "
                    "container) or lower kv_memory");
    } else {
      findings->Add(Verdict::kOk, text);
    }
  }
  rlimit memlock{};
  getrlimit(RLIMIT_MEMLOCK, &memlock);
  if (memlock.rlim_cur == RLIM_INFINITY || memlock.rlim_cur >= wanted) {
    findings->Add(Verdict::kOk, "memlock: enough for RDMA registration");
  } else if (config.kv_transfer.require_rdma) {
    findings->Add(Verdict::kFail, absl::StrFormat("memlock: %.0f MiB", Mebibytes(memlock.rlim_cur)),
                  "RDMA is required: ulimit -l unlimited (LimitMEMLOCK=infinity, or the "
                  "capability IPC_LOCK in a container)");
  } else {
    findings->Add(Verdict::kOk, absl::StrFormat("memlock: %.0f MiB; only RDMA would need more",
                                                Mebibytes(memlock.rlim_cur)));
  }
}

// Pairs of workers whose pools hold different elements: a pushed block is converted, or they do
// not pair.
void CheckElements(const config::Config& config, Findings* findings) {
  const bool allowed = config.kv_transfer.allow_conversion;
  for (const config::Worker& prefill : config.workers.prefill) {
    for (const config::Worker& decode : config.workers.decode) {
      const std::string& from = config::KvTypeOf(config, prefill);
      const std::string& to = config::KvTypeOf(config, decode);
      if (from == to) continue;
      findings->Add(
          allowed ? Verdict::kOk : Verdict::kWarn,
          absl::StrCat("kv_type: ", prefill.name, " has ", from, ", ", decode.name, " has ", to,
                       allowed ? ": what is pushed is converted, and answers depend on "
                                 "the path"
                               : ": they will not pair"),
          allowed ? "" : "kv_transfer.allow_conversion: true, or the same kv_type");
    }
  }
}

// 0: can be had; else why not.
int TryBind(const config::Address& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found)) {
    return EADDRNOTAVAIL;
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int error = bind(fd, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  freeaddrinfo(found);
  return error;
}

void CheckPorts(const config::Config& config, Findings* findings) {
  std::vector<std::pair<std::string, config::Address>> ports = {
      {"frontend.http", config.frontend.http},
      {"frontend.grpc", config.frontend.grpc},
      {"frontend.admin", config.frontend.admin}};
  for (const auto* workers : {&config.workers.prefill, &config.workers.decode}) {
    for (const config::Worker& worker : *workers) {
      ports.emplace_back(worker.name + " listen", worker.listen);
      ports.emplace_back(worker.name + " admin", worker.admin);
      ports.emplace_back(worker.name + " transfer", worker.transfer);
    }
  }
  size_t good = 0;
  for (const auto& [name, address] : ports) {
    const int error = TryBind(address);
    const std::string what = absl::StrCat("port: ", name, " ", address.text());
    if (error == 0) {
      ++good;
    } else if (error == EADDRINUSE) {
      findings->Add(Verdict::kWarn, what + " is in use", "by a running cluster, or choose another");
    } else if (error == EADDRNOTAVAIL) {
      findings->Add(Verdict::kOk, what + " is another machine's");
    } else {
      findings->Add(Verdict::kFail, absl::StrCat(what, ": ", std::strerror(error)),
                    "choose another address");
    }
  }
  if (good > 0) findings->Add(Verdict::kOk, absl::StrFormat("ports: %d can be had", good));
}

#ifdef BATON_UCX
void CheckRdma(const config::Config& config, const kv::UcxDevices& ucx, Findings* findings) {
  RdmaQuestion question;
  question.devices = config.kv_transfer.devices;
  question.required = config.kv_transfer.require_rdma;
  for (const config::Worker& worker : config.workers.decode) {
    if (TryBind({worker.transfer.host, 0}) == EADDRNOTAVAIL) continue;  // another machine's
    question.transfers.emplace_back(worker.name, worker.transfer.host);
  }
  kv::UcxContextOptions options{.path = kv::DataPath::kRdmaWrites, .owner = true};
  options.rdma.assign(ucx.rdma_transports.begin(), ucx.rdma_transports.end());
  question.settings = kv::UcxSettings(options);
  for (const RdmaAdvice& advice : AdviseRdma(ReadRdma(), question)) {
    static constexpr Verdict kVerdicts[] = {Verdict::kOk, Verdict::kWarn, Verdict::kFail};
    findings->Add(kVerdicts[static_cast<int>(advice.verdict)], advice.what, advice.fix);
  }
}

void CheckTransports(const config::Config& config, Findings* findings) {
  const absl::StatusOr<kv::UcxDevices> ucx = kv::FindUcxDevices();
  if (!ucx.ok()) {
    findings->Add(Verdict::kFail, absl::StrCat("transports: ", std::string(ucx.status().message())),
                  "UCX does not start here: see its log with UCX_LOG_LEVEL=info");
    return;
  }
  findings->Add(Verdict::kOk, absl::StrCat("transports: UCX ", ucx->version, " has ",
                                           absl::StrJoin(ucx->transports, " ")));
  const bool shm = ucx->transports.count("posix") + ucx->transports.count("sysv") > 0;
  const bool rdma = !ucx->rdma_transports.empty();
  if (config.kv_transfer.transport == config::TransportChoice::kShm && !shm) {
    findings->Add(Verdict::kFail, "transports: no shared memory",
                  "kv_transfer.transport: auto, or install UCX with posix or sysv");
  }
  if (config.kv_transfer.require_rdma && !rdma) {
    findings->Add(Verdict::kFail, "transports: no RDMA (rc)",
                  "kv_transfer.require_rdma needs an InfiniBand or RoCE device that UCX sees");
  }
  for (const std::string& device : config.kv_transfer.devices) {
    if (ucx->devices.count(device) > 0) continue;
    findings->Add(Verdict::kWarn, absl::StrCat("device: UCX does not see '", device, "'"),
                  absl::StrCat("kv_transfer.devices may name: ", absl::StrJoin(ucx->devices, " ")));
  }
  CheckRdma(config, *ucx, findings);
}

#else
void CheckTransports(const config::Config&, Findings* findings) {
  findings->Add(Verdict::kFail, "transports: this build has no UCX",
                "build with libucx-dev installed; roles cannot be run without it");
}
#endif

void ShowLink(const std::string& worker, const ShownWorker& shown, const ShownLink& link,
              Findings* findings) {
  std::string what = absl::StrFormat(
      "link: %s -> %s over %s: latency %.1f us, %.2f us a run, %.2f GB/s, measured %.0f s ago, "
      "%.1f MiB in flight",
      worker, link.peer, link.transport, absl::ToDoubleMicroseconds(link.cost.latency),
      absl::ToDoubleMicroseconds(link.cost.per_operation), link.cost.bandwidth * 1e-9,
      absl::ToDoubleSeconds(link.age), link.in_flight_bytes / (1 << 20));
  if (shown.kv_block_bytes > 0) {
    absl::StrAppendFormat(&what, "; a prompt of %d tokens takes %.2f ms", kPromptTokens,
                          absl::ToDoubleMilliseconds(PredictPrompt(shown, link, kPromptTokens)));
  }
  const bool certain = !link.expected.empty() && link.expected != "any";
  if (!certain || link.expected == link.link_class) return findings->Add(Verdict::kOk, what);
  findings->Add(Verdict::kWarn,
                absl::StrCat(what, "; it is ", link.link_class, ", not ", link.expected),
                "kv_transfer.transport and the findings above say which paths there are");
}

// The links of a running cluster, as the writers know them.
void CheckLinks(const config::Config& config, Findings* findings) {
  size_t answers = 0, links = 0;
  for (const config::Worker& worker : config.workers.prefill) {
    std::string page;
    if (HttpGet(worker.admin.host, worker.admin.port, "/metrics", &page) != 200) continue;
    ++answers;
    const ShownWorker shown = ReadLinks(page);
    for (const ShownLink& link : shown.links) ShowLink(worker.name, shown, link, findings);
    links += shown.links.size();
  }
  if (answers == 0) {
    findings->Add(Verdict::kOk, "links: no prefill worker runs, so none are measured");
  } else if (links == 0) {
    findings->Add(Verdict::kWarn, "links: prefill workers run, and none has a link",
                  "their logs say why decode workers cannot be reached or refuse");
  }
}

int RunDoctor(const CommandLine& line) {
  Findings findings;
  const auto config = LoadConfig(line);
  if (!config.ok()) {
    findings.Add(Verdict::kFail, std::string(config.status().message()), "correct the file");
    return kExitFailure;
  }
  const std::string path = ConfigPath(line);
  findings.Add(Verdict::kOk,
               absl::StrFormat("configuration: %s, %d prefill and %d decode workers",
                               path.empty() ? "built-in" : path, config->workers.prefill.size(),
                               config->workers.decode.size()));
  CheckModel(*config, &findings);
  CheckProcessor(&findings);
  CheckMemory(*config, &findings);
  CheckElements(*config, &findings);
  CheckPorts(*config, &findings);
  CheckTransports(*config, &findings);
  CheckLinks(*config, &findings);
  return findings.failed() ? kExitFailure : kExitOk;
}

}  // namespace

std::vector<Command> DoctorCommands() {
  return {{"doctor",
           "",
           "look at this machine: model, memory, ports, transports; says what to fix",
           {{"model", "PATH", "the model's GGUF file (model.path)"}},
           RunDoctor}};
}

}  // namespace baton::server
