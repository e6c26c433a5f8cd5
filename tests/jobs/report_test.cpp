// SPDX-License-Identifier: Apache-2.0
// report.html: what it reads of a run, what it advises, and the page around it.
#include <nlohmann/json.hpp>

#include "jobs/cli/options/values.hpp"
#include "jobs/report/advice.hpp"
#include "jobs/report/report.hpp"
#include "jobs/report/run_record.hpp"
#include "tests/io/files.hpp"

namespace tessera::jobs {
namespace {

using test::TempDir;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

Json step(int number, const Json& loss, double comm) {
  return {{"loss", loss},     {"grad_norm", 0.5},   {"learning_rate", 1e-3}, {"global_step", number},
          {"max_steps", 100}, {"memory(GiB)", 2.0}, {"elapsed_time", 61.0},  {"tokens_per_second", 1000.0},
          {"time_step", 2.0}, {"time_data", 0.0},   {"time_comm", comm}};
}

std::string lines(const std::vector<Json>& records) {
  std::string text;
  for (const Json& record : records) text += record.dump() + "\n";
  return text;
}

TEST(Report, ReadsTheFilesOfARun) {
  const TempDir run;
  run.file("logging.jsonl",
           lines({{{"warning", "W021"}, {"text", "ranks share cores"}},
                  step(1, 4.0, 0.5),
                  step(2, "NaN", 0.5),
                  {{"eval_loss", 3.5}, {"eval_code_loss", 3.0}, {"eval_runtime", 1.0}, {"global_step", 2}},
                  {{"warning", "W021"}, {"text", "ranks share cores"}}}) +
               "{\"loss\":1.");
  run.file("args.json",
           R"({"seed": {"value": 7, "source": "command line"}, "bf16": {"value": null, "source": "default"}})");
  run.file("run.json", R"({"run_name": "first", "world": 2, "strategy": "ZeRO-3", "parameters": 1500,
                           "memory": {"limit": 9, "planned": {"grads": 4}, "measured": {"grads": 4}}})");
  run.file("STATUS", "completed\n");
  const Json record = read_run_record(run.path());
  EXPECT_EQ(record["label"], "first");
  EXPECT_EQ(record["status"], "completed");
  EXPECT_EQ(record["series"]["loss"], Json::parse("[[1.0,4.0],[2.0,null]]"));
  EXPECT_EQ(record["series"]["comm"], Json::parse("[[1.0,25.0],[2.0,25.0]]"));
  EXPECT_EQ(record["evaluations"], Json::parse(R"({"loss":{"code":[[2.0,3.0]],"validation":[[2.0,3.5]]}})"));
  EXPECT_EQ(record["warnings"], Json::parse(R"([["W021","ranks share cores"]])")) << "each once";
  EXPECT_EQ(record["config"], Json::parse(R"([["seed","7","command line"],["bf16","","default"]])"));
  EXPECT_EQ(record["memory"]["planned"]["grads"], 4);
  EXPECT_THAT(record["facts"], Contains(Json::parse(R"(["steps","2 / 100"])")));
  EXPECT_THAT(record["facts"], Contains(Json({"best validation loss", "3.5000 (step 2)"})));
  EXPECT_TRUE(record["advice"].empty());
  EXPECT_TRUE(record["trace"].is_null());
}

TEST(Report, NamesWhatItCannotRead) {
  const TempDir run;
  run.file("logging.jsonl", lines({step(1, 4.0, 0)}) + "not JSON\n[1]\n" + lines({step(2, 3.0, 0)}) + "{\"loss\":1.");
  const Json record = read_run_record(run.path());
  EXPECT_EQ(record["series"]["loss"].size(), 2U);
  EXPECT_EQ(record["warnings"],
            Json::parse(R"([["logging.jsonl","2 lines are no records and not read, the first is line 2"]])"));
  run.file("run.json", R"({"world": "two"})");
  test::expect_error(ExitCode::data, "is not as a run writes it", [&] { (void)read_run_record(run.path()); });
  for (const char* other : {"", "[]"}) {
    run.file("run.json", other);
    test::expect_error(ExitCode::data, "it is no JSON object", [&] { (void)read_run_record(run.path()); });
  }
}

TEST(Report, ShowsEvaluationsByDataSetAndFigure) {
  const TempDir run;
  run.file("logging.jsonl", lines({step(1, 0.7, 0),
                                   {{"eval_loss", 0.6},
                                    {"eval_nll_loss", 2.0},
                                    {"eval_rewards/margins", 0.25},
                                    {"eval_near_loss", 0.5},
                                    {"eval_near_rewards/margins", 0.3},
                                    {"eval_near_pairs", 4},
                                    {"eval_runtime", 1.0},
                                    {"global_step", 1}}}));
  const Json record = read_run_record(run.path());
  EXPECT_EQ(record["evaluations"]["loss"], Json::parse(R"({"near":[[1.0,0.5]],"validation":[[1.0,0.6]]})"));
  EXPECT_EQ(record["evaluations"]["rewards/margins"], Json::parse(R"({"near":[[1.0,0.3]],"validation":[[1.0,0.25]]})"));
  EXPECT_EQ(record["last_evaluation"],
            Json::parse(R"({"step":1.0,"sets":{"validation":{"loss":0.6,"nll_loss":2.0,"rewards/margins":0.25},
                                               "near":{"loss":0.5,"rewards/margins":0.3,"pairs":4}}})"));
}

