// Uses std::string without including it.
#pragma once

inline std::string Name() { return "x"; }
