#include "backends/cuda/cuda_lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "backends/core/status.h"

namespace convgrad::cuda {
namespace {

constexpr int64_t kAlignment = 256;  // as cudaMalloc aligns

// Hands out areas of a buffer that is allocated when all are known.
class Layouter {
 public:
  int64_t Take(int64_t bytes) {
    const int64_t at = size_;
    size_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

std::byte* At(void* memory, int64_t offset) {
  return static_cast<std::byte*>(memory) + offset;
}

}  // namespace

// One run: where everything lies, and what follows what.
class Lane::Slices {
 public:
  Slices(Lane* lane, const LaneShape& shape, const HostMemory& host)
      : lane_(*lane), shape_(shape), host_(host) {
    Place(shape.operands, &operands_);
    Place(shape.results, &results_);
    pinned_bytes_ = layout_.size();
    scratch_ = layout_.Take(shape.scratch_bytes);
  }

  int64_t device_bytes() const { return layout_.size(); }
  int64_t pinned_bytes() const { return pinned_bytes_; }
  absl::Duration staging() const { return staging_; }

  absl::Status Run(void* device, void* pinned, const SliceWork& work) {
    device_ = device;
    pinned_ = pinned;
    RETURN_IF_ERROR(Upload(0, false));
    for (int64_t slice = 0; slice < shape_.slices; ++slice) {
      RETURN_IF_ERROR(Feed(slice));
      RETURN_IF_ERROR(work(slice, MemoryOf(slice), lane_.compute_.get()));
      RETURN_IF_ERROR(Collect(slice));
    }
    RETURN_IF_ERROR(Download(shape_.slices - 1, false));
    for (int64_t slice = std::max<int64_t>(shape_.slices - kSlots, 0);
         slice < shape_.slices; ++slice) {
      RETURN_IF_ERROR(Unstage(slice));
    }
    RETURN_IF_ERROR(Check(calls().Synchronize(lane_.download_.get())));
    CopyOut(shape_.slices - 1, false);
    return absl::OkStatus();
  }

 private:
  // Offsets by slot; the same on the device and in pinned memory.
  using Offsets = std::vector<std::array<int64_t, kSlots>>;

  void Place(const std::vector<Crossing>& tensors, Offsets* offsets) {
    for (const Crossing& tensor : tensors) {
      const int64_t bytes = SliceBytes(tensor);
      const int64_t first = layout_.Take(bytes);
      offsets->push_back({first, first});
      if (tensor.is_cut && shape_.slices > 1) {
        offsets->back()[1] = layout_.Take(bytes);
      }
    }
  }

  int64_t SliceBytes(const Crossing& tensor) const {
    return tensor.is_cut ? tensor.bytes / shape_.slices : tensor.bytes;
  }

  DeviceCalls& calls() const { return lane_.device_->calls(); }
  absl::Status Check(cudaError_t error) const {
    return lane_.device_->Check(error, "transfer");
  }
  const Slot& SlotOf(int64_t slice) const {
    return lane_.slots_[slice % kSlots];
  }

  DeviceMemory MemoryOf(int64_t slice) const {
    DeviceMemory memory;
    for (const auto& at : operands_) {
      memory.operands.push_back(At(device_, at[slice % kSlots]));
    }
    for (const auto& at : results_) {
      memory.results.push_back(At(device_, at[slice % kSlots]));
    }
    memory.scratch = At(device_, scratch_);
    return memory;
  }

  // Enqueues the operands of a slice, or those that aren't cut.
  absl::Status Upload(int64_t slice, bool cut) {
    for (size_t i = 0; i < operands_.size(); ++i) {
      const Crossing& tensor = shape_.operands[i];
      const int64_t bytes = SliceBytes(tensor);
      if (tensor.is_cut != cut || bytes == 0) continue;
      const int64_t at = operands_[i][slice % kSlots];
      const absl::Time start = absl::Now();
      std::memcpy(At(pinned_, at),
                  static_cast<const std::byte*>(host_.operands[i]) +
                      (cut ? slice * bytes : 0),
                  bytes);
      staging_ += absl::Now() - start;
      RETURN_IF_ERROR(Check(calls().Upload(At(device_, at), At(pinned_, at),
                                           bytes, lane_.upload_.get())));
    }
    return absl::OkStatus();
  }

  // Brings a slice's operands into its slot, once that is free.
  absl::Status Feed(int64_t slice) {
    const Slot& slot = SlotOf(slice);
    if (slice >= kSlots) {
      RETURN_IF_ERROR(Check(calls().Synchronize(slot.uploaded.get())));
      RETURN_IF_ERROR(
          Check(calls().Await(lane_.upload_.get(), slot.computed.get())));
      RETURN_IF_ERROR(
          Check(calls().Await(lane_.compute_.get(), slot.downloaded.get())));
    }
    RETURN_IF_ERROR(Upload(slice, true));
    RETURN_IF_ERROR(
        Check(calls().Record(slot.uploaded.get(), lane_.upload_.get())));
    return Check(calls().Await(lane_.compute_.get(), slot.uploaded.get()));
  }

