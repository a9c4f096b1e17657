#[path = "../../disks.rs"]
mod disks;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

mod wire {
    tonic::include_proto!("disks");
}
use wire::disks_client::DisksClient;
use wire::disks_server::{Disks, DisksServer};
use wire::{Disk, Name};

struct Provider;

#[tonic::async_trait]
impl Disks for Provider {
    async fn find(&self, request: Request<Name>) -> Result<Response<Disk>, Status> {
        let found = disks::find(&request.into_inner().name);
        let (reads, writes) = found.ok_or_else(|| Status::not_found("no such disk"))?;
        Ok(Response::new(Disk { reads, writes }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = format!("{}/disks.tonic", std::env::var("BELLWIRE_RUN_DIR")?);
    if let Some(name) = std::env::args().nth(1) {
        let mut client = DisksClient::connect(format!("unix:{path}")).await?;
        let Disk { reads, writes } = client.find(Name { name: name.clone() }).await?.into_inner();
        println!("{name}: {reads} reads, {writes} writes");
        return Ok(());
    }
    let incoming = UnixListenerStream::new(UnixListener::bind(path)?);
    Server::builder().add_service(DisksServer::new(Provider)).serve_with_incoming(incoming).await?;
    Ok(())
}
