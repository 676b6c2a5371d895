#include "aggregator/update/form.h"

#include "base/error.h"
#include "wire/offer.h"

namespace byteps {
namespace {

std::string origin(const KeyInfo& key, const Header& header, const Sender& sender) {
  return "PUSH: " + describe(key, header.round) + " from " + sender.name + ": ";
}

// A compressed payload says itself how long it is.
uint32_t compressed_bytes(const Header& header, const KeyInfo& key, size_t most, const Sender& sender) {
  const uint32_t bytes = header.flags & kFlagByAddress ? header.detail : header.length;
  if (bytes == 0 || bytes > most) {
    throw WireError(origin(key, header, sender) + std::to_string(bytes) +
                    " compressed bytes, expected 1 to " + std::to_string(most));
  }
  return bytes;
}

}  // namespace

Shape shape_of(const Header& header, const KeyInfo& key, const Form& form, const Sender& sender,
               uint16_t children) {
  const Terms terms = terms_of(header);
  const DType dtype = key.tensor->dtype;
  Shape shape;
  shape.wide = form.may_be_wide && !terms.broadcast && header.dtype == static_cast<uint8_t>(DType::f32);
  if (header.dtype != static_cast<uint8_t>(dtype) && !shape.wide) {
    throw WireError("PUSH: " + key.tensor->name + " is " + name_of(dtype) + ", not " +
                    name_of(static_cast<DType>(header.dtype)));
  }
  if (terms.root >= children) throw WireError("PUSH: broadcast from a child that does not exist");
  if (terms.broadcast && terms.average) throw WireError("PUSH: a broadcast that is to be divided");
  const uint8_t codec = terms.broadcast ? 0 : form.codec;
  if (header.codec != codec) {
    throw WireError(origin(key, header, sender) + "codec " + std::to_string(header.codec) + ", expected " +
                    std::to_string(codec));
  }
  shape.compressed = codec != 0;
  if (shape.compressed) {
    shape.bytes = compressed_bytes(header, key, form.most_bytes, sender);
  } else if (!terms.broadcast || terms.root == sender.child) {
    shape.bytes = shape.wide ? 2 * key.length : key.length;
  }
  const size_t expected = shape.bytes > 0 && (header.flags & kFlagByAddress) ? kOfferBytes : shape.bytes;
  if (header.length != expected) {
    throw WireError("PUSH: " + key.tensor->name + ": " + std::to_string(header.length) + " bytes, expected " +
                    std::to_string(expected));
  }
  return shape;
}

}  // namespace byteps