TEST(Report, HasTheCommandAndWhatTheRunUsed) {
  const TempDir run;
  run.file("logging.jsonl", lines({step(1, 4.0, 0)}));
  run.file("run.json", R"({"command": ["tessera", "sft", "--system", "it's you", "--dataset", "a.jsonl#5"], "world": 8,
                           "mesh": {"replicate": 2, "shard": 4}, "compute_dtype": "bf16",
                           "batch": {"micro_batch": 2, "accumulation": 3},
                           "settings": {"global_batch_size": 48, "learning_rate": 0.5, "compute_dtype": "bf16"}})");
  const Json record = read_run_record(run.path());
  EXPECT_EQ(record["command"], R"(tessera launch -n 8 -- sft --system 'it'\''s you' --dataset 'a.jsonl#5')");
  EXPECT_THAT(record["facts"], Contains(Json({"samples a step", "48 = 2 × 3 × 8 ranks"})));
  for (const Json& row : {Json({"ranks", "8"}), Json({"mesh", "replicate 2 × shard 4"}), Json({"samples a step", "48"}),
                          Json({"micro-batch", "2"}), Json({"compute_dtype", "bf16"}), Json({"learning_rate", "0.5"})})
    EXPECT_EQ(std::ranges::count(record["values"], row), 1) << row;
}

TEST(Report, ShowsTheMemoryOfTheGpuBesideTheHosts) {
  const TempDir run;
  Json record = step(1, 4.0, 0);
  record.update({{"memory(GiB)", 51.0},
                 {"memory_total(GiB)", 140.0},
                 {"host_memory(GiB)", 0.5},
                 {"loss_tokens_per_second", 400.0}});
  run.file("logging.jsonl", lines({record}));
  const Json shown = read_run_record(run.path());
  EXPECT_EQ(shown["series"]["memory"], Json::parse("[[1.0,51.0]]"));
  EXPECT_EQ(shown["series"]["host_memory"], Json::parse("[[1.0,0.5]]"));
  EXPECT_THAT(shown["facts"], Contains(Json({"memory of the GPU; of the host", "51.00 of 140.00 GiB; 0.50 GiB"})));
  EXPECT_THAT(shown["facts"], Contains(Json({"tokens per second", "1.0k, 400 with loss"})));
}

TEST(Report, AddsUpTheTimesOfAResumedRun) {
  const TempDir run;
  std::vector<Json> records;
  // The third process begins with more time than the second had; the fourth writes no step.
  for (const std::vector<double>& process : {std::vector<double>{10.0, 20.0}, {3.0, 6.0}, {10.0}, {}, {1.0}}) {
    if (!records.empty()) records.push_back({{"resume", "checkpoint-1"}, {"global_step", 1}});
    for (const double elapsed : process) {
      records.push_back(step(static_cast<int>(records.size()) + 1, 2.0, 0));
      records.back()["elapsed_time"] = elapsed;
    }
  }
  run.file("logging.jsonl", lines(records));
  EXPECT_THAT(read_run_record(run.path())["facts"], Contains(Json({"time", human_time(37)})));
}

TEST(Report, KeepsTheSpikesOfALongRun) {
  const TempDir run;
  std::string log;
  for (int i = 1; i <= 30000; ++i) log += step(i, i == 17017 ? 99.0 : 2.0, 0).dump() + "\n";
  run.file("logging.jsonl", log);
  const Json loss = read_run_record(run.path())["series"]["loss"];
  EXPECT_LE(loss.size(), 2000u);
  EXPECT_THAT(loss, Contains(Json::parse("[17017.0,99.0]")));
  for (std::size_t i = 1; i < loss.size(); ++i) EXPECT_LT(loss[i - 1][0], loss[i][0]);
}

TEST(Report, ShowsOneStepOfATrace) {
  const TempDir run;
  std::filesystem::create_directory(run / "trace");
  const auto span = [](int lane, double begin, double length, const char* name) {
    return Json{{"ph", "X"}, {"tid", lane}, {"ts", begin}, {"dur", length}, {"name", name}};
  };
  Json trace = {{"distributedInfo", {{"rank", 0}}}};
  trace["traceEvents"] = {
      {{"ph", "M"}, {"name", "thread_name"}, {"args", {{"name", "compute"}}}},
      {{"ph", "M"}, {"name", "thread_name"}, {"args", {{"name", "gather"}}}},
      span(0, 10, 5, "forward h.0 m0"),
      span(1, 5, 5, "gather h.0"),
      span(0, 15, 5, "update h.0"),
      span(1, 21, 5, "gather h.0"),
      span(0, 26, 5, "forward h.0 m0"),
  };
  run.file("trace/rank-00000.json", trace.dump());
  EXPECT_EQ(read_step_trace(run / "trace"), Json::parse(R"({"rank":0,"lanes":["compute","gather"],"spans":[
      [1,0.0,5.0,"gather h.0"],[0,5.0,5.0,"forward h.0 m0"],[0,10.0,5.0,"update h.0"]],"left_out":0})"));
  run.file("trace/rank-00000.json", "[]");
  test::expect_error(ExitCode::data, "rank-00000.json", [&] { (void)read_step_trace(run / "trace"); });
}

