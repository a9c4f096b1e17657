//! What the server under attack serves.

use std::error::Error;
use std::io;
use std::thread;
use std::time::Duration;

use bellwire::netipc::{self, Answer, CallMethod, Status};
use bellwire::{Admission, HandlerError, Payload, RunDir, Server, ServerConfig, Service, User};
use bellwire_cgroups::{CgroupsSnapshot, Meta, Mode, encode, synthetic};

/// The length of the longest response of [`Blob`] and [`Attached`]: 1 MiB.
pub(crate) const MAX_RESPONSE: u64 = 1 << 20;
/// How long a handler takes on a server with workers.
const HANDLER_TIME: Duration = Duration::from_millis(1);
/// How often the snapshot is republished.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

/// Echoes its request.
#[derive(Debug, Service)]
#[service(name = "echo", request = Vec<u8>, response = Vec<u8>, idempotent)]
pub(crate) struct Echo;

/// Responds with the requested number of bytes, up to [`MAX_RESPONSE`].
#[derive(Debug)]
pub(crate) struct Blob;

/// The same, but the response is an attachment: a memfd of its own.
#[derive(Debug, Service)]
#[service(name = "attached", request = u64, response = Payload)]
pub(crate) struct Attached;

impl Service for Blob {
    const NAME: &'static str = "blob";
    type Request = u64;
    type Response = Vec<u8>;

    fn netipc() -> Option<CallMethod> {
        Some(CallMethod {
            respond: |exchange, into| {
                let [Answer::Ok(bytes)] = exchange.answers else { return Err(Status::Internal) };
                into.extend_from_slice(bytes);
                Ok(())
            },
            ..netipc::INCREMENT
        })
    }
}

/// Serves with the default configuration, except that there are `workers`, that the user `attacker_uid` is admitted and that
/// clients of netipc are served.
/// Publishes snapshots of 1 000 cgroups until the standard input ends. Begins with the first line there.
pub(crate) fn serve(
    run_dir: &RunDir,
    workers: usize,
    attacker_uid: u32,
) -> Result<(), Box<dyn Error>> {
    if io::stdin().read_line(&mut String::new())? == 0 {
        return Ok(());
    }
    let config = ServerConfig::default()
        .workers(workers)
        .netipc(true)
        .admission(Admission::Users(vec![User::from(attacker_uid)]));
    let simulate_work = move || {
        if workers > 0 {
            thread::sleep(HANDLER_TIME);
        }
    };
    let mut builder = Server::builder_with_config(run_dir, config);
    builder.serve::<Echo>(move |_, bytes| {
        simulate_work();
        Ok(bytes)
    })?;
    builder.serve::<Blob>(move |_, len| {
        simulate_work();
        Ok(vec![7; length(len)])
    })?;
    builder.serve::<Attached>(move |_, len| {
        simulate_work();
        Payload::build_from(1, length(len), |bytes| bytes.fill(7))
            .map_err(|shortage| HandlerError::new(shortage.to_string()))
    })?;
    let publisher = builder.publish::<CgroupsSnapshot>()?;
    let server = builder.start()?;
    // Building them anew each time takes 0.5 % of a processor, and calls that wait for that would decide the p99.
    let encoded = |seed| encode(&synthetic::entries(1_000, seed), Meta::now(Mode::V2));
    let snapshots = [encoded(0)?, encoded(1)?];
    publisher.publish(&snapshots[0])?;
    println!("ready");
    bellwire_process::at_end_of_input(|| std::process::exit(0));
    for snapshot in snapshots.iter().cycle().skip(1) {
        thread::sleep(PUBLISH_INTERVAL);
        publisher.publish(snapshot)?;
    }
    server.stop();
    Ok(())
}

fn length(len: u64) -> usize {
    usize::try_from(len.min(MAX_RESPONSE)).unwrap_or_default()
}
