# What reactors say to each other; pure, built everywhere.
baton_library(kv_wire SOURCES flow_wire.cc ucx_wire.cc DEPS base kv_core)
# Connections: links and flows.
baton_library(kv_sockets
  SOURCES socket_address.cc socket_connection.cc socket_flow.cc socket_links.cc socket_poller.cc
  DEPS    base kv_core kv_wire)

# UCX is optional: without it everything else still builds, and no kv_ucx target exists.
find_package(ucx QUIET)
if(ucx_FOUND)
  baton_library(kv_ucx
    SOURCES message_probe.cc socket_path.cc ucx_copy.cc ucx_devices.cc ucx_endpoint.cc ucx_lanes.cc
            ucx_listener.cc ucx_memory_path.cc ucx_message_path.cc ucx_owner_paths.cc ucx_path.cc
            ucx_process.cc ucx_reactor.cc ucx_region.cc ucx_settings.cc ucx_status.cc
            ucx_transport.cc ucx_worker.cc ucx_writer_paths.cc
    DEPS base kv_api kv_core kv_wire kv_sockets
    VENDOR ucx::ucp ucx::ucs ucx::uct)
endif()
