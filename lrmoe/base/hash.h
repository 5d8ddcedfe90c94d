// Counter-based random bits: the same inputs give the same bits on every rank,
// compiler and machine, and no state is kept between calls.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace lrmoe {

/// One round of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// 64 random bits that depend on every word and on their order.
constexpr std::uint64_t hash(std::initializer_list<std::uint64_t> words) {
  std::uint64_t h = 0x243f6a8885a308d3ULL;
  for (const std::uint64_t w : words) {
    h = mix(h ^ mix(w));
  }
  return h;
}

/// FNV-1a over the bytes, mixed; turns a parameter's name into a seed.
constexpr std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return mix(h);
}

}  // namespace lrmoe
