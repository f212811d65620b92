#include "backends/cuda/device/cuda_lane.h"

#include <algorithm>
#include <cstring>

#include "backends/core/checked_math.h"
#include "backends/core/status.h"

namespace convgrad::cuda {
namespace {

constexpr int64_t kAlignment = 256;  // as in cudaMalloc

// Reserves an area at the end of a buffer, which is allocated once all areas
// are known. Returns its offset.
int64_t TakeArea(int64_t bytes, int64_t* size) {
  const int64_t at = *size;
  *size += CeilDiv(bytes, kAlignment) * kAlignment;
  return at;
}

std::byte* At(void* memory, int64_t offset) {
  return static_cast<std::byte*>(memory) + offset;
}

}  // namespace

// One run: the locations of all tensors and the order of the work.
class Lane::Slices {
 public:
  Slices(Lane* lane, const LaneShape& shape, const HostMemory& host)
      : lane_(*lane), slices_(shape.slices) {
    for (size_t i = 0; i < shape.operands.size(); ++i) {
      // const_cast is safe, because Upload only reads.
      operands_.push_back(
          Place(shape.operands[i], const_cast<void*>(host.operands[i])));
    }
    for (size_t i = 0; i < shape.results.size(); ++i) {
      results_.push_back(Place(shape.results[i], host.results[i]));
    }
    scratch_ = TakeArea(shape.scratch_bytes, &device_bytes_);
  }

  int64_t device_bytes() const { return device_bytes_; }
  int64_t pinned_bytes() const { return pinned_bytes_; }
  absl::Duration computing() const { return computing_; }

  absl::Status Run(void* device, void* pinned, const SliceWork& work) {
    device_ = device;
    pinned_ = pinned;
    RETURN_IF_ERROR(Upload(0, false));
    for (int64_t slice = 0; slice < slices_; ++slice) {
      RETURN_IF_ERROR(Feed(slice));
      RETURN_IF_ERROR(work(slice, MemoryOf(slice), lane_.compute_.get()));
      RETURN_IF_ERROR(Collect(slice));
    }
    RETURN_IF_ERROR(Download(slices_ - 1, false));
    for (int64_t slice = std::max<int64_t>(slices_ - kSlots, 0);
         slice < slices_; ++slice) {
      RETURN_IF_ERROR(TakeTime(slice));
      RETURN_IF_ERROR(Unstage(slice));
    }
    RETURN_IF_ERROR(Check(calls().Synchronize(lane_.download_.get())));
    CopyOut(slices_ - 1, false);
    return absl::OkStatus();
  }

 private:
  // A tensor on host and device. Offsets are by slot.
  struct Placed {
    bool is_cut;
    // Bytes of a slice, or of the whole tensor if it isn't cut.
    int64_t bytes;
    std::byte* host;
    bool is_pinned;  // on the host
    std::array<int64_t, kSlots> device, pinned;
  };

  Placed Place(const Crossing& tensor, void* host) {
    Placed placed{tensor.is_cut,
                  tensor.bytes,
                  static_cast<std::byte*>(host),
                  tensor.bytes > 0 && calls().IsPinned(host),
                  {},
                  {}};
    if (tensor.is_cut) placed.bytes /= slices_;
    const int copies = tensor.is_cut && slices_ > 1 ? kSlots : 1;
    for (int slot = 0; slot < kSlots; ++slot) {
      const bool is_new = slot < copies;
      placed.device[slot] =
          is_new ? TakeArea(placed.bytes, &device_bytes_) : placed.device[0];
      if (placed.is_pinned) continue;
      placed.pinned[slot] =
          is_new ? TakeArea(placed.bytes, &pinned_bytes_) : placed.pinned[0];
    }
    return placed;
  }

  DeviceCalls& calls() const { return lane_.device_->calls(); }
  absl::Status Check(cudaError_t error) const {
    return lane_.device_->Check(error, "transfer");
  }
  const Slot& SlotOf(int64_t slice) const {
    return lane_.slots_[slice % kSlots];
  }

  // Return the location of a slice's part of a tensor.
  std::byte* HostOf(const Placed& tensor, int64_t slice) const {
    return tensor.host + (tensor.is_cut ? slice * tensor.bytes : 0);
  }
  std::byte* DeviceOf(const Placed& tensor, int64_t slice) const {
    return At(device_, tensor.device[slice % kSlots]);
  }
  // Returns it in memory that transfers can use: the lane's or the caller's
  // own.
  std::byte* PinnedOf(const Placed& tensor, int64_t slice) const {
    return tensor.is_pinned ? HostOf(tensor, slice)
                            : At(pinned_, tensor.pinned[slice % kSlots]);
  }

