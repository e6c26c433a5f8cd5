#include "jobs/cli/session/setup_errors.hpp"

#include <algorithm>

#include "io/data/data_files.hpp"
#include "io/file/file.hpp"
#include "jobs/cli/options/refusals.hpp"
#include "jobs/cli/session/run_directory.hpp"

namespace tessera::jobs {

void throw_with_others(const Options& options, World& world, const Error& first, const std::function<void()>& more) {
  if (first.code() == ExitCode::communication) throw Error(first);
  std::vector<std::string> lines{first.line()};
  if (const auto* several = dynamic_cast<const SeveralErrors*>(&first)) lines = several->lines;
  const auto look = [&](const std::function<void()>& check) {
    try {
      check();
    } catch (const Error& error) {
      if (error.code() == ExitCode::communication) throw;
      if (std::ranges::find(lines, error.line()) == lines.end()) lines.push_back(error.line());
    }
  };
  for (const char* option : {"dataset", "val_dataset"})
    for (const std::string& name : options.list(option))
      look([&] {
        world.run_and_agree([&] {
          for (const io::DataFile& file : io::data_files({name})) (void)io::File::open_to_read(file.path);
        });
      });
  if ((options.commands & for_train) != 0) look([&] { world.run_on_rank_0([&] { check_output_directory(options); }); });
  if (more) look(more);
  if (lines.size() == 1) throw Error(first);
  throw SeveralErrors(first.code(), std::move(lines));
}

}  // namespace tessera::jobs
