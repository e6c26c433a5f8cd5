// SPDX-License-Identifier: Apache-2.0
// What the schedulers' commands answer, as node_shape reads it; batch scripts; types of file systems.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/session/file_system.hpp"
#include "jobs/cli/session/job_script.hpp"
#include "jobs/cli/session/scheduler.hpp"
#include "runtime/base/error.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

TEST(Scheduler, ReadsSinfo) {
  // A partition's rows: nodes in different states are rows of their own.
  const std::string answer =
      "cpu*|3|64|2|32|1|(null)\ncpu*|1|64|2|32|1|(null)\n"
      "gpu|8|128|2|32|2|gpu:a100:4(S:0-1),nvme:1\nmixed|1|4|1|4|1|(null)\nmixed|1|8|1|8|1|(null)\n";
  const NodeShape cpu = slurm_nodes(answer, "");
  EXPECT_EQ(cpu.count, 4);
  EXPECT_EQ(cpu.cores, 64);
  EXPECT_EQ(cpu.sockets, 2);
  EXPECT_EQ(cpu.gpus, 0);
  EXPECT_FALSE(cpu.simultaneous_threads);
  const NodeShape gpu = slurm_nodes(answer, "gpu");
  EXPECT_EQ(gpu.count, 8);
  EXPECT_EQ(gpu.cores, 64);  // and not its 128 hardware threads
  EXPECT_EQ(gpu.gpus, 4);
  EXPECT_TRUE(gpu.simultaneous_threads);
  EXPECT_THAT([&] { (void)slurm_nodes(answer, "mixed"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("differ"), HasSubstr("Name a --partition"))));
  // What sinfo prints of the same nodes without --exact.
  EXPECT_THAT([] { (void)slurm_nodes("mixed|2|4+|1|4+|1|(null)\n", "mixed"); },
              ThrowsMessage<Error>(HasSubstr("\"4+\" where a number is expected")));
  EXPECT_THAT([&] { (void)slurm_nodes(answer, "none"); }, ThrowsMessage<Error>(HasSubstr("no partition none")));
  EXPECT_THAT([] { (void)slurm_nodes("", ""); }, ThrowsMessage<Error>(HasSubstr("no default partition")));
}

TEST(Scheduler, ReadsPbsnodes) {
  const NodeShape nodes = pbs_nodes(
      R"({"nodes":{"a":{"resources_available":{"ncpus":32,"ngpus":"2"}},"b":{"resources_available":{"ncpus":32,"ngpus":2}}}})");
  EXPECT_EQ(nodes.count, 2);
  EXPECT_EQ(nodes.cores, 32);
  EXPECT_EQ(nodes.gpus, 2);
  EXPECT_THAT(
      [] {
        (void)pbs_nodes(
            R"({"nodes":{"a":{"resources_available":{"ncpus":32}},"b":{"resources_available":{"ncpus":64}}}})");
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("differ"), HasSubstr("--cores_per_node"), Not(HasSubstr("--partition")))));
  EXPECT_THROW((void)pbs_nodes("Connection refused"), Error);
  EXPECT_THROW((void)pbs_nodes(R"({"nodes":{}})"), Error);
}

TEST(Scheduler, ReadsLshostsAndFlux) {
  const NodeShape lsf = lsf_nodes(
      "HOST_NAME type model cpuf ncpus maxmem maxswp server RESOURCES\nlogin X86_64 - - - - - No ()\n"
      "n1 X86_64 Xeon 60.0 16 8G - Yes ()\nn2 X86_64 Xeon 60.0 16 8G - Yes ()\n");
  EXPECT_EQ(lsf.count, 2);
  EXPECT_EQ(lsf.cores, 16);
  EXPECT_FALSE(lsf.gpus.has_value());
  const NodeShape flux = flux_nodes("4 128 16\n");
  EXPECT_EQ(flux.count, 4);
  EXPECT_EQ(flux.cores, 32);
  EXPECT_EQ(flux.gpus, 4);
  EXPECT_THROW((void)flux_nodes("3 128 0\n"), Error);
}

TEST(JobScript, QuotesArgumentsAndPaths) {
  JobShape job;
  job.scheduler = "slurm";
  job.launcher = "srun";
  job.time_limit = 3600;
  job.program = "/opt/my $tools/tessera";
  job.arguments = {"run.yaml", "--sample_prompt", "it's \"$HOME\"", ""};
  const std::string script = job_script(job);
  EXPECT_THAT(script, HasSubstr(R"(set -- run.yaml --sample_prompt 'it'\''s "$HOME"' '')"));
  EXPECT_THAT(script, HasSubstr(R"(tessera=${TESSERA:-/opt/my\ \$tools/tessera})"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --signal=B:USR1@360\n"));
  EXPECT_THAT(script, Not(HasSubstr("--gpus-per-node")));
}

TEST(JobScript, NamesTheOutputDirectoryAfterTheJob) {
  JobShape job;
  job.name = "it's $long";
  job.time_limit = 3600;
  job.launcher = "mpirun";
  job.scheduler = "pbs";
  EXPECT_THAT(job_script(job), HasSubstr("RUN=${RUN:-$PBS_JOBNAME-${PBS_JOBID%%.*}}\n"));
  job.scheduler = "lsf";
  EXPECT_THAT(job_script(job), HasSubstr("--output_dir \"out/$LSB_JOBNAME-$LSB_JOBID\""));
  job.launcher = "flux run";
  job.scheduler = "flux";
  EXPECT_THAT(job_script(job), HasSubstr(R"(RUN=${RUN:-${JOB_NAME:-it\'s\ \$long}-$(flux getattr jobid)})"));
}

TEST(JobScript, RefusesOptionsThatContradictOneAnother) {
  const Invocation invocation =
      parsed({"job-script", "slurm", "--nodes", "2", "--", "train", "--eval_strategy", "epoch"});
  EXPECT_THAT(
      [&] {
        job_script_command({invocation, {}, {}});
      },
      ThrowsMessage<Error>(HasSubstr("--eval_strategy needs validation data")));
}

TEST(JobScript, RefusesNamesThatASchedulerWouldReadOtherwise) {
  for (const char* name : {"two words", "a\"b", "$x"}) {
    const Invocation invocation =
        parsed({"job-script", "flux", "--nodes", "1", "--cores_per_node", "8", "--gpus_per_node", "0",
                "--ranks_per_node", "2", "--job_name", name, "--", "train"});
    EXPECT_THAT(
        [&] {
          job_script_command({invocation, {}, {}});
        },
        ThrowsMessage<Error>(HasSubstr("a job's name has letters")))
        << name;
  }
}

TEST(FileSystem, KnowsTypes) {
  EXPECT_EQ(file_system_type(0xEF53).name, "ext2, ext3 or ext4");
  EXPECT_THAT(file_system_type(0x0BD00BD0).advice, HasSubstr("lfs setstripe"));
  EXPECT_EQ(file_system_type(0x1234).name, "0x1234");
  EXPECT_THROW((void)file_system_facts("/nonexistent/directory"), Error);
}

}  // namespace
}  // namespace tessera::jobs
