#include "csrc/plugin/files.h"

#include <set>
#include <utility>

#include "csrc/plugin/client.h"

namespace pathways::plugin {

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
          const Result<client::Shard>& shard = item.value->shard();
          if (!shard.ok()) {
            operation.done->Set(shard.status());
            return;
          }
          shards.push_back({*shard, std::move(item.boxes)});
        }
        const client::FileOperation started = client->session()->Save(std::move(save), shards);
        started.done->OnReady([operation, outcome = started.outcome](const Status& status) {
          *operation.outcome = *outcome;
          operation.done->Set(status);
        });
      });
  return operation;
}

Result<std::vector<std::shared_ptr<Value>>> AnnounceValues(std::span<const std::shared_ptr<Value>> like) {
  if (like.empty()) return InvalidArgument("expected at least one value to load another like it, got none");
  std::vector<uint32_t> devices;
  for (const std::shared_ptr<Value>& value : like) {
    if (value->type() != like[0]->type()) return InvalidArgument("expected values of one type, got several");
    devices.push_back(value->device()->cluster_device);
  }
  const std::shared_ptr<ClientState>& client = like[0]->client();
  PW_ASSIGN_OR_RETURN(std::shared_ptr<client::LogicalBuffer> buffer,
                      client->session()->Announce(devices, like[0]->type()));
  std::vector<std::shared_ptr<Value>> values;
  for (uint32_t i = 0; i < like.size(); ++i) {
    values.push_back(std::make_shared<Value>(client, like[i]->device(), client::Shard{buffer, i}));
  }
  return values;
}

Result<wire::LoadedShard> LoadOf(const Value& value, std::vector<wire::FileBox> boxes) {
  const Result<client::Shard>& shard = value.shard();
  PW_RETURN_IF_ERROR(shard.status());
  const uint64_t id = shard->buffer->id();
  return wire::LoadedShard{id, id + shard->index, value.type(), std::move(boxes)};
}

}  // namespace pathways::plugin
