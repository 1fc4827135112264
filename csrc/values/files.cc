#include "csrc/values/files.h"

#include <set>
#include <string>
#include <utility>

#include "csrc/values/client.h"

namespace pathways::values {
namespace {

// A value of one shard may be any one of its buffer's.
Result<client::Shard> ShardOf(const Value& value, uint32_t shard) {
  if (shard >= value.devices().size()) {
    return InvalidArgument("expected one of the " + std::to_string(value.devices().size()) +
                           " shards of a value, got " + std::to_string(shard));
  }
  PW_ASSIGN_OR_RETURN(client::Shard first, value.shard());
  return client::Shard{std::move(first.buffer), first.index + shard};
}

}  // namespace

client::FileOperation SaveValues(wire::Save save, std::vector<SavedValue> values) {
  const std::shared_ptr<ClientState> client = values.at(0).value->client();
  std::set<uint32_t> ids;
  for (const SavedValue& item : values) ids.insert(static_cast<uint32_t>(item.value->device()->description.id));
  const std::vector<uint32_t> devices(ids.begin(), ids.end());
  client::FileOperation operation;
  client->sequencer().Submit(
      devices, [client = client.get(), operation, save = std::move(save), values = std::move(values)]() mutable {
        std::vector<client::SavedShard> shards;
        shards.reserve(values.size());
        for (SavedValue& item : values) {
          const Result<client::Shard> shard = ShardOf(*item.value, item.shard);
          if (!shard.ok()) {
            operation.done->Set(shard.status());
            return;
          }
          shards.push_back({*shard, std::move(item.boxes)});
        }
        const client::FileOperation started = client->session()->files().Save(std::move(save), shards);
        started.done->OnReady([operation, outcome = started.answer](const Status& status) {
          *operation.answer = *outcome;
          operation.done->Set(status);
        });
      });
  return operation;
}

Result<ValuePtr> AnnounceValue(const Value& like) {
  const std::shared_ptr<ClientState>& client = like.client();
  PW_ASSIGN_OR_RETURN(std::shared_ptr<client::LogicalBuffer> buffer,
                      client->session()->buffers().Announce(like.devices(), like.shard_type()));
  auto value = std::make_shared<Value>(client, like.device(), like.array_type(), like.tiling(), like.device_list());
  value->Resolve(client::Shard{std::move(buffer), 0});
  return value;
}

Result<wire::LoadedShard> LoadOf(const Value& value, uint32_t shard, std::vector<wire::FileBox> boxes) {
  PW_ASSIGN_OR_RETURN(const client::Shard announced, ShardOf(value, shard));
  const uint64_t id = announced.buffer->id();
  return wire::LoadedShard{id, id + announced.index, value.shard_type(), std::move(boxes)};
}

}  // namespace pathways::values