  DeviceMemory MemoryOf(int64_t slice) const {
    DeviceMemory memory;
    for (const Placed& tensor : operands_) {
      memory.operands.push_back(DeviceOf(tensor, slice));
    }
    for (const Placed& tensor : results_) {
      memory.results.push_back(DeviceOf(tensor, slice));
    }
    memory.scratch = At(device_, scratch_);
    return memory;
  }

  // Enqueues the upload of a slice's operands, or of the uncut ones.
  absl::Status Upload(int64_t slice, bool cut) {
    for (const Placed& tensor : operands_) {
      if (tensor.is_cut != cut || tensor.bytes == 0) continue;
      std::byte* const pinned = PinnedOf(tensor, slice);
      if (!tensor.is_pinned) {
        std::memcpy(pinned, HostOf(tensor, slice), tensor.bytes);
      }
      RETURN_IF_ERROR(Check(calls().Upload(DeviceOf(tensor, slice), pinned,
                                           tensor.bytes, lane_.upload_.get())));
    }
    return absl::OkStatus();
  }

  // Uploads a slice's operands to its slot as soon as the slot is free.
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
    RETURN_IF_ERROR(
        Check(calls().Await(lane_.compute_.get(), slot.uploaded.get())));
    // Must precede recording the slot's events again.
    if (slice >= kSlots) RETURN_IF_ERROR(TakeTime(slice - kSlots));
    return Check(calls().Record(slot.started.get(), lane_.compute_.get()));
  }

  // Enqueues the download of a slice's results after its work. Before that,
  // copies the results of the slot's previous slice to the caller.
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
    for (const Placed& tensor : results_) {
      if (tensor.is_cut != cut || tensor.bytes == 0) continue;
      RETURN_IF_ERROR(Check(
          calls().Download(PinnedOf(tensor, slice), DeviceOf(tensor, slice),
                           tensor.bytes, lane_.download_.get())));
    }
    return absl::OkStatus();
  }

  // Waits for a slice's results and copies them to the caller.
  absl::Status Unstage(int64_t slice) {
    RETURN_IF_ERROR(Check(calls().Synchronize(SlotOf(slice).downloaded.get())));
    CopyOut(slice, true);
    return absl::OkStatus();
  }

  // Waits for a slice's work and adds its time.
  absl::Status TakeTime(int64_t slice) {
    const Slot& slot = SlotOf(slice);
    RETURN_IF_ERROR(Check(calls().Synchronize(slot.computed.get())));
    float milliseconds = 0;
    RETURN_IF_ERROR(Check(calls().Elapsed(&milliseconds, slot.started.get(),
                                          slot.computed.get())));
    computing_ += absl::Milliseconds(static_cast<double>(milliseconds));
    return absl::OkStatus();
  }

  void CopyOut(int64_t slice, bool cut) const {
    for (const Placed& tensor : results_) {
      if (tensor.is_cut != cut || tensor.bytes == 0 || tensor.is_pinned) {
        continue;
      }
      std::memcpy(HostOf(tensor, slice), PinnedOf(tensor, slice), tensor.bytes);
    }
  }

  Lane& lane_;
  const int64_t slices_;
  int64_t device_bytes_ = 0, pinned_bytes_ = 0;
  std::vector<Placed> operands_, results_;
  int64_t scratch_ = 0;
  void* device_ = nullptr;
  void* pinned_ = nullptr;
  absl::Duration computing_;
};

absl::StatusOr<std::unique_ptr<Lane>> Lane::Make(Device* device) {
  RETURN_IF_ERROR(device->Check(device->calls().Select(), "device"));
  std::unique_ptr<Lane> lane(new Lane(device));
  ASSIGN_OR_RETURN(lane->upload_, CreateStream(device));
  ASSIGN_OR_RETURN(lane->compute_, CreateStream(device));
  ASSIGN_OR_RETURN(lane->download_, CreateStream(device));
  for (Slot& slot : lane->slots_) {
    ASSIGN_OR_RETURN(slot.uploaded, CreateEvent(device, false));
    ASSIGN_OR_RETURN(slot.started, CreateEvent(device, true));
    ASSIGN_OR_RETURN(slot.computed, CreateEvent(device, true));
    ASSIGN_OR_RETURN(slot.downloaded, CreateEvent(device, false));
  }
  return lane;
}

// Keeps memory between runs. Frees the old memory first, so that a run that
// doesn't fit holds none.
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
  if (status.ok()) return slices.computing();
  // Enqueued work still uses the lane's memory, so wait for it; the first error
  // is reported.
  for (const Stream* stream : {&upload_, &compute_, &download_}) {
    (void)device_->Check(device_->calls().Synchronize(stream->get()), "drain");
  }
  // cuDNN doesn't report that a failure made the device unusable.
  RETURN_IF_ERROR(device_->CheckUsable());
  return status;
}

}  // namespace convgrad::cuda
