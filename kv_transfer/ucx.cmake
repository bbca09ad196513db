# UCX is optional: without it everything else still builds, and no kv_ucx target exists.
find_package(ucx QUIET)
if(ucx_FOUND)
  baton_library(kv_ucx
    SOURCES ucx_endpoint.cc ucx_lanes.cc ucx_status.cc ucx_worker.cc
    DEPS base kv_api
    VENDOR ucx::ucp ucx::ucs)
endif()
