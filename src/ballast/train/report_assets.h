#pragma once
// The parts of the report page, from src/ballast/train/assets, put into the program when it is built.
#include <string_view>

namespace ballast {

std::string_view report_template();       // report.html
std::string_view report_style();          // report.css
std::string_view report_script();         // report.js
std::string_view report_chart_library();  // chart.min.js

}  // namespace ballast
