#include "csrc/sim/trace.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <set>

namespace pathways::sim {
namespace {

void Append(std::string& out, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  const int size = std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  out.append(text, std::min<size_t>(static_cast<size_t>(std::max(size, 0)), sizeof text - 1));
}

// Safe inside JSON strings and XML text alike.
std::string Plain(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 200)) {
    const bool special = c == '"' || c == '\\' || c == '<' || c == '>' || c == '&';
    out += special || static_cast<unsigned char>(c) < 0x20 ? '\'' : c;
  }
  return out;
}

// Tableau's ten, which stay apart for most colour-blind readers.
constexpr const char* kColours[] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2",
                                    "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac"};

}  // namespace

uint32_t Trace::Name(std::string_view text) {
  auto [it, fresh] = index_.try_emplace(std::string(text), static_cast<uint32_t>(names_.size()));
  if (fresh) names_.emplace_back(text);
  return it->second;
}

void Trace::Add(const Interval& interval) {
  if (intervals_.size() < limit_) {
    intervals_.push_back(interval);
  } else {
    ++dropped_;
  }
}

void Trace::Clear() {
  intervals_.clear();
  dropped_ = 0;
}

std::string ToChromeJson(const Trace& trace, uint32_t devices_per_host) {
  devices_per_host = std::max<uint32_t>(devices_per_host, 1);
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  std::set<uint32_t> devices;
  for (const Interval& interval : trace.intervals()) devices.insert(interval.device);
  bool first = true;
  const auto comma = [&] {
    if (!first) out += ",\n";
    first = false;
  };
  for (const uint32_t device : devices) {
    const uint32_t host = device / devices_per_host;
    if (device % devices_per_host == 0 || !devices.contains(device - 1)) {
      comma();
      Append(out, R"({"ph":"M","name":"process_name","pid":%u,"args":{"name":"host %u"}})", host, host);
    }
    comma();
    Append(out, R"({"ph":"M","name":"thread_name","pid":%u,"tid":%u,"args":{"name":"device %u"}})", host, device,
           device);
  }
  for (const Interval& interval : trace.intervals()) {
    const uint32_t host = interval.device / devices_per_host;
    if (interval.start > interval.arrived) {
      comma();
      Append(out,
             R"({"ph":"X","name":"wait for the gang","cat":"wait","pid":%u,"tid":%u,"ts":%.3f,"dur":%.3f,)"
             R"("args":{"client":%u,"run":%)" PRIu64 "}}",
             host, interval.device, static_cast<double>(interval.arrived) * 1e-3,
             static_cast<double>(interval.start - interval.arrived) * 1e-3, interval.client, interval.run);
    }
    comma();
    out += R"({"ph":"X","name":")" + Plain(trace.names()[interval.node]) + "\"";
    Append(out, R"(,"cat":"client %u","pid":%u,"tid":%u,"ts":%.3f,"dur":%.3f,"args":{"client":%u,"run":%)" PRIu64,
           interval.client, host, interval.device, static_cast<double>(interval.start) * 1e-3,
           static_cast<double>(interval.end - interval.start) * 1e-3, interval.client, interval.run);
    out += R"(,"program":")" + Plain(trace.names()[interval.program]) + "\"}}";
  }
  Append(out, "],\"otherData\":{\"intervals not kept\":%" PRIu64 "}}\n", trace.dropped());
  return out;
}

std::string ToSvg(const Trace& trace, const PictureOptions& options) {
  int64_t from = INT64_MAX, to = 0;
  std::set<uint32_t> devices, clients;
  for (const Interval& interval : trace.intervals()) {
    if (interval.end < options.from || interval.start > options.to) continue;
    from = std::min(from, std::max(interval.start, options.from));
    to = std::max(to, std::min(interval.end, options.to));
    devices.insert(interval.device);
    clients.insert(interval.client);
  }
  if (from >= to) from = 0, to = 1;
  std::map<uint32_t, double> rows;
  constexpr double kLeft = 90, kTop = 34;
  for (const uint32_t device : devices) {
    if (rows.size() == options.max_devices) break;
    rows.emplace(device, kTop + static_cast<double>(rows.size()) * options.row_height);
  }
  std::map<uint32_t, const char*> colours;
  for (const uint32_t client : clients) colours.emplace(client, kColours[colours.size() % std::size(kColours)]);
  const double scale = (options.width - kLeft - 10) / static_cast<double>(to - from);
  const double height = kTop + static_cast<double>(rows.size()) * options.row_height + 30;

  std::string out;
  Append(out,
         "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
         "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
         options.width, height);
  double legend = kLeft;
  for (const auto& [client, colour] : colours) {
    Append(out,
           "<rect x=\"%.0f\" y=\"10\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%.0f\" y=\"20\">client "
           "%u</text>\n",
           legend, colour, legend + 16, client);
    legend += 80;
  }
  for (const auto& [device, y] : rows) {
    Append(out, "<text x=\"6\" y=\"%.1f\">device %u</text>\n", y + options.row_height * 0.7, device);
  }
  // Neighbours of one client that touch are drawn as one box: a long trace has more intervals than pixels.
  struct Box {
    double left, right;
    uint32_t client;
  };
  std::map<uint32_t, std::vector<Box>> boxes;
  for (const Interval& interval : trace.intervals()) {
    if (!rows.contains(interval.device) || interval.end < from || interval.start > to) continue;
    const double left = kLeft + static_cast<double>(std::max(interval.start, from) - from) * scale;
    const double right = kLeft + static_cast<double>(std::min(interval.end, to) - from) * scale;
    std::vector<Box>& row = boxes[interval.device];
    const bool same = !row.empty() && row.back().client == interval.client && left >= row.back().left;
    if (same && left - row.back().right < 0.2 && right - row.back().left < 2.0) {
      row.back().right = std::max(row.back().right, right);
    } else {
      row.push_back({left, right, interval.client});
    }
  }
  for (const auto& [device, row] : boxes) {
    for (const Box& box : row) {
      Append(out,
             "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"white\" "
             "stroke-width=\"0.2\"/>\n",
             box.left, rows[device] + 1, std::max(box.right - box.left, 0.1), options.row_height - 2,
             colours[box.client]);
    }
  }
  Append(out, "<text x=\"%.0f\" y=\"%.1f\">%.3f ms</text>\n", kLeft, height - 10, static_cast<double>(from) * 1e-6);
  Append(out, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.3f ms</text>\n</svg>\n", options.width - 10,
         height - 10, static_cast<double>(to) * 1e-6);
  return out;
}

}  // namespace pathways::sim
