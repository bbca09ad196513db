// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "config/fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "config/values.h"

namespace baton::config {
namespace {

// Makes a Field from a parser, a printer and the place of the value.
template <typename T, typename Parse, typename Print>
Field Make(std::string path, T* value, Parse parse, Print print) {
  return {std::move(path),
          [value, parse](const std::string& text) -> absl::Status {
            auto parsed = parse(text);
            if (!parsed.ok()) return parsed.status();
            *value = static_cast<T>(*std::move(parsed));
            return absl::OkStatus();
          },
          [value, print]() -> std::string { return print(*value); }};
}

Field Text(std::string path, std::string* value) {
  return Make(
      std::move(path), value,
      [](const std::string& text) -> absl::StatusOr<std::string> {
        if (text.empty()) return absl::InvalidArgumentError("must not be empty");
        return text;
      },
      [](const std::string& text) { return text; });
}

Field Word(std::string path, std::string* value, std::vector<std::string> words) {
  return Make(
      std::move(path), value,
      [words](const std::string& text) -> absl::StatusOr<std::string> {
        for (const std::string& word : words) {
          if (text == word) return text;
        }
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' is not one of ", absl::StrJoin(words, ", ")));
      },
      [](const std::string& text) { return text; });
}

Field MaybeWord(std::string path, std::optional<std::string>* value,
                std::vector<std::string> words) {
  return Make(
      std::move(path), value,
      [words](const std::string& text) -> absl::StatusOr<std::string> {
        if (std::find(words.begin(), words.end(), text) != words.end()) return text;
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' is not one of ", absl::StrJoin(words, ", ")));
      },
      [](const std::optional<std::string>& text) { return text.value_or(""); });
}

template <typename T>
Field Count(std::string path, T* value, uint64_t min, uint64_t max) {
  return Make(
      std::move(path), value,
      [min, max](const std::string& text) { return ParseCount(text, min, max); },
      [](T count) { return absl::StrCat(count); });
}

Field Bool(std::string path, bool* value) {
  return Make(std::move(path), value, ParseBool,
              [](bool yes) { return std::string(yes ? "true" : "false"); });
}

Field Bytes(std::string path, uint64_t* value, uint64_t min) {
  return Make(
      std::move(path), value,
      [min](const std::string& text) -> absl::StatusOr<uint64_t> {
        ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(text));
        if (bytes < min) {
          return absl::InvalidArgumentError(
              absl::StrCat("'", text, "' is below the least, ", PrintBytes(min)));
        }
        return bytes;
      },
      PrintBytes);
}

Field Rate(std::string path, uint64_t* value) {
  return Make(std::move(path), value, ParseBytesPerSecond, PrintBytesPerSecond);
}

Field Time(std::string path, absl::Duration* value, absl::Duration min) {
  return Make(
      std::move(path), value,
      [min](const std::string& text) -> absl::StatusOr<absl::Duration> {
        ASSIGN_OR_RETURN(const absl::Duration duration, ParseDuration(text));
        if (duration < min) {
          return absl::InvalidArgumentError(
              absl::StrCat("'", text, "' is below the least, ", PrintDuration(min)));
        }
        return duration;
      },
      PrintDuration);
}

Field Place(std::string path, Address* value) {
  return Make(std::move(path), value, ParseAddress,
              [](const Address& address) { return address.text(); });
}

Field MaybePlace(std::string path, std::optional<Address>* value) {
  return Make(std::move(path), value, ParseAddress, [](const std::optional<Address>& address) {
    return address.has_value() ? address->text() : std::string();
  });
}

constexpr std::pair<absl::string_view, TransportChoice> kTransports[] = {
    {"auto", TransportChoice::kAuto},
    {"shm", TransportChoice::kShm},
    {"tcp", TransportChoice::kTcp},
    {"ucx_tcp", TransportChoice::kUcxTcp},
};

Field Transport(std::string path, TransportChoice* value) {
  return Make(
      std::move(path), value,
      [](const std::string& text) -> absl::StatusOr<TransportChoice> {
        for (const auto& [name, choice] : kTransports) {
          if (text == name) return choice;
        }
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' is not one of auto, shm, tcp, ucx_tcp"));
      },
      [](TransportChoice choice) {
        for (const auto& [name, listed] : kTransports) {
          if (choice == listed) return std::string(name);
        }
        return std::string();
      });
}

Field Words(std::string path, std::vector<std::string>* value) {
  Field field = Make(
      std::move(path), value,
      [](const std::string& text) -> absl::StatusOr<std::vector<std::string>> {
        if (text.empty()) return absl::InvalidArgumentError("must not be empty");
        return std::vector<std::string>(absl::StrSplit(text, ','));
      },
      [](const std::vector<std::string>& words) { return absl::StrJoin(words, ","); });
  field.list = true;
  return field;
}

std::vector<std::string> KvTypes() { return {"bf16", "f16", "int8", "f32"}; }

void AddWorkers(const std::string& path, std::vector<Worker>& workers, std::vector<Field>& all) {
  for (size_t i = 0; i < workers.size(); ++i) {
    const std::string at = absl::StrCat(path, ".", i, ".");
    Worker& worker = workers[i];
    all.push_back(Text(at + "name", &worker.name));
    all.push_back(Place(at + "listen", &worker.listen));
    all.push_back(MaybePlace(at + "advertise_listen", &worker.advertise_listen));
    all.push_back(Place(at + "admin", &worker.admin));
    all.push_back(Place(at + "transfer", &worker.transfer));
    all.push_back(MaybePlace(at + "advertise_transfer", &worker.advertise_transfer));
    all.push_back(Word(at + "device", &worker.device, {"cpu"}));
    all.push_back(Count(at + "threads", &worker.threads, 1, 256));
    all.push_back(Bytes(at + "kv_memory", &worker.kv_memory_bytes, 1 << 20));
    all.push_back(MaybeWord(at + "kv_type", &worker.kv_type, KvTypes()));
  }
}

}  // namespace