TEST(Advice, NamesWhatReducesCommunication) {
  const Json run = {{"strategy", "ZeRO-3"},
                    {"gathers_twice", true},
                    {"nodes", 2},
                    {"world", 8},
                    {"transport", "mpi"},
                    {"compute_dtype", "fp32"},
                    {"reduce_dtype", "fp32"},
                    {"batch", {{"micro_batch", 2}, {"accumulation", 4}}}};
  const Json args = {{"reduce_gradients", {{"value", "each"}}}};
  EXPECT_THAT(advice({.communication = 0.3}, args, run), ElementsAre());
  const std::vector<std::string> slow = advice({.communication = 0.42}, args, run);
  EXPECT_THAT(slow.front(), HasSubstr("Communication takes 42 %"));
  for (const char* name : {"HYBRID_SHARD", "--per_device_train_batch_size 4", "--reshard_after_forward false",
                           "--mixed_precision bf16", "--reduce_gradients last"})
    EXPECT_THAT(slow, Contains(HasSubstr(name))) << name;
  Json hybrid = run;
  hybrid["mesh"] = {{"replicate", 2}, {"shard", 4}};
  EXPECT_THAT(advice({.communication = 0.5}, args, hybrid),
              AllOf(Not(Contains(HasSubstr("HYBRID"))), Contains(HasSubstr("--reshard_after_forward false"))));
  // Ranks that share rows must divide a node's, and nodes must have equally many.
  const auto shares = [&](int ranks, int world) {
    Json shared = run;
    shared["mesh"]["context"] = ranks;
    shared["world"] = world;
    return advice({.communication = 0.5}, args, shared);
  };
  for (const int ranks : {1, 2, 4}) EXPECT_THAT(shares(ranks, 8), Contains(HasSubstr("HYBRID"))) << ranks;
  EXPECT_THAT(shares(8, 8), Not(Contains(HasSubstr("HYBRID"))));
  EXPECT_THAT(shares(3, 12), Contains(HasSubstr("HYBRID")));
  EXPECT_THAT(shares(1, 7), Not(Contains(HasSubstr("HYBRID"))));
  Json offloads = args;
  offloads["offload_params"] = {{"value", "cpu"}};
  EXPECT_THAT(advice({.communication = 0.5}, offloads, run), Not(Contains(HasSubstr("--reshard_after_forward"))));
  Json half = run;
  half.update({{"compute_dtype", "fp16"}, {"nodes", 1}, {"memory", {{"device", "NVIDIA H100"}}}});
  EXPECT_THAT(advice({.communication = 0.5}, args, half),
              AllOf(Contains(HasSubstr("--reduce_dtype fp16")), Not(Contains(HasSubstr("--comm node")))));
  half.erase("memory");
  EXPECT_THAT(advice({.communication = 0.5}, args, half), Contains(HasSubstr("--comm node")));
  const Json one_node = {{"strategy", "ZeRO-0"}, {"nodes", 1}, {"compute_dtype", "bf16"}, {"reduce_dtype", "bf16"}};
  for (const std::string& line : advice({.communication = 0.5}, {}, one_node))
    EXPECT_THAT(line, AllOf(Not(HasSubstr("HYBRID")), Not(HasSubstr("reshard")), Not(HasSubstr("bf16"))));
  EXPECT_THAT(advice({.data = 0.2}, {}, {}), ElementsAre(HasSubstr("Reading data takes 20 %")));
}

TEST(Report, IsOneFileThatTextCannotBreak) {
  const TempDir directory;
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(directory / (std::string("v0-") + name + "/sub"));
    directory.file(std::string("v0-") + name + "/logging.jsonl", lines({step(1, 4.0, 0.0)}));
  }
  const std::string a = directory / "v0-a", b = directory / "v0-b";
  directory.file("v0-a/run.json", R"({"run_name": "</script><!--"})");
  const std::string page = report_page({a, b}, "tessera");
  EXPECT_EQ(page.find("{{DATA}}"), page.npos);
  EXPECT_EQ(page.find("</script><!--"), page.npos);
  for (const char* reference : {"src=", "href=", "@import", "url("})
    EXPECT_EQ(page.find(reference), page.npos) << reference;
  const std::size_t begin = page.find("id=\"data\">") + 10;
  const Json data = Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["runs"][0]["label"], "</script><!--");
  EXPECT_EQ(data["runs"][1]["label"], "v0-b");
  EXPECT_EQ(run_directory_in(a), a);
  EXPECT_EQ(run_directory_in(directory.path()).substr(0, directory.path().size() + 4), directory / "v0-");
  test::expect_error(ExitCode::data, "no logging.jsonl", [&] { (void)run_directory_in(directory / "v0-a/sub"); });
}

}  // namespace
}  // namespace tessera::jobs