  // Enqueues a slice's results behind its work; those of the slot's last slice
  // go to the caller first.
  absl::Status Collect(int64_t slice) {
    const Slot& slot = SlotOf(slice);
    RETURN_IF_ERROR(
        Check(calls().Record(slot.computed.get(), lane_.compute_.get())));
    RETURN_IF_ERROR(
        Check(calls().Await(lane_.download_.get(), slot.computed.get())));
    if (slice >= kSlots) RETURN_IF_ERROR(Unstage(slice - kSlots));
    RETURN_IF_ERROR(Download(slice, true));
    return Check(calls().Record(slot.downloaded.get(), lane_.download_.get()));
  }

  absl::Status Download(int64_t slice, bool cut) {
    for (size_t i = 0; i < results_.size(); ++i) {
      const Crossing& tensor = shape_.results[i];
      const int64_t bytes = SliceBytes(tensor);
      if (tensor.is_cut != cut || bytes == 0) continue;
      const int64_t at = results_[i][slice % kSlots];
      RETURN_IF_ERROR(Check(calls().Download(At(pinned_, at), At(device_, at),
                                             bytes, lane_.download_.get())));
    }
    return absl::OkStatus();
  }

  absl::Status Unstage(int64_t slice) {
    RETURN_IF_ERROR(Check(calls().Synchronize(SlotOf(slice).downloaded.get())));
    CopyOut(slice, true);
    return absl::OkStatus();
  }

  void CopyOut(int64_t slice, bool cut) {
    const absl::Time start = absl::Now();
    for (size_t i = 0; i < results_.size(); ++i) {
      const Crossing& tensor = shape_.results[i];
      const int64_t bytes = SliceBytes(tensor);
      if (tensor.is_cut != cut || bytes == 0) continue;
      std::memcpy(
          static_cast<std::byte*>(host_.results[i]) + (cut ? slice * bytes : 0),
          At(pinned_, results_[i][slice % kSlots]), bytes);
    }
    staging_ += absl::Now() - start;
  }

  Lane& lane_;
  const LaneShape& shape_;
  const HostMemory& host_;
  Layouter layout_;
  Offsets operands_, results_;
  int64_t pinned_bytes_ = 0, scratch_ = 0;
  void* device_ = nullptr;
  void* pinned_ = nullptr;
  absl::Duration staging_;
};

absl::StatusOr<std::unique_ptr<Lane>> Lane::Make(Device* device) {
  RETURN_IF_ERROR(device->Check(device->calls().Select(), "device"));
  std::unique_ptr<Lane> lane(new Lane(device));
  ASSIGN_OR_RETURN(lane->upload_, CreateStream(device));
  ASSIGN_OR_RETURN(lane->compute_, CreateStream(device));
  ASSIGN_OR_RETURN(lane->download_, CreateStream(device));
  for (Slot& slot : lane->slots_) {
    ASSIGN_OR_RETURN(slot.uploaded, CreateEvent(device));
    ASSIGN_OR_RETURN(slot.computed, CreateEvent(device));
    ASSIGN_OR_RETURN(slot.downloaded, CreateEvent(device));
  }
  return lane;
}

// Kept from run to run; the old memory goes first, so that a run that doesn't
// fit leaves nothing behind.
absl::Status Lane::Reserve(int64_t device_bytes, int64_t pinned_bytes) {
  if (device_bytes > device_bytes_) {
    device_memory_.reset();
    device_bytes_ = 0;
    ASSIGN_OR_RETURN(device_memory_, AllocateDevice(device_, device_bytes));
    device_bytes_ = device_bytes;
  }
  if (pinned_bytes > pinned_bytes_) {
    pinned_memory_.reset();
    pinned_bytes_ = 0;
    ASSIGN_OR_RETURN(pinned_memory_, AllocatePinned(device_, pinned_bytes));
    pinned_bytes_ = pinned_bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> Lane::Run(const LaneShape& shape,
                                         const HostMemory& host,
                                         const SliceWork& work) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(device_->CheckUsable());
  RETURN_IF_ERROR(device_->Check(device_->calls().Select(), "device"));
  Slices slices(this, shape, host);
  RETURN_IF_ERROR(Reserve(slices.device_bytes(), slices.pinned_bytes()));
  const absl::Status status =
      slices.Run(device_memory_.get(), pinned_memory_.get(), work);
  if (status.ok()) return slices.staging();
  // What was enqueued still uses the lane's memory; the first error counts.
  for (const Stream* stream : {&upload_, &compute_, &download_}) {
    (void)device_->Check(device_->calls().Synchronize(stream->get()), "drain");
  }
  return status;
}

}  // namespace convgrad::cuda
