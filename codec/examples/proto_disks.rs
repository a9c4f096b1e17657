//! Provides `disk-proto`, whose messages are Protocol Buffers, to the clients in `examples/languages`.

use std::error::Error;

use bellwire::{HandlerError, RunDir, Server};
use bellwire_codec::{Proto, proto_schema};

/// As prost-build makes it of `disk.proto`, and of an older one, without `writes`.
#[derive(Clone, PartialEq, prost::Message)]
struct Ask {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Disk {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    reads: u64,
}

impl prost::Name for Ask {
    const NAME: &'static str = "Ask";
    const PACKAGE: &'static str = "disks.v1";
}

impl prost::Name for Disk {
    const NAME: &'static str = "Disk";
    const PACKAGE: &'static str = "disks.v1";
}

#[derive(bellwire::Service)]
#[service(name = "disk-proto", request = Proto<Ask>, response = Proto<Disk>, schema = proto_schema::<Ask, Disk>(), idempotent)]
struct DiskByName;

fn main() -> Result<(), Box<dyn Error>> {
    let mut builder = Server::builder(&RunDir::from_environment());
    builder.serve::<DiskByName>(|_, Proto(Ask { name })| match name.as_str() {
        "" => Err(HandlerError::with_code(1, "a disk has a name")),
        _ => Ok(Proto(Disk { reads: 1 << 40, name })),
    })?;
    let _server = builder.start()?;
    loop {
        std::thread::park();
    }
}
