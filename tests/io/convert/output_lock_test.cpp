// SPDX-License-Identifier: Apache-2.0
// Two processes that make one output at once: one makes it, the other is refused, and nothing is mixed. An output whose
// process was killed is made by the next one.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "io/convert/convert.hpp"
#include "tests/io/convert/model.hpp"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;
using test::contents;
using test::expect_error;
using test::identity_tensors;
using test::TempDir;

enum class To : unsigned char { bf16, f16, native };

void convert(const std::string& in, const std::string& out, To to) {
  const OutputLock lock(in, out, /*replace=*/false);
  run_local(1, [&](World& world) {
    const TensorCatalog stored = catalog_safetensors(in);
    const ConvertTarget target{.directory = out,
                               .auxiliary_files = read_model_auxiliary_files(in).files,
                               .max_file_bytes = ~std::uint64_t{0} >> 1};
    if (to == To::native) (void)convert_to_checkpoint(world, stored, identity_tensors(stored, DType::f32), target, {});
    else
      (void)convert_to_safetensors(world, stored, identity_tensors(stored, to == To::bf16 ? DType::bf16 : DType::f16),
                                   target, {});
  });
}

/// A process of its own, which begins when `go` is closed. Its error is in the file `message`.
pid_t start(const std::array<int, 2>& go, const std::string& message, const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::close(go[1]);
  char byte = 0;
  (void)!::read(go[0], &byte, 1);
  int code = 0;
  try {
    action();
  } catch (const Error& error) {
    File file = File::create(message);
    const std::string line = error.line();
    file.write_at(0, std::as_bytes(std::span(line)));
    code = 3;
  } catch (...) { code = 4; }
  ::_exit(code);
}

int code_of(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OutputPath, HasNoDotsAndSlashes) {
  const std::string here = std::filesystem::current_path().string();
  for (const char* path : {"made", "made/", "made//", "made/.", "./made/./", "other/../made", "made/inner/.."})
    EXPECT_EQ(output_path(path), here + "/made") << path;
  EXPECT_EQ(output_path("."), here);
  EXPECT_EQ(output_path("/a/../b/."), "/b");
}

TEST(OutputLock, OfTwoAtOnceOneIsRefused) {
  const TempDir folder(TempDir::Storage::memory);
  test::write_model(folder / "hf", {{"a", {300, 257}}, {"b", {40}}}, DType::f32);
  fs::create_directories(folder / "hf/additional_chat_templates");
  folder.file("hf/additional_chat_templates/rag.jinja", "{{ messages }}");
  constexpr std::array kinds = {To::bf16, To::f16, To::native};
  std::array<std::vector<std::pair<std::string, std::string>>, 3> expected;
  for (std::size_t k = 0; k < 3; ++k) {
    const std::string alone = folder / ("alone" + std::to_string(k));
    convert(folder / "hf", alone, kinds[k]);
    expected[k] = contents(alone);
    fs::remove_all(alone);
  }
  const std::string out = folder / "out";
  int locked_out = 0;
  for (std::size_t round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    std::array<int, 2> go{};
    ASSERT_EQ(::pipe(go.data()), 0);
    const std::array<std::size_t, 2> kind = {round % 3, (round + 1) % 3};
    std::array<pid_t, 2> children{};
    for (std::size_t c = 0; c < 2; ++c)
      children[c] =
          start(go, folder / ("message" + std::to_string(c)), [&] { convert(folder / "hf", out, kinds[kind[c]]); });
    ::close(go[0]), ::close(go[1]);
    const std::array<int, 2> codes = {code_of(children[0]), code_of(children[1])};
    ASSERT_EQ(codes[0] + codes[1], 3) << codes[0] << " " << codes[1];
    const std::size_t winner = codes[0] == 0 ? 0 : 1, loser = 1 - winner;
    EXPECT_EQ(contents(out), expected[kind[winner]]);
    const std::string message = test::bytes_of(folder / ("message" + std::to_string(loser)));
    if (message.find("E141") == message.npos) {  // the first had not ended before
      EXPECT_THAT(message,
                  testing::HasSubstr(strfmt("E150 another run writes there: process %d on ", children[winner])));
      ++locked_out;
    }
    fs::remove(folder / ("message" + std::to_string(loser)));
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"hf", "out"}));
    fs::remove_all(out);
  }
  EXPECT_GT(locked_out, 0);
}

