#include "csrc/controller/resource_manager.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "csrc/store/memory_account.h"

namespace pathways::controller {
namespace {

// Islands and groups of hosts listed in a message before it says how many more there are.
constexpr size_t kListed = 8;

std::string Counted(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string Json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + '"';
}

// Divides `count` evenly over hosts with these capacities: as level as the capacities allow.
std::vector<size_t> Divide(size_t count, const std::vector<size_t>& capacities) {
  std::vector<size_t> shares(capacities.size(), 0);
  while (count > 0) {
    size_t least = capacities.size();
    for (size_t i = 0; i < capacities.size(); ++i) {
      if (shares[i] < capacities[i] && (least == capacities.size() || shares[i] < shares[least])) least = i;
    }
    if (least == capacities.size()) return {};
    ++shares[least];
    --count;
  }
  return shares;
}

}  // namespace

void ResourceManager::AddHost(const wire::HostDescription& description) {
  Host host;
  host.name = description.name;
  host.island = description.island;
  host.platform = description.platform;
  host.first_device = description.first_device;
  for (const wire::DeviceDescription& device : description.devices) host.memory.push_back(device.memory_limit_bytes);
  host.load.resize(host.memory.size());
  host_of_first_[host.first_device] = description.host;
  hosts_[description.host] = std::move(host);
}

void ResourceManager::RemoveHost(uint32_t host) {
  if (auto it = hosts_.find(host); it != hosts_.end()) it->second.alive = false;
}

std::map<ResourceManager::IslandKey, ResourceManager::Eligible> ResourceManager::FindEligible(
    const wire::RequestSlice& request) const {
  std::map<IslandKey, Eligible> found;
  for (const auto& [index, host] : hosts_) {
    if (!host.alive || (!request.island.empty() && host.island != request.island) ||
        (!request.platform.empty() && host.platform != request.platform) ||
        (!request.among.empty() &&
         std::find(request.among.begin(), request.among.end(), index) == request.among.end())) {
      continue;
    }
    std::vector<uint32_t> devices;
    for (uint32_t d = 0; d < host.memory.size(); ++d) {
      if (host.memory[d] == 0 || host.memory[d] >= request.min_memory_bytes) devices.push_back(d);
    }
    if (!devices.empty()) found[{host.island, host.platform}].emplace_back(index, std::move(devices));
  }
  return found;
}

std::map<ResourceManager::IslandKey, ResourceManager::Eligible> ResourceManager::JoinCpuIslands(
    const std::map<IslandKey, Eligible>& eligible) {
  std::string name;
  Eligible joined;
  for (const auto& [key, hosts] : eligible) {
    if (key.second != "cpu") continue;
    name += (name.empty() ? "" : "+") + key.first;
    joined.insert(joined.end(), hosts.begin(), hosts.end());
  }
  std::sort(joined.begin(), joined.end());
  if (joined.empty()) return {};
  return {{{name, "cpu"}, joined}};
}

ResourceManager::Window ResourceManager::BestWindow(uint32_t index, const std::vector<uint32_t>& candidates,
                                                    size_t count) const {
  const Host& host = hosts_.at(index);
  Window best;
  for (size_t start = 0; start + count <= candidates.size(); ++start) {
    Window window;
    for (size_t i = start; i < start + count; ++i) {
      const uint32_t load = host.load[candidates[i]];
      window.load += load;
      window.busiest = std::max(window.busiest, load);
    }
    if (!best.devices.empty() && std::tie(best.load, best.busiest) <= std::tie(window.load, window.busiest)) continue;
    for (size_t i = start; i < start + count; ++i) window.devices.push_back(host.first_device + candidates[i]);
    best = std::move(window);
  }
  return best;
}

bool ResourceManager::Offer::operator<(const Offer& other) const {
  return std::tie(hosts, load, busiest, devices) < std::tie(other.hosts, other.load, other.busiest, other.devices);
}

bool ResourceManager::MakeOffer(const Eligible& eligible, const wire::RequestSlice& request, Offer* offer) const {
  const size_t count = request.device_count;
  size_t host_count = request.hosts;
  if (host_count == 0) {
    std::vector<size_t> capacities;
    for (const auto& [host, devices] : eligible) capacities.push_back(devices.size());
    std::sort(capacities.rbegin(), capacities.rend());
    size_t total = 0;
    while (host_count < capacities.size() && total < count) total += capacities[host_count++];
    if (total < count) return false;
  }
  if (host_count > eligible.size()) return false;
  // Least loaded hosts first among those that can carry an even share; the largest when there are too few of those.
  const size_t share = (count + host_count - 1) / host_count;
  struct Choice {
    Window window;
    const std::pair<uint32_t, std::vector<uint32_t>>* host;
  };
  std::vector<Choice> choices;
  for (const auto& host : eligible) {
    if (host.second.size() >= share) choices.push_back({BestWindow(host.first, host.second, share), &host});
  }
  if (choices.size() >= host_count) {
    std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
      return std::tie(a.window.load, a.window.busiest) < std::tie(b.window.load, b.window.busiest);
    });
  } else {
    if (request.hosts != 0) return false;
    choices.clear();
    for (const auto& host : eligible) choices.push_back({{}, &host});
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.host->second.size() > b.host->second.size(); });
  }
  choices.resize(host_count);
  std::sort(choices.begin(), choices.end(),
            [](const Choice& a, const Choice& b) { return a.host->first < b.host->first; });
  std::vector<size_t> capacities;
  for (const Choice& choice : choices) capacities.push_back(choice.host->second.size());
  const std::vector<size_t> shares = Divide(count, capacities);
  if (shares.empty()) return false;
  offer->hosts = host_count;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Window window = BestWindow(choices[i].host->first, choices[i].host->second, shares[i]);
    offer->load += window.load;
    offer->busiest = std::max(offer->busiest, window.busiest);
    offer->devices.insert(offer->devices.end(), window.devices.begin(), window.devices.end());
  }
  return true;
}

