// Which update rule a key has: the only place where that is decided.
#pragma once

#include <memory>

#include "aggregator/settings.h"
#include "aggregator/update/rule.h"

namespace byteps {

std::unique_ptr<UpdateRule> choose_rule(const KeyInfo& key, const AggregatorSettings& settings);

}  // namespace byteps
