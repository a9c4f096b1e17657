#[path = "../../disks.rs"]
mod disks;

use std::os::unix::net::{UnixListener, UnixStream};

use zbus::blocking::connection::Builder;
use zbus::{Guid, fdo, interface, proxy};

struct Provider;

#[interface(name = "org.example.Disks")]
impl Provider {
    fn disk(&self, name: &str) -> fdo::Result<(u64, u64)> {
        disks::find(name).ok_or_else(|| fdo::Error::Failed("no such disk".into()))
    }
}

#[proxy(interface = "org.example.Disks", default_path = "/disks", gen_async = false)]
trait Disks {
    fn disk(&self, name: &str) -> zbus::Result<(u64, u64)>;
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = format!("{}/disks.zbus", std::env::var("BELLWIRE_RUN_DIR")?);
    if let Some(name) = std::env::args().nth(1) {
        let stream = UnixStream::connect(path)?;
        let connection = Builder::async_io_unix_stream(stream).p2p().build()?;
        let disks = DisksProxy::builder(&connection).destination("org.example.Disks")?.build()?;
        let (reads, writes) = disks.disk(&name)?;
        println!("{name}: {reads} reads, {writes} writes");
        return Ok(());
    }
    let guid = Guid::generate();
    let mut connections = Vec::new();
    for stream in UnixListener::bind(path)?.incoming() {
        let builder = Builder::async_io_unix_stream(stream?).server(guid.clone())?.p2p();
        connections.push(builder.serve_at("/disks", Provider)?.build()?);
    }
    Ok(())
}
