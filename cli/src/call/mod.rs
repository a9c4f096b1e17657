//! `bellwire call`: calls any service once.

pub(crate) mod args;
pub(crate) mod proto;

use std::io::{Read, Write};

use bellwire::{Client, Contract, Dynamic, Payload, RunDir, schema};
use serde_json::json;

use crate::config;
use crate::exit::{Exit, Failure};
use crate::out::{self, Format};
use args::{Call, HexDigits};
use proto::Method;

pub(crate) fn run(run_dir: &RunDir, args: &Call) -> Result<Exit, Failure> {
    let method = args.proto.as_deref().map(|file| Method::find(file, args)).transpose()?;
    let request = request(args, method.as_ref())?;
    let described = args.schema.clone().or_else(|| method.as_ref().map(Method::schema));
    let contract = Contract::new(args.service)
        .version(args.service_version)
        .schema(described.map_or(0, |description| schema(&description)));
    let config = config::client().timeout(args.timeout);
    let answer = Client::<Dynamic>::with_contract(run_dir, contract, config).call(&request)?;
    let mut stdout = out::stdout();
    match &method {
        Some(method) => writeln!(stdout, "{}", method.answer(&answer)?)?,
        None if args.raw => stdout.write_all(&answer)?,
        None if args.output == Format::Json => {
            let (text, hex) = (out::printable(&answer), out::hex(&answer));
            writeln!(stdout, "{}", json!({ "bytes": answer.len(), "text": text, "hex": hex }))?;
        }
        None => match out::printable(&answer).filter(|_| args.hex.is_none()) {
            Some(text) => writeln!(stdout, "{text}")?,
            None => writeln!(stdout, "{}", out::hex(&answer))?,
        },
    }
    stdout.flush()?;
    Ok(Exit::Ok)
}

/// Returns the bytes to send.
fn request(args: &Call, method: Option<&Method>) -> Result<Payload, Failure> {
    let bytes = match (&args.hex, &args.text, &args.json) {
        (Some(HexDigits(bytes)), ..) => bytes.clone(),
        (_, Some(text), _) => text.clone().into_bytes(),
        (_, _, Some(json)) => match method {
            Some(method) => method.request(json)?,
            None => json.clone().into_bytes(),
        },
        _ if args.stdin => {
            let mut bytes = Vec::new();
            let read = std::io::stdin().read_to_end(&mut bytes);
            read.map_err(|error| Failure::of(Exit::Failed, "cannot read the request", &error))?;
            bytes
        }
        _ => Vec::new(),
    };
    Ok(bytes.into())
}
