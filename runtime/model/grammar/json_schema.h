// JSON schema (2020-12, and the usual parts of the drafts before it) as a grammar of the JSON texts
// that it accepts.
//
// Supported: true and false as schemas; type (one or a list), nullable, enum, const; properties,
// required, additionalProperties, minProperties, maxProperties; items, prefixItems, minItems,
// maxItems; minLength, maxLength, pattern, format (date, date-time, time, duration, uuid, email,
// ipv4, ipv6, uri, hostname); minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf
// (whole numbers); anyOf, oneOf,
// allOf; $ref within the document, recursive ones too, $defs, definitions. Annotations (title,
// description, default, examples, $comment, $schema, deprecated, readOnly, writeOnly) say nothing
// about what is valid. Any other keyword is refused by name with its JSON pointer.
//
// What is accepted is a subset of what the schema accepts, and differs from it only in spelling:
//   - whitespace and the order of properties are those of GrammarOptions; properties that the
//     schema does not name come after those it does, and their names hold no escapes;
//   - strings with a pattern, a format or in an enum are written with the shortest escapes;
//   - numbers that are integers have no fraction and no exponent, and at most 18 digits; other
//     numbers at most 18 digits before the point, 18 after it and an exponent of at most two;
//   - a number with a bound that is no integer schema's is written without exponent;
//   - oneOf is taken as anyOf: a value that two of its schemas accept is accepted;
//   - where no type is named but keywords of objects (arrays) alone, an object (array) is meant;
//   - nesting ends where kStackFramesMax levels are in progress (grammar.h), and of alternatives in
//     progress at once kThreadsMax are followed (machine.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/base/units.h"
#include "runtime/model/grammar/grammar.h"
#include "runtime/model/grammar/grammar_store.h"
#include "runtime/model/grammar/text_leaves.h"

namespace hearth::grammar {

inline constexpr uint64_t kSchemaBytesMax = 256_KiB;
inline constexpr int32_t kSchemaDepthMax = 64;  // brackets inside brackets

// InvalidArgument: not JSON, not a schema, or one that no value satisfies; Unimplemented: a keyword
// or a value of one that is not supported; ResourceExhausted: beyond a limit. All but errors of the
// text as a whole begin with the JSON pointer to the place ("#/properties/a/pattern: ...").
absl::StatusOr<std::shared_ptr<const Grammar>> CompileJsonSchema(std::string_view schema_json,
                                                                 const CommonLeaves& leaves,
                                                                 const GrammarOptions& options);

// A leaf of at most `count` line breaks.
NodeId LeadingNewlines(GrammarBuilder& builder, uint32_t count);

}  // namespace hearth::grammar
