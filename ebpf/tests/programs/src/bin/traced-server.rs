//! A program that only serves, until the end of its input.

#[path = "../nap.rs"]
mod nap;

use std::time::Duration;

use bellwire::{RunDir, Server, ServerConfig, SpinPolicy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = ServerConfig::default().spin(SpinPolicy::NEVER);
    let mut builder = Server::builder_with_config(&RunDir::from_environment(), config);
    builder.serve::<nap::Nap>(|_, micros| {
        std::thread::sleep(Duration::from_micros(micros));
        Ok(micros)
    })?;
    let _server = builder.start()?;
    println!("ready");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
