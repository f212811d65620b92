#include "client/cpp/command_line/files/npz.h"

#include <zip.h>

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Discards changes to an archive that wasn't closed explicitly.
using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;
using Member = std::unique_ptr<zip_file_t, decltype(&zip_fclose)>;

absl::StatusOr<Archive> Open(const std::string& path) {
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code), &zip_discard);
  if (archive) return archive;
  if (code == ZIP_ER_NOZIP || code == ZIP_ER_INCONS) {
    return Malformed(path, "no zip archive", "a .npz file");
  }
  return MakeError(absl::StatusCode::kNotFound,
                   {Reason::kMissing, path, "no readable file", "a .npz file"});
}

absl::Status BadMember(const std::string& path, const std::string& name) {
  return Malformed(absl::StrCat(path, ": ", name), "damaged data",
                   "an array that can be read");
}

absl::Status CannotWrite(const std::string& path, zip_t* archive) {
  return MakeError(absl::StatusCode::kInternal,
                   {Reason::kInternal, path,
                    archive == nullptr ? "a file that can't be written"
                                       : zip_strerror(archive),
                    "an existing directory with room and permission"});
}

}  // namespace

bool IsNpz(absl::string_view path) { return absl::EndsWith(path, ".npz"); }

absl::StatusOr<std::vector<std::string>> NamesInNpz(const std::string& path) {
  ASSIGN_OR_RETURN(const Archive archive, Open(path));
  std::vector<std::string> names;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* const name = zip_get_name(archive.get(), i, 0);
    if (name == nullptr) continue;
    names.emplace_back(absl::StripSuffix(name, ".npy"));
  }
  return names;
}

absl::StatusOr<NpyArray> ReadNpz(const std::string& path,
                                 const std::string& name) {
  ASSIGN_OR_RETURN(const Archive archive, Open(path));
  const std::string file = absl::StrCat(name, ".npy");
  zip_stat_t found;
  if (zip_stat(archive.get(), file.c_str(), 0, &found) != 0) {
    return MakeError(absl::StatusCode::kNotFound,
                     {Reason::kMissing, path, "no array of that name", name});
  }
  const Member member(zip_fopen_index(archive.get(), found.index, 0),
                      &zip_fclose);
  if (!member) return BadMember(path, name);
  std::string bytes(found.size, '\0');
  const zip_int64_t read = zip_fread(member.get(), bytes.data(), bytes.size());
  // libzip compares the checksum when it reads the end.
  char beyond;
  if (read != static_cast<zip_int64_t>(bytes.size()) ||
      zip_fread(member.get(), &beyond, 1) != 0) {
    return BadMember(path, name);
  }
  return ParseNpy(bytes, absl::StrCat(path, ": ", name));
}

absl::Status WriteNpz(
    const std::string& path,
    const std::vector<std::pair<std::string, NpyArray>>& arrays) {
  Archive archive(zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr),
                  &zip_discard);
  if (!archive) return CannotWrite(path, nullptr);
  // Must outlive zip_close, which reads the buffers.
  std::vector<std::string> files;
  files.reserve(arrays.size());
  for (const auto& [name, array] : arrays) {
    const std::string& bytes = files.emplace_back(SerializeNpy(array));
    zip_source_t* const source =
        zip_source_buffer(archive.get(), bytes.data(), bytes.size(), 0);
    const zip_int64_t index =
        zip_file_add(archive.get(), absl::StrCat(name, ".npy").c_str(), source,
                     ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      return CannotWrite(path, archive.get());
    }
    zip_set_file_compression(archive.get(), index, ZIP_CM_STORE, 0);
  }
  if (zip_close(archive.get()) != 0) return CannotWrite(path, archive.get());
  static_cast<void>(archive.release());  // zip_close freed it
  return absl::OkStatus();
}

}  // namespace convgrad
