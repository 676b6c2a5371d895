#include "aggregator/choose_rule.h"

#include "aggregator/update/compressed.h"
#include "aggregator/update/stored.h"
#include "aggregator/update/sum.h"

namespace byteps {

std::unique_ptr<UpdateRule> choose_rule(const KeyInfo& key, const AggregatorSettings& settings) {
  if (settings.asynchronous) return std::make_unique<StoredRule>(key);
  if (key.tensor->codec) return std::make_unique<CompressedRule>(key);
  return std::make_unique<SumRule>(key);
}

}  // namespace byteps
