// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_devices.h"

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <vector>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "kv_transfer/ucx_status.h"

namespace baton::kv {
namespace {

std::vector<uct_md_resource_desc_t> Domains(uct_component_h component) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  if (domains.empty()) return domains;
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (uct_component_query(component, &attributes) != UCS_OK) return {};
  return domains;
}

void AddDomain(uct_component_h component, const uct_md_resource_desc_t& domain, UcxDevices* found) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
  uct_md_h md = nullptr;
  const ucs_status_t opened = uct_md_open(component, domain.md_name, config, &md);
  uct_config_release(config);
  if (opened != UCS_OK) return;
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(md, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i) {
      found->transports.insert(resources[i].tl_name);
      found->devices.insert(resources[i].dev_name);
      if (!absl::StartsWith(resources[i].tl_name, "rc_")) continue;
      found->rdma_transports.insert(resources[i].tl_name);
      found->rdma_devices.insert(resources[i].dev_name);
    }
    uct_release_tl_resource_list(resources);
  }
  uct_md_close(md);
}

}  // namespace

absl::StatusOr<UcxDevices> FindUcxDevices() {
  UcxDevices found;
  found.version = ucp_get_version_string();
  uct_component_h* components = nullptr;
  unsigned count = 0;
  RETURN_IF_ERROR(FromUcs(uct_query_components(&components, &count), "UCX components"));
  for (unsigned i = 0; i < count; ++i) {
    for (const uct_md_resource_desc_t& domain : Domains(components[i])) {
      AddDomain(components[i], domain, &found);
    }
  }
  uct_release_component_list(components);
  return found;
}

}  // namespace baton::kv
