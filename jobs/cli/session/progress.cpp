// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/progress.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <memory>

#include <unistd.h>

#include "io/file/work_progress.hpp"
#include "jobs/cli/options/values.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/progress_line.hpp"
#include "runtime/comm/launcher_environment.hpp"

namespace tessera::jobs {

namespace {

ProgressStyle& style_in_use() {
  static ProgressStyle style = ProgressStyle::lines;
  return style;
}

std::size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string amount(Work::Unit unit, double count) {
  return unit == Work::Unit::bytes ? human_bytes(count) : human_count(count);
}

std::string left_of(const WorkDone& done) {
  if (done.done == 0) return "";
  const double rest = static_cast<double>(done.total - std::min(done.done, done.total));
  return " | " + human_time(done.seconds * rest / static_cast<double>(done.done)) + " left";
}

double share_of(const WorkDone& done) {
  return done.total == 0 ? 1 : std::min(1.0, static_cast<double>(done.done) / static_cast<double>(done.total));
}

/// What follows the share: amounts, rate, time left, detail.
std::string figures(const Work& work, const WorkDone& done) {
  static constexpr const char* units[] = {"", " samples", " steps"};
  const double rate = static_cast<double>(done.done) / std::max(done.seconds, 1e-9);
  return strfmt(" | %s of %s%s | %s/s", amount(work.unit, static_cast<double>(done.done)).c_str(),
                amount(work.unit, static_cast<double>(done.total)).c_str(), units[static_cast<int>(work.unit)],
                work.unit == Work::Unit::bytes || rate >= 1000 ? amount(work.unit, rate).c_str()
                                                               : strfmt("%.2f", rate).c_str()) +
         left_of(done) + (done.detail.empty() ? "" : " | " + done.detail);
}

}  // namespace

ProgressStyle progress_style(const Options& options) {
  const std::string wanted = options.text("progress");
  if (options.flag("quiet") || options.text("log_level") != "info" || wanted == "none") return ProgressStyle::none;
  if (wanted == "bar") return ProgressStyle::bar;
  const bool launched = launcher_environment().size_variable[0] != '\0';
  return wanted == "auto" && !launched && ::isatty(STDOUT_FILENO) == 1 ? ProgressStyle::bar : ProgressStyle::lines;
}

void set_progress_style(ProgressStyle style) {
  style_in_use() = style;
  if (style == ProgressStyle::none) return;
  io::set_work_progress([view = std::shared_ptr<ProgressView>(), shown = std::string()](
                            const char* work, std::uint64_t done, std::uint64_t total) mutable {
    if (view == nullptr || done == 0 || shown != work) view = std::make_shared<ProgressView>(Work{.name = work});
    shown = work;
    (*view)(done, total);
  });
}

std::string progress_text(const Work& work, const WorkDone& done) {
  return strfmt("%-9s %.1f%%", work.name.c_str(), 100 * share_of(done)) + figures(work, done);
}

std::string progress_bar(const Work& work, const WorkDone& done, std::size_t width) {
  const double share = share_of(done);
  const std::string head = strfmt("%-9s ", work.name.c_str()),
                    tail = strfmt(" %5.1f%%", 100 * share) + figures(work, done);
  const std::size_t used = head.size() + tail.size() + 2;
  const std::size_t cells = used + 10 > width ? 10 : std::min<std::size_t>(width - used, 30);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(cells));
  std::string bar(filled, '=');
  if (filled < cells) bar += '>';
  bar.resize(cells, ' ');
  std::string line = head + '[' + bar + ']' + tail;
  if (line.size() > width) line.resize(width);
  return line;
}

ProgressView::~ProgressView() {
  if (drawn_) log::show_progress("");
}

void ProgressView::operator()(std::uint64_t done, std::uint64_t total, const std::string& detail) {
  const ProgressStyle style = style_in_use();
  if (style == ProgressStyle::none || (style == ProgressStyle::lines && !work_.prints_lines)) return;
  const Clock::time_point now = Clock::now();
  if (done < last_) began_ = shown_ = now;  // a second pass
  last_ = done;
  const double since = std::chrono::duration<double>(now - shown_).count(),
               seconds = std::chrono::duration<double>(now - began_).count();
  if (style == ProgressStyle::lines && (done >= total || since < work_.seconds_between_lines)) return;
  if (style == ProgressStyle::bar && drawn_ && done < total && since < 0.1) return;
  shown_ = now;
  if (style == ProgressStyle::lines) return log::info(progress_text(work_, {done, total, seconds, detail}));
  const std::size_t width = terminal_width();
  log::show_progress(done >= total ? ""
                                   : progress_bar(work_, {done, total, seconds, detail}, width > 1 ? width - 1 : 1));
  drawn_ = done < total;
}

std::function<void(std::int64_t, std::int64_t)> evaluation_progress() {
  return [view = std::make_shared<ProgressView>(Work{.name = "eval", .unit = Work::Unit::samples})](
             std::int64_t done, std::int64_t samples) {
    (*view)(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(samples));
  };
}

}  // namespace tessera::jobs
