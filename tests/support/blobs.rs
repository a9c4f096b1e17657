//! A service of many bytes, and the two processes that use it.

use std::sync::Mutex;
use std::time::Duration;

use bellwire::{
    CallError, Client, ClientConfig, Doorbell, Geometry, HandlerError, LaneConfig, LaneStats,
    Limits, Payload, RunDir, ServerConfig, Service, Session, SessionStats,
};

use super::child::Parent;
use super::pattern;
use super::roles::format_stats;
use super::test_server::{client_config, provide_with, server_config};
use crate::support::guard::until;
use crate::support::services::services;

services! {
    /// Answers with as many bytes as the request says. The bytes of both identify them: see [`pattern`].
    pub(crate) Blobs("blobs"): Payload => Payload;
}

/// How a payload is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Private = 0,
    /// As the library chooses.
    Built = 1,
    /// In a memfd.
    Sealed = 2,
    /// In a memfd that the provider made before.
    Kept = 3,
}

impl Storage {
    fn parse(number: u64) -> Self {
        [Self::Private, Self::Built, Self::Sealed, Self::Kept][number as usize]
    }

    pub(crate) fn make(self, number: u64, len: usize) -> Result<Payload, HandlerError> {
        let fill = |into: &mut [u8]| pattern::fill(number, into);
        Ok(match self {
            Self::Private => pattern::message(number, len).into(),
            Self::Built => Payload::build(len, fill)?,
            Self::Sealed | Self::Kept => Payload::build_from(0, len, fill)?,
        })
    }
}

/// The number of a request for so many bytes.
pub(crate) fn number(answer: usize, how: Storage) -> u64 {
    answer as u64 | (how as u64) << 48
}

pub(crate) fn check_answer(answer: usize, how: Storage, bytes: &[u8]) -> Result<(), String> {
    pattern::check(number(answer, how), answer, bytes)
}

/// What the provider keeps.
#[derive(Default)]
pub(crate) struct BlobStore(Mutex<Option<(u64, Payload)>>);

impl BlobStore {
    pub(crate) fn answer(&self, request: &Payload) -> Result<Payload, HandlerError> {
        let number = u64::from_le_bytes(*request.first_chunk().ok_or("no number")?);
        pattern::check(number, request.len(), request)?;
        let (len, how) = (number & 0xffff_ffff_ffff, Storage::parse(number >> 48));
        let mut kept = self.0.lock().unwrap();
        if let (Storage::Kept, Some((of, payload))) = (how, &*kept)
            && *of == number
        {
            return Ok(payload.clone());
        }
        let payload = how.make(number, len as usize)?;
        if how == Storage::Kept {
            *kept = Some((number, payload.clone()));
        }
        Ok(payload)
    }
}

/// What lines like `lane=4096 shrink_ms=1` say.
#[derive(Clone, Default)]
pub(crate) struct Settings(pub(crate) Vec<(String, String)>);

impl Settings {
    pub(crate) fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let pair = |word: &'a str| word.split_once('=').unwrap_or_else(|| panic!("{word}"));
        Self(words.map(pair).map(|(key, value)| (key.into(), value.into())).collect())
    }

    fn number(&self, key: &str) -> Option<u64> {
        let found = self.0.iter().find(|(found, _)| found == key);
        found.map(|(_, value)| value.parse().unwrap())
    }

    fn lane(&self, key: &str, otherwise: Geometry) -> Geometry {
        self.number(key).map_or(otherwise, |size| Geometry::new(size).unwrap())
    }

    fn limits(&self) -> Limits {
        let limits = Limits::default();
        let shared = limits.max_shared_bytes_per_session;
        Limits {
            max_message: self.number("max_message").unwrap_or(limits.max_message),
            max_lane: self.lane("max_lane", limits.max_lane),
            max_shared_bytes_per_session: self.number("max_shared").unwrap_or(shared),
        }
    }

    /// A size of 0 means never.
    fn threshold(&self, key: &str, otherwise: Option<usize>) -> Option<usize> {
        match self.number(key) {
            None => otherwise,
            Some(0) => None,
            Some(size) => Some(size as usize),
        }
    }

    fn doorbell(&self, otherwise: Doorbell) -> Doorbell {
        let number = self.number("doorbell").map(|number| Doorbell::parse(number as u32).unwrap());
        number.unwrap_or(otherwise)
    }

    fn lane_config(&self, config: &LaneConfig, learned: Geometry) -> LaneConfig {
        let shrink = self.number("shrink_ms").map_or(config.shrink_after, Duration::from_millis);
        LaneConfig::default()
            .size(self.lane("lane", config.size))
            .max_learned(self.lane("learned", learned))
            .limits(self.limits())
            .attach_from(self.threshold("attach", config.attach_from))
            .stream_from(self.threshold("stream", config.stream_from))
            .shrink_after(shrink)
    }

    pub(crate) fn client(&self) -> ClientConfig {
        let config = client_config();
        let lane = self.lane_config(&config.lane, config.lane.max_learned);
        let doorbell = self.doorbell(config.doorbell);
        config.doorbell(doorbell).lane(lane)
    }

    pub(crate) fn server(&self) -> ServerConfig {
        let config = ServerConfig::default();
        let lane = self.lane_config(&config.lane, self.lane("lane", config.lane.size));
        let doorbell = self.doorbell(config.doorbell);
        let workers = self.number("workers").unwrap_or(0) as usize;
        config.doorbell(doorbell).workers(workers).lane(lane)
    }
}

