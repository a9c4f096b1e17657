//! A service of its own: which autonomous system announces an address, from a CSV.
//!
//! ```sh
//! cargo run --example ip_to_asn -- 192.0.2.7 2001:db8::1 10.0.0.1
//! cargo run --example ip_to_asn -- --csv my.csv 192.0.2.7
//! ```
//!
//! Provider and consumer are one program here, and need not be: both know the service, neither the other.
//! `docs/services.md` explains it line by line.

mod service;
mod table;

use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;

use bellwire::{Client, Lookup, RunDir, Server};

use service::IpToAsn;
use table::Table;

fn main() -> Result<(), Box<dyn Error>> {
    let (csv, addresses) = arguments()?;
    let table = Table::load(&csv)?;

    let dir = tempfile::tempdir()?;
    let run_dir = RunDir::new(dir.path());
    let mut builder = Server::builder(&run_dir);
    builder.serve::<IpToAsn>(move |_, address| Ok(table.find(address)))?;
    let server = builder.start()?;

    let mut client = Client::<IpToAsn>::new(&run_dir);
    let answers = client.connect()?.call_batch(&addresses)?;
    for (address, answer) in addresses.iter().zip(answers) {
        match answer? {
            Lookup::Known(asn) => println!("{address}: AS{} {}", asn.number, asn.name),
            other => println!("{address}: {}", other.as_str()),
        }
    }
    server.stop();
    Ok(())
}

fn arguments() -> Result<(PathBuf, Vec<IpAddr>), Box<dyn Error>> {
    let mut csv = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/ip_to_asn/sample.csv");
    let mut addresses = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--csv" {
            csv = arguments.next().ok_or("--csv needs a file")?.into();
        } else {
            let parsed = argument.parse();
            addresses.push(parsed.map_err(|_| format!("{argument} is no IP address"))?);
        }
    }
    if addresses.is_empty() {
        return Err("name at least one IP address, for instance 192.0.2.7".into());
    }
    Ok((csv, addresses))
}
