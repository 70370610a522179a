#pragma once
// A picture of a layout: who holds which tokens in attention and in the linear modules, which sequences are cut over which ranks, and how even it is.
#include <string>

#include "ballast/layout/report.h"

namespace ballast {

// A stand-alone SVG document: a panel per micro-batch, a row per rank with its attention slots above its linear slots, bars coloured by sequence;
// cut sequences are hatched and carry their number, rings are listed below. Ranks and micro-batches beyond a number that fits a page are left out,
// which the picture says.
std::string layout_svg(const Layout& layout, const LayoutReport& report, const LayoutLimits& limits);

}  // namespace ballast
