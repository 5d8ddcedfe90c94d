// docs/configuration.md has every key with its default.
#include <gtest/gtest.h>

#include <sstream>

#include "lrmoe/base/output_file.h"
#include "lrmoe/train/config.h"

namespace lrmoe::train {
namespace {

TEST(ConfigDocs, EveryKeyStandsWithItsDefault) {
  const std::string page = read_text(LRMOE_SOURCE_DIR "/docs/configuration.md");
  std::istringstream defaults(to_toml(Config{}));
  std::string section, line;
  int keys = 0;
  while (std::getline(defaults, line)) {
    if (line.starts_with('[')) {
      const auto begin = page.find("## " + line + "\n");
      ASSERT_NE(begin, std::string::npos) << line;
      section = page.substr(begin, page.find("\n## ", begin + 1) - begin);
    } else if (const auto equals = line.find(" = "); equals != std::string::npos) {
      const std::string row =
          "| `" + line.substr(0, equals) + "` | `" + line.substr(equals + 3) + "` |";
      EXPECT_NE(section.find(row), std::string::npos) << row;
      ++keys;
    }
  }
  EXPECT_GT(keys, 50);
}

}  // namespace
}  // namespace lrmoe::train