ResourceManager::Offer ResourceManager::BestOffer(const std::map<IslandKey, Eligible>& eligible,
                                                  const wire::RequestSlice& request) const {
  Offer best;
  for (const auto& [key, candidates] : eligible) {
    Offer offer;
    if (!MakeOffer(candidates, request, &offer)) continue;
    offer.island = key.first;
    if (best.devices.empty() || offer < best) best = std::move(offer);
  }
  return best;
}

Result<ResourceManager::Slice> ResourceManager::Request(uint32_t client, const wire::RequestSlice& request) {
  if (request.device_count == 0) return InvalidArgument("expected a slice of at least one device, got 0");
  if (request.min_memory_bytes < 0) {
    return InvalidArgument("expected min_memory of at least 0 bytes, got " + std::to_string(request.min_memory_bytes));
  }
  if (request.hosts != 0 && request.device_count % request.hosts != 0) {
    return InvalidArgument("expected a number of devices that divides evenly over " + Counted(request.hosts, "host") +
                           ", got " + std::to_string(request.device_count));
  }
  const std::map<IslandKey, Eligible> eligible = FindEligible(request);
  Offer best = BestOffer(eligible, request);
  if (best.devices.empty() && !request.among.empty()) best = BestOffer(JoinCpuIslands(eligible), request);
  if (best.devices.empty()) return Explain(request, eligible);
  Slice slice;
  slice.island = std::move(best.island);
  slice.id = (uint64_t{client} << wire::kClientShift) | next_slice_++;
  slice.client = client;
  slice.devices = std::move(best.devices);
  ChangeLoad(slice, 1);
  slices_[slice.id] = slice;
  return slice;
}

Status ResourceManager::Explain(const wire::RequestSlice& request,
                                const std::map<IslandKey, Eligible>& eligible) const {
  std::string asked = "a slice of " + Counted(request.device_count, "device");
  if (request.hosts != 0) asked += " evenly over " + Counted(request.hosts, "host");
  if (!request.among.empty()) {
    asked += " among the hosts";
    for (const uint32_t host : request.among) {
      const auto it = hosts_.find(host);
      asked += " " + (it == hosts_.end() ? std::to_string(host) : it->second.name);
    }
  }
  if (!request.island.empty()) asked += " in island " + Quoted(request.island);
  if (!request.platform.empty()) asked += " on platform " + Quoted(request.platform);
  if (request.min_memory_bytes > 0) {
    asked += " with at least " + store::FormatBytes(request.min_memory_bytes) + " of memory each";
  }
  size_t largest = 0;
  for (const auto& [key, candidates] : eligible) {
    size_t total = 0;
    for (const auto& [host, devices] : candidates) total += devices.size();
    largest = std::max(largest, total);
  }
  std::string why;
  if (eligible.empty()) {
    why = "no island has such a device";
  } else if (largest < request.device_count) {
    why = "a slice lies in one island, and the largest that qualifies has " + Counted(largest, "such device");
  } else {
    why = "no island has enough hosts with that many such devices";
  }
  return ResourceExhausted("expected " + asked + ", but " + why + ". There is: " + Describe());
}

void ResourceManager::Release(std::span<const uint64_t> ids) {
  for (const uint64_t id : ids) {
    auto node = slices_.extract(id);
    if (!node.empty()) ChangeLoad(node.mapped(), -1);
  }
}

