#pragma once
// The functions behind TrainLibrary, for the library itself and its tests; programs call them through
// open_train_library().

#include "train/training.h"

namespace millstream::train {

Result<TrainSummary> train(comm::Job& job, const comm::Roles& roles, plan::Catalog& catalog,
                           const TrainJob& work, const std::function<void(const TrainProgress&)>& progress);
Result<int64_t> predict(comm::Job& job, plan::Catalog& catalog, const PredictJob& work);
Result<EvaluateSummary> evaluate(comm::Job& job, plan::Catalog& catalog, const PredictJob& work);
std::string torch_version();
Status export_bundle(const ExportJob& work);

}  // namespace millstream::train