std::vector<Field> Fields(Config& config) {
  std::vector<Field> all;
  all.push_back(Text("model.path", &config.model.path));
  all.push_back(Text("model.name", &config.model.name));
  all.push_back(Count("model.max_context", &config.model.max_context, 32, 1 << 20));
  all.push_back(Place("frontend.http", &config.frontend.http));
  all.push_back(Place("frontend.grpc", &config.frontend.grpc));
  all.push_back(Place("frontend.admin", &config.frontend.admin));
  AddWorkers("workers.prefill", config.workers.prefill, all);
  AddWorkers("workers.decode", config.workers.decode, all);
  all.push_back(
      Count("router.colocate_below_tokens", &config.router.colocate_below_tokens, 0, 1 << 20));
  all.push_back(Count("router.attempts_max", &config.router.attempts_max, 1, 16));
  all.push_back(Bool("router.resume", &config.router.resume));
  all.push_back(Count("engine.chunk_tokens", &config.engine.chunk_tokens, 16, 1 << 16));
  all.push_back(Count("engine.batch_tokens", &config.engine.batch_tokens, 16, 1 << 16));
  all.push_back(Count("engine.step_percent", &config.engine.step_percent, 101, 1000000));
  all.push_back(Count("engine.prefill_nice", &config.engine.prefill_nice, 0, 19));
  all.push_back(Count("engine.sequences_max", &config.engine.sequences_max, 1, 4096));
  all.push_back(Bool("engine.prefix_cache", &config.engine.prefix_cache));
  all.push_back(Word("engine.kv_type", &config.engine.kv_type, KvTypes()));
  all.push_back(Word("engine.isa", &config.engine.isa, {"auto", "avx2", "avx512"}));
  auto& kv = config.kv_transfer;
  all.push_back(Transport("kv_transfer.transport", &kv.transport));
  all.push_back(Words("kv_transfer.devices", &kv.devices));
  all.push_back(Bool("kv_transfer.require_rdma", &kv.require_rdma));
  all.push_back(Rate("kv_transfer.min_bandwidth", &kv.min_bandwidth_bytes_per_second));
  all.push_back(
      Time("kv_transfer.progress_timeout", &kv.progress_timeout, absl::Milliseconds(100)));
  all.push_back(Bool("kv_transfer.allow_mixed_numerics", &kv.allow_mixed_numerics));
  all.push_back(Bool("kv_transfer.allow_conversion", &kv.allow_conversion));
  all.push_back(Bool("kv_transfer.pipelining", &kv.pipelining));
  all.push_back(Count("kv_transfer.check_one_in", &kv.check_one_in, 0, 1 << 20));
  auto& limits = config.limits;
  all.push_back(Count("limits.queue_requests", &limits.queue_requests, 1, 1 << 20));
  all.push_back(Count("limits.queue_tokens", &limits.queue_tokens, 1, uint64_t{1} << 40));
  all.push_back(Time("limits.default_deadline", &limits.default_deadline, absl::Milliseconds(1)));
  all.push_back(Time("limits.drain", &limits.drain, absl::ZeroDuration()));
  all.push_back(Bytes("limits.body_bytes", &limits.body_bytes, 1 << 10));
  all.push_back(Bytes("limits.stream_buffer_bytes", &limits.stream_buffer_bytes, 1 << 12));
  return all;
}

}  // namespace baton::config
