//! The sizes of the header's structs on 64 bits, which `tests/c/layout.c` asserts in C and C++.

use std::mem::{offset_of, size_of};

use crate::extensible::Extensible;
use crate::{
    bw_app, bw_bytes, bw_cgroup, bw_cgroup_details, bw_client_config, bw_client_stats, bw_contract,
    bw_delivery, bw_error, bw_reply, bw_server_config, bw_server_stats, bw_snapshot, bw_text,
};

const _: () = {
    assert!(size_of::<bw_bytes>() == 16 && size_of::<bw_text>() == 16);
    assert!(size_of::<bw_error>() == 512 && offset_of!(bw_error, message) == 20);
    assert!(size_of::<bw_contract>() == 32 && offset_of!(bw_contract, schema) == 24);
    assert!(size_of::<bw_client_config>() == 72 && offset_of!(bw_client_config, token) == 48);
    assert!(size_of::<bw_server_config>() == 88 && offset_of!(bw_server_config, admit) == 48);
    // Older programs pass no more: these never change.
    assert!(bw_error::FIRST == 512 && bw_contract::FIRST == 32);
    assert!(bw_client_config::FIRST == 72 && bw_server_config::FIRST == 88);
    assert!(bw_client_stats::FIRST == 88 && bw_server_stats::FIRST == 88);
    assert!(size_of::<bw_reply>() == 32);
    assert!(size_of::<bw_client_stats>() == 88 && size_of::<bw_server_stats>() == 120);
    assert!(size_of::<bw_snapshot>() == 32 && size_of::<bw_delivery>() == 32);
    assert!(size_of::<bw_app>() == 88 && offset_of!(bw_app, started_ns) == 16);
    assert!(size_of::<bw_cgroup_details>() == 48 && offset_of!(bw_cgroup_details, labels) == 40);
    assert!(offset_of!(bw_app, cgroup_name) == 56 && offset_of!(bw_app, pending) == 80);
    assert!(size_of::<bw_cgroup>() == 56 && offset_of!(bw_cgroup, enabled) == 53);
    assert!(offset_of!(bw_cgroup, labels) == 54);
};