/// Provides blobs. Unknown commands go to `apply`.
pub(crate) fn serve(mut parent: Parent, settings: &Settings, mut apply: impl FnMut(&[&str])) {
    let store = BlobStore::default();
    let server = provide_with::<Blobs>(
        &RunDir::from_environment(),
        server_config(settings.server()),
        move |_, request| store.answer(&request),
    );
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["stats"] => parent.send_line(&format_stats(&server.stats())),
            ["stop"] => return parent.send_line(&format_stats(&server.stop())),
            ref words => {
                apply(words);
                parent.send_line("done");
            }
        }
    }
}

/// Calls for blobs, on command. Unknown commands go to `apply`.
pub(crate) fn call(mut parent: Parent, mut apply: impl FnMut(&[&str])) {
    let run_dir = RunDir::from_environment();
    let mut client: Option<Client<Blobs>> = None;
    let mut kept = Vec::new();
    let mut ready = None;
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        let words: Vec<_> = line.split(' ').collect();
        let done = || "done".to_owned();
        let reply = match words[..] {
            ["open", ref settings @ ..] => {
                let config = Settings::parse(settings.iter().copied()).client();
                let opened = client.insert(Client::with_config(&run_dir, config));
                format_result(opened.connect().map(|_| ()))
            }
            ["close"] => {
                client = None;
                done()
            }
            ["drop"] => {
                kept.clear();
                done()
            }
            // Made before there is no memory left to make it.
            ["make", ref rest @ ..] => {
                ready = Some(make(rest));
                done()
            }
            [way @ ("call" | "submit" | "keep"), ref rest @ ..] => {
                if !rest.is_empty() {
                    ready = Some(make(rest));
                }
                let (request, answer, how) = ready.as_ref().unwrap();
                let session = client.as_mut().unwrap().session().unwrap();
                let answered =
                    if way == "call" { session.call(request) } else { submit(session, request) };
                format_result(answered.map(|bytes| {
                    check_answer(*answer, *how, &bytes).unwrap();
                    if way == "keep" {
                        kept.push(bytes);
                    }
                }))
            }
            // The answer comes after its call was abandoned.
            ["abandon", ref rest @ ..] => {
                let session = client.as_mut().unwrap().session().unwrap();
                let ticket = session.submit(&make(rest).0).unwrap();
                if session.abandon(ticket) { "abandoned".into() } else { "not in flight".into() }
            }
            ["trim"] => format_result(client.as_mut().unwrap().session().unwrap().trim()),
            ["stats"] => format_session(&client.as_mut().unwrap().session().unwrap().stats()),
            ref words => {
                apply(words);
                done()
            }
        };
        parent.send_line(&reply);
    }
}

/// A request from a command: its length, that of its answer, and how each of the two is made.
fn make(words: &[&str]) -> (Payload, usize, Storage) {
    let [len, answer, how, by]: [&str; 4] = words.try_into().expect("four numbers");
    let [len, answer] = [len, answer].map(|word| word.parse().unwrap());
    let [how, by] = [how, by].map(|word| Storage::parse(word.parse().unwrap()));
    (by.make(number(answer, how), len).unwrap(), answer, how)
}

/// Sends without waiting, then waits: the lane grows for it.
pub(crate) fn submit<S: Service>(
    session: &mut Session<S>,
    request: &S::Request,
) -> Result<S::Response, CallError> {
    let ticket = session.submit(request)?;
    let mut answer = None;
    until("the answer comes", || {
        answer = session.try_reply().transpose();
        answer.is_some()
    });
    let (answered, answer) = answer.unwrap()?;
    assert_eq!(answered, ticket);
    answer
}

fn format_result(result: Result<(), CallError>) -> String {
    match result {
        Ok(()) => "ok".into(),
        Err(error) => format!("{:?} {error:?}", error.executed()),
    }
}

fn format_session(stats: &SessionStats) -> String {
    let lane = |lane: &LaneStats| {
        let LaneStats { epoch, size, grows, shrinks, attaches, bytes, .. } = *lane;
        [u64::from(epoch), size, grows, shrinks, attaches, bytes]
    };
    let numbers = lane(&stats.requests).into_iter().chain(lane(&stats.answers));
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}
