// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/setup_errors.hpp"

#include <algorithm>

#include "io/data/data_files.hpp"
#include "io/file/file.hpp"
#include "jobs/cli/options/model_cache.hpp"
#include "jobs/cli/options/refusals.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/run_directory.hpp"

namespace tessera::jobs {

SetupErrors::SetupErrors(const Error& first) {
  if (const auto* several = dynamic_cast<const SeveralErrors*>(&first)) {
    code_ = several->code();
    lines_ = several->lines;
  } else {
    check([&] { throw Error(first); });
  }
}

void SetupErrors::check(const std::function<void()>& check) {
  const auto keep = [&](const Error& error, const std::vector<std::string>& lines) {
    if (error.code() == ExitCode::communication) throw;
    if (lines_.empty()) first_ = std::current_exception(), code_ = error.code();
    for (const std::string& line : lines)
      if (std::ranges::find(lines_, line) == lines_.end()) lines_.push_back(line);
  };
  try {
    check();
  } catch (const SeveralErrors& several) { keep(several, several.lines); } catch (const Error& error) {
    keep(error, {error.line()});
  }
}

void SetupErrors::throw_all() const {
  if (lines_.size() > 1) throw SeveralErrors(code_, lines_);
  if (first_ != nullptr) std::rethrow_exception(first_);
}

void throw_with_others(const Options& options, World& world, const Error& first,
                       const std::vector<std::function<void()>>& checks) {
  if (first.code() == ExitCode::communication || first.code() == ExitCode::preempted) throw Error(first);
  SetupErrors errors(first);
  errors.check([&] { world.run_and_agree([&] { refuse_hub_names(options); }); });
  for (const char* option : {"dataset", "val_dataset"})
    for (const std::string& name : options.list(option))
      errors.check([&] {
        world.run_and_agree([&] {
          if (is_hub_dataset(split_selection(name).first)) return;
          for (const io::DataFile& file : io::data_files({name}))
            if (!io::is_command(file.path)) (void)io::File::open_to_read(file.path);
        });
      });
  if ((options.commands & for_train) != 0)
    errors.check([&] { world.run_on_rank_0([&] { check_output_directory(options); }); });
  for (const std::function<void()>& check : checks) errors.check(check);
  errors.throw_all();
  throw Error(first);
}

}  // namespace tessera::jobs
