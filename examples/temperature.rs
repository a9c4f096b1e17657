//! Events: a provider that tells every change, and a subscriber that gets each, or learns how many it missed.
//!
//! ```text
//! cargo run --example temperature -- measure
//! cargo run --example temperature -- follow
//! bellwire watch temperature
//! ```

use std::error::Error;
use std::thread;
use std::time::Duration;

use bellwire::{Delivery, Event, RunDir, Server, StartAt, Subscriber};

struct Temperature;

impl Event for Temperature {
    const NAME: &'static str = "temperature";
    type Message = String;
}

fn main() -> Result<(), Box<dyn Error>> {
    let run_dir = RunDir::from_environment();
    match std::env::args().nth(1).as_deref() {
        Some("measure") => measure(&run_dir),
        Some("follow") => follow(&run_dir),
        _ => Err("measure, or follow?".into()),
    }
}

/// Publishes ten measurements a second. It keeps the last 64 KiB of them for those that are slow.
fn measure(run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let mut builder = Server::builder(run_dir);
    let publisher = builder.events::<Temperature>(64 << 10)?;
    let _server = builder.start()?;
    for tick in 0_u32.. {
        let degrees = 20.0 + (f64::from(tick) / 40.0).sin();
        publisher.send(&format!("{degrees:.2} °C"))?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Follows them, over any restart of the provider.
fn follow(run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let mut subscriber = Subscriber::<Temperature>::new(run_dir, StartAt::Oldest);
    loop {
        match subscriber.next(None)? {
            Some(Delivery::Event { sequence, event }) => println!("{sequence}: {event}"),
            Some(Delivery::Missed { events }) => println!("too slow for {events} events"),
            Some(Delivery::Restarted) => println!("another provider"),
            None => {}
        }
    }
}
