//! A provider and its client, on Linux and on Windows. Each in a terminal of its own:
//!
//! ```text
//! cargo run --example shout -- provide
//! cargo run --example shout -- call "a few words"
//! ```
//!
//! Without a word it does both in one process.

use std::error::Error;

use bellwire::{Client, HandlerError, RunDir, Server, Service};

/// Answers in capital letters.
struct Shout;

impl Service for Shout {
    const NAME: &'static str = "shout";
    type Request = String;
    type Response = String;
}

fn provide(run_dir: &RunDir) -> Result<Server, Box<dyn Error>> {
    let mut builder = Server::builder(run_dir);
    builder.serve::<Shout>(|caller, words| {
        println!("{} asks from process {:?}", caller.user, caller.pid);
        let shouted = (!words.is_empty()).then(|| words.to_uppercase());
        shouted.ok_or_else(|| HandlerError::new("there is nothing to shout"))
    })?;
    Ok(builder.start()?)
}

fn call(run_dir: &RunDir, words: &str) -> Result<(), Box<dyn Error>> {
    let mut client = Client::<Shout>::new(run_dir);
    println!("{}", client.call(&words.to_owned())?);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["provide"] => {
            let server = provide(&RunDir::from_environment())?;
            println!("press Enter to stop");
            std::io::stdin().read_line(&mut String::new())?;
            println!("{:?}", server.stop());
        }
        ["call", words] => call(&RunDir::from_environment(), words)?,
        [] => {
            let dir = tempfile::tempdir()?;
            let run_dir = RunDir::new(dir.path());
            let server = provide(&run_dir)?;
            call(&run_dir, "hello")?;
            server.stop();
        }
        _ => return Err("say nothing, provide, or call and some words".into()),
    }
    Ok(())
}
