#include "exec/glob.h"

#include "exec/test_files.h"

namespace millstream::exec {
namespace {

TEST(Glob, MatchesComponents) {
  EXPECT_TRUE(matches_component("*.parquet", "a.parquet"));
  EXPECT_TRUE(matches_component("*", ""));
  EXPECT_TRUE(matches_component("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matches_component("a*b*c", "aXbYbZ"));
  EXPECT_TRUE(matches_component("?.csv", "ü.csv"));
  EXPECT_FALSE(matches_component("?.csv", "ab.csv"));
  EXPECT_TRUE(matches_component("20[12][0-9]", "2019"));
  EXPECT_FALSE(matches_component("20[!12][0-9]", "2019"));
  EXPECT_TRUE(matches_component("[]a]", "]"));
  EXPECT_TRUE(matches_component("[a", "[a"));
  EXPECT_TRUE(matches_component("\\*", "*"));
  EXPECT_FALSE(matches_component("\\*", "x"));
}

TEST(Glob, ExpandsBraces) {
  EXPECT_EQ(expand_braces("a{b,c{d,e}}f"), (std::vector<std::string>{"abf", "acdf", "acef"}));
  EXPECT_EQ(expand_braces("{x}"), (std::vector<std::string>{"{x}"}));
  EXPECT_EQ(expand_braces("a{,b}"), (std::vector<std::string>{"a", "ab"}));
  EXPECT_EQ(expand_braces("{open"), (std::vector<std::string>{"{open"}));
}

class GlobFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"b.parquet", "a.parquet", "c.csv", ".hidden.parquet", "2023/x.parquet",
                             "2024/x.parquet", "2024/deep/y.parquet", "odd[1].parquet"}) {
      folder_.write_text(name, "x");
    }
  }
  std::string names(const std::string& glob) {
    auto matches = expand_glob(glob, folder_.path());
    if (!matches.ok()) return "error: " + matches.status().message();
    std::string out;
    for (const GlobMatch& match : *matches) {
      EXPECT_TRUE(std::filesystem::exists(match.path)) << match.path;
      out += (out.empty() ? "" : " ") + match.name;
    }
    return out;
  }
  TemporaryFolder folder_;
};

TEST_F(GlobFiles, AreSortedAndNamedUnderTheFixedPart) {
  EXPECT_EQ(names("*.parquet"), "a.parquet b.parquet odd[1].parquet");
  EXPECT_EQ(names("b.parquet"), "b.parquet");
  EXPECT_EQ(names("2024/x.parquet"), "x.parquet");
  EXPECT_EQ(names("20*/x.parquet"), "2023/x.parquet 2024/x.parquet");
  EXPECT_EQ(names("2024/*.parquet"), "x.parquet");
  EXPECT_EQ(names("{b,a}.parquet"), "a.parquet b.parquet");
  EXPECT_EQ(names("202[34]/?.parquet"), "2023/x.parquet 2024/x.parquet");
  EXPECT_EQ(names("**/*.parquet"),
            "2023/x.parquet 2024/deep/y.parquet 2024/x.parquet a.parquet b.parquet odd[1].parquet");
  EXPECT_EQ(names("2024/**"), "deep/y.parquet x.parquet");
  EXPECT_EQ(names("odd[1].parquet"), "odd[1].parquet");
  EXPECT_EQ(names(".h*"), ".hidden.parquet");
  EXPECT_EQ(names(folder_.path() + "/*.csv"), "c.csv");
}

TEST_F(GlobFiles, SayWhereTheyLooked) {
  EXPECT_EQ(names("*.orc"), "error: '*.orc' matches no files (looked in '" + folder_.path() + "')");
  EXPECT_EQ(names("none/*.csv"),
            "error: 'none/*.csv' matches no files: there is no folder '" + folder_.path() + "/none'");
  EXPECT_EQ(names("a.parqet"), "error: no such file: 'a.parqet' (looked in '" + folder_.path() +
                                   "'); did you mean 'a.parquet'?");
  EXPECT_EQ(names("none/a.csv"),
            "error: no such file: 'none/a.csv' (there is no folder '" + folder_.path() + "/none')");
  EXPECT_EQ(names(folder_.path() + "/2024/"), "error: '" + folder_.path() +
                                                  "/2024/' is a folder; to read the files in it write '" +
                                                  folder_.path() + "/2024/*.parquet'");
  EXPECT_EQ(names("2024"), "error: '2024' is a folder ('" + folder_.path() +
                               "/2024'); to read the files in it write '2024/*.parquet'");
}

}  // namespace
}  // namespace millstream::exec
