//! A program that only calls.

#[path = "../client.rs"]
mod client;
#[path = "../nap.rs"]
mod nap;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    client::run()
}
