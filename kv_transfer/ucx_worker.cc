// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_worker.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ensure.h"
#include "base/status_macros.h"
#include "kv_transfer/ucx_endpoint.h"
#include "kv_transfer/ucx_status.h"

namespace baton::kv {
namespace {

constexpr absl::Duration kCloseWaitMax = absl::Seconds(1);
// For operations of a closed endpoint; what they read stays in use meanwhile.
constexpr absl::Duration kOperationsWaitMax = absl::Milliseconds(500);

absl::Status Configure(ucp_config_t* config, const UcxWorker::Options& options) {
  for (const auto& [name, value] : UcxSettings(options)) {
    const ucs_status_t set = ucp_config_modify(config, name.c_str(), value.c_str());
    RETURN_IF_ERROR(FromUcs(set, absl::StrCat("setting UCX's ", name, " to ", value)));
  }
  return absl::OkStatus();
}

const char* NameOf(DataPath path) {
  switch (path) {
    case DataPath::kMemoryWrites:
      return "shared-memory";
    case DataPath::kRdmaWrites:
      return "RDMA";
    case DataPath::kCheckedMessages:
      break;
  }
  return "TCP";
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(const Options& options) {
  std::unique_ptr<UcxWorker> worker(new UcxWorker);
  RETURN_IF_ERROR(worker->Init(options));
  return worker;
}

absl::Status UcxWorker::Init(const Options& options) {
  const bool messages = options.path == DataPath::kCheckedMessages;
  client_ = options.client;
  ucp_config_t* raw_config = nullptr;
  RETURN_IF_ERROR(
      FromUcs(ucp_config_read(nullptr, nullptr, &raw_config), "reading UCX's settings"));
  const UcxConfigHandle config(raw_config);
  RETURN_IF_ERROR(Configure(config.get(), options));

  ucp_params_t parameters = {};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  // No messages where memory is written by RDMA: with them UCX emulates puts, by the owner's CPU,
  // wherever a key does not fit its endpoint.
  const bool rdma = options.path == DataPath::kRdmaWrites;
  parameters.features = UCP_FEATURE_WAKEUP | (rdma ? 0 : uint64_t{UCP_FEATURE_AM}) |
                        (messages ? 0 : uint64_t{UCP_FEATURE_RMA});
  parameters.name = messages                                ? "baton-b"
                    : options.path == DataPath::kRdmaWrites ? "baton-r"
                                                            : "baton-a";
  ucp_context_h context = nullptr;
  const ucs_status_t opened = ucp_init(&parameters, config.get(), &context);
  if (opened == UCS_ERR_NO_DEVICE) {
    return absl::FailedPreconditionError(absl::StrCat(
        "UCX finds no ", NameOf(options.path), " transport on the devices [",
        absl::StrJoin(options.devices, ", "), "]: see kv_transfer.devices and `ucx_info -d`"));
  }
  RETURN_IF_ERROR(FromUcs(opened, "opening UCX"));
  context_.reset(context);

  ucp_worker_params_t worker_parameters = {};
  worker_parameters.field_mask =
      UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CLIENT_ID;
  worker_parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  worker_parameters.client_id = options.client;
  ucp_worker_h worker = nullptr;
  RETURN_IF_ERROR(
      FromUcs(ucp_worker_create(context, &worker_parameters, &worker), "creating a UCX worker"));
  worker_.reset(worker);

  ucp_address_t* address = nullptr;
  size_t address_bytes = 0;
  RETURN_IF_ERROR(FromUcs(ucp_worker_get_address(worker, &address, &address_bytes),
                          "reading the UCX worker's address"));
  const auto* bytes = reinterpret_cast<const uint8_t*>(address);
  address_.assign(bytes, bytes + address_bytes);
  ucp_worker_release_address(worker, address);

  ucp_worker_attr_t attributes = {};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  RETURN_IF_ERROR(FromUcs(ucp_worker_query(worker, &attributes), "asking the UCX worker"));
  header_bytes_max_ = attributes.max_am_header;
  return FromUcs(ucp_worker_get_efd(worker, &event_fd_), "the UCX worker's event descriptor");
}

UcxWorker::~UcxWorker() {
  if (worker_ == nullptr) return;
  const RealClock clock;
  const absl::Time give_up = clock.Now() + kCloseWaitMax;
  while (!closing_.empty() && clock.Now() < give_up) Progress();
  // What UCX could not close in time is closed by destroying the worker; its operations end now.
  worker_.reset();
  for (const Closing& closing : closing_) {
    for (const auto& operation : closing.keep->operations) {
      if (operation->done == nullptr) continue;
      operation->done(absl::CancelledError("the UCX worker was destroyed"));
    }
    if (closing.keep->closed != nullptr) closing.keep->closed(true);
  }
}

bool UcxWorker::Progress() {
  const bool busy = ucp_worker_progress(worker_.get()) != 0;
  if (!closing_.empty() || !late_.empty()) ReapClosed();
  return busy;
}

bool UcxWorker::Arm() { return ucp_worker_arm(worker_.get()) == UCS_OK; }

void UcxWorker::AwaitClose(void* request, bool accepted, std::unique_ptr<UcxEndpointState> keep) {
  closing_.push_back({request, accepted, std::move(keep), RealClock().Now() + kOperationsWaitMax});
}

void UcxWorker::ReapClosed() {
  std::vector<Closing> still;
  std::vector<Closing> finished = std::exchange(closing_, {});
  for (Closing& closing : finished) {
    if (closing.request != nullptr) {
      if (ucp_request_check_status(closing.request) == UCS_INPROGRESS) {
        still.push_back(std::move(closing));
        continue;
      }
      ucp_request_free(std::exchange(closing.request, nullptr));
    }
    // A close by force is confirmed before the sends that it cancelled have ended: over TCP to a
    // peer that stands still, UCX calls back later, with a pointer to the operation.
    if (!closing.keep->operations.empty() && RealClock().Now() < closing.give_up) {
      still.push_back(std::move(closing));
      continue;
    }
    for (const auto& operation : closing.keep->operations) {
      std::exchange(operation->done, nullptr)(absl::UnavailableError("the endpoint was closed"));
    }
    if (closing.keep->closed != nullptr) closing.keep->closed(closing.confirmed);
    if (!closing.keep->operations.empty()) late_.push_back(std::move(closing.keep));
  }
  for (Closing& closing : still) closing_.push_back(std::move(closing));
  late_.erase(std::remove_if(late_.begin(), late_.end(),
                             [](const auto& state) { return state->operations.empty(); }),
              late_.end());
}

void UcxWorker::OnMessage(uint16_t id, UcxReceive receive) {
  receivers_.push_back(std::make_unique<Receiver>(Receiver{this, std::move(receive)}));
  ucp_am_handler_param_t parameters = {};
  parameters.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                          UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  parameters.id = id;
  parameters.flags = UCP_AM_FLAG_WHOLE_MSG;
  parameters.cb = &UcxWorker::OnActiveMessage;
  parameters.arg = receivers_.back().get();
  ENSURE(ucp_worker_set_am_recv_handler(worker_.get(), &parameters) == UCS_OK);
}

ucs_status_t UcxWorker::OnActiveMessage(void* argument, const void* header, size_t header_bytes,
                                        void* data, size_t bytes,
                                        const ucp_am_recv_param_t* parameters) {
  auto* receiver = static_cast<Receiver*>(argument);
  if ((parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    ++receiver->worker->messages_refused_;
    return UCS_ERR_REJECTED;
  }
  receiver->receive({static_cast<const uint8_t*>(header), header_bytes},
                    {static_cast<const uint8_t*>(data), bytes});
  return UCS_OK;
}

namespace {

// A range of addresses, kept until UCX has put its memory there: nobody comes in between.
class AlignedHole {
 public:
  AlignedHole(uint64_t bytes, uint64_t alignment) : bytes_(bytes), whole_(bytes + alignment) {
    void* mapped = ::mmap(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return;
    begin_ = static_cast<uint8_t*>(mapped);
    target_ = begin_ + (alignment - reinterpret_cast<uintptr_t>(mapped) % alignment);
  }
  ~AlignedHole() {
    if (begin_ == nullptr) return;
    if (!filled_) {
      ::munmap(begin_, whole_);
      return;
    }
    ::munmap(begin_, static_cast<size_t>(target_ - begin_));
    const uint8_t* end = target_ + bytes_;
    if (end < begin_ + whole_)
      ::munmap(target_ + bytes_, static_cast<size_t>(begin_ + whole_ - end));
  }
  AlignedHole(const AlignedHole&) = delete;
  AlignedHole& operator=(const AlignedHole&) = delete;

  void* target() const { return target_; }
  // Something else lies at the target from now on.
  void Filled() { filled_ = true; }

 private:
  const uint64_t bytes_, whole_;
  uint8_t* begin_ = nullptr;
  uint8_t* target_ = nullptr;
  bool filled_ = false;
};

ucs_status_t MapNew(ucp_context_h context, uint64_t bytes, void* at, ucp_mem_h* memory) {
  ucp_mem_map_params_t parameters = {};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                          UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  parameters.length = bytes;
  parameters.address = at;
  parameters.flags = UCP_MEM_MAP_ALLOCATE;
  if (at != nullptr) parameters.flags |= UCP_MEM_MAP_FIXED;
  return ucp_mem_map(context, &parameters, memory);
}

}  // namespace

absl::StatusOr<UcxMemory> UcxMemory::Allocate(UcxWorker& worker, uint64_t bytes,
                                              uint64_t alignment) {
  ENSURE(bytes % alignment == 0);
  AlignedHole hole(bytes, alignment);
  UcxMemory result;
  ucs_status_t mapped = MapNew(worker.context(), bytes, hole.target(), &result.memory_);
  if (mapped != UCS_OK) mapped = MapNew(worker.context(), bytes, nullptr, &result.memory_);
  RETURN_IF_ERROR(FromUcs(mapped, absl::StrCat("allocating ", bytes, " bytes of shared memory")));
  result.context_ = worker.context();
  ucp_mem_attr_t attributes = {};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  RETURN_IF_ERROR(FromUcs(ucp_mem_query(result.memory_, &attributes), "asking UCX about memory"));
  ENSURE(attributes.length >= bytes);
  if (attributes.address == hole.target()) hole.Filled();
  result.base_ = static_cast<uint8_t*>(attributes.address);
  result.bytes_ = bytes;
  return result;
}

absl::StatusOr<UcxMemory> UcxMemory::Register(UcxWorker& worker, uint8_t* base, uint64_t bytes) {
  UcxMemory result;
  ucp_mem_map_params_t parameters = {};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  parameters.address = base;
  parameters.length = bytes;
  const ucs_status_t mapped = ucp_mem_map(worker.context(), &parameters, &result.memory_);
  if (mapped != UCS_OK) result.memory_ = nullptr;
  RETURN_IF_ERROR(FromUcs(mapped, absl::StrCat("registering ", bytes, " bytes for RDMA")));
  result.context_ = worker.context();
  result.base_ = base;
  result.bytes_ = bytes;
  return result;
}

UcxMemory::UcxMemory(UcxMemory&& other) noexcept { *this = std::move(other); }

UcxMemory& UcxMemory::operator=(UcxMemory&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(memory_, other.memory_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

UcxMemory::~UcxMemory() {
  if (memory_ != nullptr) ucp_mem_unmap(context_, memory_);
}

absl::StatusOr<std::vector<uint8_t>> UcxMemory::PackKey() const {
  void* packed = nullptr;
  size_t bytes = 0;
  RETURN_IF_ERROR(FromUcs(ucp_rkey_pack(context_, memory_, &packed, &bytes), "packing a key"));
  const auto* begin = static_cast<const uint8_t*>(packed);
  std::vector<uint8_t> key(begin, begin + bytes);
  ucp_rkey_buffer_release(packed);
  return key;
}

}  // namespace baton::kv
