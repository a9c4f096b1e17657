//! What a client does: for each line of its input, a number, that many calls; then it prints `done`.

use std::io::{BufRead, Write};
use std::time::Duration;

use bellwire::{Client, ClientConfig, RunDir, SpinPolicy};

use crate::nap::Nap;

pub(crate) fn run() -> Result<(), Box<dyn std::error::Error>> {
    let config = ClientConfig::default().spin(SpinPolicy::NEVER);
    let mut client = Client::<Nap>::with_config(&RunDir::from_environment(), config);
    client.call_within(&0, Duration::from_secs(30))?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        for _ in 0..line?.parse::<u64>()? {
            client.call(&1000)?;
        }
        println!("done");
        std::io::stdout().flush()?;
    }
    Ok(())
}
