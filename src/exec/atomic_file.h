#pragma once
// Files that appear whole or not at all: what is written goes to a temporary beside the target, which is renamed
// to it when it is complete.

#include <string>

#include "base/status.h"
#include "plan/catalog.h"

namespace millstream::exec {

/// An error when `path` exists and must not be replaced, or its folder is missing or not writable. For
/// refusing a job before the work is done.
Status check_output_path(const std::string& path, bool overwrite);

/// An error (usage) when `path` is one of the files of `table`: an output a name away from its inputs must not
/// replace them.
Status check_output_is_no_input(const std::string& path, const plan::SourceTable& table);

/// The name of a temporary file beside `path`, another one at every call.
std::string temporary_beside(const std::string& path);

/// Renames the complete, synced temporary to its target and syncs the folder. Without `overwrite` a target
/// that appeared meanwhile is an error.
Status publish_file(const std::string& temporary, const std::string& path, bool overwrite);

}  // namespace millstream::exec
