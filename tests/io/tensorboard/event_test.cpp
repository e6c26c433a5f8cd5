// SPDX-License-Identifier: Apache-2.0
// Event files: bytes of a known file, values read back, the order of files, a full disk.
#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>
#include <limits>

#include "io/tensorboard/event_file.hpp"
#include "tests/io/files.hpp"
#include "tests/io/tensorboard/events.hpp"

namespace tessera::io {
namespace {

using test::ReadEvent;
using test::TempDir;
using testing::ElementsAre;
using testing::Pair;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += strfmt("%02x", static_cast<unsigned char>(c));
  return text;
}

// Of the tensorboard package 2.21: make_events.py prints them.
TEST(Event, HasTheBytesOfTheTensorboardPackage) {
  EXPECT_EQ(hex(tf_record(encode({.wall_time = 1.5, .file_version = "brain.Event:2"}))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  EXPECT_EQ(hex(tf_record(encode({.wall_time = 2.5, .step = 300, .values = {{"train/loss", 0.75f}}}))),
            "2100000000000000017becf609000000000000044010ac022a130a110a0a747261696e2f6c6f7373150000403ff31d3dff");
  EXPECT_EQ(hex(tf_record(encode({.wall_time = 3, .step = 1, .values = {{"a/text_summary", "hé"}}}))),
            "3800000000000000a3797d5709000000000000084010012a2b0a290a0e612f746578745f73756d6d617279420d0807120412020801"
            "420368c3a94a080a060a0474657874e20825fa");
  EXPECT_EQ(hex(tf_record(encode({.wall_time = 4, .step = 7, .starts_session = true}))),
            "0f000000000000006d532b0909000000000000104010073a020801ed7836de");
}

TEST(EventFile, IsReadBack) {
  const TempDir directory;
  EventFile file(directory / "runs", "host");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  file.write(1, {{"train/loss", 2.5f}, {"train/grad_norm", nan}});
  file.write(std::int64_t{1} << 40, {{"samples/0/text_summary", std::string(300, 'x')}});
  const std::vector<ReadEvent> events = test::read_events(test::bytes_of(file.path()));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].scalars.at("train/loss"), 2.5f);
  EXPECT_TRUE(std::isnan(events[1].scalars.at("train/grad_norm")));
  EXPECT_GT(events[1].wall_time, 1.6e9);
  EXPECT_EQ(events[2].step, std::int64_t{1} << 40);
  EXPECT_THAT(events[2].texts, ElementsAre(Pair("samples/0/text_summary", std::string(300, 'x'))));
}

TEST(EventFile, OfAResumedRunComesLaterAndVoidsTheStepsDoneAgain) {
  const TempDir directory;
  const EventFile first(directory.path(), "host"), second(directory.path(), "host", 3),
      third(directory.path(), "host", 3);
  EXPECT_LT(first.path(), second.path());
  EXPECT_LT(second.path(), third.path());
  EXPECT_EQ(directory.names().size(), 3u);
  const std::vector<ReadEvent> events = test::read_events(test::bytes_of(second.path()));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].session_status, 1);
  EXPECT_EQ(events[1].step, 3);
}

TEST(EventFile, EndsWithAWholeEventWhenTheDiskIsFull) {
  const TempDir directory;
  EventFile file(directory.path(), "host");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  test::expect_error(ExitCode::data, "events.out.tfevents", [&] {
    file.write(1, {{"text/text_summary", std::string(2000, 'x')}});
  });
  file.write(2, {{"train/loss", 1.0f}});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  const std::vector<ReadEvent> events = test::read_events(test::bytes_of(file.path()));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].step, 2);
}

TEST(EventFile, RefusesADirectoryThatCannotBeMade) {
  const TempDir directory;
  const std::string file = directory.file("file", "x");
  test::expect_error(ExitCode::data, "file", [&] { EventFile(file + "/runs", "host"); });
}

}  // namespace
}  // namespace tessera::io
