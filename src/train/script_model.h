#pragma once
// A TorchScript module from a file as a model, for programs of one's own: batches of the loader, replicas, optimisers and
// checkpoints take it like those of recipes. torch.jit.save in Python or `millstream export` write such files.
//
// What the module must be:
// 1. forward(features) or, where the recipe embeds columns, forward(features, ids): [rows, features] in the model's type
//    and [rows, embedded columns] int32, for any number of rows, also zero.
// 2. It gives [rows] or [rows, 1], or with several outputs [rows, outputs]: values or logits, as the loss takes them.
// 3. All its parameters take part in that. They begin as they are in the file.
// 4. It is in training mode while it trains, else in evaluation mode. Random numbers (dropout) are seeded by `seed`, the
//    batch and the rows' place, so that a resumed run draws the same. Batch normalisation in it is of each trainer's own
//    rows; its running means are those of the first trainer.
//
// A module is code: loading one from a stranger is not safe.

#include <memory>
#include <string>

#include "train/model.h"

namespace millstream::train {

/// Errors: the file can't be read (file); it is no module, or not as above (usage). All name it.
Result<std::unique_ptr<Model>> load_script_model(const std::string& path, const ModelInputs& inputs,
                                                 int64_t outputs, at::ScalarType type, uint64_t seed);

/// Writes the module of a model that load_script_model() made, with the weights that it has now. Durably; errors are file
/// errors, and usage errors for another model.
Status save_script_model(const Model& model, const std::string& path);

}  // namespace millstream::train
