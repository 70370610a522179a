#pragma once
// A layout in words: who holds what, which sequences are shared how, what moves, and the times that are predicted for it.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ballast/layout/report.h"

namespace ballast {

std::string layout_text(const Layout& layout, const LayoutReport& report, const LayoutLimits& limits);
nlohmann::json layout_json(const Layout& layout, const LayoutReport& report, const LayoutLimits& limits);

}  // namespace ballast
