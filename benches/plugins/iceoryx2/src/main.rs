#[path = "../../disks.rs"]
mod disks;

use core::time::Duration;

use iceoryx2::prelude::*;

#[derive(Clone, Copy, Debug, ZeroCopySend)]
#[repr(C)]
struct Name {
    len: u8,
    bytes: [u8; 63],
}

#[derive(Clone, Copy, Debug, ZeroCopySend)]
#[repr(C)]
struct Disk {
    found: bool,
    reads: u64,
    writes: u64,
}

const CYCLE: Duration = Duration::from_millis(1);

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let service = node
        .service_builder(&"disk-stats".try_into()?)
        .request_response::<Name, Disk>()
        .open_or_create()?;
    if let Some(name) = std::env::args().nth(1) {
        let mut asked = Name { len: name.len().min(63) as u8, bytes: [0; 63] };
        asked.bytes[..asked.len as usize].copy_from_slice(&name.as_bytes()[..asked.len as usize]);
        let client = service.client_builder().create()?;
        let pending = client.send_copy(asked)?;
        while node.wait(CYCLE).is_ok() {
            if let Some(disk) = pending.receive()? {
                if !disk.found {
                    return Err("no such disk".into());
                }
                println!("{name}: {} reads, {} writes", disk.reads, disk.writes);
                return Ok(());
            }
        }
        return Ok(());
    }
    let server = service.server_builder().create()?;
    while node.wait(CYCLE).is_ok() {
        while let Some(asked) = server.receive()? {
            let name = asked.bytes.get(..asked.len as usize).unwrap_or_default();
            let found = disks::find(core::str::from_utf8(name).unwrap_or_default());
            let (reads, writes) = found.unwrap_or_default();
            asked.send_copy(Disk { found: found.is_some(), reads, writes })?;
        }
    }
    Ok(())
}
