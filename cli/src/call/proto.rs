//! Requests and answers of Protocol Buffers, by a `.proto` that is read at run time.

use std::path::Path;

use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use super::args::Call;
use crate::exit::{Exit, Failure, chain};

/// The messages of one method.
pub(super) struct Method {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

impl Method {
    /// Finds the messages in a file: those named, or those of its only method.
    pub(super) fn find(file: &Path, args: &Call) -> Result<Self, Failure> {
        let pool = read(file)?;
        let methods: Vec<_> =
            pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
        let only = || match methods.as_slice() {
            [only] => Some((only.input(), only.output())),
            _ => None,
        };
        let named =
            |name: &Option<String>| name.as_ref().map(|name| find(&pool, file, name)).transpose();
        let (request, response) = (named(&args.request)?, named(&args.response)?);
        let unnamed = || {
            let what =
                format!("{} has {} methods: name the messages", file.display(), methods.len());
            Failure::new(Exit::Failed, what).next("add --request MESSAGE and --response MESSAGE")
        };
        match (request, response) {
            (Some(request), Some(response)) => Ok(Self { request, response }),
            (request, response) => {
                let (input, output) = only().ok_or_else(unnamed)?;
                Ok(Self { request: request.unwrap_or(input), response: response.unwrap_or(output) })
            }
        }
    }

    /// The description of which `bellwire_codec::proto_schema` makes the fingerprint.
    pub(super) fn schema(&self) -> String {
        format!("proto:{} -> proto:{}", self.request.full_name(), self.response.full_name())
    }

    /// Encodes the request.
    pub(super) fn request(&self, json: &str) -> Result<Vec<u8>, Failure> {
        let mut from = serde_json::Deserializer::from_str(json);
        let message = DynamicMessage::deserialize(self.request.clone(), &mut from);
        let ended = message.and_then(|message| from.end().map(|()| message));
        let wrong = |error| {
            let what = format!("--json is no {}: {error}", self.request.full_name());
            Failure::new(Exit::Failed, what)
        };
        ended.map(|message| message.encode_to_vec()).map_err(wrong)
    }

    /// Decodes the answer, as JSON.
    pub(super) fn answer(&self, answer: &[u8]) -> Result<String, Failure> {
        json(&self.response, answer, "answer")
    }
}

/// Finds a message in a file.
pub(crate) fn message(file: &Path, name: &str) -> Result<MessageDescriptor, Failure> {
    find(&read(file)?, file, name)
}

/// Decodes a message, as JSON.
pub(crate) fn json(
    message: &MessageDescriptor,
    bytes: &[u8],
    what: &str,
) -> Result<String, Failure> {
    let wrong = |error: &dyn std::error::Error| {
        let why = format!("the {what} is no {}: {}", message.full_name(), chain(error));
        Failure::new(Exit::Provider, why)
    };
    let decoded = DynamicMessage::decode(message.clone(), bytes).map_err(|error| wrong(&error))?;
    serde_json::to_string(&decoded).map_err(|error| wrong(&error))
}

fn read(file: &Path) -> Result<DescriptorPool, Failure> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let wrong = |error: &dyn std::error::Error| {
        Failure::new(Exit::Failed, format!("cannot read {}: {}", file.display(), chain(error)))
    };
    let set = protox::compile([file], [dir]).map_err(|error| wrong(&error))?;
    DescriptorPool::from_file_descriptor_set(set).map_err(|error| wrong(&error))
}

fn find(pool: &DescriptorPool, file: &Path, name: &str) -> Result<MessageDescriptor, Failure> {
    let is_it = |message: &MessageDescriptor| message.full_name() == name || message.name() == name;
    let missing = || {
        let known: Vec<String> =
            pool.all_messages().map(|message| message.full_name().to_owned()).collect();
        let what = format!("{} has no message {name:?}", file.display());
        Failure::new(Exit::Failed, what).next(format!("it has {}", known.join(", ")))
    };
    pool.all_messages().find(is_it).ok_or_else(missing)
}