void ResourceManager::DropClient(uint32_t client) {
  std::vector<uint64_t> gone;
  for (const auto& [id, slice] : slices_) {
    if (slice.client == client) gone.push_back(id);
  }
  Release(gone);
  client_names_.erase(client);
}

void ResourceManager::ChangeLoad(const Slice& slice, int by) {
  for (const uint32_t device : slice.devices) {
    Host* host = HostOfDevice(device);
    host->load[device - host->first_device] += static_cast<uint32_t>(by);
  }
  std::map<uint32_t, uint32_t>& holders = island_slices_[slice.island];
  if ((holders[slice.client] += static_cast<uint32_t>(by)) == 0) holders.erase(slice.client);
  if (holders.empty()) island_slices_.erase(slice.island);
}

ResourceManager::Host* ResourceManager::HostOfDevice(uint32_t device) {
  return &hosts_.at(std::prev(host_of_first_.upper_bound(device))->second);
}

uint32_t ResourceManager::load(uint32_t device) const {
  auto after = host_of_first_.upper_bound(device);
  if (after == host_of_first_.begin()) return 0;
  const Host& host = hosts_.at(std::prev(after)->second);
  const uint32_t local = device - host.first_device;
  return local < host.load.size() ? host.load[local] : 0;
}

std::string ResourceManager::Describe() const {
  // island -> (devices, platform, least memory of a host's devices) -> hosts
  std::map<std::string, std::map<std::tuple<size_t, std::string, int64_t>, size_t>> islands;
  for (const auto& [index, host] : hosts_) {
    if (!host.alive) continue;
    const int64_t least = host.memory.empty() ? 0 : *std::min_element(host.memory.begin(), host.memory.end());
    ++islands[host.island][{host.memory.size(), host.platform, least}];
  }
  if (islands.empty()) return "no host at all";
  std::string text;
  size_t listed = 0;
  for (const auto& [name, groups] : islands) {
    if (listed++ == kListed) return text + "; and " + Counted(islands.size() - kListed, "more island");
    text += std::string(text.empty() ? "" : "; ") + "island " + Quoted(name) + ": ";
    size_t group = 0;
    for (const auto& [kind, hosts] : groups) {
      const auto& [devices, platform, memory] = kind;
      if (group++ == kListed) {
        text += " and others";
        break;
      }
      text += std::string(group > 1 ? " + " : "") + Counted(hosts, "host") + " x " +
              Counted(devices, platform.empty() ? "device" : platform + " device") +
              (memory > 0 ? ", " + store::FormatBytes(memory) + " each" : ", memory not limited");
    }
    text += ", " + DescribeHolders(name);
  }
  return text;
}

std::string ResourceManager::DescribeHolders(const std::string& island) const {
  const auto bound = island_slices_.find(island);
  uint32_t total = 0;
  std::string who;
  size_t listed = 0;
  for (const auto& [client, count] : bound == island_slices_.end() ? Holders() : bound->second) {
    total += count;
    if (listed++ >= kListed) continue;
    const auto name = client_names_.find(client);
    who += (who.empty() ? "" : ", ") + std::to_string(count) + " by " +
           (name != client_names_.end() ? name->second : "client " + std::to_string(client));
  }
  if (listed > kListed) who += ", and others";
  size_t devices = 0, free = 0;
  for (const auto& [index, host] : hosts_) {
    if (!host.alive || host.island != island) continue;
    devices += host.load.size();
    free += static_cast<size_t>(std::count(host.load.begin(), host.load.end(), 0u));
  }
  return Counted(total, "slice") + " bound" + (who.empty() ? "" : " (" + who + ")") + ", " + std::to_string(free) +
         " of " + Counted(devices, "device") + " in no slice";
}

std::string ResourceManager::SlicesJson() const {
  std::string out = "[";
  for (const auto& [id, slice] : slices_) {
    out += std::string(out.size() > 1 ? ", " : "") + "{\"slice\": " + std::to_string(id) +
           ", \"client\": " + std::to_string(slice.client) + ", \"island\": " + Json(slice.island) + ", \"devices\": [";
    for (size_t i = 0; i < slice.devices.size(); ++i) out += (i ? ", " : "") + std::to_string(slice.devices[i]);
    out += "]}";
  }
  return out + "]";
}

std::string ResourceManager::LoadJson(uint32_t index) const {
  std::string out = "[";
  auto host = hosts_.find(index);
  if (host != hosts_.end()) {
    for (const uint32_t load : host->second.load) out += (out.size() > 1 ? ", " : "") + std::to_string(load);
  }
  return out + "]";
}

}  // namespace pathways::controller
