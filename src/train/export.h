#pragma once
// A bundle's model for PyTorch: as a TorchScript module, which needs no code of ours to run, or as a state_dict.

#include <string>

#include <torch/csrc/jit/api/module.h>

#include "base/status.h"
#include "train/bundle.h"
#include "train/model.h"

namespace millstream::train {

/// A module whose forward(features[, ids]) takes what the model takes: float32 or float64 [rows, features] and, where
/// there are embeddings, int32 or int64 [rows, embeddings]; it gives the model's raw outputs. Throws c10::Error.
torch::jit::Module script_of(const Model& model, const ModelConfig& config);

/// What torch.load reads: a dict of the model's tensors by their names. Throws c10::Error.
std::string state_dict_of(const Model& model);

/// The model of a bundle with its weights. `path` names it in errors (data), which say what does not fit; sizes are
/// checked before memory is taken.
Result<std::unique_ptr<Model>> model_of_bundle(const Bundle& bundle, const std::string& path);

}  // namespace millstream::train
