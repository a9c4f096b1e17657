#[path = "../../disks.rs"]
mod disks;

use std::error::Error;

use bellwire::{Client, HandlerError, Message, RunDir, Server, Service};

#[derive(Message)]
struct Disk {
    reads: u64,
    writes: u64,
}

#[derive(Service)]
#[service(name = "disk-stats", request = String, response = Disk, idempotent)]
struct DiskStats;

fn main() -> Result<(), Box<dyn Error>> {
    let run_dir = RunDir::from_environment();
    if let Some(name) = std::env::args().nth(1) {
        let Disk { reads, writes } = Client::<DiskStats>::new(&run_dir).call(&name)?;
        println!("{name}: {reads} reads, {writes} writes");
        return Ok(());
    }
    let mut builder = Server::builder(&run_dir);
    builder.serve::<DiskStats>(|_, name| {
        let (reads, writes) =
            disks::find(&name).ok_or_else(|| HandlerError::new("no such disk"))?;
        Ok(Disk { reads, writes })
    })?;
    let _server = builder.start()?;
    loop {
        std::thread::park();
    }
}
