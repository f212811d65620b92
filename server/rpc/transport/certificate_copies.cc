#include "server/rpc/transport/certificate_copies.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "backends/core/status.h"
#include "proto/pem_files.h"
#include "server/rpc/transport/pipe_check.h"

namespace convgrad {
namespace {

absl::Status SystemError(absl::string_view call) {
  return absl::InternalError(absl::StrCat(call, ": ", std::strerror(errno)));
}

// Returns a file with `text` that no file system has.
absl::StatusOr<FileDescriptor> FileOf(absl::string_view text) {
  FileDescriptor file(memfd_create("convgrad-tls", MFD_CLOEXEC));
  if (!file.ok()) return SystemError("memfd_create");
  while (!text.empty()) {
    const ssize_t written = write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError("write");
    text.remove_prefix(written);
  }
  return file;
}

std::string PathOf(const FileDescriptor& file) {
  return file.ok() ? absl::StrCat("/proc/self/fd/", file.get()) : "";
}

}  // namespace

CertificateCopies::CertificateCopies(TlsFiles files)
    : files_(std::move(files)) {}

absl::Status CertificateCopies::Refresh() {
  if (files_.cert.empty()) return absl::OkStatus();
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckNoPipe("--tls_cert", files_.cert));
  RETURN_IF_ERROR(CheckNoPipe("--tls_key", files_.key));
  RETURN_IF_ERROR(CheckNoPipe("--tls_client_ca", files_.client_ca));
  ASSIGN_OR_RETURN(std::string cert,
                   ReadCertificates({"--tls_cert", files_.cert}));
  ASSIGN_OR_RETURN(std::string key, ReadPrivateKey({"--tls_key", files_.key},
                                                   "--tls_cert", cert));
  std::string client_ca;
  if (!files_.client_ca.empty()) {
    ASSIGN_OR_RETURN(client_ca,
                     ReadCertificates({"--tls_client_ca", files_.client_ca}));
  }
  RETURN_IF_ERROR(Write(std::move(client_ca), &client_ca_));
  // gRPC reads both again if one of them changes meanwhile.
  RETURN_IF_ERROR(Write(std::move(cert), &cert_));
  return Write(std::move(key), &key_);
}

absl::Status CertificateCopies::Write(std::string text, Copy* copy) {
  if (text == copy->text) return absl::OkStatus();
  ASSIGN_OR_RETURN(FileDescriptor file, FileOf(text));
  if (!copy->file.ok()) {
    copy->file = std::move(file);
  } else if (dup3(file.get(), copy->file.get(), O_CLOEXEC) < 0) {
    // On success, the path stays the same and has the new file.
    return SystemError("dup3");
  }
  copy->text = std::move(text);
  return absl::OkStatus();
}

TlsFiles CertificateCopies::paths() const {
  MutexLock lock(&mutex_);
  return {PathOf(cert_.file), PathOf(key_.file), PathOf(client_ca_.file)};
}

}  // namespace convgrad
