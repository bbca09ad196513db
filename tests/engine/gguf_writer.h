// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Writes GGUF files for tests: honest ones, and ones that lie where a test wants it.
//
// TinyModel is a whole llama model with random F32 weights, small enough to run by hand.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "engine/gguf.h"

namespace baton::test {

class GgufWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dimensions;  // contiguous one first
    engine::TensorType type = engine::TensorType::kF32;
    std::vector<uint8_t> data;
    int64_t offset = -1;  // -1: behind the tensor before
  };

  uint32_t version = 3;
  uint32_t alignment = 32;  // of the data; written as metadata only if asked
  std::vector<Tensor> tensors;

  template <typename T>
  void Add(const std::string& key, engine::GgufType type, T value) {
    Key(key, type);
    values_.Put<T>(value);
  }
  void AddUint(const std::string& key, uint32_t value) {
    Add<uint32_t>(key, engine::GgufType::kUint32, value);
  }
  void AddFloat(const std::string& key, float value) {
    Add<float>(key, engine::GgufType::kFloat32, value);
  }
  void AddBool(const std::string& key, bool value) {
    Add<uint8_t>(key, engine::GgufType::kBool, value);
  }
  void AddString(const std::string& key, const std::string& value) {
    Key(key, engine::GgufType::kString);
    Text(values_, value);
  }
  void AddStrings(const std::string& key, const std::vector<std::string>& list) {
    Array(key, engine::GgufType::kString, list.size());
    for (const std::string& text : list) Text(values_, text);
  }
  template <typename T>
  void AddArray(const std::string& key, engine::GgufType element, const std::vector<T>& list) {
    Array(key, element, list.size());
    for (const T value : list) values_.Put<T>(value);
  }
  void AddFloats(const std::string& key, const std::vector<float>& list) {
    AddArray(key, engine::GgufType::kFloat32, list);
  }
  void AddInts(const std::string& key, const std::vector<int32_t>& list) {
    AddArray(key, engine::GgufType::kInt32, list);
  }
  // F32; `dimensions` with the contiguous one first.
  void AddTensor(const std::string& name, std::vector<uint64_t> dimensions,
                 const std::vector<float>& data) {
    Tensor tensor{name, std::move(dimensions)};
    tensor.data.resize(data.size() * sizeof(float));
    if (!data.empty()) std::memcpy(tensor.data.data(), data.data(), tensor.data.size());
    tensors.push_back(std::move(tensor));
  }

  std::vector<uint8_t> Write() const {
    ByteWriter out;
    out.PutBytes(Bytes("GGUF"));
    out.Put<uint32_t>(version);
    out.Put<uint64_t>(tensors.size());
    out.Put<uint64_t>(value_count_);
    ByteWriter values = values_;
    out.PutBytes(std::move(values).Take());
    uint64_t offset = 0;
    std::vector<uint64_t> offsets;
    for (const Tensor& tensor : tensors) {
      offsets.push_back(tensor.offset >= 0 ? static_cast<uint64_t>(tensor.offset) : offset);
      offset = Align(offset + tensor.data.size());
      Text(out, tensor.name);
      out.Put<uint32_t>(static_cast<uint32_t>(tensor.dimensions.size()));
      for (const uint64_t size : tensor.dimensions) out.Put<uint64_t>(size);
      out.Put<uint32_t>(static_cast<uint32_t>(tensor.type));
      out.Put<uint64_t>(offsets.back());
    }
    std::vector<uint8_t> file = std::move(out).Take();
    file.resize(Align(file.size()));
    const size_t data = file.size();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].offset >= 0 || tensors[i].data.empty()) continue;
      file.resize(std::max<size_t>(file.size(), data + offsets[i]));
      file.insert(file.end(), tensors[i].data.begin(), tensors[i].data.end());
    }
    return file;
  }

 private:
  static std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }
  static void Text(ByteWriter& out, const std::string& text) {
    out.Put<uint64_t>(text.size());
    out.PutBytes(Bytes(text));
  }
  uint64_t Align(uint64_t value) const { return (value + alignment - 1) / alignment * alignment; }
  void Key(const std::string& key, engine::GgufType type) {
    ++value_count_;
    Text(values_, key);
    values_.Put<uint32_t>(static_cast<uint32_t>(type));
  }
  void Array(const std::string& key, engine::GgufType element, uint64_t count) {
    Key(key, engine::GgufType::kArray);
    values_.Put<uint32_t>(static_cast<uint32_t>(element));
    values_.Put<uint64_t>(count);
  }

  ByteWriter values_;
  uint64_t value_count_ = 0;
};

struct TinyShape {
  uint32_t layers = 2;
  uint32_t hidden = 64;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t ffn = 96;
  uint32_t vocab = 128;
  uint32_t context = 256;
};

// The writer of a model with weights from `seed`; a test may add to it.
inline GgufWriter TinyModel(const TinyShape& shape, uint64_t seed,
                            const std::string& architecture = "llama") {
  GgufWriter writer;
  writer.AddString("general.architecture", architecture);
  writer.AddUint(architecture + ".block_count", shape.layers);
  writer.AddUint(architecture + ".embedding_length", shape.hidden);
  writer.AddUint(architecture + ".feed_forward_length", shape.ffn);
  writer.AddUint(architecture + ".context_length", shape.context);
  writer.AddUint(architecture + ".attention.head_count", shape.heads);
  writer.AddUint(architecture + ".attention.head_count_kv", shape.kv_heads);
  writer.AddFloat(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddFloat(architecture + ".rope.freq_base", 10000.0f);
  Random random(seed);
  const auto add = [&](const std::string& name, uint64_t rows, uint64_t columns, double mean) {
    const double scale = mean == 0 ? 2 / std::sqrt(static_cast<double>(columns)) : 0.2;
    std::vector<float> data(rows * columns);
    for (float& value : data) {
      value = static_cast<float>(mean + scale * (2 * random.Unit() - 1));
    }
    writer.AddTensor(
        name, rows == 1 ? std::vector<uint64_t>{columns} : std::vector<uint64_t>{columns, rows},
        data);
  };
  const uint64_t head_dim = shape.hidden / shape.heads;
  add("token_embd.weight", shape.vocab, shape.hidden, 0);
  add("output_norm.weight", 1, shape.hidden, 1);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    add(blk + "attn_norm.weight", 1, shape.hidden, 1);
    add(blk + "attn_q.weight", shape.hidden, shape.hidden, 0);
    add(blk + "attn_k.weight", shape.kv_heads * head_dim, shape.hidden, 0);
    add(blk + "attn_v.weight", shape.kv_heads * head_dim, shape.hidden, 0);
    add(blk + "attn_output.weight", shape.hidden, shape.hidden, 0);
    add(blk + "ffn_norm.weight", 1, shape.hidden, 1);
    add(blk + "ffn_gate.weight", shape.ffn, shape.hidden, 0);
    add(blk + "ffn_up.weight", shape.ffn, shape.hidden, 0);
    add(blk + "ffn_down.weight", shape.hidden, shape.ffn, 0);
  }
  return writer;
}

}  // namespace baton::test