TEST(OutputLock, WhatAKilledProcessLeftIsReplaced) {
  const TempDir folder(TempDir::Storage::memory);
  test::write_model(folder / "hf", {{"a", {300}}}, DType::f32);
  const std::string in = folder / "hf", out = folder / "out";
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const OutputLock lock(in, out, /*replace=*/false);
    fs::create_directories(folder / "out.tmp/figures");
    folder.file("out.tmp/modeling_x.py", "half");
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  expect_error(ExitCode::data, strfmt("process %d on", child), [&] { convert(in, out, To::f16); });
  expect_error(ExitCode::data, "E150",
               [&] { convert(in, folder / "hf/../out/", To::f16); });  // the same by another name
  ::kill(child, SIGKILL);
  (void)code_of(child);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"hf", "out.lock", "out.tmp"}));
  { const OutputLock failed(in, out, /*replace=*/false); }  // of a conversion that fails before it makes anything
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"hf"}));
  convert(in, out, To::f16);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"hf", "out"}));
  ::close(ready[0]), ::close(ready[1]);
}

TEST(OutputLock, OneThatWasKilledBeforeItMadeAnythingProvesNothing) {
  const TempDir folder(TempDir::Storage::memory);
  test::write_model(folder / "hf", {{"a", {300}}}, DType::f32);
  fs::create_directories(folder / "out.tmp/precious");
  folder.file("out.lock", "process 1 on nowhere\nrun 0123\n");
  expect_error(ExitCode::data, "is not an interrupted conversion's",
               [&] { convert(folder / "hf", folder / "out", To::f16); });
  EXPECT_TRUE(fs::exists(folder / "out.tmp/precious"));
}

TEST(OutputLock, ADirectoryThatARunWritesIsNotReplaced) {
  const TempDir folder(TempDir::Storage::memory);
  fs::create_directories(folder / "in");
  fs::create_directories(folder / "out");
  {
    const FileLock run(folder / "out/.lock", "wait");
    expect_error(ExitCode::data, "E150 another run writes there",
                 [&] { const OutputLock lock(folder / "in", folder / "out", /*replace=*/true); });
  }
  EXPECT_NO_THROW(const OutputLock lock(folder / "in", folder / "out", /*replace=*/true));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"in", "out"}));
}

// A run that makes the directory while a conversion goes on keeps it.
TEST(OutputLock, ADirectoryThatAppearsMeanwhileStays) {
  for (const To to : {To::bf16, To::native}) {
    const TempDir folder(TempDir::Storage::memory);
    test::write_model(folder / "hf", {{"a", {300}}}, DType::f32);
    expect_error(ExitCode::data, "E141", [&] {
      run_local(1, [&](World& world) {
        const TensorCatalog stored = catalog_safetensors(folder / "hf");
        ConvertOptions options;
        options.progress = [&](const ConvertProgress&) {
          fs::create_directories(folder / "out");
          folder.file("out/STATUS", "running\n");
        };
        const ConvertTarget target{.directory = folder / "out", .max_file_bytes = 1'000'000};
        if (to == To::native)
          (void)convert_to_checkpoint(world, stored, identity_tensors(stored, DType::f32), target, options);
        else (void)convert_to_safetensors(world, stored, identity_tensors(stored, DType::bf16), target, options);
      });
    });
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"hf", "out"}));
    EXPECT_EQ(test::bytes_of(folder / "out/STATUS"), "running\n");
  }
}

}  // namespace
}  // namespace tessera::io
