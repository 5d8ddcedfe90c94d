// A linear program for GLPK, row by row and column by column.
#pragma once

#include <glpk.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lrmoe::plan::test {

class LinearProgram {
 public:
  LinearProgram() : problem_(glp_create_prob()) {
    glp_term_out(GLP_OFF);
    glp_set_obj_dir(problem_, GLP_MIN);
  }
  ~LinearProgram() { glp_delete_prob(problem_); }
  LinearProgram(const LinearProgram&) = delete;
  LinearProgram& operator=(const LinearProgram&) = delete;

  /// least <= row <= most; infinity where it has no bound. Returns its number.
  int row(double least, double most) {
    const int row = glp_add_rows(problem_, 1);
    glp_set_row_bnds(problem_, row, kind(least, most), least, most);
    return row;
  }
  int column(double least, double most, double cost) {
    const int column = glp_add_cols(problem_, 1);
    glp_set_col_bnds(problem_, column, kind(least, most), least, most);
    glp_set_obj_coef(problem_, column, cost);
    return column;
  }
  void entry(int row, int column, double value) {
    rows_.push_back(row);
    columns_.push_back(column);
    values_.push_back(value);
  }
  /// The least cost; a failed test where there is none.
  double solve() {
    glp_load_matrix(problem_, static_cast<int>(rows_.size()) - 1, rows_.data(), columns_.data(),
                    values_.data());
    glp_smcp settings;
    glp_init_smcp(&settings);
    settings.msg_lev = GLP_MSG_OFF;
    settings.presolve = GLP_ON;
    EXPECT_EQ(glp_simplex(problem_, &settings), 0);
    EXPECT_EQ(glp_get_status(problem_), GLP_OPT);
    return glp_get_obj_val(problem_);
  }
  double value(int column) const { return glp_get_col_prim(problem_, column); }

 private:
  static int kind(double least, double most) {
    if (std::isinf(least)) {
      return std::isinf(most) ? GLP_FR : GLP_UP;
    }
    return std::isinf(most) ? GLP_LO : least == most ? GLP_FX : GLP_DB;
  }
  glp_prob* problem_;
  std::vector<int> rows_{0}, columns_{0};  // GLPK counts from 1
  std::vector<double> values_{0.0};
};

}  // namespace lrmoe::plan::test
